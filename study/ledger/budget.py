"""What a study's trials have cost, and whether its budget is spent."""

from __future__ import annotations

import time
from collections.abc import Iterable

from study.ledger.trial_record import TrialRecord
from study.spec import Study

KEEP_EVERY_S = 30.0
"""How often the time that a study has run is put on record: what a kill may cost."""


class Account:
    """Time of a study over all its launches; a trial's gang holds its workers from `open` to `settle`.

    Durations are of a clock that nobody sets. What is kept for a later launch is a moment since the epoch.
    """

    def __init__(self, spec: Study, elapsed_before_s: float) -> None:
        self._spec = spec
        self._before, self._started, self._kept = elapsed_before_s, time.monotonic(), 0.0
        self._opened: dict[int, float] = {}
        """Trials whose gang this launch has asked for -> when, on the monotonic clock."""

    def elapsed(self) -> float:
        """Seconds that the study has run."""
        return self._before + time.monotonic() - self._started

    def to_be_kept(self) -> float | None:
        """Seconds that the study has run where they should be put on record now, else None."""
        elapsed = self.elapsed()
        if elapsed - self._kept < KEEP_EVERY_S:
            return None
        self._kept = elapsed
        return elapsed

    def open(self, row: TrialRecord) -> None:
        """Note that a gang is asked for: it counts from now on."""
        row.launched = time.time()
        self._opened[row.number] = time.monotonic()

    def settle(self, row: TrialRecord) -> None:
        """Note in the record that the gang holds nothing any more; it holds on until `release`."""
        row.used += self._held(row)
        row.launched = None

    def release(self, number: int) -> None:
        """The trial's settled record is stored."""
        self._opened.pop(number, None)

    def settle_lost(self, row: TrialRecord, until: float) -> None:
        """Note that a gang of an earlier launch was lost; `until`, in seconds since the epoch, it is known to have been
        there."""
        if row.launched is not None:
            row.used += max(0.0, until - row.launched) * self._spec.resources.workers
        row.launched = None

    def used(self, row: TrialRecord) -> float:
        """Worker-seconds up to now."""
        return row.used + self._held(row)

    def gpu_hours(self, worker_seconds: float) -> float:
        return worker_seconds * self._spec.resources.gpus_per_worker / 3600

    def spent(self, rows: Iterable[TrialRecord], share: float = 1) -> bool:
        """Whether a share of any limit of the budget but the number of trials is reached."""
        budget = self._spec.budget
        if budget.wall_clock_s is not None and self.elapsed() >= share * budget.wall_clock_s:
            return True
        used = sum(map(self.used, rows))
        if budget.worker_hours is not None and used >= share * budget.worker_hours * 3600:
            return True
        return budget.gpu_hours is not None and self.gpu_hours(used) >= share * budget.gpu_hours

    def _held(self, row: TrialRecord) -> float:
        opened = self._opened.get(row.number)
        return 0.0 if opened is None else (time.monotonic() - opened) * self._spec.resources.workers
