"""Losses of SPLADE on the global batch. Vectors are (texts, V), non-negative, float32 or float64."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def flops(vectors: torch.Tensor) -> torch.Tensor:
    """sum_j (mean_i |w_ij|)^2, a smooth stand-in for the cost of a dot product (arXiv 2004.05665, section 4).

    >>> flops(torch.tensor([[2.0, 0.0], [0.0, 4.0]])).item()
    5.0
    """
    return vectors.mean(0).square().sum()


def l1(vectors: torch.Tensor) -> torch.Tensor:
    """mean_i sum_j |w_ij|; it presses on every text alike, where FLOPS presses on terms that many texts share.

    >>> l1(torch.tensor([[2.0, 0.0], [0.0, 4.0]])).item()
    3.0
    """
    return vectors.sum(1).mean()


def ramp(step: int, over: float) -> float:
    """min(1, step / over)^2, the share of lambda at `step` (from 0); 1 throughout where `over` is 0.

    >>> [ramp(step, 4) for step in (0, 2, 4, 9)]
    [0.0, 0.25, 1.0, 1.0]
    """
    return min(1.0, step / over) ** 2 if over else 1.0


def margin_mse(scores: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Mean squared error of the margins between a positive and its negatives (arXiv 2010.02666, eq. 7).

    Both are (queries, 1 + negatives) with the positive first.

    >>> margin_mse(torch.tensor([[5.0, 3.0, 1.0]]), torch.tensor([[9.0, 8.0, 5.0]])).item()
    0.5
    """
    return F.mse_loss(scores[:, :1] - scores[:, 1:], teacher[:, :1] - teacher[:, 1:])


def kl(scores: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Mean KL(teacher || student) over the softmax of each query's positive and negatives.

    Both are (queries, 1 + negatives).

    >>> round(kl(torch.tensor([[0.0, 0.0]]), torch.tensor([[100.0, 0.0]])).item(), 4)
    0.6931
    """
    return F.kl_div(scores.log_softmax(1), teacher.log_softmax(1), reduction="batchmean", log_target=True)
