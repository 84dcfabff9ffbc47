"""Every form of local data, and every way in which it can be wrong."""

import gzip
import json

import pytest

from trainables.data.sources import evaluation_sets, split_queries, training_set
from trainables.data.types import Example
from trainables.recipe import EvaluationData, TrainData


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
        ("a.jsonl", GOOD + '{"query": " ", "positive": "p"}', {}, "line 2: column 'query' is empty"),
        ("a.jsonl", '{"query": 3, "positive": "p"}', {}, "line 1: column 'query' is 3, not a text"),
        (
            "a.jsonl",
            '{"query": "q", "positive": "p", "negatives": ["n", ""]}',
            {},
            "column 'negatives' is empty",
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
        ("a.json", GOOD * 2, {}, r"a\.json, line 2: not one JSON array.*called \.jsonl"),
        ("a.json", "{}", {}, "expected an array of objects"),
        ("a.tsv", "query\tpositive\na\tb\nc\n", {}, r"a\.tsv, line 3: 1 columns, but the first line names 2"),
        ("a.tsv", "what\tpositive\na\tb\n", {}, "line 2: no column 'query' .*found are: what, positive"),
        ("a.tsv", "query\tpositive\tscores\na\tb\t[1\n", {}, r"'scores' is '\[1'; expected 1 finite"),
        ("a.csv", "query,positive\n", {}, r"ends in '\.csv'; accepted are \.jsonl, \.json, \.tsv"),
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
    with pytest.raises(ValueError, match=r"a\.jsonl\.gz, line \d+: not readable as gzip"):
        train(tmp_path / "a.jsonl.gz")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere.jsonl", "nothing there; accepted are embedded, ir_datasets:ID, datasets:NAME"),
        ("dataset:x/y", "'dataset' is no kind of source here; accepted are embedded"),
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
            '{"_id": "d0", "text": "a"}\n{"_id": "d1", "text": ""}\n',
            "line 2: text of 'd1' is empty",
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
        ("qrels/test.tsv", "q0\td0\t1\nq0 d0 1\n", r"test\.tsv, line 2: .* is not query-id, corpus-id"),
        ("qrels/test.tsv", "q0\td0\t1\nq0\td0\tyes\n", r"test\.tsv, line 2"),
        ("qrels/test.tsv", "q0\t0\td0\t1\n", r"test\.tsv, line 1"),
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
