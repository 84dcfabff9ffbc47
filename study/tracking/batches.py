"""Figures on their way to MLflow, gathered run by run: a request costs much the same whether it has one figure or a
thousand of them, and has those of one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from study.tracking.mlflow_runs import Item

PER_BATCH = 1000
"""Metrics that MLflow takes in one request."""
MOST = 50_000
"""Figures that are held at a time, over all runs."""


class Batches:
    """What was read from the journal and is not sent yet."""

    def __init__(self) -> None:
        self._items: dict[str, list[Item]] = {}
        self._begins: dict[str, int] = {}
        """Run -> the byte of the journal where its oldest figure begins, the oldest of all runs first."""

    def add(self, key: str, items: Sequence[Item], begin: int) -> None:
        """Add figures of a run, from an entry that begins at this byte of the journal."""
        if items:
            self._items.setdefault(key, []).extend(items)
            self._begins.setdefault(key, begin)

    def due(self) -> list[str]:
        """The runs that have a batch, or where that would be too much the one that waits longest."""
        full = [key for key, items in self._items.items() if len(items) >= PER_BATCH]
        return full or (list(self._begins)[:1] if sum(map(len, self._items.values())) >= MOST else [])

    def of(self, trial: int | None) -> list[str]:
        """The runs of a trial, its replicates' among them; None stands for all."""
        return [key for key in self._items if trial is None or key.partition("/")[0] == str(trial)]

    def take(self, key: str) -> list[Item]:
        """All figures of a run, which has none then."""
        del self._begins[key]
        return self._items.pop(key)

    def begin(self, end: int) -> int:
        """The byte up to which nothing is held any more, where all up to `end` was read."""
        return min(self._begins.values(), default=end)
