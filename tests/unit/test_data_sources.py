"""Every form of local data, and every way in which it can be wrong."""

import bz2
import codecs
import errno
import gzip
import json
import lzma
import os
from pathlib import Path

import numpy as np
import pytest

from trainables import check, inputs
from trainables.data.config import EvaluationData, TrainData
from trainables.data.corpora import open_corpus
from trainables.data.sources import evaluation_sets, split_queries, training_set
from trainables.data.types import Example
from trainables.evaluation.bm25 import bm25
from trainables.retrieval_config import RetrievalConfig


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    (gzip.open if path.suffix == ".gz" else open)(path, "wb").write(text.encode())
    return path


def jsonl(path, *rows):
    return write(path, "".join(json.dumps(row) + "\n" for row in rows))


def beir(folder, documents=40, queries=20, grade=1):
    jsonl(
        folder / "corpus.jsonl",
        *({"_id": f"d{i}", "title": "T", "text": f"text {i}"} for i in range(documents)),
    )
    jsonl(folder / "queries.jsonl", *({"_id": f"q{i}", "text": f"ask {i}"} for i in range(queries)))
    rows = "".join(f"q{i}\td{i}\t{grade}\n" for i in range(queries))
    write(folder / "qrels/test.tsv", "query-id\tcorpus-id\tscore\n" + rows)
    return folder


def train(path, **columns):
    return training_set(TrainData(source=str(path), **columns))


def evaluation(folder, **options):
    return evaluation_sets(EvaluationData(source=str(folder), **options))


# --- training examples ---------------------------------------------------------------------------------


def test_jsonl_with_negatives_and_scores(tmp_path):
    full = {"query": "q", "positive": "p", "negatives": ["n1", "n2"], "scores": [3, 1.5, -1]}
    path = jsonl(tmp_path / "a.jsonl", full, {"query": "q2", "positive": "p2", "negatives": None, "other": 1})
    found = train(path)
    assert found.examples == [
        Example("q", "p", ("n1", "n2"), (3.0, 1.5, -1.0)),
        Example("q2", "p2"),
    ]
    assert found.name == "a.jsonl"


@pytest.mark.parametrize("suffix", [".jsonl.gz", ".json", ".json.gz", ".tsv", ".tsv.gz"])
def test_every_format_reads_the_same_examples(tmp_path, suffix):
    rows = [{"query": f"q{i}", "positive": f"pé{i}", "negatives": [f"a{i}", f"b{i}"]} for i in range(3)]
    expected = train(jsonl(tmp_path / "x.jsonl", *rows))
    if ".tsv" in suffix:
        lines = [[row["query"], row["positive"], json.dumps(row["negatives"])] for row in rows]
        body = "\r\n".join("\t".join(line) for line in [["query", "positive", "negatives"], *lines])
    elif ".jsonl" in suffix:
        body = "\n".join(map(json.dumps, rows)) + "\n\n"
    else:
        body = json.dumps(rows)
    found = train(write(tmp_path / f"y{suffix}", body))
    assert found.examples == expected.examples
    assert found.identity == expected.identity


def test_tsv_cells_are_plain_text_without_quoting(tmp_path):
    path = write(tmp_path / "t.tsv", 'query\tpositive\tnegatives\n"a\t[b] c\t[not json\n')
    assert train(path).examples == [Example('"a', "[b] c", ("[not json",))]


