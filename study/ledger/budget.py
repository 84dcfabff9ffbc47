"""What a study's trials have cost, and whether its budget is spent."""

from __future__ import annotations

import time
from collections.abc import Iterable

from study.ledger.trial_record import TrialRecord
from study.spec import Study


class Account:
    """Time of a study over all its launches; a trial's gang holds its workers from `open` to `settle`."""

    def __init__(self, spec: Study, elapsed_before_s: float) -> None:
        self._spec = spec
        self._before, self._started = elapsed_before_s, time.time()

    def elapsed(self) -> float:
        """Seconds that the study has run."""
        return self._before + time.time() - self._started

    def open(self, row: TrialRecord) -> None:
        """Note that a gang is asked for: it counts from now on."""
        row.launched = time.time()

    def settle(self, row: TrialRecord, until: float | None = None) -> None:
        """Note that the gang holds nothing any more; where it was lost, since `until`, in seconds since the epoch."""
        row.used += self._held(row, time.time() if until is None else until)
        row.launched = None

    def used(self, row: TrialRecord) -> float:
        """Worker-seconds up to now."""
        return row.used + self._held(row, time.time())

    def gpu_hours(self, worker_seconds: float) -> float:
        return worker_seconds * self._spec.resources.gpus_per_worker / 3600

    def spent(self, rows: Iterable[TrialRecord]) -> bool:
        """Whether any limit of the budget but the number of trials is reached."""
        budget = self._spec.budget
        if budget.wall_clock_s is not None and self.elapsed() >= budget.wall_clock_s:
            return True
        used = sum(map(self.used, rows))
        if budget.worker_hours is not None and used >= budget.worker_hours * 3600:
            return True
        return budget.gpu_hours is not None and self.gpu_hours(used) >= budget.gpu_hours

    def _held(self, row: TrialRecord, until: float) -> float:
        if row.launched is None:
            return 0.0
        return max(0.0, until - row.launched) * self._spec.resources.workers
