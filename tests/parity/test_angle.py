"""AnglE and CoSENT against sentence-transformers, complex arithmetic and the quadratic form."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from trainables.angle import losses

DIMS = (2, 6, 8, 20, 32)
PRECISIONS = [(torch.float32, 1e-5), (torch.float64, 1e-9)]


def embeddings(dtype: torch.dtype, pairs: int = 24, size: int = 40, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(pairs, size, generator=generator, dtype=torch.float64)
    y = x + torch.randn(pairs, size, generator=generator, dtype=torch.float64)
    return x.to(dtype).requires_grad_(), y.to(dtype).requires_grad_()


def labels(pairs: int = 24, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """With many ties, as JSTS has."""
    return torch.randint(0, 8, (pairs,), generator=torch.Generator().manual_seed(1)).to(dtype) / 5


class Given(nn.Module):
    """Stands for a SentenceTransformer whose embeddings are there already."""

    def forward(self, features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return dict(features)

    def get_embedding_dimension(self) -> int:
        return 40

    get_sentence_embedding_dimension = get_embedding_dimension


def reference(name: str, x: torch.Tensor, y: torch.Tensor, weights: tuple[float, ...]) -> torch.Tensor:
    """sentence-transformers' MatryoshkaLoss around its AnglELoss or CoSENTLoss."""
    module = pytest.importorskip("sentence_transformers.losses")
    model = Given()
    loss = module.MatryoshkaLoss(
        model, getattr(module, name)(model, scale=20.0), matryoshka_dims=list(DIMS), matryoshka_weights=list(weights)
    )
    return loss([{"sentence_embedding": x}, {"sentence_embedding": y}], labels(dtype=x.dtype))


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("name", ["AnglELoss", "CoSENTLoss"])
def test_value_and_gradient_are_those_of_sentence_transformers(name, dtype, tolerance) -> None:
    x, y = embeddings(dtype)
    weights = (1.0, 0.5, 2.0, 1.0, 0.25)
    similarity = losses.angle(x, y, DIMS, "chunked") if name == "AnglELoss" else losses.cosine(x, y, DIMS)
    own = (torch.tensor(weights, dtype=dtype) * losses.cosent(similarity, labels(), 20.0)).sum()
    theirs = reference(name, x, y, weights)
    assert own.item() == pytest.approx(theirs.item(), rel=tolerance)
    for mine, other in zip(torch.autograd.grad(own, (x, y)), torch.autograd.grad(theirs, (x, y)), strict=True):
        torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance * other.abs().max().item())


