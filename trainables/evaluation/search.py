"""Exact top-k by any scorer, streamed over blocks of documents, over one or several workers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from trainables import distributed
from trainables.evaluation.scoring import DENSE, Scorer

_LOW = 0xFFFF_FFFF
TOGETHER = 2**22
"""Scores that are looked through at a time: 16 MiB of them."""


@torch.inference_mode()
def top_k(
    queries: Any, blocks: Iterable[tuple[Sequence[int], Any]], k: int, scorer: Scorer = DENSE
) -> tuple[torch.Tensor, torch.Tensor]:
    """The k best documents of each query: (scores, positions), best first, equal on all ranks, on the CPU.

    `queries` are their vectors, the same on all ranks. `blocks` yields this rank's documents as (their positions in
    the collection, their vectors on the device of `queries`); no position may come twice. Memory is the queries, one
    block and its scores, and the k best so far. Returned are float32 (queries, min(k, documents)) and int64 of the
    same shape. Every rank must call this.
    """
    count = queries.shape[0]
    own = best_of(((positions, scorer.scores(queries, vectors)) for positions, vectors in blocks), count, k)
    best = TopK(count, k)
    for keys in distributed.gather_objects(own.keys.cpu()):
        best.merge(keys)
    return best.result()


def best_of(scored: Iterable[tuple[Sequence[int], torch.Tensor]], queries: int, k: int) -> TopK:
    """The k best documents of each of so many queries. `scored` yields (positions in the collection, scores (queries,
    positions)), with no position twice."""
    best = TopK(queries, k)
    positions: list[int] = []
    waiting: list[torch.Tensor] = []
    for places, scores in scored:
        positions += places
        waiting.append(scores)
        if len(positions) * queries >= TOGETHER:
            best.add(torch.cat(waiting, dim=1), positions)
            positions, waiting = [], []
    if waiting:
        best.add(torch.cat(waiting, dim=1), positions)
    return best


class TopK:
    """The k best documents of each query among those added so far.

    Scores are float32. Equal ones are ordered by position, so the result depends neither on the blocks nor
    on the order or the process in which they come. A NaN ranks below everything: a model without numbers
    finds nothing.
    """

    def __init__(self, queries: int, k: int) -> None:
        if k < 1:
            raise ValueError(f"k is {k}; at least 1 is needed")
        self.k = k
        self.keys = torch.empty(queries, 0, dtype=torch.int64)
        """(queries, at most k), best first, on the device of what came last; each tells score and position, see
        `_keys`."""

    def add(self, scores: torch.Tensor, positions: Sequence[int]) -> None:
        """`scores` (queries, documents), and the documents' positions in the collection, below 2**32."""
        places = torch.as_tensor(positions, dtype=torch.int64, device=scores.device)
        if scores.shape[1] <= self.k:
            self.merge(_keys(scores, places))
            return
        # NaN is the largest for `topk`.
        scores = scores.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
        values, columns = scores.topk(self.k, dim=1)
        keys = _keys(values, places[columns])
        # Among equal scores at the border `topk` takes any.
        open_ = ((scores >= values.amin(1, keepdim=True)).sum(1) > self.k).nonzero().squeeze(1)
        if len(open_):
            keys[open_] = _largest(_keys(scores[open_], places), self.k)
        self.merge(keys)

    def merge(self, keys: torch.Tensor) -> None:
        """Take in the `keys` of another `TopK` of the same queries."""
        self.keys = _largest(torch.cat([self.keys.to(keys.device), keys], dim=1), self.k)

    def result(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(scores, positions), float32 and int64, both (queries, at most k), best first."""
        scores = _flip((self.keys >> 32).int()).view(torch.float32)
        return scores, _LOW - (self.keys & _LOW)


def _largest(keys: torch.Tensor, k: int) -> torch.Tensor:
    return keys.topk(min(k, keys.shape[1]), dim=1).values


def _keys(scores: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """One int64 for (score, position): higher scores are larger, among equal ones earlier positions.

    The upper half is the score's bits in an order-preserving form. All keys differ, so that `topk`, which
    leaves the order of equal values open, has no choice.
    """
    scores = scores.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf) + 0.0  # -0.0 becomes 0.0
    return (_flip(scores.view(torch.int32)).long() << 32) | (_LOW - positions)


def _flip(bits: torch.Tensor) -> torch.Tensor:
    """Bits of a float32 <-> an int32 with the same order: negative floats count backwards."""
    return bits ^ ((bits >> 31) & 0x7FFF_FFFF)