def test_columns_by_other_names_and_a_limit(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", *({"question": f"q{i}", "answer": "a", "hard": "n"} for i in range(5)))
    found = train(path, query="question", positive="answer", negatives="hard", limit=2)
    assert found.examples == [Example("q0", "a", ("n",)), Example("q1", "a", ("n",))]


def test_the_identity_tells_every_part_of_an_example(tmp_path):
    row = {"query": "q", "positive": "p", "negatives": ["n"], "scores": [1, 2]}
    changes = [
        {},
        {"query": "x"},
        {"positive": "x"},
        {"negatives": ["x"]},
        {"scores": [1, 3]},
        {"scores": None},
    ]
    sets = [train(jsonl(tmp_path / f"{i}.jsonl", row | change)) for i, change in enumerate(changes)]
    assert len({found.identity for found in sets}) == len(changes)
    assert train(jsonl(tmp_path / "again.jsonl", row)).identity == sets[0].identity


GOOD = '{"query": "q", "positive": "p"}\n'


@pytest.mark.parametrize(
    ("name", "body", "columns", "message"),
    [
        ("a.jsonl", GOOD + "{oops\n", {}, r"a\.jsonl, line 2: not JSON"),
        ("a.jsonl", GOOD + "\n[1]\n", {}, r"a\.jsonl, line 3: .* is not a JSON object"),
        (
            "a.jsonl",
            '{"query": "q", "answer": "p"}',
            {},
            r"line 1: no column 'positive'.*found are: query, answer",
        ),
        ("a.jsonl", GOOD, {"negatives": "hard"}, "line 1: no column 'hard' .*found are: query, positive"),
        ("a.jsonl", '{"query": " ", "positive": "p"}', {}, r"a\.jsonl: no examples; 1 row without a query or"),
        ("a.jsonl", '{"query": "half \\ud83d", "positive": "p"}', {}, "'query' is no valid Unicode: .* at character 6"),
        ("a.jsonl", '{"query": 3, "positive": "p"}', {}, "line 1: column 'query' is 3, not a text"),
        (
            "a.jsonl",
            '{"query": "q", "positive": "p", "negatives": ["n", null]}',
            {},
            "column 'negatives' is None, not a text",
        ),
        (
            "a.jsonl",
            '{"query": "q", "positive": "p", "negatives": 4}',
            {},
            "'negatives' is 4, not a text or a list",
        ),
        (
            "a.jsonl",
            '{"query": "q", "positive": "p", "scores": [1, 2]}',
            {},
            "'scores' is .*expected 1 finite",
        ),
        (
            "a.jsonl",
            '{"query": "q", "positive": "p", "scores": [NaN]}',
            {},
            "'scores' is .*expected 1 finite",
        ),
        ("a.jsonl", "", {}, r"a\.jsonl: no examples"),
        ("a.json", "[1", {}, r"a\.json, line 1: neither one JSON array nor an object per line"),
        ("a.json", '"text"', {}, "expected an array of objects"),
        ("a.json", '{\n"query": "q"}', {}, r"a\.json, line 1: not JSON"),
        ("a.tsv", "query\tpositive\tquery\na\tb\tc\n", {}, "line 1: two columns are called 'query'"),
        ("a.tsv", "query\tpositive\ra\tb\r", {}, "line 1: its lines end in carriage returns alone"),
        ("a.tsv", "query\tpositive\na\tb\nc\n", {}, r"a\.tsv, line 3: 1 columns, but the first line names 2"),
        ("a.tsv", "what\tpositive\na\tb\n", {}, "line 2: no column 'query' .*found are: what, positive"),
        ("a.tsv", "query\tpositive\tscores\na\tb\t[1\n", {}, r"'scores' is '\[1'; expected 1 finite"),
        (
            "a.csv",
            "query,positive\n",
            {},
            r"ends in '\.csv'; accepted are \.jsonl.*; datasets:csv:/.*a\.csv reads it",
        ),
    ],
)
def test_wrong_files_are_refused_by_line(tmp_path, name, body, columns, message):
    with pytest.raises(ValueError, match=message):
        train(write(tmp_path / name, body), **columns)


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.tsv"])
def test_bytes_that_are_no_text_are_refused_by_line(tmp_path, name):
    (tmp_path / name).write_bytes(GOOD.encode() + b"\xff\xfe\n")
    with pytest.raises(ValueError, match=r"a\.\w+, line 2: not UTF-8"):
        train(tmp_path / name)


def test_a_cut_gzip_file_is_refused(tmp_path):
    whole = gzip.compress(GOOD.encode() * 500)
    (tmp_path / "a.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"a\.jsonl\.gz: not readable as gzip"):
        train(tmp_path / "a.jsonl.gz")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere.jsonl", "nothing there; accepted are embedded, ir_datasets:ID, datasets:NAME"),
        ("dataset:x/y", "'dataset' is no kind of source here; nearest: datasets:x/y; accepted are embedded"),
        ("datasets:", "'datasets' is no kind of source here"),
        ("ir_datasets:msmarco-passage/train/triple-small", "nearest: msmarco-passage/train/triples-small"),
        ("ir_datasets:beir/scifact/test", "has docs, queries, qrels but no docpairs"),
        (
            "ir_datasets:msmarco-passage",
            "has docs but no queries or docpairs.*msmarco-passage/train/triples-small",
        ),
    ],
)
def test_unknown_training_sources_name_what_exists(source, message):
    with pytest.raises(ValueError, match=message):
        train(source)


