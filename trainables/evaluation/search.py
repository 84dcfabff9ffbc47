"""Exact top-k by inner product, streamed over blocks of documents, over one or several workers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from trainables import distributed

_LOW = 0xFFFF_FFFF


@torch.inference_mode()
def top_k(
    queries: torch.Tensor, blocks: Iterable[tuple[Sequence[int], torch.Tensor]], k: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The k best documents of each query: (scores, positions), best first, equal on all ranks, on the CPU.

    `queries` is (queries, dim), the same on all ranks. `blocks` yields this rank's documents as (their
    positions in the collection, vectors (rows, dim) on the device of `queries`); no position may come
    twice. Memory is the queries, one block and its scores, and the k best so far. Returned are float32
    (queries, min(k, documents)) and int64 of the same shape. Every rank must call this.

    Scores are float32. Equal ones are ordered by position, so the result depends neither on the blocks nor
    on the number of ranks. A NaN ranks below everything: a model without numbers finds nothing.
    """
    if k < 1:
        raise ValueError(f"k is {k}; at least 1 is needed")
    queries = queries.float()
    best = torch.empty(len(queries), 0, dtype=torch.int64, device=queries.device)
    for positions, vectors in blocks:
        with torch.autocast(queries.device.type, enabled=False):
            scores = queries @ vectors.float().T
        keys = _keys(scores, torch.as_tensor(positions, dtype=torch.int64, device=queries.device))
        best = _largest(torch.cat([best, _largest(keys, k)], dim=1), k)
    merged = _largest(torch.cat(distributed.gather_objects(best.cpu()), dim=1), k)
    return _unpack(merged)


def _largest(keys: torch.Tensor, k: int) -> torch.Tensor:
    return keys.topk(min(k, keys.shape[1]), dim=1).values


def _keys(scores: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """One int64 for (score, position): higher scores are larger, among equal ones earlier positions.

    The upper half is the score's bits in an order-preserving form. All keys differ, so that `topk`, which
    leaves the order of equal values open, has no choice.
    """
    scores = scores.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf) + 0.0  # -0.0 becomes 0.0
    return (_flip(scores.view(torch.int32)).long() << 32) | (_LOW - positions)


def _unpack(keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scores = _flip((keys >> 32).int()).view(torch.float32)
    return scores, _LOW - (keys & _LOW)


def _flip(bits: torch.Tensor) -> torch.Tensor:
    """Bits of a float32 <-> an int32 with the same order: negative floats count backwards."""
    return bits ^ ((bits >> 31) & 0x7FFF_FFFF)
