"""Full evaluation in one process: slices, shards, merging, resumption; equal to the in-memory evaluation."""

import gzip
import json
import random
import shutil

import numpy as np
import pytest
import torch

from trainables.angle.config import Config as AngleConfig
from trainables.angle.recipe import Encoder as AngleEncoder
from trainables.data.config import EvaluationData
from trainables.data.corpora import STRIDE, open_corpus
from trainables.evaluation import shards
from trainables.evaluation.measurement import Counting, Measurement, model_identity, remove_leftovers
from trainables.evaluation.merge_hits import merge_hits
from trainables.evaluation.metrics import METRICS
from trainables.evaluation.retrieval import BLOCK, Retrieval
from trainables.evaluation.scoring import DENSE, MAX_SIM, SPARSE, Ragged
from trainables.evaluation.search import TopK
from trainables.evaluation.shards import ShardSearch
from trainables.evaluation.vectors import Layout, Writer, blocks
from trainables.splade.config import Config as SpladeConfig
from trainables.splade.recipe import Encoder as SpladeEncoder

ENCODERS = {
    "angle": (AngleEncoder, AngleConfig(dims=(8, 64), length=16)),
    "splade": (SpladeEncoder, SpladeConfig(query_length=12, document_length=16)),
}
CPU = torch.device("cpu")
# fmt: off
WORDS = (
    "open", "read", "write", "file", "line", "close", "parse", "text", "number", "list",
    "key", "value", "thread", "lock", "path", "name", "copy", "move",
)
# fmt: on


def write_folder(folder, documents, queries=12, own_ids=False, compressed=False, seed=0):
    """A folder in BEIR layout whose queries are words of a document; the document is graded 2, another one 1."""
    rng = random.Random(seed)
    (folder / "qrels").mkdir(parents=True)
    texts = [" ".join(rng.choices(WORDS, k=rng.randint(3, 14))) for _ in range(documents)]
    rows = [json.dumps({"_id": f"d{n}", "title": "t" if n % 3 else "", "text": t}) for n, t in enumerate(texts)]
    corpus = "\ufeff" + "\n".join(rows[:5]) + "\n\n" + "\r\n".join(rows[5:])
    if compressed:
        (folder / "corpus.jsonl.gz").write_bytes(gzip.compress(corpus.encode()))
    else:
        (folder / "corpus.jsonl").write_bytes(corpus.encode())
    asked = rng.sample(range(documents), queries)
    names = [f"d{n}" if own_ids else f"q{n}" for n in asked]
    lines = [json.dumps({"_id": name, "text": texts[n]}) for name, n in zip(names, asked, strict=True)]
    (folder / "queries.jsonl").write_text("\n".join(lines))
    grades = [f"{name}\td{n}\t2\n{name}\td{(n + 1) % documents}\t1\n" for name, n in zip(names, asked, strict=True)]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(grades))
    return folder


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def models():
    from trainables.encoders import EMBEDDED

    return {name: cls.open(EMBEDDED, config, CPU) for name, (cls, config) in ENCODERS.items()}


def measurement(trainer, folder, cache, precision="float32", **counting):
    corpus, topics = open_corpus(str(folder), cache)
    counting = {"metrics": METRICS} | counting
    config = ENCODERS[trainer][1].model_dump(mode="json")
    return Measurement(trainer, config, folder, "the model", corpus, topics, Counting(**counting), precision, cache)


def measure(one, encoder, order=None):
    search = ShardSearch(one, encoder, CPU)
    searched = [search.search(shard) for shard in (order or range(one.shards))]
    return merge_hits(one, search.folder), searched


@pytest.mark.parametrize("compressed", [False, True])
def test_slices_are_the_documents(tmp_path, compressed):
    folder = write_folder(tmp_path / "c", 2 * STRIDE + 40, compressed=compressed)
    whole = Retrieval(EvaluationData(source=str(folder))).sets["test"].collection
    corpus, topics = open_corpus(str(folder), tmp_path / "cache")
    assert corpus.size == len(whole.documents)
    assert (topics.queries, topics.qrels) == (whole.queries, whole.qrels)
    for start, stop in ((0, corpus.size), (0, 7), (3, 9), (255, 258), (500, 9999), (corpus.size, 9999)):
        assert list(corpus.documents(start, stop)) == list(whole.documents.items())[start:stop]


@pytest.mark.parametrize("trainer", ENCODERS)
def test_one_shard_gives_what_the_evaluation_in_memory_gives(tmp_path, models, trainer):
    """Dense to the last bit, for the same texts meet in the same blocks; sparse sums are taken more exactly."""
    folder = write_folder(tmp_path / "c", 300)
    encoder = models[trainer]
    whole = Retrieval(EvaluationData(source=str(folder), test_source=str(folder)))
    expected = whole.evaluate(("test",), encoder.queries, encoder.documents, encoder.statistics, encoder.scorer)["test"]
    found, _ = measure(measurement(trainer, folder, tmp_path / "cache"), encoder)
    assert found.per_item == expected.per_item
    assert found.values == (pytest.approx(expected.values, rel=1e-12) if encoder.scorer is SPARSE else expected.values)


