"""max over tokens of a linear layer's outputs, without ever holding them: (B, L, V) is too much to keep.

SPLADE needs w_j = max_i log(1 + relu(h_i . W_j + b_j)) (arXiv 2109.10086, eq. 2). log(1 + relu(x)) never falls
and b_j is the same for every token, so w_j = log(1 + relu(max_i(h_i . W_j) + b_j)): the maximum comes first, tile
by tile, and of B x L x V numbers only B x V maxima and their positions are kept. Backwards, each pooled entry
has one token, and only entries that log(1 + relu) lets through have a gradient at all.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

CPU_TILE = 2**18
"""Logits of one tile on the CPU: 1 MiB in float32, about a core's own cache."""

GPU_TILE = 2**26
"""Logits of one tile on other devices: 256 MiB in float32."""


def max_log1p_relu(
    hidden: torch.Tensor, mask: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """SPLADE weights (B, V) of hidden (B, L, D), mask (B, L), weight (V, D) and bias (V,).

    Float32, or float64 where `weight` is. A text whose mask is all 0 gets zeros.

    >>> hidden = torch.tensor([[[1.0, 0.0], [0.0, 3.0], [9.0, 9.0]]])
    >>> max_log1p_relu(hidden, torch.tensor([[1, 1, 0]]), torch.eye(2), torch.tensor([0.0, -4.0])).exp()
    tensor([[2., 1.]])
    """
    largest = _MaxLinear.apply(hidden, mask, weight, bias)
    if bias is not None:
        largest = largest + bias
    return torch.log1p(torch.relu(largest))


class _MaxLinear(torch.autograd.Function):
    """(B, V) largest h_i . W_j over the unmasked tokens i, -inf without any.

    `bias` only says which entries the relu behind will let through: the others' positions are not looked for,
    and no gradient arrives there.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, mask: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        wanted = any(ctx.needs_input_grad)
        device = hidden.device.type
        kind = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
        pool = _ragged if device == "cpu" else _padded
        largest, positions = pool(hidden.to(kind), mask, weight.to(kind), bias, wanted)
        if wanted:
            ctx.save_for_backward(hidden, weight, positions)
        return largest.to(weight.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, None, torch.Tensor | None, None]:
        hidden, weight, positions = ctx.saved_tensors
        texts, length, width = hidden.shape
        row, column = grad.nonzero(as_tuple=True)
        value = grad[row, column]
        token = row * length + positions[row, column]
        # Both products are sums of a few rows per row of the result, which is what embedding_bag computes.
        to_hidden = to_weight = None
        if ctx.needs_input_grad[0]:
            to_hidden = _sum_rows(token, column, value, weight, texts * length)
            to_hidden = to_hidden.view(texts, length, width).to(hidden.dtype)
        if ctx.needs_input_grad[2]:
            tokens = hidden.reshape(-1, width).to(weight.dtype)
            to_weight = _sum_rows(column, token, value, tokens, weight.shape[0])
        return to_hidden, None, to_weight, None


def _ragged(
    hidden: torch.Tensor, mask: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, wanted: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Text by text, padding left out, in tiles that stay in the cache; positions where the relu lets through."""
    texts, vocabulary = hidden.shape[0], weight.shape[0]
    kept = [m.nonzero().squeeze(1) for m in mask]
    rows = [hidden[i].index_select(0, at) for i, at in enumerate(kept)]
    largest = torch.full((texts, vocabulary), float("-inf"), dtype=torch.promote_types(hidden.dtype, torch.float32))
    positions = torch.zeros((texts, vocabulary), dtype=torch.int32) if wanted else None
    tiles = -(-max(map(len, rows), default=0) * vocabulary // CPU_TILE)
    width = -(-vocabulary // max(1, tiles))
    for start in range(0, vocabulary, width):
        part = slice(start, start + width)
        tile = weight[part].t()
        for i, row in enumerate(rows):
            if not len(row):
                continue
            logits = row @ tile
            best = logits.amax(0)
            largest[i, part] = best
            if positions is not None:
                active = (best > (0 if bias is None else -bias[part])).nonzero().squeeze(1)
                where = logits.index_select(1, active).max(0).indices
                positions[i, start + active] = kept[i][where].int()
    return largest, positions


def _padded(
    hidden: torch.Tensor, mask: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, wanted: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Some texts at a time, padding included: few large kernels and no wait for the device."""
    texts, length, _ = hidden.shape
    size = max(1, GPU_TILE // (length * weight.shape[0]))
    parts = []
    for start in range(0, texts, size):
        logits = hidden[start : start + size] @ weight.t()
        logits.masked_fill_(~mask[start : start + size].bool().unsqueeze(2), float("-inf"))
        parts.append(logits.max(1))
    largest = torch.cat([part.values for part in parts])
    positions = torch.cat([part.indices.int() for part in parts]) if wanted else None
    return largest.to(torch.promote_types(hidden.dtype, torch.float32)), positions


def _sum_rows(
    target: torch.Tensor, source: torch.Tensor, value: torch.Tensor, table: torch.Tensor, rows: int
) -> torch.Tensor:
    """(rows, D): result[target[e]] += value[e] * table[source[e]] over all entries e."""
    order = target.argsort(stable=True)
    ends = torch.bincount(target, minlength=rows).cumsum(0)
    starts = torch.cat([ends.new_zeros(1), ends[:-1]])
    return F.embedding_bag(source[order], table, starts, mode="sum", per_sample_weights=value[order])
