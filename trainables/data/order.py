"""The order of training examples: a pure function of seed and step, so that a resumed run cannot lose it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def indices(step: int, batch_size: int, size: int, seed: int) -> list[int]:
    """Which of `size` examples form the global batch of `step` (from 0).

    Each epoch is a permutation of all examples, and epochs follow each other without a gap: a batch may
    end one and begin the next. ValueError where `size` or `batch_size` is below 1 or `step` below 0.

    >>> sorted(indices(0, 2, 4, seed=1) + indices(1, 2, 4, seed=1))
    [0, 1, 2, 3]
    """
    for name, value, least in (("step", step, 0), ("batch_size", batch_size, 1), ("size", size, 1)):
        if value < least:
            raise ValueError(f"{name} is {value}; at least {least} is needed")
    picked: list[int] = []
    position = step * batch_size
    while len(picked) < batch_size:
        epoch, start = divmod(position, size)
        part = _permutation(size, seed, epoch)[start : start + batch_size - len(picked)]
        picked.extend(part.tolist())
        position += len(part)
    return picked


def share(items: Sequence[T], rank: int, world_size: int) -> Sequence[T]:
    """The contiguous part of a global batch that belongs to `rank`; ValueError where it does not divide.

    >>> share([1, 2, 3, 4], rank=1, world_size=2)
    [3, 4]
    """
    if len(items) % world_size:
        raise ValueError(f"batch_size is {len(items)}, which {world_size} workers cannot share evenly")
    rows = len(items) // world_size
    return items[rank * rows : (rank + 1) * rows]


@lru_cache(maxsize=6)  # two for each of three sources of texts, because a batch may straddle epochs
def _permutation(size: int, seed: int, epoch: int) -> np.ndarray:
    return np.random.default_rng([seed, epoch]).permutation(size)