@pytest.mark.parametrize("trainer", ENCODERS)
def test_many_shards_give_what_one_gives(tmp_path, models, trainer, monkeypatch):
    """Encoders pad differently there, so that scores agree to rounding; results apart from near ties."""
    folder = write_folder(tmp_path / "c", 900)
    one = measurement(trainer, folder, tmp_path / "one")
    assert one.shards == 1
    alone = ShardSearch(one, models[trainer], CPU)
    alone.search(0)
    whole = merge_hits(one, alone.folder)
    monkeypatch.setattr("trainables.evaluation.measurement.FEWEST", STRIDE)
    many = measurement(trainer, folder, tmp_path / "many")
    assert many.shards == 4
    sharded = ShardSearch(many, models[trainer], CPU)
    best = TopK(len(many.topics.queries), many.depth)
    for shard in (2, 0, 3, 1):
        sharded.search(shard)
        best.merge(shards.read_hits(shards.hits_file(sharded.folder, many, shard), len(many.topics.queries)))
    single = TopK(len(many.topics.queries), many.depth)
    single.merge(shards.read_hits(shards.hits_file(alone.folder, many, 0), len(many.topics.queries)))
    assert torch.allclose(best.result()[0], single.result()[0], rtol=1e-5, atol=1e-6)
    assert list(shards.ids(sharded.folder, 4)) == [f"d{n}" for n in range(900)]
    found = merge_hits(many, sharded.folder)
    assert found.values == pytest.approx(whole.values, abs=0.02 if trainer == "angle" else 1e-4)


