"""The study as `summary.json` shows it, made of what the ledger knows."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from study.ledger.budget import Account
from study.ledger.space import log_scaled
from study.ledger.trial_record import TrialRecord
from study.ledger.trials import Trials
from study.protocol.states import StudyStatus
from study.protocol.summary import (
    ConfirmationSummary,
    ConfirmedGroup,
    GpuHours,
    GroupSummary,
    ObjectiveSummary,
    StudySummary,
    TrialSummary,
    WorkerSeconds,
)
from study.spec import Study
from study.tracking.tracker import Snapshot


class Summaries:
    """Makes the summaries of one study; what changes from one to the next is given to each."""

    def __init__(self, name: str, study_id: str, profile: str, spec: Study, account: Account) -> None:
        self._name, self._id, self._profile, self._spec, self._account = name, study_id, profile, spec, account
        self._parameter_log = log_scaled(spec, spec.parameter)
        self._metrics = spec.metrics
        self._ended: dict[int, tuple[TrialRecord, str | None, TrialSummary]] = {}
        """Trial -> its record when it had ended, its run, and how these are shown: nothing of it changes any more."""

    def of(
        self,
        trials: Trials,
        *,
        status: StudyStatus,
        reason: str | None,
        live: Container[int],
        recorded: Snapshot,
        importances: Mapping[int | None, Mapping[str, float]],
        baselines: Mapping[str, Mapping[str, float]],
        facts: Mapping[str, str],
    ) -> StudySummary:
        """The summary of now; `live` are the trials that gangs hold, `recorded` is what the tracker has sent, and
        `importances` has those of each group."""
        rows = [trials.rows[number] for number in sorted(trials.rows)]
        used = {row.number: self._account.used(row) for row in rows}
        shown = {
            row.number: self._shown(row, row.number in live, used[row.number], recorded.runs.get(row.number))
            for row in rows
        }
        best = {group: tuple(trials.best(group)) for group in trials.groups}
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
            group=self._spec.group.key if self._spec.group else None,
            plane=self._spec.plane,
            signals=self._spec.signals,
            importances=importances.get(None, {}),
            objectives=tuple(ObjectiveSummary(name=o.name, direction=o.direction) for o in self._spec.objectives),
            best=sum(best.values(), ()),
            planned_trials=self._spec.trials,
            groups=tuple(
                GroupSummary(
                    name=str(self._spec.group_name(group)),
                    value=self._spec.group.values[group],
                    best=best[group],
                    planned_trials=self._spec.budget.trials,
                    importances=importances[group],
                    **self._spent([row for row in rows if row.group == group], used),
                )
                for group in trials.groups
                if self._spec.group is not None and group is not None
            ),
            trials=tuple(shown[row.number] for row in rows if row.confirms is None),
            confirmation=self._confirmation(trials, shown),
            **self._spent(rows, used),
            wall_seconds=round(self._account.elapsed(), 3),
            metrics=self._metrics,
            baselines=baselines,
            dataset=facts,
            tracking=recorded.tracking,
            updated=datetime.now(UTC).replace(microsecond=0),
        )

    def _confirmation(self, trials: Trials, shown: Mapping[int, TrialSummary]) -> ConfirmationSummary | None:
        decision = trials.decision
        if decision is None:
            return None
        groups = tuple(
            ConfirmedGroup(
                name=one.group,
                finalists=one.chosen,
                controls=one.controls,
                missing=one.missing,
                winner=trials.winner(one),
            )
            for one in decision.groups
        )
        return ConfirmationSummary(
            finalists=decision.asked.finalists,
            seeds=decision.seeds,
            groups=groups,
            runs=tuple(one for one in shown.values() if one.confirms is not None),
        )

    def _shown(self, row: TrialRecord, live: bool, used: float, run_id: str | None) -> TrialSummary:
        """How a trial is shown; what has ended is made once, so that a long study's summary costs little."""
        known = self._ended.get(row.number)
        if known is not None and known[0] is row and known[1] == run_id:
            return known[2]
        shown = row.shown(
            live=live, used=used, gpu_hours=self._account.gpu_hours(used), run_id=run_id,
            group=self._spec.group_name(row.group),
        )  # fmt: skip
        if row.state.ended and not live:
            self._ended[row.number] = (row, run_id, shown)
        return shown

    def _spent(self, rows: Sequence[TrialRecord], used: Mapping[int, float]) -> dict[str, Any]:
        """What these trials have cost, as fields of a summary; `used` are the worker-seconds of each up to now."""
        taken, saved = sum(used[row.number] for row in rows), sum(row.saved for row in rows)
        return {
            "worker_seconds": WorkerSeconds(
                used=round(taken, 3),
                saved=round(saved, 3),
                overhead=round(sum(max(0.0, row.used - row.trained) for row in rows if row.state.ended), 3),
            ),
            "gpu_hours": GpuHours(
                used=round(self._account.gpu_hours(taken), 4),
                saved=round(self._account.gpu_hours(saved), 4),
                price=self._spec.resources.gpu_hour_price,
            ),
        }