def test_a_folder_is_no_training_file(tmp_path):
    with pytest.raises(ValueError, match=r"is a folder; expected is a file .*datasets:"):
        train(tmp_path)


def test_rows_without_a_query_or_a_positive_are_left_out_and_counted(tmp_path):
    rows = [
        {"query": "q", "positive": "p", "negatives": ["n", " "]}, {"query": " ", "positive": "p"},
        {"query": "q", "positive": None}, {"query": "q2", "positive": "p2"},
    ]  # fmt: skip
    found = train(jsonl(tmp_path / "a.jsonl", *rows))
    assert found.examples == [Example("q", "p", ("n", " ")), Example("q2", "p2")]
    assert found.notes == (
        "a.jsonl: 2 rows of 4 left out, without a query or a positive",
        "a.jsonl: 1 negative without any text",
    )
    assert train(jsonl(tmp_path / "b.jsonl", rows[3])).notes == ()


def test_negatives_in_columns_with_numbers(tmp_path):
    row = {"query": "q", "positive": "p", "negative_2": "b", "negative_10": "c", "negative_1": "a", "negative_3": None}
    assert train(jsonl(tmp_path / "a.jsonl", row)).examples == [Example("q", "p", ("a", "b", "c"))]
    scored = row | {"scores": [4, 3, 2, 1]}
    assert train(jsonl(tmp_path / "b.jsonl", scored)).examples[0].scores == (4.0, 3.0, 2.0, 1.0)
    assert train(
        write(tmp_path / "c.tsv", "query\tpositive\thard1\thard2\nq\tp\ta\t\n"), negatives="hard"
    ).examples == [Example("q", "p", ("a",))]
    triplet = {"query": "q", "positive": "p", "negative": "n", "negated": "x"}
    assert train(jsonl(tmp_path / "d.jsonl", triplet)).examples == [Example("q", "p", ("n",))]


def test_json_with_an_object_per_line(tmp_path):
    assert train(write(tmp_path / "a.json", GOOD * 2)).examples == [Example("q", "p")] * 2


@pytest.mark.parametrize(("suffix", "module"), [(".bz2", bz2), (".xz", lzma)])
def test_other_compressions(tmp_path, suffix, module):
    (tmp_path / f"a.jsonl{suffix}").write_bytes(module.compress(GOOD.encode()))
    assert train(tmp_path / f"a.jsonl{suffix}").examples == [Example("q", "p")]
    (tmp_path / f"b.jsonl{suffix}").write_bytes(module.compress(GOOD.encode() * 500)[:-8])
    (tmp_path / f"c.jsonl{suffix}").write_bytes(GOOD.encode())
    for name in "bc":
        with pytest.raises(ValueError, match=rf"{name}\.jsonl{suffix}: not readable as"):
            train(tmp_path / f"{name}.jsonl{suffix}")


