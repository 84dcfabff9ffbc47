"""Synthetic courses of a stage's signals, and where the collapse rules stop them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainables.collapse import judge
from trainables.history import History

Course = Callable[[float], float]
"""Step of the stage, from 0 -> a signal."""


def stopped(
    rules,
    courses: Mapping[str, Course],
    steps: int,
    *,
    every: int = 1,
    until: int | None = None,
    stage: str = "train",
    before: int = 0,
    evaluations: Mapping[int, Mapping[str, float]] | None = None,
) -> tuple[int, str] | None:
    """The step of the stage that the run is stopped after, and why; None for a run that is left alone.

    With `every` only each so many-th step is on record. `evaluations`: step -> what was measured after it.
    """
    history, measured = History(stage, steps, before), evaluations or {}
    history.evaluated(measured.get(0, {}))
    for step in range(every, (until or steps) + 1, every):
        signals = {name: course(step - 1) for name, course in courses.items()}
        history.add({name: value for name, value in signals.items() if value is not None}, step)
        reason = judge(history, rules)
        if reason is not None:
            return step, reason
        if step in measured:
            history.evaluated(measured[step])
    return None
