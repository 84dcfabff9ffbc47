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
from typing import TYPE_CHECKING, Any

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


def crossed(
    *tables: np.ndarray,
    value: float | None = None,
    confidence: float = 1 - LEVEL,
    weights: Sequence[float] | None = None,
) -> Mean:
    """Interval and test of a mean for other seeds and other items of the same collections.

    Each table is (seeds, items) of one collection; row i of all tables is the same seed. Each collection's mean counts
    the same, w_c = 1/C, or as `weights` say, which add up to 1. With one seed it holds for other items alone. `value`
    is the mean where the cells give it only nearly, as pseudo-values do. ValueError where a collection has fewer than
    two items.

    With n seeds and C collections of N_c items the variance is V = max(S - E, 0) + max(I - E, 0) + E, where

        S = variance between the seeds' means over all collections / n
        I = sum over collections of w_c^2 (variance between the items' means over seeds / N_c)
        E = sum over collections of w_c^2 (mean square of what neither explains / (n N_c))

    S is the variance of a bootstrap over seeds, I that of one over items within each collection, both made unbiased.
    Each holds E, and the mean's variance holds it once; a component that comes out negative counts as none. Nothing
    is drawn: percentiles of three resampled seeds fall short of the truth, where Student's t with Satterthwaite's
    V^2 / sum(part^2 / freedom) degrees of freedom does not.

    >>> import numpy as np
    >>> m = crossed(np.array([[1.0, 3.0], [2.0, 4.0], [3.0, 5.0]]))
    >>> round(m.low, 2), m.value, round(m.high, 2), m.seeds
    (-2.98, 3.0, 8.98, 3)
    """
    seeds, items = len(tables[0]), [table.shape[1] for table in tables]
    if min(items) < 2:
        raise ValueError(f"an interval over items needs at least 2 of them, got {min(items)}")
    variance, freedom = map(float, components(*tables, weights=weights).estimate())
    centre = float(fmean((table.mean() for table in tables), weights)) if value is None else value
    low, high, p = _student(centre, math.sqrt(variance), freedom, confidence)
    return Mean(centre, low, high, p, sum(items), seeds)


Parts = tuple[tuple["float | np.ndarray", float], ...]
"""(variance, its degrees of freedom) of what adds up to a part of the variance of a mean; an array is many at once."""


@dataclass(frozen=True, slots=True)
class Components:
    """The variance of a mean over seeds and items, taken apart as in `crossed`."""

    seeds: Parts
    """S; nothing with one seed."""
    items: Parts
    """I, collection by collection."""
    both: Parts
    """E, collection by collection; nothing with one seed."""

    def estimate(self) -> tuple[Any, Any]:
        """The variance of the mean, and Satterthwaite's degrees of freedom of it, infinite where it is 0."""
        import numpy as np

        noise = _total(self.both)
        variance, uncertainty = noise, sum(part**2 / freedom for part, freedom in self.both)
        for parts in (self.seeds, self.items):
            kept = _total(parts) > noise
            variance = variance + np.where(kept, _total(parts) - noise, 0.0)
            uncertainty = uncertainty + np.where(kept, sum(part**2 / freedom for part, freedom in parts), 0.0)
        certain = uncertainty == 0
        return variance, np.where(certain, np.inf, variance**2 / np.where(certain, 1.0, uncertainty))


def components(*tables: np.ndarray, weights: Sequence[float] | None = None) -> Components:
    """S, I and E of `crossed` for tables (seeds, items), each of one collection."""
    seeds = len(tables[0])
    weights = [1 / len(tables)] * len(tables) if weights is None else weights
    by_seed = sum(weight * table.mean(1) for weight, table in zip(weights, tables, strict=True))
    of_seeds = ((float(by_seed.var(ddof=1)) / seeds, seeds - 1),) if seeds > 1 else ()
    of_items, of_both = [], []
    for weight, table in zip(weights, tables, strict=True):
        share, items, by_item = weight**2, table.shape[1], table.mean(0)
        of_items.append((share * float(by_item.var(ddof=1)) / items, items - 1))
        if seeds > 1:
            rest, freedom = table - table.mean(1, keepdims=True) - by_item + table.mean(), (seeds - 1) * (items - 1)
            of_both.append((share * float((rest**2).sum()) / freedom / (seeds * items), freedom))
    return Components(of_seeds, tuple(of_items), tuple(of_both))


def _total(parts: Parts) -> Any:
    return sum(variance for variance, _ in parts)


def _student(centre: float, error: float, freedom: float, confidence: float) -> tuple[float, float, float]:
    """Both ends of the 95% interval by Student's t, and the two-sided p-value of the mean being zero."""
    from scipy.special import stdtr, stdtrit

    if error == 0:
        return centre, centre, 0.0 if centre else 1.0
    reach = float(stdtrit(freedom, (1 + confidence) / 2)) * error
    return centre - reach, centre + reach, 2 * float(stdtr(freedom, -abs(centre) / error))


def over_items(one: Sequence[Mapping[str, float]], other: Sequence[Mapping[str, float]] | None = None) -> Mean | None:
    """Mean over seeds and items of `one`, a mapping from item to value for each seed, or of its difference to `other`.

    Both sides are paired as in `table`. None where fewer than two items are shared.
    """
    values = table(one, other)
    return None if values is None else crossed(values)


def table(one: Sequence[Mapping[str, float]], other: Sequence[Mapping[str, float]] | None = None) -> np.ndarray | None:
    """(seeds, items) values of `one`, or its differences to `other`; paired by item and, in the order given, by seed.

    Has the items that all seeds share; None where these are fewer than two.
    """
    import numpy as np

    sides = [one] if other is None else [one, other]
    seeds = min(map(len, sides))
    found = [items for side in sides for items in side[:seeds]]
    shared = sorted(set.intersection(*(set(items) for items in found))) if found else []
    if len(shared) < 2:
        return None
    values = [np.array([[items[item] for item in shared] for items in side[:seeds]]) for side in sides]
    return values[0] if other is None else values[0] - values[1]


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
