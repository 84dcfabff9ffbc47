"""Graded pairs: every source in, every unusable one refused with a sentence that says what to change."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import pytest

from trainables.angle.config import Config, prepare
from trainables.angle.grading import grading
from trainables.data import embedded_pairs
from trainables.data.config import PairData
from trainables.data.embedded_pairs import Function, closeness, graded
from trainables.data.pairs import pair_sets

ROWS = [
    {"sentence1": "A plane takes off.", "sentence2": "A plane is taking off.", "label": 5.0},
    {"sentence1": "A man plays.", "sentence2": '"Quoted", she said.', "label": 2.4},
    {"sentence1": "A cat sits.", "sentence2": "Stocks fell.", "label": 0},
]
STS = Path(__file__).resolve().parents[3] / "shared" / "data" / "sts"


def jsonl(path: Path, rows=ROWS) -> str:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return str(path)


def all_three(source: str, **more) -> PairData:
    return PairData(train=source, validation=source, test=source, **more)


def labels(part) -> list[float]:
    return [pair.label for pair in part.pairs]


@pytest.mark.parametrize("name", ["pairs.jsonl", "jsts-v1.3.json"])
def test_an_object_per_line_whatever_the_file_is_called(tmp_path, name) -> None:
    sets = pair_sets(all_three(jsonl(tmp_path / name)))
    assert list(sets) == ["train", "validation", "test"]
    assert labels(sets["test"]) == [5.0, 2.4, 0.0]
    assert sets["test"].pairs[1].second == '"Quoted", she said.'
    assert [pair.id for pair in sets["test"].pairs] == ["0", "1", "2"]


def test_one_array_and_tsv_with_other_columns(tmp_path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(ROWS))
    (tmp_path / "b.tsv").write_text(
        "score\tleft\tright\n" + "".join(f"{r['label']}\t{r['sentence1']}\t{r['sentence2']}\n" for r in ROWS)
    )
    array = pair_sets(all_three(str(tmp_path / "a.json")))["train"]
    mapped = {"sentence1": "left", "sentence2": "right", "label": "score"}
    table = pair_sets(all_three(str(tmp_path / "b.tsv"), **mapped))["train"]
    assert array.pairs == table.pairs
    assert array.identity == table.identity


def test_stsb_has_no_header_no_quoting_and_sometimes_a_licence(tmp_path) -> None:
    line = 'main-news\tMSRpar\t2012\t0001\t{}\t"Open quote\tA man.{}\n'
    (tmp_path / "sts-dev.csv").write_text(line.format("4.250", "") + line.format("0.0", "\tCC\thttp://x"))
    found = pair_sets(all_three(f"stsb:{tmp_path}/sts-dev.csv"))["validation"]
    assert labels(found) == [4.25, 0.0]
    assert {(pair.first, pair.second) for pair in found.pairs} == {('"Open quote', "A man.")}


def test_a_datasets_name_brings_its_own_splits(tmp_path) -> None:
    for split in ("train", "validation", "test"):
        jsonl(tmp_path / f"{split}.jsonl", ROWS[:2] if split == "test" else ROWS)
    sets = pair_sets(PairData(train=f"datasets:{tmp_path}"))
    assert [len(part.pairs) for part in sets.values()] == [3, 3, 2]
    file = f"datasets:json:{tmp_path}/test.jsonl"
    assert pair_sets(all_three(file))["train"].pairs == sets["test"].pairs


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"label": 5.2}, r"line 2: column 'label' is 5.2; accepted is a number from data.lowest=0 to data.highest=5"),
        ({"label": math.nan}, r"line 2: column 'label' is nan; accepted is a number"),
        ({"label": "good"}, r"column 'label' is 'good'; accepted is a number"),
        ({"label": True}, r"line 2: column 'label' is a word and .*line 1: column 'label' a number; labels are all"),
        ({"label": None}, r"line 2: column 'label' is None; accepted is a number"),
        ({"sentence1": 7}, r"column 'sentence1' is 7, not a text"),
    ],
)
def test_a_row_that_cannot_be_used_is_named(tmp_path, row, message) -> None:
    source = jsonl(tmp_path / "pairs.jsonl", [ROWS[0], ROWS[1] | row])
    with pytest.raises(ValueError, match=message):
        pair_sets(all_three(source))


def test_a_column_that_is_not_there_is_named(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"line 1: no column 'score' \(for data.label\); found are: sentence1, sent"):
        pair_sets(all_three(jsonl(tmp_path / "pairs.jsonl"), label="score"))


def test_pairs_without_a_sentence_are_left_out_and_counted(tmp_path) -> None:
    rows = [*ROWS, ROWS[0] | {"sentence1": " "}, ROWS[0] | {"sentence2": None}]
    found = pair_sets(all_three(jsonl(tmp_path / "pairs.jsonl", rows)))["train"]
    assert labels(found) == [5.0, 2.4, 0.0]
    assert found.notes == (f"{tmp_path}/pairs.jsonl: 2 pairs of 5 left out, without one of the sentences",)
    only = jsonl(tmp_path / "blank.jsonl", rows[3:])
    with pytest.raises(ValueError, match="no pairs; 2 rows without one of the sentences"):
        pair_sets(all_three(only))


def test_a_file_has_no_splits_of_its_own(tmp_path) -> None:
    file = jsonl(tmp_path / "pairs.jsonl")
    with pytest.raises(ValueError, match=r"data.validation is not given, and 'datasets:json:.*' has no such split"):
        pair_sets(PairData(train=f"datasets:json:{file}"))


def read_as(path: Path, labels, **data):
    """What is made of pairs with these labels: their labels, and the grading of the default terms."""
    rows = [{"sentence1": f"text {n}", "sentence2": f"other {n}", "label": label} for n, label in enumerate(labels)]
    config = Config(data=all_three(jsonl(path / "pairs.jsonl", rows), **data))
    sets = pair_sets(config.data)
    return [pair.label for pair in sets["train"].pairs], grading(sets, config.data, positive_label=None, in_batch=True)


@pytest.mark.parametrize(
    ("labels", "read", "lowest_to_highest", "alike"),
    [
        ([0, 1, 1], [0, 1, 1], "0 to 1", 0.8),  # paraphrases
        (["0", "0.4", "0.9"], [0, 0.4, 0.9], "0 to 1, of which the training pairs reach 0 to 0.9", 0.8),
        ([1.2, 4.9, 3], [1.2, 4.9, 3], "1 to 5, of which the training pairs reach 1.2 to 4.9", 4.2),  # SICK
        ([0.0, 3.8, 5.0], [0, 3.8, 5], "0 to 5", 4.0),  # JSTS
        (["CONTRADICTION", "NEUTRAL", "ENTAILMENT"], [0, 0.5, 1], "0 to 1", 0.8),
        (["no", "Yes ", "no"], [0, 1, 0], "0 to 1", 0.8),
        ([False, True, True], [0, 1, 1], "0 to 1", 0.8),
    ],
)
def test_labels_that_are_in_use_need_no_settings(tmp_path, labels, read, lowest_to_highest, alike) -> None:
    found, what = read_as(tmp_path, labels)
    assert found == read
    assert what.facts["data.labels"] == lowest_to_highest
    assert what.alike == pytest.approx(alike)


def test_stsb_goes_to_five_whatever_a_part_of_it_reaches(tmp_path) -> None:
    line = "main-news\tMSRpar\t2012\t0001\t{}\tOne.\tAnother.\n"
    (tmp_path / "part.csv").write_text(line.format(0.2) + line.format(1.0))
    config = Config(data=all_three(f"stsb:{tmp_path}/part.csv"), in_batch_weight=0)
    what = grading(pair_sets(config.data), config.data, positive_label=None, in_batch=False)
    assert what.facts["data.labels"] == "0 to 5, of which the training pairs reach 0.2 to 1"


def test_words_of_ones_own_are_ordered_by_the_configuration(tmp_path) -> None:
    found, _ = read_as(tmp_path, ["far", "near", "Same"], label_words=("far", "near", "same"))
    assert found == [0, 0.5, 1]
    with pytest.raises(ValueError, match=r"'label' is 'no'; accepted is a word of data.label_words=\['far', 'same'\]"):
        read_as(tmp_path, ["far", "no"], label_words=("far", "same"))
    with pytest.raises(ValueError, match=r"or a word such as yes and no \(data.label_words names others"):
        read_as(tmp_path, ["far", "no"])


def test_an_in_batch_term_that_has_nothing_to_work_on_is_refused(tmp_path) -> None:
    """Labels from 0 to 1 under a range that goes on to 5: the term would be 0 at every step."""
    with pytest.raises(ValueError, match=r"labels go from 0 to 1, so that no pair is alike, from 4 on, and the"):
        read_as(tmp_path, [0, 1, 1], lowest=0, highest=5)
    unasked = Config(data=all_three(jsonl(tmp_path / "pairs.jsonl", ROWS[1:]), lowest=0, highest=5), in_batch_weight=0)
    assert prepare(unasked).notes == (f"{tmp_path}/pairs.jsonl: labels go from 0 to 2.4, not through the range 0 to 5",)
    rows = [ROWS[0] | {"label": label} for label in (0, 1)]
    config = Config(data=all_three(jsonl(tmp_path / "p.jsonl", rows)), positive_label=2)
    with pytest.raises(ValueError, match="no pair is alike, from positive_label=2 on"):
        prepare(config)
    facts = prepare(config.model_copy(update={"positive_label": None})).facts
    assert (facts["data.labels"], facts["data.train.alike"]) == ("0 to 1", "1 of 2, from label 0.8 on")
    assert "data.train.alike" not in prepare(config.model_copy(update={"in_batch_weight": 0})).facts


def test_a_tsv_label_of_nan_is_no_number(tmp_path) -> None:
    (tmp_path / "p.tsv").write_text("sentence1\tsentence2\tlabel\na\tb\tnan\n")
    with pytest.raises(ValueError, match="'label' is 'nan'; accepted is a number from"):
        pair_sets(all_three(str(tmp_path / "p.tsv")))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"test": None},
            r"data.test is not given, and '.*' has no such split of its own; accepted are embedded, stsb:",
        ),
        ({"validation": "no/such.jsonl"}, r"data.validation: no file no/such.jsonl; accepted are"),
        ({"validation": "embedded"}, r"data.validation is 'embedded': embedded pairs come with all three splits"),
        ({"lowest": 5.0, "highest": 5.0}, r"lowest is 5 and highest 5: lowest must be smaller"),
        ({"lowest": 5.0}, r"lowest is 5.0 and highest None: a range is declared with both, or left to the source"),
        ({"label_words": ("No", "no")}, r"label_words=\['No', 'no'\]: at least two different words are needed"),
    ],
)
def test_a_split_that_cannot_be_read_is_named(tmp_path, change, message) -> None:
    source = jsonl(tmp_path / "pairs.jsonl")
    with pytest.raises(ValueError, match=message):
        pair_sets(PairData(**({"train": source, "validation": source, "test": source} | change)))


def test_labels_that_are_all_equal_and_short_lines_are_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match="all 2 labels are 5, so there is nothing to rank"):
        pair_sets(all_three(jsonl(tmp_path / "pairs.jsonl", [ROWS[0], ROWS[0]])))
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(ValueError, match="no pairs"):
        pair_sets(all_three(str(tmp_path / "empty.jsonl")))
    (tmp_path / "sts.csv").write_text("genre\tfile\t2012\t1\t3.0\tonly one\n")
    with pytest.raises(ValueError, match="line 1: 6 columns; expected are genre, file, year, id, score"):
        pair_sets(all_three(f"stsb:{tmp_path}/sts.csv"))


@pytest.mark.skipif(not STS.is_dir(), reason="the real JSTS and STS-B files are not beside this checkout")
def test_the_real_files() -> None:
    jsts = {role: str(STS / "jsts" / f"{part}-v1.3.json") for role, part in _roles("train", "valid", "test")}
    stsb = {role: f"stsb:{STS}/stsb/sts-{part}.csv" for role, part in _roles("train", "dev", "test")}
    found = pair_sets(PairData(**jsts))
    assert [len(part.pairs) for part in found.values()] == [12_451, 1_457, 1_589]
    assert found["train"].pairs[1].label == 3.8
    found = pair_sets(PairData(**stsb))
    assert [len(part.pairs) for part in found.values()] == [5_749, 1_500, 1_379]
    assert found["test"].pairs[0].first == "A girl is styling her hair."


def _roles(*parts: str):
    return zip(("train", "validation", "test"), parts, strict=True)


def function(id: str) -> Function:
    return Function(id, f"says {id}", f"def {id}")


FUNCTIONS = [
    function(id)
    for id in (
        "json.decoder:JSONDecoder.decode", "json.decoder:JSONDecoder.raw_decode", "json.decoder:scan",
        "json.encoder:encode", "json:loads", "numpy.linalg:norm", "numpy.fft:fft", "numpy.fft.helper:shift",
    )
]  # fmt: skip


def test_closeness_is_function_class_module_package_or_none() -> None:
    first, method, plain, sibling, package, *others = FUNCTIONS
    assert [closeness(first, other) for other in (first, method, plain, sibling, package)] == [4, 3, 2, 1, 1]
    assert [closeness(first, other) for other in others] == [0, 0, 0]
    norm, fft, shift = others
    assert closeness(norm, fft) == 1
    assert closeness(norm, shift) is None


def test_every_function_meets_each_grade_that_there_is() -> None:
    pairs = graded(FUNCTIONS)
    by_code = {f.code: f for f in FUNCTIONS}
    by_text = {f.docstring: f for f in FUNCTIONS}
    assert all(closeness(by_text[p.first], by_code[p.second]) == p.label for p in pairs)
    assert len({p.id for p in pairs}) == len(pairs)
    assert Counter(p.label for p in pairs if by_text[p.first] is FUNCTIONS[0]) == dict.fromkeys((0, 1, 2, 3, 4), 1)
    assert graded(FUNCTIONS) == pairs


def test_embedded_pairs_share_no_module_between_splits(embedded_cache) -> None:
    sets = pair_sets(PairData(), embedded_cache)
    assert len(sets["train"].pairs) > 5_000
    assert len(sets["validation"].pairs) == embedded_pairs.VALIDATION_PAIRS
    assert len(sets["test"].pairs) == embedded_pairs.TEST_PAIRS
    codes = {role: {pair.second for pair in part.pairs} for role, part in sets.items()}
    assert not codes["train"] & (codes["validation"] | codes["test"])
    assert not codes["validation"] & codes["test"]
    for part in sets.values():
        assert set(labels(part)) == {0.0, 1.0, 2.0, 3.0, 4.0}
    assert pair_sets(PairData(), embedded_cache)["test"].identity == sets["test"].identity
