"""`datasets:` and `ir_datasets:` sources, with the files on this disk or on a server of this process."""

import functools
import http.server
import json
import threading

import pytest

datasets = pytest.importorskip("datasets")
ir_datasets = pytest.importorskip("ir_datasets")

from ir_datasets.formats import TrecQrels, TrecScoredDocs, TsvDocPairs, TsvDocs, TsvQueries  # noqa: E402
from ir_datasets.util import Cache, RequestsDownload  # noqa: E402

from trainables.data.config import (  # noqa: E402
    EvaluationData,
    PairData,
    Pool,
    TextData,
    TrainData,
)
from trainables.data.corpora import open_corpus  # noqa: E402
from trainables.data.pairs import pair_sets  # noqa: E402
from trainables.data.sources import evaluation_sets, training_set  # noqa: E402
from trainables.data.text import text_set  # noqa: E402
from trainables.data.types import Example  # noqa: E402

ROWS = [{"query": f"q{i}", "positive": f"p{i}", "negatives": [f"n{i}"]} for i in range(6)]
EXAMPLES = [Example(f"q{i}", f"p{i}", (f"n{i}",)) for i in range(6)]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def server(tmp_path):
    """(folder that is served, its address)"""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = functools.partial(Quiet, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as http_server:
        thread = threading.Thread(target=http_server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield folder, f"http://127.0.0.1:{http_server.server_address[1]}"
        http_server.shutdown()
        thread.join()


@pytest.fixture
def hub_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    monkeypatch.setattr(datasets.config, "DOWNLOADED_DATASETS_PATH", tmp_path / "hf-downloads")


@pytest.fixture
def published(server, tmp_path):
    """An id of `ir_datasets`' own classes whose files come from the server."""
    folder, address = server
    passages = [("d0", "first passage"), ("d1", "second"), ("d2", "third"), ("d3", "fourth"), ("d4", "fifth")]
    queries = [(f"q{i}", f"ask {i}") for i in range(4)]
    (folder / "docs.tsv").write_text("".join(f"{id}\t{body}\n" for id, body in passages))
    (folder / "queries.tsv").write_text("".join(f"{id}\t{body}\n" for id, body in queries))
    (folder / "pairs.tsv").write_text("q0\td0\td1\nq1\td2\td0\nq2\td3\td4\n")
    (folder / "broken.tsv").write_text("q0\td0\td1\nq1\td9\td0\n")
    (folder / "qrels").write_text("".join(f"q{i} 0 d{i + 1} {i}\n" for i in range(4)))

    def remote(name):
        return Cache(RequestsDownload(f"{address}/{name}"), tmp_path / "ir" / name)

    docs, asked = TsvDocs(remote("docs.tsv")), TsvQueries(remote("queries.tsv"))
    qrels = TrecQrels(remote("qrels"), {})
    id = f"made-here/{tmp_path.name}"
    for suffix, last in (
        ("", qrels),
        ("/again", qrels),
        ("/pairs", TsvDocPairs(remote("pairs.tsv"))),
        ("/broken", TsvDocPairs(remote("broken.tsv"))),
    ):
        ir_datasets.registry.register(id + suffix, ir_datasets.Dataset(docs, asked, last))
    yield id
    for suffix in ("", "/again", "/pairs", "/broken"):
        del ir_datasets.registry._registered[id + suffix]


def train(source, cache=None, **options):
    return training_set(TrainData(source=source, **options), cache)


@pytest.mark.parametrize(
    "id",
    [
        "msmarco-passage/train/triples-small",
        "msmarco-passage/train/triples-v2",
        "msmarco-passage/dev/small",
        "msmarco-passage/trec-dl-2019/judged",
        "beir/scifact/test",
        "beir/nfcorpus/test",
        "nano-beir/msmarco",
        "nano-beir/scifact",
    ],
)
def test_recommended_ids_exist_and_hold_what_they_are_for(id):
    dataset = ir_datasets.load(id)
    needed = ("docpairs",) if "/train/" in id else ("qrels",)
    assert all(dataset.has(entity) for entity in ("docs", "queries", *needed))


def test_docpairs_over_http(published):
    found = train(f"ir_datasets:{published}/pairs")
    assert found.examples == [
        Example("ask 0", "first passage", ("second",), None, "d0", ("d1",)),
        Example("ask 1", "third", ("first passage",), None, "d2", ("d0",)),
        Example("ask 2", "fourth", ("fifth",), None, "d3", ("d4",)),
    ]
    assert train(f"ir_datasets:{published}/pairs", limit=2).examples == found.examples[:2]


def test_docpairs_are_looked_up_once_and_then_read_from_the_cache(published, tmp_path, monkeypatch):
    source, cache = f"ir_datasets:{published}/pairs", tmp_path / "cache"
    first = train(source, cache)
    assert first == train(source)
    monkeypatch.setattr(TsvDocs, "docs_store", lambda self: pytest.fail("looked up again"))
    assert train(source, cache) == first
    assert [path.suffix for path in (cache / "ir_datasets").iterdir()] == [".jsonl"]
    with pytest.raises(BaseException, match="looked up again"):
        train(source, cache, limit=1)


def test_a_pair_without_its_document_is_refused(published):
    with pytest.raises(ValueError, match=r"text of 'd9' in pair \('q1', 'd9', 'd0'\) is None"):
        train(f"ir_datasets:{published}/broken")


def test_a_collection_over_http(published):
    sets = evaluation_sets(EvaluationData(source=f"ir_datasets:{published}", test_source=f"ir_datasets:{published}"))
    collection = sets["test"].collection
    assert list(collection.documents) == ["d0", "d1", "d2", "d3", "d4"]
    assert collection.queries == {"q1": "ask 1", "q2": "ask 2", "q3": "ask 3"}
    assert collection.qrels == {"q1": {"d2": 1}, "q2": {"d3": 2}, "q3": {"d4": 3}}


def test_a_collection_with_fewer_documents_looks_the_judged_ones_up(published):
    id = f"ir_datasets:{published}"
    sets = evaluation_sets(EvaluationData(source=id, test_source=id, max_documents=4))
    assert list(sets["test"].collection.documents) == ["d0", "d2", "d3", "d4"]
    sets = evaluation_sets(EvaluationData(source=id, test_source=id, max_documents=1))
    assert list(sets["test"].collection.documents) == ["d2", "d3", "d4"]


def test_documents_as_texts(published):
    source = f"ir_datasets:{published}"
    held, streamed = text_set(TextData(source=source, limit=4)), text_set(TextData(source=source, streaming=True))
    assert held.held == ["first passage", "second", "third", "fourth"]
    assert streamed.texts(1, 3, seed=0) == ["fourth", "fifth", "first passage"]
    with pytest.raises(ValueError, match="ir_datasets has no id 'no-such-corpus'"):
        text_set(TextData(source="ir_datasets:no-such-corpus"))


def test_an_id_without_qrels_is_refused(published):
    with pytest.raises(ValueError, match="has docs, queries, docpairs but no qrels"):
        evaluation_sets(EvaluationData(source=f"ir_datasets:{published}/pairs"))


def test_a_datasets_folder(tmp_path, hub_cache):
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    found = train(f"datasets:{folder}")
    assert found.examples == EXAMPLES
    assert train(f"datasets:{folder}", limit=2).examples == EXAMPLES[:2]
    assert train(f"datasets:{folder}", limit=99).identity == found.identity


def test_a_datasets_folder_with_configurations(tmp_path, hub_cache):
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: a\n  data_files: a.jsonl\n- config_name: b\n  data_files: b.jsonl\n---\n"
    )
    for name, rows in (("a", ROWS[:1]), ("b", ROWS[1:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert train(f"datasets:{folder}:b").examples == EXAMPLES[1:]
    with pytest.raises(ValueError, match=r"datasets:.*split 'train': .*'a', 'b'"):
        train(f"datasets:{folder}:c")


@pytest.mark.parametrize("where", ["address", "path"])
def test_a_builder_with_a_file(server, hub_cache, where):
    folder, address = server
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    base = address if where == "address" else folder
    assert train(f"datasets:json:{base}/rows.jsonl", split="anything").examples == EXAMPLES


def test_a_folder_that_save_to_disk_wrote(tmp_path, hub_cache):
    pair = {"sentence1": "a", "sentence2": "b"}
    one = datasets.Dataset.from_list([row | pair | {"label": place % 2} for place, row in enumerate(ROWS)])
    one.save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"train": one, "dev": one.select([0])}).save_to_disk(tmp_path / "several")
    named = datasets.Dataset.from_list(ROWS, split="dev")
    named.save_to_disk(tmp_path / "named")
    assert train(f"datasets:{tmp_path}/one").examples == EXAMPLES
    assert train(f"datasets:{tmp_path}/several").examples == EXAMPLES
    assert train(f"datasets:{tmp_path}/several", split="dev").examples == EXAMPLES[:1]
    assert train(f"datasets:{tmp_path}/named", split="dev").examples == EXAMPLES
    with pytest.raises(ValueError, match=r"several, split 'test': the folder has the splits train, dev"):
        train(f"datasets:{tmp_path}/several", split="test")
    with pytest.raises(ValueError, match=r"named, split 'train': the folder has the splits dev"):
        train(f"datasets:{tmp_path}/named")
    with pytest.raises(ValueError, match=r"data.validation is not given, and 'datasets:.*one' has no such split"):
        pair_sets(PairData(train=f"datasets:{tmp_path}/one"))
    streamed = text_set(TextData(source=f"datasets:{tmp_path}/several", text="query", streaming=True))
    assert streamed.texts(0, 3, seed=1) == ["q0", "q1", "q2"]


def test_rows_of_a_data_set_are_checked(tmp_path, hub_cache):
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "train.jsonl").write_text('{"query": "q", "positive": "p"}\n{"query": "q", "positive": ""}\n')
    found = train(f"datasets:{folder}")
    assert found.examples == [Example("q", "p")]
    assert found.notes == (f"{folder}: 1 row of 2 left out, without a query or a positive",)
    with pytest.raises(ValueError, match=r"row 0: no column 'answer' .*found are: query, positive"):
        train(f"datasets:{folder}", positive="answer")


@pytest.mark.parametrize(
    ("source", "split", "message"),
    [
        ("datasets:{folder}", "dev", "split 'dev': .*train"),
        ("datasets:{folder}/nowhere", "train", "nowhere, split 'train'"),
        ("datasets:json", "train", "json needs a file: datasets:json:PATH_OR_URL"),
    ],
)
def test_what_datasets_cannot_open_is_refused(tmp_path, hub_cache, source, split, message):
    (tmp_path / "train.jsonl").write_text(json.dumps(ROWS[0]) + "\n")
    with pytest.raises(ValueError, match=message):
        train(source.format(folder=tmp_path), split=split)


def test_a_published_collection_in_slices_is_the_one_in_memory(published, tmp_path):
    source = f"ir_datasets:{published}"
    whole = evaluation_sets(EvaluationData(source=source, test_source=source))["test"].collection
    corpus, topics = open_corpus(source, tmp_path)
    assert corpus.size == 5
    assert list(corpus.documents(0, 5)) == list(whole.documents.items())
    assert list(corpus.documents(2, 4)) == list(whole.documents.items())[2:4]
    assert list(corpus.documents(4, 99)) == list(whole.documents.items())[4:]
    assert (topics.queries, topics.qrels) == (whole.queries, whole.qrels)
    assert open_corpus(source, tmp_path)[0].identity == corpus.identity
    # A sibling on the same documents shares their identity, and so their vectors.
    assert open_corpus(f"{source}/again", tmp_path)[0].identity == corpus.identity


def test_a_corpus_needs_queries_and_judgements(tmp_path):
    with pytest.raises(ValueError, match=r"ir_datasets has no id 'beir/scifakt'; nearest: .*scifact"):
        open_corpus("ir_datasets:beir/scifakt", tmp_path)


@pytest.fixture
def passages(server, tmp_path):
    """Ids of a collection with the shape of MS MARCO, and of the same one in another order: 400 passages, 40 queries
    with one relevant passage each and one without, and a run of 20 candidates for each, none of them with a score."""
    folder, address = server
    documents = [f"d{i}\tpassage {i} of {i % 7}\n" for i in range(400)]
    (folder / "docs.tsv").write_text("".join(documents))
    (folder / "turned.tsv").write_text("".join(reversed(documents)))
    (folder / "queries.tsv").write_text("".join(f"q{i}\task {i}\n" for i in range(41)))
    (folder / "qrels").write_text("".join(f"q{i} 0 d{i * 3} {int(i < 40)}\n" for i in range(41)))
    run = [f"q{i} Q0 d{(i * 3 + 1 + n * 5) % 400} 0 0 run\n" for i in range(41) for n in range(20)]
    (folder / "ms.run").write_text("".join(run))

    def remote(name):
        return Cache(RequestsDownload(f"{address}/{name}"), tmp_path / "ir" / name)

    asked, qrels = TsvQueries(remote("queries.tsv")), TrecQrels(remote("qrels"), {})
    ids = [f"made-here/{tmp_path.name}/{name}" for name in ("docs", "turned")]
    for id, name in zip(ids, ("docs.tsv", "turned.tsv"), strict=True):
        parts = TsvDocs(remote(name)), asked, qrels, TrecScoredDocs(remote("ms.run"))
        ir_datasets.registry.register(id, ir_datasets.Dataset(*parts))
    yield ids
    for id in ids:
        del ir_datasets.registry._registered[id]


def pooled(id, cache=None, **changes):
    pool = Pool(**{"queries": 10, "documents": 100, "hard": 4} | changes)
    data = EvaluationData(source=f"ir_datasets:{id}", pool=pool, validation_fraction=0.5, bm25=False)
    return evaluation_sets(data, cache)["validation"].collection


def test_a_pool_has_what_is_judged_and_what_is_hard(passages):
    found = pooled(passages[0])
    assert (len(found.queries), len(found.documents)) == (10, 100)
    assert "q40" not in found.queries
    for query, judged in found.qrels.items():
        number = int(query[1:])
        assert judged.keys() <= found.documents.keys()
        candidates = {f"d{(number * 3 + 1 + n * 5) % 400}" for n in range(20)}
        assert len(candidates & found.documents.keys()) >= 4
    assert list(found.documents) == sorted(found.documents, key=lambda id: int(id[1:]))


def test_a_pool_is_the_same_in_any_order_and_another_one_by_another_seed(passages):
    one, turned = pooled(passages[0]), pooled(passages[1])
    assert (one.queries, one.qrels, set(one.documents)) == (turned.queries, turned.qrels, set(turned.documents))
    other = pooled(passages[0], seed=1)
    assert set(one.queries) != set(other.queries)
    assert set(one.documents) != set(other.documents)
    assert len(pooled(passages[0], queries=1000, documents=300, hard=0).queries) == 40
    # More queries are more of the same ones.
    assert set(one.queries) < set(pooled(passages[0], queries=20).queries)


def test_a_pool_is_drawn_once_and_then_read_from_the_cache(passages, tmp_path, monkeypatch):
    first = pooled(passages[0], tmp_path / "cache")
    monkeypatch.setattr("trainables.data.pools.drawn_documents", None)
    again = pooled(passages[0], tmp_path / "cache")
    assert (again.identity, list(again.documents)) == (first.identity, list(first.documents))


def test_what_is_no_pool_is_refused(passages):
    with pytest.raises(ValueError, match=r"pool.documents=20, but \d+ documents are judged or hard for its 10 queries"):
        pooled(passages[0], documents=20)
    with pytest.raises(ValueError, match="source is 'embedded'; a pool is drawn of ir_datasets:ID"):
        EvaluationData(pool=Pool(queries=3))
    with pytest.raises(ValueError, match="max_documents=5 beside a pool"):
        EvaluationData(source="ir_datasets:x", pool=Pool(queries=3), max_documents=5)


def test_a_collection_without_a_run_has_no_hard_documents(published):
    with pytest.raises(ValueError, match="but no scoreddocs"):
        pooled(published)