@pytest.mark.parametrize("trainer", ENCODERS)
def test_nothing_is_encoded_twice(tmp_path, models, trainer, monkeypatch):
    monkeypatch.setattr("trainables.evaluation.measurement.FEWEST", STRIDE)
    one = measurement(trainer, write_folder(tmp_path / "c", 600), tmp_path / "cache")
    first, searched = measure(one, models[trainer])
    assert searched == [True] * 3
    again, searched = measure(one, models[trainer], order=[2, 1, 0])
    assert searched == [False] * 3
    assert again == first
    folder = ShardSearch(one, models[trainer], CPU).folder
    # Hits are gone: they are searched again from the vectors. A changed or half-written shard is made again.
    shutil.rmtree(shards.hits_file(folder, one, 0).parent)
    (folder / "shard-00001" / "values.bin").write_bytes(b"changed")
    (folder / "shard-00002" / "manifest.json").unlink()
    (folder / ".writing-elsewhere-1-shard-00001").mkdir()
    again, searched = measure(one, models[trainer])
    assert searched == [False, True, True]
    assert again == first
    remove_leftovers(tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*/*/.writing-*"))


def test_other_models_lengths_and_precisions_have_vectors_of_their_own(tmp_path, models):
    folder = write_folder(tmp_path / "c", 40)
    encoder = models["splade"]
    one = measurement("splade", folder, tmp_path / "cache")
    folders = {ShardSearch(one, encoder, CPU).folder}
    longer = SpladeEncoder(encoder.model, encoder.tokenizer, SpladeConfig(document_length=20), CPU)
    folders.add(ShardSearch(one, longer, CPU).folder)
    folders.add(ShardSearch(measurement("splade", folder, tmp_path / "cache", "float16"), encoder, CPU).folder)
    shutil.rmtree(folder)
    write_folder(folder, 40, seed=1)
    folders.add(ShardSearch(measurement("splade", folder, tmp_path / "cache"), encoder, CPU).folder)
    assert len(folders) == 4


def test_float16_changes_scores_by_its_rounding_only(tmp_path, models):
    folder = write_folder(tmp_path / "c", 300)
    exact, _ = measure(measurement("angle", folder, tmp_path / "cache"), models["angle"])
    half, _ = measure(measurement("angle", folder, tmp_path / "cache", "float16"), models["angle"])
    assert half.values == pytest.approx(exact.values, abs=0.05)


def test_a_document_of_the_querys_own_id_is_no_result_where_the_suite_says_so(tmp_path, models):
    """The query is the very text of the document of its id, which therefore comes first."""
    folder = write_folder(tmp_path / "c", 200, own_ids=True)
    kept, _ = measure(measurement("splade", folder, tmp_path / "cache"), models["splade"])
    one = measurement("splade", folder, tmp_path / "cache", own_id=False)
    assert one.depth == 101
    dropped, _ = measure(one, models["splade"])
    assert dropped.values["mrr_at_10"] < 0.3 < 0.7 < kept.values["mrr_at_10"]


def test_binary_metrics_have_a_lowest_grade_of_their_own(tmp_path, models):
    folder = write_folder(tmp_path / "c", 200)
    all_grades, _ = measure(measurement("splade", folder, tmp_path / "cache"), models["splade"])
    high, _ = measure(measurement("splade", folder, tmp_path / "cache", relevant=2), models["splade"])
    assert high.values["ndcg_at_10"] == all_grades.values["ndcg_at_10"]
    # The document of grade 2 comes first, that of grade 1 is any other one.
    assert high.values["recall_at_100"] > all_grades.values["recall_at_100"]


def test_a_shard_begins_where_a_slice_is_cheap_and_holds_a_bounded_amount_of_text():
    class Sized:
        def __init__(self, size, document_bytes):
            self.size, self.document_bytes = size, document_bytes

    def rows(size, document_bytes):
        return Measurement("", {}, None, "", Sized(size, document_bytes), None, None, "float32", None).shard_rows

    assert STRIDE == BLOCK
    assert rows(10, 300) == 1024
    assert rows(500_000, 300) == 7_936
    assert rows(8_841_823, 350) == 65_536
    assert rows(8_841_823, 100_000) == 2_816
    assert rows(8_841_823, 10**9) == STRIDE


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("scorer", [DENSE, SPARSE, MAX_SIM], ids=lambda scorer: scorer.name)
@pytest.mark.parametrize("dim", [7, 70_000])
def test_vectors_come_back_as_they_were(tmp_path, scorer, precision, dim):
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor([2, 1, 0, 3, 1, 1, 2, 4, 1, 1, 0]) if scorer is MAX_SIM else torch.ones(11, dtype=torch.long)
    rows = int(lengths.sum())
    values = torch.randn(rows, dim, generator=generator) * (torch.rand(rows, dim, generator=generator) < 0.3)
    values[4] = 0
    if precision == "float16":
        values = values.half().float()
    vectors = Ragged(values, lengths) if scorer is MAX_SIM else values
    writer = Writer(tmp_path, scorer, precision)
    order = [3, 1, 4, 0, 2, 5, 9, 8, 7, 6, 10]
    for start in range(0, 11, 4):
        writer.add(order[start : start + 4], vectors[order[start : start + 4]])
    layout = writer.close()
    assert layout == Layout(11, dim, 4, precision)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(writer.files)
    seen = []
    for positions, block in blocks(tmp_path, scorer, layout):
        wanted = vectors[positions]
        if scorer is MAX_SIM:
            assert torch.equal(block.lengths, wanted.lengths)
            block, wanted = block.values, wanted.values
        found = block.toarray() if scorer is SPARSE else block.numpy()
        assert np.array_equal(found, wanted.numpy())
        seen += positions
    assert seen == order


def test_numbers_too_large_for_float16_are_refused(tmp_path):
    with pytest.raises(ValueError, match="a number of 70000, too large for float16; use float32"):
        Writer(tmp_path, DENSE, "float16").add([0], torch.tensor([[7e4, 0.0]]))


def test_what_is_wrong_with_a_folder_is_said_before_anything_is_encoded(tmp_path):
    folder = write_folder(tmp_path / "c", 30)
    corpus = folder / "corpus.jsonl"
    lines = corpus.read_text(encoding="utf-8-sig").splitlines()
    for changed, message in (
        ([*lines, lines[3]], "_id 'd3' comes a second time"),
        ([*lines, '{"_id": "x", "text": '], "line 32: not JSON"),
        ([*lines, '{"_id": "x"}'], "line 32: no column 'text'"),
        (['{"_id": "x", "text": "y"}'], "the qrels name no document of the corpus"),
        ([], "no documents"),
    ):
        corpus.write_text("\n".join(changed))
        with pytest.raises(ValueError, match=message):
            open_corpus(str(folder), tmp_path / "cache")


def test_a_corpus_that_shrinks_while_it_is_measured(tmp_path, models):
    folder = write_folder(tmp_path / "c", 30)
    one = measurement("splade", folder, tmp_path / "cache")
    (folder / "corpus.jsonl").write_text((folder / "corpus.jsonl").read_text()[:900].rpartition("\n")[0])
    with pytest.raises(ValueError, match="documents from 0 on, of 30 that were there when it was opened"):
        ShardSearch(one, models["splade"], CPU).search(0)


def test_model_identity_is_that_of_its_files(tmp_path):
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text("{}")
    (tmp_path / "weights").write_bytes(b"1")
    first = model_identity(tmp_path)
    assert model_identity(tmp_path) == first
    (tmp_path / "1_Pooling" / "config.json").write_text("{ }")
    assert model_identity(tmp_path) != first
