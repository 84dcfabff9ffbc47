"""Exact tests over seeds, from all flips of the signs of the differences within them; every draw has a fixed seed."""

from __future__ import annotations

import numpy as np

EXACT = 20
"""Up to so many seeds all sign flips are enumerated; beyond, a million are drawn."""


def flip_p(gaps: np.ndarray) -> float:
    """Two-sided p that the differences are symmetric around 0, from all flips of their signs.

    On the differences it is Fisher's randomisation test, on their signs the sign test, on `signed_ranks` Wilcoxon's
    test, ties and all. With n differences that are not 0 it is at least `smallest_p(n)`.

    >>> flip_p(np.array([0.1, 0.2, 0.3, 0.4, 0.5])), flip_p(np.array([1.0, -1.0])), flip_p(np.zeros(3))
    (0.0625, 1.0, 1.0)
    """
    gaps = gaps[gaps != 0]
    observed = abs(gaps.sum()) * (1 - 1e-9)
    if len(gaps) <= EXACT:
        sums = np.zeros(1)
        for gap in gaps:
            sums = np.concatenate([sums + gap, sums - gap])
        return float((np.abs(sums) >= observed).mean())
    draws, extreme = np.random.default_rng(0), 0
    for _ in range(1_000):
        flips = draws.choice((-1.0, 1.0), (1_000, len(gaps)))
        extreme += int((np.abs(flips @ gaps) >= observed).sum())
    return (1 + extreme) / 1_000_001


def smallest_p(seeds: int) -> float:
    """The smallest p that an exact two-sided test of so many signs can give.

    >>> smallest_p(3), smallest_p(5)
    (0.25, 0.0625)
    """
    return 2.0 ** (1 - seeds)


def signed_ranks(gaps: np.ndarray) -> np.ndarray:
    """Wilcoxon's signed ranks: those of the sizes of the differences that are not 0, with their signs.

    >>> signed_ranks(np.array([0.3, -0.1, 0.0, 0.1])).tolist()
    [3.0, -1.5, 1.5]
    """
    gaps = gaps[gaps != 0]
    _, place, counts = np.unique(np.abs(gaps), return_inverse=True, return_counts=True)
    return np.sign(gaps) * (counts.cumsum() - (counts - 1) / 2)[place]
