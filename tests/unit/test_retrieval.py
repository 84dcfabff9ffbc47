"""What counts as a result."""

import json
from itertools import pairwise

import pytest
import torch

from trainables.data.config import EvaluationData
from trainables.evaluation.retrieval import Retrieval
from trainables.evaluation.scoring import DENSE, SPARSE


@pytest.fixture
def retrieval(tmp_path):
    (tmp_path / "qrels").mkdir()
    documents = [json.dumps({"_id": f"d{n}", "title": "", "text": f"text {n}"}) for n in range(5)]
    queries = [json.dumps({"_id": f"q{n}", "text": f"query {n}"}) for n in range(9)]
    (tmp_path / "corpus.jsonl").write_text("\n".join(documents))
    (tmp_path / "queries.jsonl").write_text("\n".join(queries))
    judged = "".join(f"q{n}\td0\t1\n" for n in range(9))
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    return Retrieval(EvaluationData(source=str(tmp_path)))


def zeros(texts):
    return torch.zeros(len(texts), 3)


@pytest.mark.parametrize(("scorer", "recall"), [(SPARSE, 0.0), (DENSE, 1.0)])
def test_documents_that_share_no_term_are_no_results_of_an_inverted_index(retrieval, scorer, recall):
    """Vectors of a collapsed run are all zero: ties would give them a ranking that they do not have."""
    found = retrieval.evaluate(("validation", "test"), zeros, zeros, scorer=scorer)
    assert {e.values["recall_at_100"] for e in found.values()} == {recall}


def test_a_document_with_the_querys_own_id_is_dropped_where_asked(tmp_path):
    """Each query is a document and has its id; the document after it is the relevant one, and second by score."""
    from trainables.evaluation.bm25 import bm25

    ids = [f"d{n}" for n in range(6)]
    (tmp_path / "qrels").mkdir()
    rows = [{"_id": id, "text": f"{id} w{n} w{n + 1}"} for n, id in enumerate(ids)]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = [{"_id": id, "text": f"{id} w{n + 1}"} for n, id in enumerate(ids[:-1])]
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    judged = "".join(f"{one}\t{other}\t1\n" for one, other in pairwise(ids))
    (tmp_path / "qrels" / "dev.tsv").write_text(judged)

    def encode(texts):
        words = [f"w{n}" for n in range(8)] + ids
        return torch.tensor([[float(word in text.split()) for word in words] for text in texts])

    for drop, first in ((False, 0.5), (True, 1.0)):
        settings = EvaluationData(source=str(tmp_path), test_source=str(tmp_path), qrels_split="dev", drop_own_id=drop)
        retrieval = Retrieval(settings)
        found = retrieval.evaluate(("test",), encode, encode)["test"]
        assert found.values["mrr_at_10"] == pytest.approx(first)
        part = retrieval.sets["test"]
        assert bm25(part.collection, part.query_ids, drop_own_id=drop).values["mrr_at_10"] == pytest.approx(first)
