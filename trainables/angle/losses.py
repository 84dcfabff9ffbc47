"""AnglE similarity of embedding prefixes, and the CoSENT ranking loss in linear memory.

Embeddings are (pairs, D) in float32 or float64, one row of `x` and of `y` per graded pair. Similarities are
(P, pairs): row p belongs to the prefix of the first `dims[p]` coordinates.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

SplitMode = Literal["chunked", "interleaved"]

EPSILON = 1e-12
"""Norms below this count as this, so that the cosine of a zero vector is 0."""

ROWS = 256
"""Pairs that are worked on at a time: few enough to stay in a core's cache, and memory does not grow with more."""


def cosine(x: torch.Tensor, y: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    """Cosine of x and y at every prefix length, (P, pairs); `dims` ascend.

    >>> cosine(torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 0.0]]), [1, 2])
    tensor([[1.0000],
            [0.6000]])
    """
    return _Similarity.apply(x, y, tuple(dims), None)


def angle(x: torch.Tensor, y: torch.Tensor, dims: Sequence[int], split: SplitMode) -> torch.Tensor:
    """AnglE similarity at every prefix length, (P, pairs); `dims` are even and ascend.

    Each prefix is read as complex numbers: `chunked` takes its first half as real and its second half as
    imaginary parts, `interleaved` takes its even coordinates as real and its odd ones as imaginary parts. The
    similarity is |sum over the real and imaginary parts of x / y| with both normalised (AnglE, arXiv 2309.12871,
    eq. 6, in the form of its authors' code, where the division leaves |y| = 1 unsquared). That sum is
    x . (1 + i)y, so the similarity equals sqrt(2) |cos| of x with y turned by 45 degrees in each plane: it is not
    symmetric in its two texts, and x = y is not its maximum.

    >>> x = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    >>> angle(x, torch.tensor([[0.0, 1.0, 0.0, 0.0]]), [2, 4], "interleaved").flatten()
    tensor([1., 1.])
    >>> angle(x, torch.tensor([[0.0, 1.0, 0.0, 0.0]]), [2, 4], "chunked").flatten()
    tensor([1., 0.])
    """
    return _Similarity.apply(x, y, tuple(dims), split).abs()


class _Similarity(torch.autograd.Function):
    """c_p = x . T y / (|x| |y|) over the first dims[p] coordinates; T is (1 + i) in `split`'s planes, or 1 for None.

    Its gradient is dc/dx = T y / (|x| |y|) - c x / |x|^2, and T' x for T y on the side of y. Both passes go through
    the pairs in blocks and hold nothing of the size of x but its gradient: written with autograd's operations, the
    loss would keep some ten copies of x and y for the way back.
    """

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, y: torch.Tensor, dims: tuple[int, ...], split: SplitMode | None
    ) -> torch.Tensor:
        ctx.dims, ctx.split = dims, split
        products, squares = [], []
        for one, other in zip(x.split(ROWS), y.split(ROWS), strict=True):
            products.append(_products(one, other, dims, split))
            squares.append([_prefix_sums(side, side, dims) for side in (one, other)])
        norms = [torch.cat(parts, 1).sqrt_().clamp_min_(EPSILON) for parts in zip(*squares, strict=True)]
        similarity = torch.cat(products, 1) / (norms[0] * norms[1])
        ctx.save_for_backward(x, y, similarity, *norms)
        return similarity

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None, None]:
        x, y, similarity, *norms = ctx.saved_tensors
        toward = grad / (norms[0] * norms[1])
        gradients = []
        for own, other, norm, back in ((x, y, norms[0], False), (y, x, norms[1], True)):
            along = grad * similarity / norm.square()
            gradients.append(torch.zeros_like(own))
            for start in range(0, len(own), ROWS):
                rows = slice(start, start + ROWS)
                _accumulate(gradients[-1][rows], own[rows], -along[:, rows], ctx.dims, None, back)
                _accumulate(gradients[-1][rows], other[rows], toward[:, rows], ctx.dims, ctx.split, back)
        return gradients[0], gradients[1], None, None


def _products(x: torch.Tensor, y: torch.Tensor, dims: tuple[int, ...], split: SplitMode | None) -> torch.Tensor:
    """Inner products x . T y over every prefix, (P, rows)."""
    if split == "chunked":
        # The planes of a chunked prefix change with its length, so that no prefix can use the sums of another.
        return torch.stack([(x[:, :dim] * _turned(y[:, :dim], split)).sum(1) for dim in dims])
    return _prefix_sums(x, _turned(y[:, : dims[-1]], split), dims)