@pytest.mark.parametrize("split", ["chunked", "interleaved"])
def test_similarity_is_complex_division(split) -> None:
    """|Re + Im of the sum over z_x conj(z_y)| / (|x| |y|), the definition of AnglE's authors."""
    x, y = embeddings(torch.float64)
    for dim, found in zip(DIMS, losses.angle(x, y, DIMS, split), strict=True):
        parts = [t[:, :dim].detach() for t in (x, y)]
        if split == "chunked":
            zx, zy = (torch.complex(t[:, : dim // 2], t[:, dim // 2 :]) for t in parts)
        else:
            zx, zy = (torch.complex(t[:, 0::2].contiguous(), t[:, 1::2].contiguous()) for t in parts)
        total = (zx * zy.conj()).sum(1) / (parts[0].norm(dim=1) * parts[1].norm(dim=1))
        torch.testing.assert_close(found.detach(), (total.real + total.imag).abs(), rtol=1e-12, atol=1e-12)


def test_interleaved_gradient_is_numerically_right() -> None:
    x, y = embeddings(torch.float64, pairs=5, size=8)
    assert torch.autograd.gradcheck(lambda a, b: losses.angle(a, b, (2, 4, 8), "interleaved"), (x, y))
    assert torch.autograd.gradcheck(
        lambda a: losses.cosent(a, torch.tensor([1.0, 1, 2, 3, 3]), 3.0), (x.detach().T[:2].requires_grad_(),)
    )


def test_similarity_is_the_cosine_of_a_turned_text_and_not_symmetric() -> None:
    x, y = (t.detach() for t in embeddings(torch.float64, size=2))
    turned = x @ torch.tensor([[1.0, -1.0], [1.0, 1.0]], dtype=torch.float64) / math.sqrt(2)
    expected = math.sqrt(2) * torch.nn.functional.cosine_similarity(turned, y).abs()
    torch.testing.assert_close(losses.angle(x, y, [2], "interleaved")[0], expected)
    assert not torch.allclose(losses.angle(x, y, [2], "chunked"), losses.angle(y, x, [2], "chunked"), atol=0.1)
    torch.testing.assert_close(losses.angle(x, x, [2], "chunked")[0], torch.ones(24, dtype=torch.float64))


def planes(dim: int, split: str) -> set[tuple[int, int]]:
    """Which two coordinates of a prefix are one complex number: only they give two different axes a similarity."""
    axes = torch.eye(16)
    pairs = list(itertools.combinations(range(dim), 2))
    first, second = (axes[list(side)] for side in zip(*pairs, strict=True))
    found = losses.angle(first, second, [dim], split)[0]
    return {pair for pair, similarity in zip(pairs, found, strict=True) if similarity > 0.5}


def test_interleaved_prefixes_keep_their_planes_and_chunked_ones_do_not() -> None:
    assert planes(4, "interleaved") == {(0, 1), (2, 3)}
    for shorter, longer in itertools.pairwise((2, 4, 8, 16)):
        assert planes(shorter, "interleaved") < planes(longer, "interleaved")
        assert len(planes(longer, "chunked")) == longer // 2
        assert not planes(shorter, "chunked") & planes(longer, "chunked")


def quadratic(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """log(1 + sum over y_i > y_j of exp(s_j - s_i)), pair by pair of pairs."""
    ordered = labels[:, None] > labels[None, :]
    terms = (scores[None, :] - scores[:, None])[ordered]
    return torch.cat([scores.new_zeros(1), terms]).logsumexp(0)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.floats(-1, 1)), min_size=1, max_size=24),
    st.sampled_from([0.1, 20.0, 300.0]),
)
def test_linear_form_equals_the_quadratic_one(pairs, scale) -> None:
    """Ties, equal labels throughout, single pairs and scores far apart included."""
    own = torch.tensor([[score for _, score in pairs]], dtype=torch.float64, requires_grad=True)
    other = own.detach().clone().requires_grad_()
    grades = torch.tensor([float(label) for label, _ in pairs], dtype=torch.float64)
    (found,) = losses.cosent(own, grades, scale)
    expected = quadratic(other[0] * scale, grades)
    assert found.item() == pytest.approx(expected.item(), rel=1e-10, abs=1e-12)
    found.backward()
    expected.backward()
    torch.testing.assert_close(own.grad, other.grad, rtol=1e-8, atol=1e-9 * scale)
    assert losses.comparisons(grades).item() == sum(a > b for (a, _), (b, _) in itertools.product(pairs, pairs))


def test_equal_labels_leave_nothing_to_learn() -> None:
    scores = torch.randn(2, 5, requires_grad=True)
    found = losses.cosent(scores, torch.full((5,), 3.0), 20.0)
    assert found.tolist() == [0.0, 0.0]
    found.sum().backward()
    assert scores.grad is not None
    assert not scores.grad.any()


def test_order_of_the_pairs_does_not_matter_and_a_right_order_costs_less() -> None:
    scores = torch.linspace(-1, 1, 9, dtype=torch.float64)[None]
    grades = torch.arange(9.0)
    turn = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    right = losses.cosent(scores, grades, 20.0)
    torch.testing.assert_close(losses.cosent(scores[:, turn], grades[turn], 20.0), right)
    assert right < losses.cosent(scores * 0, grades, 20.0) < losses.cosent(-scores, grades, 20.0)
    torch.testing.assert_close(losses.cosent(scores * 0, grades, 20.0).exp() - 1, torch.tensor([36.0]).double())


def test_a_hundred_thousand_pairs_fit() -> None:
    """The quadratic form would need 40 GB for one matrix."""
    scores = torch.rand(1, 100_000, requires_grad=True)
    found = losses.cosent(scores, torch.randint(0, 26, (100_000,)).float(), 20.0)
    found.backward()
    assert found.isfinite().all()


def test_in_batch_term_is_cross_entropy_among_second_texts() -> None:
    x, y = (t.detach() for t in embeddings(torch.float64, pairs=4))
    excluded = torch.zeros(4, 4, dtype=torch.bool)
    excluded[0, 3] = True
    found = losses.in_batch(x, y, torch.tensor([True, False, True, False]), excluded, (4, 40), 20.0)
    for dim, value in zip((4, 40), found, strict=True):
        scores = 20 * torch.nn.functional.cosine_similarity(x[:, None, :dim], y[None, :, :dim], dim=2)
        first, third = -scores[0, :3].log_softmax(0)[0], -scores[2].log_softmax(0)[2]
        torch.testing.assert_close(value, (first + third) / 2)
    assert losses.in_batch(x, y, torch.zeros(4, dtype=torch.bool), excluded, (4,), 20.0).tolist() == [0.0]


def test_zero_vectors_have_no_similarity_and_a_finite_gradient() -> None:
    x = torch.zeros(2, 4, requires_grad=True)
    y = torch.randn(2, 4, requires_grad=True)
    losses.angle(x, y, (2, 4), "interleaved").sum().backward()
    assert losses.cosine(x, y, (2, 4)).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert x.grad is not None
    assert x.grad.isfinite().all()
