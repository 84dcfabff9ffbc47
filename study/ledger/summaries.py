"""The study as `summary.json` shows it, made of what the ledger knows."""

from __future__ import annotations

from collections.abc import Container, Mapping
from datetime import UTC, datetime

from study.ledger.budget import Account
from study.ledger.space import log_scaled
from study.ledger.trials import Trials
from study.protocol.states import StudyStatus
from study.protocol.summary import GpuHours, ObjectiveSummary, StudySummary, WorkerSeconds
from study.spec import Study
from study.tracking.tracker import Snapshot


class Summaries:
    """Makes the summaries of one study; what changes from one to the next is given to each."""

    def __init__(self, name: str, study_id: str, profile: str, spec: Study, account: Account) -> None:
        self._name, self._id, self._profile, self._spec, self._account = name, study_id, profile, spec, account
        self._parameter_log = log_scaled(spec, spec.parameter)
        self._metrics = spec.metrics

    def of(
        self,
        trials: Trials,
        *,
        status: StudyStatus,
        reason: str | None,
        live: Container[int],
        recorded: Snapshot,
        importances: Mapping[str, float],
        baselines: Mapping[str, Mapping[str, float]],
        facts: Mapping[str, str],
    ) -> StudySummary:
        """The summary of now; `live` are the trials that gangs hold, `recorded` is what the tracker has sent."""
        rows = [trials.rows[number] for number in sorted(trials.rows)]
        used = {row.number: self._account.used(row) for row in rows}
        return StudySummary(
            study=self._name,
            id=self._id,
            profile=self._profile,
            status=StudyStatus(status),
            reason=reason,
            question=self._spec.question,
            design=self._spec.design,
            parameter=self._spec.parameter,
            parameter_log=self._parameter_log,
            plane=self._spec.plane,
            signals=self._spec.signals,
            importances=importances,
            objectives=tuple(ObjectiveSummary(name=o.name, direction=o.direction) for o in self._spec.objectives),
            best=tuple(trials.best()),
            planned_trials=self._spec.budget.trials,
            trials=tuple(
                row.shown(
                    live=row.number in live,
                    used=used[row.number],
                    gpu_hours=self._account.gpu_hours(used[row.number]),
                    run_id=recorded.runs.get(row.number),
                )
                for row in rows
            ),
            worker_seconds=WorkerSeconds(
                used=round(sum(used.values()), 3),
                saved=round(sum(row.saved for row in rows), 3),
                overhead=round(sum(max(0.0, row.used - row.trained) for row in rows if row.state.ended), 3),
            ),
            gpu_hours=GpuHours(
                used=round(self._account.gpu_hours(sum(used.values())), 4),
                saved=round(self._account.gpu_hours(sum(row.saved for row in rows)), 4),
                price=self._spec.resources.gpu_hour_price,
            ),
            wall_seconds=round(self._account.elapsed(), 3),
            metrics=self._metrics,
            baselines=baselines,
            dataset=facts,
            tracking=recorded.tracking,
            updated=datetime.now(UTC).replace(microsecond=0),
        )
