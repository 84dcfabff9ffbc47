"""What each test item contributes to a metric, so that correlations have intervals over items as means have.

A mean is the mean of its items' values. A correlation is that of its jackknife pseudo-values: N times the
correlation of all N items less N - 1 times that of the others (Tukey, Annals of Math. Statistics 29, 1958).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from trainables.report import Correlation

Items = Mapping[str, Mapping[str, float]]
"""Metric, or what a correlation is of -> item -> value."""


def contributions(items: Items, parts: Mapping[str, Correlation | None], ids: Sequence[str]) -> np.ndarray | None:
    """(ids, parts), whose mean over the ids is each metric of `parts`, but for the jackknife's small bias.

    None where `items` lack what one of them is computed from.
    """
    columns = [_contributions(items, metric, correlation, ids) for metric, correlation in parts.items()]
    return None if any(column is None for column in columns) else np.stack(columns, 1)  # type: ignore[arg-type]


def _contributions(items: Items, metric: str, correlation: Correlation | None, ids: Sequence[str]) -> np.ndarray | None:
    if correlation is None:
        return _column(items[metric], ids) if metric in items else None
    if correlation.one not in items or correlation.other not in items:
        return None
    left_out = ranked_without if correlation.kind == "rank" else linear_without
    whole, others = left_out(_column(items[correlation.one], ids), _column(items[correlation.other], ids))
    return len(ids) * whole - (len(ids) - 1) * others


def _column(values: Mapping[str, float], ids: Sequence[str]) -> np.ndarray:
    return np.array([values[id] for id in ids])


def linear_without(x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """Pearson's correlation of x and y (items,), and (items,) that of all but each item; 0 where a side is constant.

    >>> whole, others = linear_without(np.array([1.0, 2.0, 3.0, 9.0]), np.array([1.0, 2.0, 3.0, 0.0]))
    >>> round(whole, 4), others.round(4).tolist()
    (-0.6107, [-0.8934, -0.5766, -0.803, 1.0])
    """
    n = len(x)
    x, y = x - x.mean(), y - y.mean()
    # Without item i the sum of products around the new means falls by n / (n - 1) times the item's own product.
    xx, yy, xy = x @ x, y @ y, x @ y
    share = n / (n - 1)
    return float(_ratio(xy, xx, yy)), _ratio(xy - share * x * y, xx - share * x * x, yy - share * y * y)


def ranked_without(x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """Spearman's correlation of x and y (items,), and (items,) that of all but each item, ranked anew.

    Without item i the rank of item j is lower by u_ij: 1 if j lies above i, 1/2 if level with it. So the sum of
    products of the new ranks is a sum of four, each of which is a running sum over the order. Takes
    O(items x different y).

    >>> whole, others = ranked_without(np.array([1.0, 2.0, 3.0, 9.0]), np.array([1.0, 2.0, 3.0, 0.0]))
    >>> round(whole, 4), others.round(4).tolist()
    (-0.2, [-0.5, -0.5, -0.5, 1.0])
    """
    n = len(x)
    one, other = _Ranked(x), _Ranked(y)
    both = _above_in_both(one, other)
    products = one.ranks @ other.ranks
    without = products - one.ranks * other.ranks - one.above(other.ranks) - other.above(one.ranks) + both
    spreads = one.spread_without(), other.spread_without()
    whole = _ratio(products - n * ((n + 1) / 2) ** 2, one.spread, other.spread)
    return float(whole), _ratio(without - (n - 1) * (n / 2) ** 2, *spreads)


class _Ranked:
    """Mean ranks of values (items,), and what lies above each of them."""

    def __init__(self, values: np.ndarray) -> None:
        self.order = values.argsort(kind="stable")
        _, self.group, sizes = np.unique(values, return_inverse=True, return_counts=True)
        self.groups, self.tied = len(sizes), sizes[self.group]
        self.first = (sizes.cumsum() - sizes)[self.group]
        """Place of each item's group in the order; `first + tied` is that of the next."""
        self.ranks = self.first + (self.tied + 1) / 2
        n = len(values)
        self._ties = float((sizes.astype(float) ** 3 - sizes).sum())
        self.spread = (n**3 - n - self._ties) / 12
        """Sum of squares of the ranks around their mean."""

    def spread_without(self) -> np.ndarray:
        """(items,) `spread` of all but each item."""
        rest, tied = len(self.ranks) - 1, self.tied.astype(float)
        return (rest**3 - rest - self._ties + 3 * tied * (tied - 1)) / 12

    def above(self, values: np.ndarray) -> np.ndarray:
        """(items,) sum over j of u_ij times the value of j, j = i left out."""
        sums = np.append(values[self.order][::-1].cumsum()[::-1], 0.0)
        return (sums[self.first] + sums[self.first + self.tied] - values) / 2


def _above_in_both(one: _Ranked, other: _Ranked) -> np.ndarray:
    """(items,) sum over j of u_ij in `one` times u_ij in `other`, j = i left out."""
    n = len(one.ranks)
    counts = np.zeros((n + 1, other.groups + 1), dtype=np.int32)
    counts[np.arange(n), other.group[one.order]] = 1
    # How many items stand at or behind a place in the one order and belong to a group or one above it in the other.
    counts = counts[::-1].cumsum(0)[::-1, ::-1].cumsum(1)[:, ::-1]
    places, groups = (one.first, one.first + one.tied), (other.group, other.group + 1)
    # u is the mean of "above" and "above or level with".
    return (sum(counts[place, group] for place in places for group in groups) - 1) / 4


def _ratio(xy, xx, yy):
    """xy / sqrt(xx yy), 0 where that has no value."""
    size = np.sqrt(np.maximum(xx * yy, 0))
    return np.divide(xy, size, out=np.zeros_like(size, dtype=float), where=size > 0)
