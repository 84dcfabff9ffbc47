"""How far a study is, in the terms that every view of it needs."""

from __future__ import annotations

from collections.abc import Callable

from study.protocol.states import TrialState
from study.protocol.summary import StudySummary
from study.reporting.formatting import ended, share
from study.reporting.metrics import DeclaredMetrics


class Progress:
    """What is asked for, when this launch began, and what its newest summary says of the metrics."""

    def __init__(self, parameter: str, objective: str, total: int, clock: Callable[[], float]) -> None:
        self.parameter, self.objective, self.total = parameter, objective, total
        self.clock, self.started = clock, clock()
        self.metrics = DeclaredMetrics({})
        self._before: int | None = None

    def update(self, summary: StudySummary) -> None:
        """Take note of a summary; trials that have ended in the first one are none of this launch."""
        self.metrics = DeclaredMetrics(summary.metrics)
        if summary.confirmation is not None:
            # What the search has not begun when it is over it never will.
            self.total = len(summary.trials) + summary.confirmation.planned
        if self._before is None:
            self._before = ended(summary)

    def remaining(self, summary: StudySummary) -> float | None:
        """Seconds until the end at the pace of this launch, concurrency included; None before a trial ended.

        Pace is trials per second since the start, where a running trial counts by its steps.
        """
        done = ended(summary)
        here = done - (self._before or 0)
        if here < 1:
            return None
        underway = sum(share(trial) for trial in summary.runs if trial.state == TrialState.RUNNING)
        return (self.clock() - self.started) * max(0.0, self.total - done - underway) / (here + underway)
