"""What counts as a result."""

import json

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
