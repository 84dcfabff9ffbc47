"""Which trials keep the models and checkpoints that they have made: those that an answer may rest on.

Results and logs of all of them stay.
"""

from __future__ import annotations

import math

from study.ledger.trial_record import TrialRecord, front
from study.ledger.trials import Trials
from study.protocol.folder import StudyFolder
from study.protocol.messages import Leftover
from study.protocol.states import TrialState
from study.spec import Objective, Study

FEW = 5
"""Best trials of each group that keep their models."""


class Retention:
    """Finds what is left over of a study's trials; `few` best trials of each group stay, None keeps everything."""

    def __init__(self, spec: Study, trials: Trials, storage: StudyFolder, few: int | None) -> None:
        self._spec, self._trials, self._folder, self._few = spec, trials, storage, few
        named = {objective.name for objective in spec.objectives}
        self._costs = [
            Objective(name=name, direction=metric.direction)
            for name, metric in spec.metrics.items()
            if metric.cost and name not in named
        ]
        self._told: set[int] = set()
        """Trials whose leftovers a gang of this launch removes."""

    def surplus(self) -> list[Leftover]:
        """What is to be removed now; each once in a launch. What a gang could not remove, one of the next does."""
        if self._few is None:
            return []
        kept = self.kept()
        rows = [row for row in self._trials.rows.values() if row.state.ended and row.attempts]
        found = [row.number for row in rows if row.number not in kept | self._told | self._trials.emptied]
        self._told.update(found)
        return [
            Leftover(number, str(self._folder.trial(number).path), self._trials.place(number), self._spec.replicates)
            for number in found
        ]

    def kept(self) -> set[int]:
        """Ended trials that keep what they have made: the best few and the Pareto front of each group, controls, all
        arms of a paired design, and what confirms a search."""
        found = {row.number for row in self._trials.confirming()}
        for group in self._trials.groups:
            rows = [row for row in self._trials.of(group) if row.state == TrialState.COMPLETE]
            found |= {row.number for row in rows if row.control or self._spec.design == "paired"}
            searched = [row for row in rows if not row.control]
            found |= set(front(searched, self._judged(searched)))
            found |= {row.number for row in self._best(searched)}
        return found

    def _judged(self, rows: list[TrialRecord]) -> list[Objective]:
        """The objectives, and the cost that effectiveness is paid for with, where all rows have one."""
        measured = [o for o in self._costs if all(math.isfinite(row.values.get(o.name, math.nan)) for row in rows)]
        return [*self._spec.objectives, *measured]

    def _best(self, rows: list[TrialRecord]) -> list[TrialRecord]:
        objective = self._spec.objectives[0]
        more = objective.direction == "maximize"
        return sorted(rows, key=lambda row: row.values[objective.name], reverse=more)[: self._few]


def most_kept(spec: Study, few: int | None) -> int:
    """Trials of the search that keep their models at its end, at most, but for those on a Pareto front beyond the best
    few."""
    if few is None or spec.design == "paired":
        return spec.trials
    return len(spec.groups) * min(spec.budget.trials, few + len(spec.controls))
