"""The suite `nanobeir-st` gives what sentence-transformers' NanoBEIREvaluator gives, on a small collection."""

from __future__ import annotations

import json
import random

import pytest
import torch

from trainables.angle.config import Config
from trainables.angle.model import export
from trainables.angle.recipe import Encoder
from trainables.data.corpora import open_corpus
from trainables.encoders import EMBEDDED, Prefixes
from trainables.evaluation.measurement import Counting, Measurement
from trainables.evaluation.merge_hits import merge_hits
from trainables.evaluation.shards import ShardSearch
from trainables.evaluation.suites import SUITES

WORDS = ("open", "read", "write", "file", "line", "close", "parse", "text", "number", "list", "key", "value", "lock")
SIZES = (8, 32, 64)
CONFIG = Config(dims=SIZES, length=16, retrieval={"query_prefix": "read ", "document_prefix": "text "})


@pytest.fixture
def collection(tmp_path):
    """Queries are documents, as in ArguAna, and have their ids; others are relevant to them."""
    draw = random.Random(0)
    texts = {f"d{n}": " ".join(draw.choices(WORDS, k=draw.randint(4, 12))) for n in range(120)}
    asked = draw.sample(sorted(texts), 20)
    qrels = [(query, other) for query in asked for other in draw.sample(sorted(texts), 3) if other != query]
    folder = tmp_path / "nano"
    (folder / "qrels").mkdir(parents=True)
    rows = {
        "corpus": [{"_id": id, "text": text} for id, text in texts.items()],
        "queries": [{"_id": id, "text": texts[id] + " now"} for id in asked],
        "qrels": [{"query-id": query, "corpus-id": document} for query, document in qrels],
    }
    for name in ("corpus", "queries"):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[name]))
    lines = "".join(f"{query}\t{document}\t1\n" for query, document in qrels)
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{lines}")
    return folder, rows


def measured(encoder, model, folder, cache, name):
    (dataset, *_), metrics = SUITES[name].datasets, SUITES[name].metrics
    corpus, topics = open_corpus(str(folder), cache)
    counting = Counting(metrics, dataset.own_id, dataset.relevant, CONFIG.sizes)
    one = Measurement(
        "angle", CONFIG.model_dump(mode="json"), model, "the model", corpus, topics, counting, "float32", cache
    )
    search = ShardSearch(one, encoder, encoder.device)
    for shard in range(one.shards):
        search.search(shard)
    return merge_hits(one, search.folder).values


def test_a_model_has_the_evaluators_figures_at_each_prefix(collection, tmp_path, monkeypatch) -> None:
    import datasets
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.evaluation import NanoBEIREvaluator

    torch.set_num_threads(1)
    folder, rows = collection
    encoder = Encoder.open(EMBEDDED, CONFIG, torch.device("cpu"))
    (tmp_path / "model").mkdir()
    export(encoder.model, encoder.tokenizer, tmp_path / "model", 16, Prefixes("read ", "text ", ""), SIZES)
    found = measured(encoder, tmp_path / "model", folder, tmp_path / "cache", "nanobeir-st")
    monkeypatch.setattr(datasets, "load_dataset", lambda name, subset, split: datasets.Dataset.from_list(rows[subset]))
    model = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    for size in SIZES:
        theirs = NanoBEIREvaluator(["arguana"], truncate_dim=size, write_csv=False)(model)
        for ours, name in (("ndcg_at_10", "ndcg@10"), ("mrr_at_10", "mrr@10"), ("recall_at_10", "recall@10")):
            expected = theirs[f"NanoBEIR_mean_{size}_cosine_{name}"]
            assert found[f"{ours}_{size}"] == pytest.approx(expected, abs=1e-9)
        assert 0.02 < found[f"ndcg_at_10_{size}"] < 0.9
    assert found["ndcg_at_10"] == found["ndcg_at_10_64"]
    beir = measured(encoder, tmp_path / "model", folder, tmp_path / "cache", "nanobeir")
    assert beir["ndcg_at_10"] > found["ndcg_at_10"] + 0.01, "the query itself came first, and is no result there"
