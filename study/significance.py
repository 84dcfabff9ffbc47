"""Paired significance over queries: Student's t on per-query differences, Holm's correction.

The t-test keeps its error rate on retrieval measures and agrees with Fisher's randomisation (Smucker
et al., CIKM 2007; Urbano et al., SIGIR 2019), and its interval and its p-value tell the same story.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

LEVEL = 0.05


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over items with its confidence interval and the two-sided p-value of being zero."""

    value: float
    low: float
    high: float
    p: float
    items: int


def mean(values: Sequence[float], confidence: float = 1 - LEVEL) -> Mean:
    """Student's t interval and test of the mean of at least two values.

    >>> m = mean([1.0, 2.0, 3.0, 4.0, 5.0])
    >>> round(m.low, 4), round(m.high, 4), round(m.p, 4)
    (1.0368, 4.9632, 0.0132)
    """
    from scipy.special import stdtr, stdtrit

    if len(values) < 2:
        raise ValueError(f"an interval needs at least 2 values, got {len(values)}")
    centre, freedom = fmean(values), len(values) - 1
    error = stdev(values) / math.sqrt(len(values))
    if error == 0:
        return Mean(centre, centre, centre, 0.0 if centre else 1.0, len(values))
    reach = float(stdtrit(freedom, (1 + confidence) / 2)) * error
    p = 2 * float(stdtr(freedom, -abs(centre) / error))
    return Mean(centre, centre - reach, centre + reach, p, len(values))


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
