"""How far a study is, in the terms that every view of it needs."""

from __future__ import annotations

from collections.abc import Callable

from study.protocol.summary import StudySummary
from study.reporting.formatting import ended, share
from study.reporting.metrics import DeclaredMetrics


class Progress:
    """What is asked for, since when it is worked on, and what its newest summary says of the metrics.

    `elapsed_s` are the seconds that the launch has run for when it is first looked at.
    """

    def __init__(
        self, parameter: str, objective: str, total: int, clock: Callable[[], float], elapsed_s: float = 0.0
    ) -> None:
        self.parameter, self.objective, self.total = parameter, objective, total
        self.clock, self.started = clock, clock() - elapsed_s
        self.metrics = DeclaredMetrics({})
        self._first: tuple[float, int, float] | None = None

    def update(self, summary: StudySummary) -> None:
        """Take note of a summary; what is done in the first one says nothing of the pace from here on."""
        self.metrics = DeclaredMetrics(summary.metrics)
        if summary.confirmation is not None:
            # What the search has not begun when it is over it never will.
            self.total = len(summary.trials) + summary.confirmation.planned
        if self._first is None:
            self._first = self.clock(), ended(summary), done(summary)

    def remaining(self, summary: StudySummary) -> float | None:
        """Seconds until the end at the pace since the first summary, concurrency included; None before a trial ended.

        Pace is trials per second, where a trial that has not ended counts by its steps.
        """
        if self._first is None or ended(summary) <= self._first[1]:
            return None
        began, _, before = self._first
        here, left = done(summary) - before, max(0.0, self.total - done(summary))
        return (self.clock() - began) * left / here if here > 0 else None


def done(summary: StudySummary) -> float:
    """Trials that have ended, and the shares of steps of those that have not."""
    return ended(summary) + sum(share(trial) for trial in summary.runs if not trial.state.ended)
