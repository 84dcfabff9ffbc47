"""Means with intervals and tests, over seeds, items or both: Student's t, and Holm's correction.

Over items alone the t-test keeps its error rate on retrieval measures and agrees with Fisher's randomisation
(Smucker et al., CIKM 2007; Urbano et al., SIGIR 2019). Over seeds and items the variance is taken from the
components of a two-way table: what varies between seeds, between items, and between their combinations. Its
degrees of freedom are Satterthwaite's (Biometrics Bulletin 2, 1946), so that few seeds widen an interval where
seeds decide, and do not where items do. An interval and its p-value tell the same story.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

LEVEL = 0.05


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over items, seeds or both with its confidence interval and the two-sided p-value of being zero."""

    value: float
    low: float
    high: float
    p: float
    items: int
    """How many values it is the mean of, those of one seed."""
    seeds: int = 1
    """Above 1, it holds for other seeds, too."""


def mean(values: Sequence[float], confidence: float = 1 - LEVEL) -> Mean:
    """Student's t interval and test of the mean of at least two values.

    >>> m = mean([1.0, 2.0, 3.0, 4.0, 5.0])
    >>> round(m.low, 4), round(m.high, 4), round(m.p, 4)
    (1.0368, 4.9632, 0.0132)
    """
    if len(values) < 2:
        raise ValueError(f"an interval needs at least 2 values, got {len(values)}")
    error = stdev(values) / math.sqrt(len(values))
    low, high, p = _student(fmean(values), error, len(values) - 1, confidence)
    return Mean(fmean(values), low, high, p, len(values))


def crossed(table: np.ndarray, value: float | None = None, confidence: float = 1 - LEVEL) -> Mean:
    """Interval and test of the mean of `table` (seeds, items) for other seeds and other items; with one seed, those of
    `mean`.

    `value` is the mean where the cells give it only nearly, as pseudo-values do. A component that comes out
    negative counts as none.

    >>> import numpy as np
    >>> m = crossed(np.array([[1.0, 3.0], [2.0, 4.0], [3.0, 5.0]]))
    >>> round(m.low, 2), m.value, round(m.high, 2), m.seeds
    (-2.98, 3.0, 8.98, 3)
    """
    seeds, items = table.shape
    if seeds == 1 and value is None:
        return mean(table[0].tolist(), confidence)
    if seeds < 2 or items < 2:
        raise ValueError(f"an interval over seeds and items needs at least 2 of each, got {seeds} and {items}")
    centre, by_seed, by_item = table.mean(), table.mean(1), table.mean(0)
    rest = table - by_seed[:, None] - by_item + centre
    freedoms = seeds - 1, items - 1, (seeds - 1) * (items - 1)
    squares = items * ((by_seed - centre) ** 2).sum(), seeds * ((by_item - centre) ** 2).sum(), (rest**2).sum()
    of_seeds, of_items, noise = (float(s) / f for s, f in zip(squares, freedoms, strict=True))
    # The mean squares of seeds and of items both hold the noise; their mean's variance holds it once.
    parts = [(of_seeds - noise, of_seeds, freedoms[0]), (of_items - noise, of_items, freedoms[1])]
    kept = [(noise, noise, freedoms[2]), *(part for part in parts if part[0] > 0)]
    total = sum(part for part, _, _ in kept)
    uncertainty = sum(square**2 / freedom for _, square, freedom in kept)
    freedom = total**2 / uncertainty if uncertainty else math.inf
    value = float(centre) if value is None else value
    low, high, p = _student(value, math.sqrt(total / (seeds * items)), freedom, confidence)
    return Mean(value, low, high, p, items, seeds)


def _student(centre: float, error: float, freedom: float, confidence: float) -> tuple[float, float, float]:
    """Both ends of the 95% interval by Student's t, and the two-sided p-value of the mean being zero."""
    from scipy.special import stdtr, stdtrit

    if error == 0:
        return centre, centre, 0.0 if centre else 1.0
    reach = float(stdtrit(freedom, (1 + confidence) / 2)) * error
    return centre - reach, centre + reach, 2 * float(stdtr(freedom, -abs(centre) / error))


def over_items(one: Sequence[Mapping[str, float]], other: Sequence[Mapping[str, float]] | None = None) -> Mean | None:
    """Mean over seeds and items of `one`, a mapping from item to value for each seed, or of its difference to `other`.

    Both sides are paired by item and, in the order given, by seed. None where fewer than two items are shared.
    """
    import numpy as np

    sides = [one] if other is None else [one, other]
    seeds = min(map(len, sides))
    found = [items for side in sides for items in side[:seeds]]
    shared = sorted(set.intersection(*(set(items) for items in found))) if found else []
    if len(shared) < 2:
        return None
    tables = [np.array([[items[item] for item in shared] for items in side[:seeds]]) for side in sides]
    return crossed(tables[0] if other is None else tables[0] - tables[1])


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p-values, in the order given (Scandinavian J. of Statistics 6, 1979).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted = [0.0] * len(p_values)
    floor = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        floor = max(floor, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = floor
    return adjusted
