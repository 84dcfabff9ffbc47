"""MaxSim against brute force in float64, for texts with any number of vectors, whatever is compared at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainables.evaluation import scoring
from trainables.evaluation.scoring import MAX_SIM, Ragged, max_sim
from trainables.evaluation.search import top_k


def ragged(lengths: list[int], generator: torch.Generator, whole: bool = False) -> Ragged:
    """Random vectors of 4 numbers, small whole ones where ties are wanted."""
    shape = sum(lengths), 4
    values = (
        torch.randint(-2, 3, shape, generator=generator).float() if whole else torch.randn(shape, generator=generator)
    )
    return Ragged(values, torch.tensor(lengths, dtype=torch.long))


def texts(vectors: Ragged) -> list[np.ndarray]:
    return [part.double().numpy() for part in vectors.values.split(vectors.lengths.tolist())]


def brute(queries: Ragged, documents: Ragged) -> np.ndarray:
    """(queries, documents) float64, pair by pair."""
    return np.array(
        [
            [(query @ document.T).max(1, initial=-np.inf).sum() for document in texts(documents)]
            for query in texts(queries)
        ]
    )


LENGTHS = st.lists(st.integers(0, 9), min_size=1, max_size=12)


@given(asked=LENGTHS, found=LENGTHS, limits=st.sampled_from([(1, 1), (5, 7), (8, 64), (2**10, 2**13)]))
@settings(max_examples=150, deadline=None)
def test_scores_are_those_of_brute_force(asked, found, limits):
    generator = torch.Generator().manual_seed(sum(asked) + 31 * sum(found))
    queries, documents = ragged(asked, generator), ragged(found, generator)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoring, "QUERY_TOKENS", limits[0])
        patch.setattr(scoring, "DOCUMENT_TOKENS", limits[1])
        scores = MAX_SIM.scores(queries, documents)
    np.testing.assert_allclose(scores.numpy(), brute(queries, documents), rtol=1e-5, atol=1e-5)


@given(asked=LENGTHS, found=st.lists(st.integers(1, 9), min_size=1, max_size=40), size=st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_the_best_are_those_of_brute_force_with_ties_by_position(asked, found, size):
    generator = torch.Generator().manual_seed(sum(asked) + 31 * sum(found))
    queries, documents = ragged(asked, generator, whole=True), ragged(found, generator, whole=True)
    blocks = [range(start, min(start + size, len(found))) for start in range(0, len(found), size)]
    scores, positions = top_k(queries, ((list(b), documents[list(b)]) for b in blocks), 7, MAX_SIM)
    expected = brute(queries, documents)
    order = np.argsort(-expected, axis=1, kind="stable")[:, :7]
    assert np.array_equal(positions.numpy(), order)
    assert np.array_equal(scores.numpy(), np.take_along_axis(expected, order, axis=1))


def test_a_text_without_vectors():
    one = torch.tensor([[1.0, 0.0]])
    queries = Ragged(one, torch.tensor([1, 0]))
    documents = Ragged(-one, torch.tensor([0, 1]))
    assert MAX_SIM.scores(queries, documents).tolist() == [[-torch.inf, -1.0], [0.0, 0.0]]


def test_half_precision_is_scored_in_float32():
    generator = torch.Generator().manual_seed(0)
    queries, documents = ragged([5, 3], generator), ragged([9] * 30, generator)
    half = [Ragged(part.values.bfloat16(), part.lengths) for part in (queries, documents)]
    with torch.autocast("cpu", torch.bfloat16):
        scores = MAX_SIM.scores(*half)
    assert scores.dtype == torch.float32
    np.testing.assert_allclose(scores.numpy(), brute(*half), rtol=1e-5)


def test_what_is_compared_at_a_time_is_bounded(monkeypatch):
    """One long document among many short ones does not make all of them long."""
    products = []
    real = scoring.max_sim

    def watched(queries, documents):
        products.append(queries[1].numel() * documents[1].numel())
        return real(queries, documents)

    monkeypatch.setattr(scoring, "max_sim", watched)
    monkeypatch.setattr(scoring, "QUERY_TOKENS", 16)
    monkeypatch.setattr(scoring, "DOCUMENT_TOKENS", 64)
    generator = torch.Generator().manual_seed(0)
    queries, documents = ragged([4] * 20, generator), ragged([3] * 50 + [60] + [3] * 50, generator)
    scores = MAX_SIM.scores(queries, documents)
    assert max(products) <= 16 * 64
    np.testing.assert_allclose(scores.numpy(), brute(queries, documents), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 1, 1, 0], []])
def test_texts_keep_their_vectors_in_any_order(order):
    vectors = ragged([2, 0, 3, 1], torch.Generator().manual_seed(0))
    found = vectors[order]
    assert found.lengths.tolist() == [[2, 0, 3, 1][place] for place in order]
    for mine, place in zip(texts(found), order, strict=True):
        assert np.array_equal(mine, texts(vectors)[place])
    assert torch.equal(vectors[1:3].values, vectors[[1, 2]].values)
    assert torch.equal(MAX_SIM.ordered([vectors, vectors], [5, 2]).values, vectors[[1, 2]].values)


@pytest.mark.parametrize("longest", [None, 7])
def test_the_gradient_is_that_of_the_reference(longest):
    generator = torch.Generator().manual_seed(0)
    values = [torch.randn(count, 4, generator=generator).requires_grad_() for count in (5, 9)]
    queries, documents = (Ragged(v, torch.tensor(n)) for v, n in zip(values, ([2, 3], [4, 1, 4]), strict=True))
    weights = torch.randn(2, 3, generator=generator)
    found = torch.autograd.grad((max_sim(queries.padded(longest), documents.padded(longest)) * weights).sum(), values)
    parts = [v.double().split(n) for v, n in zip(values, ([2, 3], [4, 1, 4]), strict=True)]
    pairs = torch.stack([torch.stack([(q @ d.T).max(1).values.sum() for d in parts[1]]) for q in parts[0]])
    expected = torch.autograd.grad((pairs * weights.double()).sum(), values)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs)
