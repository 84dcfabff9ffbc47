"""Search and evaluation against brute force, for any blocks and any number of workers."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gang import run_gang
from trainables.data.config import EvaluationData
from trainables.data.types import Collection
from trainables.evaluation import retrieval
from trainables.evaluation.bm25 import bm25, tokens
from trainables.evaluation.retrieval import Retrieval, VectorStatistics
from trainables.evaluation.search import _keys, top_k

SHARED = Path(__file__).parents[3] / "shared/data/ir"


def brute(queries, documents, k):
    """Scores and positions in float64, equal scores by position."""
    scores = queries.double().numpy() @ documents.double().numpy().T
    positions = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, positions, axis=1), positions


def blocks_of(documents, size, order=None):
    order = list(range(len(documents))) if order is None else order
    for start in range(0, len(order), size):
        yield order[start : start + size], documents[order[start : start + size]]


@given(
    rows=st.integers(1, 70),
    queries=st.integers(1, 5),
    k=st.integers(1, 80),
    size=st.integers(1, 70),
    spread=st.sampled_from([0, 1, 3, 1000]),
    seed=st.integers(0, 999),
)
@settings(max_examples=150, deadline=None)
def test_small_whole_numbers_with_many_ties(rows, queries, k, size, spread, seed):
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randint(-spread, spread + 1, (rows + queries, 4), generator=generator).float()
    asked, documents = numbers[:queries], numbers[queries:]
    order = torch.randperm(rows, generator=generator).tolist()
    scores, positions = top_k(asked, blocks_of(documents, size, order), k)
    expected_scores, expected_positions = brute(asked, documents, k)
    assert np.array_equal(scores.numpy(), expected_scores)
    assert np.array_equal(positions.numpy(), expected_positions)


def test_real_numbers_across_many_blocks():
    generator = torch.Generator().manual_seed(0)
    asked, documents = torch.randn(30, 64, generator=generator), torch.randn(3000, 64, generator=generator)
    scores, positions = top_k(asked, blocks_of(documents, 128), 100)
    expected_scores, expected_positions = brute(asked, documents, 100)
    assert np.abs(scores.numpy() - expected_scores).max() < 1e-4
    assert (positions.numpy() == expected_positions).mean() > 0.999


def test_zeros_of_either_sign_tie_and_numbers_beat_none():
    documents = torch.tensor([[0.0], [-0.0], [float("nan")], [-torch.inf], [torch.inf], [1e-40], [-1e-40]])
    scores, positions = top_k(torch.tensor([[1.0]]), blocks_of(documents, 2), 7)
    assert positions.tolist() == [[4, 5, 0, 1, 6, 2, 3]]
    assert scores[0, 0] == torch.inf
    assert scores[0, -1] == -torch.inf


def test_keys_order_scores_first_and_positions_second():
    scores = torch.tensor([[-1.0, -0.0, 0.0, 1e-40, 2.0, 2.0, -torch.inf, torch.nan]])
    keys = _keys(scores, torch.arange(8))
    assert keys.argsort(descending=True).tolist() == [[4, 5, 3, 1, 2, 0, 6, 7]]


def test_vectors_of_half_precision_are_scored_in_float32():
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randn(40, 64, generator=generator).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        scores, _ = top_k(numbers[:4], blocks_of(numbers[4:], 10), 5)
    assert np.abs(scores.numpy() - brute(numbers[:4], numbers[4:], 5)[0]).max() < 1e-4


# --- evaluation ----------------------------------------------------------------------------------------

WORDS = [f"w{i}" for i in range(50)]


@pytest.fixture
def folder(tmp_path):
    """1,100 documents of random words, 60 queries of some words of one document, with graded judgements."""
    rng = np.random.default_rng(0)
    texts = {f"d{i}": " ".join(rng.choice(WORDS, rng.integers(3, 30))) for i in range(1100)}
    asked = {f"q{i}": " ".join(rng.permutation(texts[f"d{7 * i}"].split())[:3]) for i in range(60)}
    parts = {"corpus": texts, "queries": asked}
    for name, rows in parts.items():
        lines = (json.dumps({"_id": id, "text": body}) + "\n" for id, body in rows.items())
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    (tmp_path / "qrels").mkdir()
    qrels = [f"q{i}\td{7 * i}\t2\n" + f"q{i}\td{7 * i + 1}\t1\n" for i in range(60)]
    (tmp_path / "qrels/test.tsv").write_text("".join(qrels))
    return tmp_path


def bag(texts):
    """Counts of words: whole numbers, many ties."""
    return torch.stack([torch.tensor([text.split().count(word) for word in WORDS]).float() for text in texts])


STATISTICS = VectorStatistics(
    sums=lambda vectors: (vectors > 0).sum(0),
    values=lambda queries, documents: {
        "flops": float(queries @ documents),
        "active_query": float(queries.sum()),
        "active_document": float(documents.sum()),
    },
)


def measure(folder, splits=("validation", "test")):
    return Retrieval(EvaluationData(source=str(folder))).evaluate(splits, bag, bag, STATISTICS)


def test_each_split_is_what_brute_force_and_trec_eval_say(folder):
    ir_measures = pytest.importorskip("ir_measures")
    found = measure(folder)
    sets = Retrieval(EvaluationData(source=str(folder))).sets
    for split, part in sets.items():
        collection = part.collection
        asked = bag([collection.queries[id] for id in part.query_ids])
        documents = bag(list(collection.documents.values()))
        _, positions = brute(asked, documents, 100)
        ids = list(collection.documents)
        run = {
            query: {ids[p]: -float(rank) for rank, p in enumerate(row)}
            for query, row in zip(part.query_ids, positions, strict=True)
        }
        qrels = {query: collection.qrels[query] for query in part.query_ids}
        expected = ir_measures.calc_aggregate(
            [ir_measures.nDCG @ 10, ir_measures.RR @ 10, ir_measures.R @ 100], qrels, run
        )
        for name, measure_ in (("ndcg_at_10", "nDCG@10"), ("mrr_at_10", "RR@10"), ("recall_at_100", "R@100")):
            assert found[split].values[name] == pytest.approx(expected[ir_measures.parse_measure(measure_)], abs=1e-9)
            assert list(found[split].per_item[name]) == list(part.query_ids)
        assert 0.05 < found[split].values["ndcg_at_10"] < 0.99
        on_queries, on_documents = (asked > 0).double().mean(0), (documents > 0).double().mean(0)
        assert found[split].values["flops"] == pytest.approx(float(on_queries @ on_documents), abs=1e-12)
        assert found[split].values["active_document"] == pytest.approx(float(on_documents.sum()), abs=1e-9)


def test_a_split_scores_the_same_alone_and_with_the_other(folder):
    both = measure(folder)
    assert measure(folder, ("test",))["test"] == both["test"]
    assert measure(folder, ("test", "validation")) == both


def test_shared_documents_are_encoded_once(folder):
    seen = []

    def encode(texts):
        seen.extend(texts)
        return bag(texts)

    Retrieval(EvaluationData(source=str(folder))).evaluate(("validation", "test"), bag, encode)
    assert len(seen) == 1100


def test_two_collections_give_each_split_its_own(folder):
    alone = Retrieval(EvaluationData(source=str(folder), test_source=str(folder)))
    found = alone.evaluate(("validation", "test"), bag, bag)
    assert found["validation"] == found["test"]
    assert len(found["test"].per_item["mrr_at_10"]) == 60


def test_another_block_size_changes_nothing(folder, monkeypatch):
    before = measure(folder)
    monkeypatch.setattr(retrieval, "BLOCK", 33)
    assert measure(folder) == before


def worker(rank, rendezvous, folder, results):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    encoded = []

    def encode(texts):
        encoded.extend(texts)
        return bag(texts)

    found = Retrieval(EvaluationData(source=folder)).evaluate(("validation", "test"), bag, encode, STATISTICS)
    generator = torch.Generator().manual_seed(1)
    asked, documents = torch.randn(8, 16, generator=generator), torch.randn(50, 16, generator=generator)
    mine = blocks_of(documents, 50) if rank == 1 else iter(())
    searched = [tensor.numpy() for tensor in top_k(asked, mine, 60)]
    with open(f"{results}.{rank}", "wb") as file:
        pickle.dump((found, len(encoded), searched), file)
    dist.destroy_process_group()


def test_two_workers_find_what_one_finds(folder, tmp_path):
    run_gang(worker, 2, str(tmp_path / "meet"), str(folder), str(tmp_path / "result"))
    results = [pickle.loads((tmp_path / f"result.{rank}").read_bytes()) for rank in range(2)]
    alone = measure(folder)
    generator = torch.Generator().manual_seed(1)
    asked, documents = torch.randn(8, 16, generator=generator), torch.randn(50, 16, generator=generator)
    expected = top_k(asked, blocks_of(documents, 50), 60)
    for found, _, searched in results:
        assert found == alone
        assert all(np.array_equal(a, b.numpy()) for a, b in zip(searched, expected, strict=True))
    assert sorted(encoded for _, encoded, _ in results) == [512, 588]


# --- BM25 ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "stop_words", "ndcg"),
    [
        ("medline", "none", 0.670), ("medline", "english", 0.667),
        ("liveqa_med", "none", 0.604), ("liveqa_med", "english", 0.616),
    ],
)  # fmt: skip
@pytest.mark.skipif(not SHARED.exists(), reason=f"needs the test collections of {SHARED}")
def test_bm25_has_its_known_figures(name, stop_words, ndcg):
    collection = Retrieval(EvaluationData(source=str(SHARED / name))).sets["test"].collection
    found = bm25(collection, list(collection.queries), stop_words)
    assert found.values["ndcg_at_10"] == pytest.approx(ndcg, abs=0.001)


def test_bm25_by_hand():
    documents = {
        "a": "parse the config_file again",
        "b": "parseConfig now",
        "c": "unrelated words here",
        "d": "PARSE it",
    }
    queries = {"q": "Parse config", "none": "zebra"}
    collection = Collection("x", "", documents, queries, {"q": {"b": 1}, "none": {"a": 1}})
    found = bm25(collection, ["q", "none"])
    assert found.per_item["mrr_at_10"] == {"q": 1.0, "none": 0.0}
    assert found.per_item["recall_at_100"] == {"q": 1.0, "none": 0.0}


FORMS = {
    "Hindi": ("हिन्दी भाषा का इतिहास", ("हिन्द महासागर का नक्शा", "भाषण और दबाव", "इति और हास")),
    "Bengali": ("বাংলা ভাষার ইতিহাস", ("বাল ভাষণ", "ভাষ্য ইতি", "বালি দ্বীপ")),
    "vocalised Arabic": ("كِتَابُ اللُّغَةِ", ("كَ تَ بَ", "لُ غَ ةٍ", "بُ كِ")),
    "decomposed accents": ("cafe\u0301 creme bru\u0302le\u0301e", ("caf \u00e8 br", "creme le e", "bru caf")),
}


@pytest.mark.parametrize(("text", "others"), FORMS.values(), ids=FORMS)
def test_the_exact_match_comes_first_in_scripts_with_combining_marks(text, others):
    documents = dict(enumerate((*others, f"{text} ..."), start=1))
    collection = Collection("x", "", {str(id): body for id, body in documents.items()}, {"q": text}, {"q": {"4": 1}})
    assert bm25(collection, ["q"]).values["mrr_at_10"] == 1.0
    assert set(tokens(text)) <= set(tokens(documents[4]))
    assert len(tokens(text)) == len(text.split())


def test_composed_and_decomposed_full_and_half_width_are_one_word():
    assert tokens("Cafe\u0301 ＢＭ２５ co\u00adop") == tokens("café BM25 coop") == ["café", "bm25", "coop"]
    assert tokens("İstanbul") == tokens("İstanbul".lower())


def test_documents_without_words_are_no_fault_of_bm25():
    documents = {"a": "", "b": "...", "c": "the cat"}
    collection = Collection("x", "", documents, {"q": "cat", "none": "..."}, {"q": {"c": 1}, "none": {"a": 1}})
    assert bm25(collection, ["q", "none"]).per_item["mrr_at_10"] == {"q": 1.0, "none": 0.0}
    wordless = Collection("x", "", {"a": "", "b": "?"}, {"q": "cat"}, {"q": {"a": 1}})
    assert bm25(wordless, ["q"]).values["mrr_at_10"] == 0.0


def test_stop_words_are_those_asked_for():
    documents = {"a": "the the the", "b": "cat"}
    collection = Collection("x", "", documents, {"q": "the cat"}, {"q": {"a": 1}})
    assert bm25(collection, ["q"]).values["recall_at_100"] == 0.0
    assert bm25(collection, ["q"], "none").values["recall_at_100"] == 1.0
