"""What is put on record of a replicate's training steps: each of a short run, bins of several steps of a long one.

Bins lie at fixed step numbers, so that a resumed run puts the same on record as an undisturbed one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any

LOWEST, HIGHEST = ".min", ".max"
"""What stands behind a signal's name for the lowest and the highest of its values in a bin."""


@dataclass(slots=True)
class _Sum:
    """A signal's values in a bin; where one of them is NaN, all that is told of them is."""

    count: int
    total: float
    lowest: float
    highest: float

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        if math.isnan(self.total):
            self.lowest = self.highest = math.nan
        else:
            self.lowest, self.highest = min(self.lowest, value), max(self.highest, value)


class Bin:
    """The signals of steps that are not on record yet."""

    def __init__(self) -> None:
        self._sums: dict[str, _Sum] = {}

    def add(self, signals: Mapping[str, float]) -> None:
        """Add what one step measured."""
        for name, value in signals.items():
            if name in self._sums:
                self._sums[name].add(value)
            else:
                self._sums[name] = _Sum(1, value, value, value)

    def take(self) -> dict[str, float]:
        """Mean, minimum (`NAME.min`) and maximum (`NAME.max`) of each signal over the steps that measured it; the mean
        alone where all values are equal. The bin is empty then.

        >>> steps = Bin()
        >>> for loss in (1.0, 4.0):
        ...     steps.add({"loss": loss, "queries": 8.0})
        >>> steps.take(), steps.take()
        ({'loss': 2.5, 'loss.min': 1.0, 'loss.max': 4.0, 'queries': 8.0}, {})
        """
        told: dict[str, float] = {}
        for name, found in self._sums.items():
            if found.lowest == found.highest or found.count == 1:
                told[name] = found.highest
            else:
                told |= {name: found.total / found.count, name + LOWEST: found.lowest, name + HIGHEST: found.highest}
        self._sums = {}
        return told

    def state(self) -> dict[str, tuple[Any, ...]]:
        """The open bin as JSON values."""
        return {name: astuple(found) for name, found in self._sums.items()}

    @classmethod
    def restored(cls, state: Mapping[str, tuple[Any, ...]]) -> Bin:
        """The bin whose `state()` this was."""
        made = cls()
        made._sums = {name: _Sum(*found) for name, found in state.items()}
        return made
