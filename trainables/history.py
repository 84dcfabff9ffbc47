"""What the collapse rules know of a stage: its signals, block by block, and the evaluations so far.

Windows are a share of the stage's steps, so that a long run is judged as a short one is. Blocks make that cheap: what a
checkpoint holds of a stage, and what a rule reads, does not grow with its steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean, median
from typing import Any, NamedTuple

Signals = Mapping[str, float]
"""What `Recipe.loss` measured at one step, plus `grad_norm` from the loop."""

WINDOW = 0.1
"""A window is this share of the stage's steps, or what the limits of a recipe ask for where that is more."""

BLOCKS = 100
"""A history keeps about this many blocks of a stage, fewer than twice as many in a short one."""


class Block(NamedTuple):
    """The summary of one signal over the steps of a block."""

    middle: float
    """Median: healthy runs have single steps of 20 times their usual loss."""
    mean: float
    highest: float


class History:
    """The signals of one stage, block by block, and the evaluations so far: bounded, however long the stage is.

    A block is a hundredth of the stage, at least one step, so that the rules cost the same at step 100 and at step
    100,000, and a stage of fewer than 200 steps is kept step by step.
    """

    def __init__(self, stage: str, steps: int, before: int = 0) -> None:
        """`before` is how many steps earlier stages had."""
        self.stage, self.steps, self.before = stage, steps, before
        self.size = max(1, steps // BLOCKS)
        self.done = 0
        """Steps of this stage."""
        self.now: Signals = {}
        """The newest signals."""
        self.fresh = False
        """Whether the newest signals completed a block."""
        self._blocks: list[dict[str, Block]] = []
        self._open: dict[str, list[float]] = {}
        self._evaluations: dict[str, list[tuple[int, float]]] = {}

    def add(self, signals: Signals, step: int | None = None) -> None:
        """Add the signals of step `step` of this stage, counted from 1; without `step`, those of the next one.

        Steps count, not records: of a record with gaps, a block in which nothing was measured is as the one before.
        """
        step = self.done + 1 if step is None else step
        known = len(self._blocks)
        while len(self._blocks) < (step - 1) // self.size:
            self._close(signals)
        for name, value in signals.items():
            self._open.setdefault(name, []).append(value)
        self.done, self.now = step, signals
        if step % self.size == 0:
            self._close(signals)
        self.fresh = len(self._blocks) > known

    def evaluated(self, values: Signals, step: int | None = None) -> None:
        """Add an evaluation on validation data after `step` steps of all stages, by default after the newest. Of a
        block, only the last evaluation is kept."""
        step = self.before + self.done if step is None else step
        for name, value in values.items():
            known = self._evaluations.setdefault(name, [])
            if known and known[-1][0] > 0 and (known[-1][0] - 1) // self.size == (step - 1) // self.size:
                known.pop()
            known.append((step, value))

    def then(self, stage: str, steps: int) -> History:
        """A new history for the stage that follows; it keeps the evaluations made so far."""
        following = History(stage, steps, self.before + self.done)
        following._evaluations = self._evaluations
        return following

    def window(self, least: int) -> int:
        """Steps that are judged together: whole blocks."""
        return self.size * math.ceil(max(least, round(WINDOW * self.steps)) / self.size)

    def past(self, name: str, window: int, ago: int = 0) -> list[Block]:
        """The blocks of a signal in the `window` steps that ended `ago` steps before the newest block did."""
        end = len(self._blocks) - ago // self.size
        part = self._blocks[max(0, end - window // self.size) : end]
        return [block[name] for block in part if name in block]

    def first(self, name: str, window: int) -> float:
        """Median of a signal over the first `window` steps."""
        return median(block[name].middle for block in self._blocks[: window // self.size] if name in block)

    def typical(self, name: str, window: int) -> float:
        """Median of a signal over the last `window` steps."""
        return median(block.middle for block in self.past(name, window))

    def improves(self, metric: str, window: int) -> bool:
        """Whether an evaluation of the last `window` steps is better than all before it, the untrained one included."""
        found = [(step, value) for step, value in self._evaluations.get(metric, ()) if not math.isnan(value)]
        recent = self.before + self.done - window
        earlier = [value for step, value in found if step <= max(0, recent)]
        later = [value for step, value in found if step > max(0, recent)]
        return bool(earlier and later) and max(later) > max(earlier)

    def state(self) -> dict[str, Any]:
        """The whole history as JSON values."""
        return {
            "stage": self.stage, "steps": self.steps, "before": self.before, "done": self.done,
            "blocks": self._blocks, "open": self._open, "evaluations": self._evaluations,
        }  # fmt: skip

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> History:
        """The history whose `state()` this was."""
        history = cls(state["stage"], state["steps"], state["before"])
        history.done = state["done"]
        history._blocks = [{name: Block(*block) for name, block in part.items()} for part in state["blocks"]]
        history._open = {name: list(values) for name, values in state["open"].items()}
        history._evaluations = {
            name: [(step, value) for step, value in found] for name, found in state["evaluations"].items()
        }
        return history

    def _close(self, signals: Signals) -> None:
        if self._open or not self._blocks:
            values = self._open or {name: [value] for name, value in signals.items()}
            block = {name: Block(median(found), fmean(found), max(found)) for name, found in values.items()}
        else:
            block = self._blocks[-1]
        self._blocks.append(block)
        self._open = {}
