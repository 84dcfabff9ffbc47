"""What a study runs next: interrupted trials, then those to be run again, then new ones, group by group; and when no
search has any left, what confirms them."""

from __future__ import annotations

from collections.abc import Collection, Container

import optuna

from study.ledger.groups import CONFIRMS, GROUP
from study.ledger.sampling import control_of
from study.ledger.space import Unsuitable, shown, suggest
from study.ledger.trial_record import TrialRecord
from study.ledger.trials import Trials
from study.protocol.states import TrialState
from study.spec import Study

FUTILE = 5
"""Trials in a row whose parameters cannot be run that end a search, or a tenth of its trials where that is more."""
HOPELESS = 3
"""Failed trials that end a search in which nothing else has come to an end: the fault is not in the parameters."""


class Queue:
    """Picks the next trial and gives it its parameters; a study without groups has one search, the group None."""

    def __init__(self, study: optuna.Study, spec: Study, trials: Trials) -> None:
        self._optuna, self._spec, self._trials = study, spec, trials
        self._refused: dict[int | None, list[int]] = {}
        """Group -> its newest trials of this launch, if they are ones whose parameters cannot be run."""

    def next(self, live: Collection[int], searching: bool = True) -> TrialRecord | None:
        """The trial to run next, but for those that are `live`; a new one where none waits, None for no more just now.

        A new one goes to the group that has the fewest, the first of them. When the search has none left and none of it
        is live, or no longer `searching`, the finalists of all groups are decided and confirmed.
        """
        if self._trials.decision is None:
            found = self._searched(live) if searching else None
            if found is not None or live or self._spec.confirm is None:
                return found
        return None if self._trials.decide() is None else self._confirming(live)

    def _confirming(self, live: Container[int]) -> TrialRecord | None:
        waiting = [row for row in self._trials.confirming() if not row.state.ended and row.number not in live]
        if waiting:
            return waiting[0]
        return self._begun(self._optuna.ask()) if self._trials.queued() else None

    def _begun(self, trial: optuna.Trial) -> TrialRecord:
        given = trial.user_attrs
        row = TrialRecord(trial.number, 0, group=given.get(GROUP), confirms=given.get(CONFIRMS))
        self._trials.rows[trial.number] = row
        return row

    def _searched(self, live: Container[int]) -> TrialRecord | None:
        rows = self._trials.rows
        left = [group for group in self._trials.groups if not self._given_up(group)]
        room = [group for group in left if self._trials.counted(group) < self._spec.budget.trials]
        for row in rows.values():
            if row.group not in self._trials.groups:
                # Killed after it was made and before it had a group.
                self._assign(row, self._emptiest(room or self._trials.groups))
        waiting = [n for n, row in rows.items() if not row.state.ended and n not in live and row.group in left]
        if waiting:
            return rows[min(waiting)]
        if not room and not (left and self._trials.queued()):
            return None
        row = self._begun(self._optuna.ask())
        if row.group not in self._trials.groups:
            self._assign(row, self._emptiest(room))
        return row

    def suggest(self, row: TrialRecord) -> str | None:
        """Give the trial its parameters, unless it has them; one that was killed half-way gets those it would have had.

        Returns what the search space or the config has against them: the trial cannot run.
        """
        refusal = None if row.params else self._sample(row)
        if refusal is None:
            try:
                row.planned_steps = self._trials.config(row).total_steps * len(self._trials.seeds(row))
            except ValueError as error:
                refusal = str(error)
        if refusal is None:
            self._refused.pop(row.group, None)
        else:
            self._refused.setdefault(row.group, []).append(row.number)
        return refusal

    def futile(self) -> str | None:
        """Why this launch looks at no more parameters, of each group of which it does not; None while it does."""
        found = {group: self._futile(group) for group in self._trials.groups}
        return "; ".join(why for why in found.values() if why is not None) or None

    def _futile(self, group: int | None) -> str | None:
        refused = self._refused.get(group, [])
        if len(refused) < max(FUTILE, self._spec.budget.trials // 10):
            return None
        last = self._trials.rows[refused[-1]]
        settings = self._trials.settings(last)
        return (
            f"the parameters of {len(refused)} trials in a row cannot be run, at last {shown(settings)}: "
            f"{last.reason}; narrow the search space"
        )

    def _given_up(self, group: int | None) -> bool:
        """Whether a group gets no more trials, whatever room there is for them."""
        rows = [row for row in self._trials.of(group) if row.state.ended and not row.refused]
        hopeless = len(rows) >= HOPELESS and {row.state for row in rows} == {TrialState.FAILED}
        return hopeless or self._futile(group) is not None

    def _emptiest(self, groups: list[int | None]) -> int | None:
        return min(groups, key=self._trials.counted)

    def _assign(self, row: TrialRecord, group: int | None) -> None:
        """Put a trial in its group, from which it is never moved."""
        row.group = group
        self._trials.trial(row.number).set_user_attr(GROUP, group)

    def _sample(self, row: TrialRecord) -> str | None:
        """Parameters of a new trial; returns what the search space has against them."""
        if row.confirms is not None:
            searched = self._trials.rows[row.confirms]
            row.params, row.control = dict(searched.params), searched.control
            row.retry_of = self._trials.frozen(row.number).user_attrs.get("retry_of")
            return None
        trial, refusal = self._trials.searched(row), None
        control = control_of(self._spec, trial.study, trial.number)
        if control is None:
            try:
                suggest(self._spec, trial)
            except Unsuitable as error:
                refusal = str(error)
        frozen = self._trials.frozen(row.number)
        row.control, row.retry_of = control is not None, frozen.user_attrs.get("retry_of")
        row.params = dict(control or frozen.params)
        return refusal
