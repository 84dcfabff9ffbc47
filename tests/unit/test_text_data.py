"""Plain texts: every form of source, what is wrong with it, their order, packing, and streams that are resumed."""

import gzip
import itertools
import json
import re
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from transformers import AutoTokenizer, ByT5Tokenizer

from trainables.data import embedded
from trainables.data.config import TextData
from trainables.data.text import mixture, place, text_set
from trainables.encoders import EMBEDDED

ROWS = [{"text": f"text number {i}", "title": f"t{i}"} for i in range(10)]
TEXTS = [row["text"] for row in ROWS]


def jsonl(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(source, **options):
    return text_set(TextData(source=str(source), **options))


def in_order(found):
    return sorted(found.texts(0, found.size, seed=1), key=lambda text: int(re.findall(r"\d+", text)[0]))


@pytest.fixture
def hub_cache(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(EMBEDDED)


# --- sources -------------------------------------------------------------------------------------------


def test_paragraphs_of_a_text_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeff1 één\r\ngoes on\r\n\r\n \t\n2 two\n\n\n3 three".encode())
    found = read(path)
    assert (found.name, found.size) == ("a.txt", 3)
    assert in_order(found) == ["1 één\ngoes on", "2 two", "3 three"]


def test_every_format_reads_the_same_texts(tmp_path):
    expected = read(jsonl(tmp_path / "x.jsonl", ROWS))
    assert in_order(expected) == TEXTS
    (tmp_path / "x.json").write_text(json.dumps(ROWS))
    (tmp_path / "x.tsv").write_text("title\ttext\n" + "".join(f"{r['title']}\t{r['text']}\n" for r in ROWS))
    (tmp_path / "x.txt").write_text("\n\n".join(TEXTS))
    with gzip.open(tmp_path / "x.txt.gz", "wt") as file:
        file.write("\n\n".join(TEXTS))
    for suffix in (".json", ".tsv", ".txt", ".txt.gz"):
        found = read(tmp_path / f"x{suffix}")
        assert found.identity == expected.identity
        assert found.texts(3, 4, seed=5) == expected.texts(3, 4, seed=5)


def test_another_column_a_limit_and_blank_texts(tmp_path):
    rows = [{"text": "  ", "title": "t0"}, {"text": "1", "title": "t1"}, {"text": "2", "title": "\n"}]
    path = jsonl(tmp_path / "x.jsonl", rows)
    assert in_order(read(path)) == ["1", "2"]
    assert read(path).notes == ("x.jsonl: 1 text left out, nothing but white space",)
    assert read(jsonl(tmp_path / "whole.jsonl", ROWS)).notes == ()
    assert in_order(read(path, text="title")) == ["t0", "t1"]
    assert in_order(read(path, limit=1)) == ["1"]
    assert read(path, limit=2).identity == read(path).identity != read(path, limit=1).identity


def test_each_epoch_is_a_new_permutation(tmp_path):
    found = read(jsonl(tmp_path / "x.jsonl", ROWS))
    epochs = [found.texts(step, 10, seed=3) for step in range(3)]
    assert all(sorted(epoch) == sorted(TEXTS) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert found.texts(0, 10, seed=4) != epochs[0]
    assert found.texts(1, 4, seed=3) == epochs[0][4:8]


def test_a_data_set(tmp_path, hub_cache):
    path = jsonl(tmp_path / "set" / "train.jsonl", ROWS)
    held = read(path)
    assert read(f"datasets:{path.parent}").identity == held.identity
    assert read(f"datasets:json:{path}", limit=4).size == 4


@pytest.fixture(scope="module")
def installed(embedded_cache):
    """The cache, and the embedded texts read through it."""
    return embedded_cache, text_set(TextData(), embedded_cache)


def test_embedded_texts_are_prose_and_code_without_held_out_modules(installed):
    cache, found = installed
    assert found.size > 10_000
    assert len(set(found.held)) == found.size
    code = [text for text in found.held if text.startswith(("def ", "async def "))]
    assert 0.2 < len(code) / found.size < 0.8
    everything = 1_000_000
    kept_out = embedded.embedded_collection(
        cache, documents=everything, validation_queries=everything, test_queries=everything
    )
    assert not set(kept_out.documents.values()) & set(found.held)
    firsts = {(embedded.query_of(text) or "").lower() for text in found.held if not text.startswith("#")}
    assert not {query.lower() for query in kept_out.queries.values()} & firsts


def test_embedded_texts_come_from_the_cache_the_second_time(installed, monkeypatch):
    cache, found = installed
    monkeypatch.setattr(embedded, "embedded_texts", lambda *_: pytest.fail("the sources were read again"))
    again = text_set(TextData(), cache)
    assert (again.name, again.identity, again.held) == (found.name, found.identity, found.held)
    assert text_set(TextData(limit=7), cache).held == found.held[:7]


# --- refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", r"a\.txt: no texts; it is empty"),
        ("a.txt", b"\n \n", "no texts"),
        ("a.jsonl", b"", "no texts"),
        ("a.jsonl", b'{"text": " "}\n', "nothing but white space"),
        ("a.txt", b"fine\n\nna\xefve\n", r"a\.txt, line 3: not UTF-8"),
        ("a.jsonl", b'{"text": "fine"}\n{"text": "\xff"}\n', r"a\.jsonl, line 2: not UTF-8"),
        ("a.jsonl", b'{"text": "fine"}\n{"body": "b"}\n', r"line 2: no column 'text' \(for text\); found are: body"),
        ("a.jsonl", b'{"text": 3}\n', "line 1: column 'text' is 3, not a text"),
        ("a.jsonl", b'{"text": null}\n', "nothing but white space"),
        ("a.jsonl", b'{"text": "\\ud800"}\n', "line 1: column 'text' is no valid Unicode"),
        ("a.json", b'[{"text": "a"}, 3]', "entry 2: 3 is not a JSON object"),
        ("a.csv", b"text\na\n", r"a\.csv ends in '\.csv'; accepted are \.txt, \.jsonl.*datasets:csv:"),
    ],
)
def test_files_that_are_wrong_are_refused(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / name)


def test_sources_that_are_none_are_refused_with_the_nearest(tmp_path):
    (tmp_path / "corpus.jsonl").touch()
    for source, message in (
        ("embeded", "nearest: embedded"),
        ("dataset:wikimedia/wikipedia:20231101.en", "nearest: datasets:wikimedia/wikipedia:20231101.en"),
        (f"{tmp_path}/corpus.json", "nearest: .*/corpus.jsonl"),
        ("ir_dataset:beir/scifact", "nearest: ir_datasets:beir/scifact"),
        ("no/such/place.txt", "nothing there; accepted are embedded"),
        (str(tmp_path), "is a folder"),
    ):
        with pytest.raises(ValueError, match=message):
            read(source)


@pytest.mark.parametrize("source", ["embedded", "a.txt"])
def test_only_data_sets_stream(source):
    with pytest.raises(
        ValidationError, match=rf"streaming is true, but source is '{source}'.*ir_datasets:ID or datasets:NAME"
    ):
        TextData(source=source, streaming=True)


@pytest.mark.parametrize("streaming", [False, True])
def test_data_sets_that_are_wrong_are_refused(tmp_path, hub_cache, streaming):
    folder = jsonl(tmp_path / "set" / "train.jsonl", ROWS).parent
    jsonl(tmp_path / "blank" / "train.jsonl", [{"text": " "}])
    for source, options, message in (
        (folder, {"text": "body"}, "row 0: no column 'body' .*found are: text, title"),
        (folder, {"split": "dev"}, "split 'dev'"),
        (tmp_path / "nowhere", {}, "nowhere, split 'train'"),
        (tmp_path / "blank", {}, "no texts"),
    ):
        with pytest.raises(ValueError, match=message):
            read(f"datasets:{source}", streaming=streaming, **options)


# --- streams -------------------------------------------------------------------------------------------


@pytest.fixture
def stream(tmp_path, hub_cache):
    rows = [ROWS[0], {"text": "", "title": "left out"}, *ROWS[1:]]
    folder = jsonl(tmp_path / "set" / "train.jsonl", rows).parent

    def start(**options):
        return read(f"datasets:{folder}", streaming=True, **options)

    return start


def test_a_stream_comes_in_its_own_order_and_begins_again(stream):
    found = stream()
    assert found.size is None
    assert [found.texts(step, 4, seed=step) for step in range(5)] == [
        [TEXTS[(4 * step + place) % 10] for place in range(4)] for step in range(5)
    ]


@pytest.mark.parametrize("step", [0, 2, 13])
def test_a_stream_that_is_resumed_comes_to_the_same_texts(stream, step):
    going_on = stream()
    expected = [going_on.texts(number, 4, seed=1) for number in range(step + 2)][step:]
    resumed = stream()
    assert [resumed.texts(number, 4, seed=1) for number in (step, step + 1)] == expected
    assert resumed.texts(step, 4, seed=1) == expected[0]  # asked again, it goes back


def test_the_limit_and_identity_of_a_stream(stream):
    found = stream(limit=3)
    assert found.texts(0, 5, seed=1) == [*TEXTS[:3], *TEXTS[:2]]
    assert stream().identity == stream().identity != found.identity


def test_a_stream_is_read_no_further_than_needed(tmp_path, hub_cache):
    folder = tmp_path / "set"
    jsonl(folder / "train-0.jsonl", [{"text": f"text {i}"} for i in range(1_500)])
    (folder / "train-1.jsonl").write_text("no JSON")
    found = read(f"datasets:{folder}", streaming=True)
    assert found.texts(10, 100, seed=1) == [f"text {i}" for i in range(1_000, 1_100)]
    with pytest.raises(Exception, match=r"JSON|generating"):
        read(f"datasets:{folder}")


# --- packing -------------------------------------------------------------------------------------------

LONG = "A long text about gardens, plants and the number {0} follows here, with {0} words or so in it. "


@pytest.fixture
def mixed(tmp_path):
    """Short and long texts."""
    rows = [{"text": LONG.format(i) * (i % 5 + 1) if i % 2 else f"Short text {i}."} for i in range(40)]
    return jsonl(tmp_path / "mixed" / "train.jsonl", rows)


def test_packed_texts_fill_every_piece_and_lose_nothing(mixed, tokenizer):
    whole = read(mixed)
    packed = whole.packed(tokenizer, 32)
    lengths = [len(ids) for ids in tokenizer(packed.held)["input_ids"]]
    assert all(28 <= length <= 32 for length in lengths[:-1])
    assert (packed.name, packed.identity) == (whole.name, whole.identity)
    joined = " ".join(packed.held).replace(tokenizer.sep_token, " ")
    assert re.findall(r"\w+|[.,]", joined) == re.findall(r"\w+|[.,]", " ".join(whole.held))
    joins = sum(text.count(tokenizer.sep_token) for text in packed.held)
    assert joins > 10
    ids = tokenizer(packed.held)["input_ids"]
    assert sum(row.count(tokenizer.sep_token_id) for row in ids) == joins + len(ids)


def test_a_word_longer_than_a_piece_is_cut(tmp_path, tokenizer):
    found = read(jsonl(tmp_path / "x.jsonl", [{"text": "qzx" * 12}])).packed(tokenizer, 8)
    assert found.size > 3
    assert "".join(found.held) == "qzx" * 12


def test_packing_needs_tokens(tmp_path, hub_cache, tokenizer):
    folder = jsonl(tmp_path / "set" / "train.jsonl", [{"text": "===="}]).parent
    with pytest.raises(ValueError, match="its 1 texts have no tokens"):
        read(folder / "train.jsonl").packed(tokenizer, 8)
    with pytest.raises(ValueError, match="the stream has no texts"):
        read(f"datasets:{folder}", streaming=True).packed(tokenizer, 8).texts(0, 2, seed=1)


def test_packing_needs_room_and_offsets(tmp_path, tokenizer):
    found = read(jsonl(tmp_path / "x.jsonl", ROWS))
    with pytest.raises(ValueError, match="max_length is 2, which leaves no room"):
        found.packed(tokenizer, 2)
    with pytest.raises(ValueError, match="packed is true, but ByT5Tokenizer"):
        found.packed(ByT5Tokenizer(), 8)


def test_a_packed_stream_is_that_of_the_held_texts_and_resumes(mixed, hub_cache, tokenizer):
    held = read(mixed).packed(tokenizer, 32).held
    source = f"datasets:{mixed.parent}"
    packed = read(source, streaming=True).packed(tokenizer, 32)
    size = len(held)
    assert packed.texts(0, size, seed=1) == held
    resumed = read(source, streaming=True).packed(tokenizer, 32)
    assert resumed.texts(7, 4, seed=1) == [held[(28 + place) % size] for place in range(4)]


def test_real_paragraphs_are_read_and_packed(tokenizer):
    path = Path(__file__).parents[3] / "shared/data/text/enwiki_sample.jsonl"
    if not path.is_file():
        pytest.skip(f"no {path}: it is data of the developers' machines, not of the project")
    found = read(path, limit=300)
    packed = found.packed(tokenizer, 64)
    lengths = [len(ids) for ids in tokenizer(packed.held)["input_ids"]]
    assert sum(lengths) / (64 * len(lengths)) > 0.97
    assert max(lengths) <= 66


# --- mixtures ------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 40), min_size=1, max_size=3), st.integers(1, 300))
def test_every_stretch_of_a_mixture_has_the_shares_and_each_source_is_read_in_order(weights, count):
    total = sum(weights) + 7
    shares = [Fraction(weight, total) for weight in weights]
    places = [place(shares, at) for at in range(count)]
    for source, share in enumerate([*shares, Fraction(7, total)]):
        read = [at for found, at in places if found == source]
        assert read == list(range(len(read)))
        assert abs(len(read) - share * count) <= len(shares)


def texts_file(folder, name, count):
    return jsonl(folder / f"{name}.jsonl", [{"text": f"{name} {number}"} for number in range(count)])


def sources(tmp_path, *names, **options):
    return [TextData(source=str(texts_file(tmp_path, name, 8)), **options) for name in names]


def test_a_mixture_has_its_shares_and_any_step_is_found_alone(tmp_path):
    wiki, books, passages = sources(tmp_path, "wiki", "books", "passages")
    found = mixture(wiki, [(books, 0.25), (passages, 0.25)])
    assert found.size == 24
    steps = [found.texts(step, 4, seed=3) for step in range(6)]
    assert all(sorted(text.split()[0] for text in step) == ["books", "passages", "wiki", "wiki"] for step in steps)
    again = mixture(wiki, [(books, 0.25), (passages, 0.25)])
    assert [again.texts(step, 4, seed=3) for step in (5, 0, 3)] == [steps[5], steps[0], steps[3]]
    assert again.texts(0, 4, seed=4) != steps[0]
    read = [text for step in steps[:4] for text in step if text.startswith("wiki")]
    assert sorted(read) == sorted(text_set(wiki).held)
    assert {text.split()[0] for text in found.sample(4)} == {"wiki", "books", "passages"}


def test_a_mixture_is_another_with_other_shares_or_sources(tmp_path):
    wiki, books = sources(tmp_path, "wiki", "books")
    made = [mixture(wiki, [(books, 0.25)]), mixture(wiki, [(books, 0.5)]), mixture(books, [(wiki, 0.25)])]
    assert len({found.identity for found in made}) == 3
    assert mixture(wiki, ()).identity == text_set(wiki).identity
    assert made[0].name == "wiki.jsonl (0.75) + books.jsonl (0.25)"
    with pytest.raises(ValueError, match=r"shares add up to 1, which leaves wiki.jsonl nothing"):
        mixture(wiki, [(books, 0.5), (books, 0.5)])


def test_a_mixture_of_streams_goes_on_where_it_was(tmp_path, hub_cache):
    folders = [texts_file(tmp_path / name, name, 9).parent for name in ("wiki", "books")]
    wiki, books = (TextData(source=f"datasets:{folder}", streaming=True) for folder in folders)
    through, resumed = (mixture(wiki, [(books, 0.4)]) for _ in range(2))
    assert through.size is None
    steps = [through.texts(step, 5, seed=0) for step in range(7)]
    assert [resumed.texts(step, 5, seed=0) for step in range(4, 7)] == steps[4:]
    firsts = list(itertools.chain(*steps))
    assert [text for text in firsts if text.startswith("books")][:10] == [f"books {n % 9}" for n in range(10)]


def test_a_mixture_is_packed_source_by_source(tmp_path, tokenizer):
    wiki, books = sources(tmp_path, "wiki", "books")
    pieces = mixture(wiki, [(books, 0.5)]).packed(tokenizer, 16).texts(0, 4, seed=0)
    assert [("wiki" in piece, "books" in piece) for piece in pieces].count((True, False)) == 2
    assert [("wiki" in piece, "books" in piece) for piece in pieces].count((False, True)) == 2