def test_a_file_that_may_not_be_read_is_named_and_a_machines_fault_is_not_the_files(tmp_path, monkeypatch):
    path = write(tmp_path / "a.jsonl", GOOD)

    def refused(number):
        def opened(*_):
            raise OSError(number, os.strerror(number))

        return opened

    monkeypatch.setattr(Path, "open", refused(errno.EACCES))
    with pytest.raises(ValueError, match=r"a\.jsonl: not readable \(.*Permission denied"):
        train(path)
    monkeypatch.setattr(Path, "open", refused(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        train(path)


@pytest.mark.parametrize(("start", "kind"), [(codecs.BOM_UTF16_LE, "UTF-16"), (b"\x1f\x8b", "gzip, whose name must")])
def test_files_of_another_kind_are_named(tmp_path, start, kind):
    (tmp_path / "a.jsonl").write_bytes(start + GOOD.encode())
    with pytest.raises(ValueError, match=rf"line 1: not UTF-8 .*; it is {kind}"):
        train(tmp_path / "a.jsonl")


# --- test collections ----------------------------------------------------------------------------------


def test_a_beir_folder(tmp_path):
    sets = evaluation(beir(tmp_path / "c", grade=2))
    validation, test = sets["validation"], sets["test"]
    assert validation.collection is test.collection
    assert validation.collection.documents["d3"] == "T text 3"
    assert validation.collection.qrels["q3"] == {"d3": 2}
    assert not set(validation.query_ids) & set(test.query_ids)
    assert sorted(validation.query_ids + test.query_ids) == sorted(validation.collection.queries)
    assert len(validation.collection.documents) == 40


def test_gzipped_parts_are_the_same_collection(tmp_path):
    folder = beir(tmp_path / "c")
    identity = evaluation(folder)["test"].collection.identity
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        plain = folder / name
        write(folder / f"{name}.gz", plain.read_text())
        plain.unlink()
    assert evaluation(folder)["test"].collection.identity == identity


def test_queries_without_a_relevant_document_are_left_out(tmp_path):
    folder = beir(tmp_path / "c")
    extra = "q0\td1\t0\nq1\td1\t0\nq2\tnowhere\t1\n"
    rows = "".join(f"q{i}\td{i}\t1\n" for i in range(3, 20))
    write(folder / "qrels/test.tsv", "query-id\tcorpus-id\tscore\n" + extra + rows)
    collection = evaluation(folder)["test"].collection
    assert list(collection.queries) == [f"q{i}" for i in range(3, 20)]
    assert list(collection.qrels) == list(collection.queries)


def test_empty_documents_and_blank_queries_nobody_judged_are_kept_and_counted(tmp_path):
    folder = beir(tmp_path / "c")
    rows = [
        {"_id": "d30", "title": "T", "text": None},
        {"_id": "d31", "text": ""},
        {"_id": 32, "title": None, "text": " "},
    ]
    body = (folder / "corpus.jsonl").read_text().splitlines()[:30] + [json.dumps(row) for row in rows]
    write(folder / "corpus.jsonl", "\n".join(body))
    with (folder / "queries.jsonl").open("a") as file:
        file.write('{"_id": "blank", "text": ""}\n{"_id": "null", "text": null}\n')
    found = evaluation(folder)["test"].collection
    assert [found.documents[id] for id in ("d30", "d31", "32")] == ["T", "", " "]
    assert len(found.queries) == 20
    assert found.notes == ("c: 2 documents without any text, searched like the others",)
    corpus, topics = open_corpus(str(folder), tmp_path / "cache")
    assert dict(corpus.documents(0, 99)) == found.documents
    assert topics.notes == found.notes
    assert np.isfinite(list(bm25(found, list(found.queries)).values.values())).all()


def test_judged_queries_that_are_not_asked_are_counted(tmp_path):
    folder = beir(tmp_path / "c", queries=4)
    missing = "".join(f"q{i}\tnowhere{i}\t1\n" for i in range(20, 23))
    with (folder / "queries.jsonl").open("a") as file:
        file.writelines(f'{{"_id": "q{i}", "text": "ask"}}\n' for i in range(20, 30))
    with (folder / "qrels/test.tsv").open("a") as file:
        file.write(missing + "q25\td1\t0\nq26\td2\t-1\nq99\td3\t1\n")
    found = evaluation(folder, validation_fraction=0.5)["test"].collection
    assert list(found.queries) == ["q0", "q1", "q2", "q3"]
    assert found.notes == (
        "c: 3 of 10 judged queries left out: no document that is judged relevant to them is in the collection",
        "c: 2 of 10 judged queries left out: no document is judged relevant to them",
        "c: 1 of 10 judged queries left out: the qrels name them, and there is no such query",
    )
    assert open_corpus(str(folder), tmp_path / "cache")[1].notes == found.notes


def test_of_several_judgements_the_last_counts_and_is_told(tmp_path):
    folder = beir(tmp_path / "c")
    with (folder / "qrels/test.tsv").open("a") as file:
        file.write("q0\td0\t1\nq1\td1\t2\n")
    found = evaluation(folder)["test"].collection
    assert (found.qrels["q0"], found.qrels["q1"]) == ({"d0": 1}, {"d1": 2})
    assert found.notes == (f"{folder}/qrels/test.tsv: 1 judgement changed by a later line; the last one counts",)


def test_judgements_as_trec_eval_reads_them_and_grades_with_a_point(tmp_path):
    folder = beir(tmp_path / "c")
    expected = evaluation(folder)["test"].collection
    for separator in ("\t", " "):
        rows = "".join(separator.join((f"q{i}", "0", f"d{i}", "1")) + "\n" for i in range(20))
        write(folder / "qrels/test.tsv", rows)
        assert evaluation(folder)["test"].collection == expected
    write(folder / "qrels/test.tsv", "".join(f"q{i}\td{i}\t1.0\n" for i in range(20)))
    assert evaluation(folder)["test"].collection == expected


def test_notes_are_told_once_and_recorded(tmp_path):
    folder = beir(tmp_path / "c")
    with (folder / "corpus.jsonl").open("a") as file:
        file.write('{"_id": "empty", "text": ""}\n')
    pairs = jsonl(tmp_path / "a.jsonl", {"query": "q", "positive": "p"}, {"query": "q", "positive": ""})
    prepared = inputs.retrieval(
        RetrievalConfig(train=TrainData(source=str(pairs)), evaluation=EvaluationData(source=str(folder)))
    )
    assert prepared.notes == (
        "a.jsonl: 1 row of 2 left out, without a query or a positive",
        "c: 1 document without any text, searched like the others",
    )
    assert prepared.facts["data.notes"] == "; ".join(prepared.notes)
    assert "stop words: english; stemming: none" in prepared.facts["baseline.bm25"]


def test_a_query_stays_on_its_side_when_others_come_and_go():
    few, many = [f"q{i}" for i in range(50)], [f"q{i}" for i in range(2000)]
    validation, _ = split_queries(many, 0.35)
    assert 0.30 < len(validation) / len(many) < 0.40
    assert set(split_queries(few, 0.35)[0]) == set(validation) & set(few)
    assert set(validation) <= set(split_queries(many, 0.5)[0])
    assert split_queries(["q1", "q2", "q3", "q4"], 0.35) == (["q3", "q4"], ["q1", "q2"])


def test_a_second_source_is_the_test_collection(tmp_path):
    first, second = beir(tmp_path / "a", queries=8), beir(tmp_path / "b", queries=5, documents=30)
    sets = evaluation(first, test_source=str(second))
    assert len(sets["validation"].query_ids) == 8
    assert len(sets["test"].query_ids) == 5
    assert len(sets["test"].collection.documents) == 30


def test_fewer_documents_keep_the_judged_ones_in_the_order_of_the_source(tmp_path):
    folder = beir(tmp_path / "c", queries=1)
    write(
        folder / "queries.jsonl",
        "".join(json.dumps({"_id": f"q{i}", "text": "ask"}) + "\n" for i in range(20)),
    )
    write(folder / "qrels/test.tsv", "".join(f"q{i}\td{i + 20}\t1\n" for i in range(20)))
    documents = evaluation(folder, max_documents=22)["test"].collection.documents
    assert list(documents) == ["d0", "d1", *(f"d{i + 20}" for i in range(20))]
    assert len(evaluation(folder, max_documents=3)["test"].collection.documents) == 20


@pytest.mark.parametrize("change", ["document", "query", "grade", "id"])
def test_the_identity_tells_texts_ids_and_judgements(tmp_path, change):
    before = evaluation(beir(tmp_path / "c"))["test"].collection.identity
    if change == "grade":
        after = beir(tmp_path / "c", grade=2)
    else:
        name = "queries.jsonl" if change == "query" else "corpus.jsonl"
        old, new = {"document": ("text 30", "text x"), "query": ("ask 3", "ask x"), "id": ('"d30"', '"dx"')}[change]
        after = tmp_path / "c"
        write(after / name, (after / name).read_text().replace(old, new, 1))
    assert evaluation(after)["test"].collection.identity != before


@pytest.mark.parametrize(
    ("name", "body", "message"),
    [
        (
            "corpus.jsonl",
            None,
            r"has no corpus\.jsonl; expected are .*qrels/SPLIT\.tsv.*Found: qrels, queries\.jsonl",
        ),
        ("queries.jsonl", None, r"has no queries\.jsonl"),
        ("qrels/test.tsv", None, r"has no qrels/test\.tsv"),
        (
            "corpus.jsonl",
            '{"_id": "d0", "text": "a"}\n{"_id": "d1"}\n',
            "line 2: no column 'text'; found are: _id",
        ),
        ("corpus.jsonl", '{"id": "d0", "text": "a"}\n', "line 1: no column '_id'"),
        (
            "corpus.jsonl",
            '{"_id": "d0", "text": "a"}\n{"_id": "d1", "text": 5}\n',
            "line 2: text of 'd1' is 5, not a text",
        ),
        ("corpus.jsonl", '{"_id": "d0", "text": "a"}\n' * 2, "line 2: _id 'd0' comes a second time"),
        ("corpus.jsonl", "", "no documents"),
        (
            "corpus.jsonl",
            '{"_id": "e0", "text": "a"}\n',
            "qrels name no document of the corpus: they judge 'd0'",
        ),
        ("queries.jsonl", '{"_id": "zz", "text": "a"}\n', "none of 1 queries has a relevant document"),
        ("queries.jsonl", '{"_id": "q0", "text": "a"}\n', "none of its 1 queries falls into"),
        ("corpus.jsonl", '{"_id": true, "text": "a"}\n', "line 1: _id is True, not a text or a whole number"),
        ("queries.jsonl", '{"_id": "q0", "text": " "}\n', "query 'q0' is empty, but the qrels name relevant documents"),
        ("qrels/test.tsv", "q0\td0\t1\nq0 d0\n", r"test\.tsv, line 2: .* is not query-id, corpus-id"),
        ("qrels/test.tsv", "q0\td0\t1\nq0\td1\t0.5\n", r"test\.tsv, line 2: .* a whole number"),
        ("qrels/test.tsv", "q0\td0\t1\nq0\td0\tyes\n", r"test\.tsv, line 2"),
        ("qrels/test.tsv", "q0\t0\td0\t1\t7\n", r"test\.tsv, line 1"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\n", "has a relevant document in the qrels"),
    ],
)
def test_wrong_collections_are_refused(tmp_path, name, body, message):
    path = beir(tmp_path / "c") / name
    path.unlink() if body is None else write(path, body)
    with pytest.raises(ValueError, match=message):
        evaluation(tmp_path / "c")


def test_another_qrels_split_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"no qrels/dev\.tsv.*Found: qrels/test\.tsv"):
        evaluation(beir(tmp_path / "c"), qrels_split="dev")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere", "nothing there; accepted are embedded, ir_datasets:ID or a folder in BEIR layout"),
        ("datasets:x", "'datasets' is no kind of source here"),
        ("ir_datasets:beir/scifat/test", "nearest: .*beir/scifact/test"),
        (
            "ir_datasets:msmarco-passage",
            "no queries or qrels, needed here; below it, these have all: msmarco-passage/",
        ),
    ],
)
def test_unknown_collections_name_what_exists(source, message):
    with pytest.raises(ValueError, match=message):
        evaluation(source)


def test_a_file_is_no_collection(tmp_path):
    with pytest.raises(ValueError, match=r"expected a folder that holds corpus\.jsonl"):
        evaluation(write(tmp_path / "a.jsonl", GOOD))


def test_embedded_queries_cannot_be_split_otherwise():
    with pytest.raises(ValueError, match=r"validation_fraction is 0\.5, but embedded queries are split by module"):
        evaluation_sets(EvaluationData(validation_fraction=0.5))


def test_the_check_of_a_studys_inputs_prints_the_notes(tmp_path, capsys):
    folder = beir(tmp_path / "c")
    with (folder / "corpus.jsonl").open("a") as file:
        file.write('{"_id": "empty", "text": ""}\n')
    words = ("open", "close", "read", "write", "sort", "find", "join", "split")
    pairs = jsonl(tmp_path / "a.jsonl", *({"query": f"to {word}", "positive": f"{word} it"} for word in words))
    config = {
        "train": {"source": str(pairs)}, "evaluation": {"source": str(folder)}, "batch_size": 4,
    }  # fmt: skip
    assert check.main("splade", json.dumps(config)) == 0
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert printed["notes"] == ["c: 1 document without any text, searched like the others"]