def _prefix_sums(x: torch.Tensor, y: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    """Inner products x . y over every prefix, (P, rows); each coordinate is read once."""
    return torch.stack([(x[:, part] * y[:, part]).sum(1) for part in _parts(dims)]).cumsum(0)


def _accumulate(
    into: torch.Tensor,
    y: torch.Tensor,
    weights: torch.Tensor,
    dims: tuple[int, ...],
    split: SplitMode | None,
    back: bool,
) -> None:
    """Add the sum over prefixes p of weights[p] T y, or T' y for `back`, to `into`; weights are (P, rows)."""
    if split == "chunked":
        for dim, weight in zip(dims, weights, strict=True):
            into[:, :dim].addcmul_(_turned(y[:, :dim], split, back), weight[:, None])
        return
    turned = _turned(y[:, : dims[-1]], split, back)
    # A coordinate belongs to every prefix that ends behind it.
    for part, weight in zip(_parts(dims), weights.flip(0).cumsum(0).flip(0), strict=True):
        into[:, part].addcmul_(turned[:, part], weight[:, None])


def _turned(y: torch.Tensor, split: SplitMode | None, back: bool = False) -> torch.Tensor:
    """The rows of y times (1 + i) in the split's planes, or for `back` times (1 - i), the transpose; y itself without a
    split."""
    if split is None:
        return y
    axis, shape = (1, (2, -1)) if split == "chunked" else (2, (-1, 2))
    real, imaginary = y.unflatten(1, shape).unbind(axis)
    turned = (real + imaginary, imaginary - real) if back else (real - imaginary, real + imaginary)
    return torch.stack(turned, axis).flatten(1)


def _parts(dims: tuple[int, ...]) -> list[slice]:
    """Slices of the coordinates that each prefix has beyond the one before it."""
    return [slice(start, end) for start, end in itertools.pairwise((0, *dims))]


def cosent(similarity: torch.Tensor, labels: torch.Tensor, scale: float) -> torch.Tensor:
    """CoSENT (Su, 2022): log(1 + sum over y_i > y_j of exp(scale (s_j - s_i))) of each row of `similarity`.

    similarity (P, pairs), labels (pairs,), result (P,); 0 where all labels are equal. Pairs with equal labels
    are not compared. O(P B log B) time and O(P B) memory for B pairs: see `_Ranking`.

    >>> cosent(torch.tensor([[0.0, 0.0, 0.0]]), torch.tensor([1.0, 2.0, 2.0]), 20.0).exp()
    tensor([3.])
    """
    labels, order = labels.sort()
    return _Ranking.apply(similarity.index_select(1, order) * scale, labels)


def comparisons(labels: torch.Tensor) -> torch.Tensor:
    """How many pairs of pairs CoSENT compares: those with different labels. () int64.

    >>> comparisons(torch.tensor([1.0, 2.0, 2.0])).item()
    2
    """
    return torch.searchsorted(labels.sort().values, labels).sum()


class _Ranking(torch.autograd.Function):
    """L = log(1 + sum over y_i > y_j of exp(s_j - s_i)), row by row, for ascending labels y.

    With a_j = log sum of exp(-s_i) over all i with a higher label than j, which is a suffix of the order, and b_i =
    log sum of exp(s_j) over all j with a lower label than i, a prefix: L = log(1 + sum_j exp(s_j + a_j)), and dL/ds_k
    = exp(s_k + a_k - L) - exp(b_k - s_k - L). Both logarithms are running sums, so that no pair of pairs is ever held.
    """

    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        higher = torch.searchsorted(labels, labels, right=True)
        nothing = scores.new_full((len(scores), 1), -torch.inf)
        suffix = torch.cat([(-scores).flip(1).logcumsumexp(1).flip(1), nothing], 1)
        above = suffix.index_select(1, higher)
        loss = torch.cat([scores + above, torch.zeros_like(nothing)], 1).logsumexp(1)
        if ctx.needs_input_grad[0]:
            lower = torch.searchsorted(labels, labels)
            below = torch.cat([nothing, scores.logcumsumexp(1)], 1).index_select(1, lower)
            ctx.save_for_backward((scores + above - loss[:, None]).exp_().sub_((below - scores - loss[:, None]).exp_()))
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        (slope,) = ctx.saved_tensors
        return slope * grad[:, None], None


def in_batch(
    x: torch.Tensor, y: torch.Tensor, positive: torch.Tensor, excluded: torch.Tensor, dims: Sequence[int], scale: float
) -> torch.Tensor:
    """Cross-entropy of each positive pair's second text among the second texts of the batch, by cosine, (P,).

    positive (pairs,) tells which pairs are alike enough to be told from the others; excluded (pairs, pairs) which
    second texts are no negatives of a first text. 0 where the batch has no positive pair. This term, unlike
    `cosent`, holds a (pairs, pairs) matrix.
    """
    rows = positive.nonzero().flatten()
    if not len(rows):
        return x.new_zeros(len(dims))
    terms = []
    for dim in dims:
        scores = F.normalize(x[rows, :dim], dim=1) @ F.normalize(y[:, :dim], dim=1).T * scale
        terms.append(F.cross_entropy(scores.masked_fill(excluded[rows], -torch.inf), rows))
    return torch.stack(terms)
