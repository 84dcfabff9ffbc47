"""Cross-entropy over a vocabulary without ever holding its logits.

Masked-LM training projects every predicted token onto the whole vocabulary. The logits of all of them, (N, V),
are the largest tensor of a step by far, and autograd keeps them, or their softmax, for the backward pass. But
the gradient of a sum of cross-entropies with respect to its logits, softmax - one-hot, is known as soon as the
logits are: so it is taken chunk by chunk in the forward pass, and of each chunk's logits nothing remains.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable


def cross_entropy_sum(
    hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, targets: torch.Tensor, chunk: int
) -> torch.Tensor:
    """Sum over tokens of -log softmax(hidden @ weight.T + bias)[target]; logits of `chunk` tokens are held at a time.

    hidden (N, D), weight (V, D), bias (V,), targets (N,). The value is float32, or float64 where `weight` is; under
    autocast the products are in its precision and the softmax is not. Without tokens it is 0.

    >>> cross_entropy_sum(torch.zeros(3, 2), torch.ones(4, 2), None, torch.tensor([0, 1, 3]), chunk=2).exp().round()
    tensor(64.)
    """
    return _CrossEntropySum.apply(hidden, weight, bias, targets, chunk, torch.is_grad_enabled())


class _CrossEntropySum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        targets: torch.Tensor,
        chunk: int,
        wanted: bool,
    ) -> torch.Tensor:
        device = hidden.device.type
        kind = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
        with torch.autocast(device, enabled=False):
            total, gradients = _forward(hidden.to(kind), weight, bias, targets, chunk, wanted)
        ctx.gradients = gradients
        ctx.kind = hidden.dtype
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        to_hidden, to_weight, to_bias = ctx.gradients
        to_bias = None if to_bias is None else to_bias * grad
        return (to_hidden * grad.to(to_hidden.dtype)).to(ctx.kind), to_weight * grad, to_bias, None, None, None


def _forward(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    targets: torch.Tensor,
    chunk: int,
    wanted: bool,
) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor, torch.Tensor | None] | None]:
    """The sum of cross-entropies and, where `wanted`, its gradients with respect to hidden, weight and bias."""
    matrix = weight.to(hidden.dtype)
    total = weight.new_zeros(())
    to_hidden = torch.empty_like(hidden) if wanted else None
    to_weight = torch.zeros_like(weight) if wanted else None
    to_bias = torch.zeros_like(bias) if wanted and bias is not None else None
    for start in range(0, len(hidden), chunk):
        part, column = hidden[start : start + chunk], targets[start : start + chunk].unsqueeze(1)
        scores = (part @ matrix.t()).to(weight.dtype)
        if bias is not None:
            scores += bias
        own = scores.gather(1, column)
        largest = scores.amax(1, keepdim=True)
        scores.sub_(largest).exp_()
        sums = scores.sum(1, keepdim=True)
        total += (sums.log() + largest - own).sum()
        if to_hidden is None or to_weight is None:
            continue
        # softmax - one-hot
        slopes = scores.div_(sums).scatter_add_(1, column, scores.new_full((), -1.0).expand_as(column))
        if to_bias is not None:
            to_bias += slopes.sum(0)
        slopes = slopes.to(hidden.dtype)
        to_hidden[start : start + chunk] = slopes @ matrix
        if to_weight.dtype == slopes.dtype:
            to_weight.addmm_(slopes.t(), part)
        else:
            to_weight += slopes.t() @ part
    return total, None if to_hidden is None or to_weight is None else (to_hidden, to_weight, to_bias)
