"""A study's trials: what the ledger knows about each, kept in Optuna's storage."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import optuna

from study.confirmation import Decision, Finalists, Searched, winner
from study.ledger.groups import CONFIRMS, GROUP, alone, places
from study.ledger.optuna_study import DECISION, Refused, importances
from study.ledger.trial_record import TrialRecord, front
from study.private_names import show_constraint, storage_id, storage_of
from study.protocol.destinations import Destinations
from study.protocol.folder import stored_model, stored_trial
from study.protocol.states import ReplicateState, TrialState
from study.spec import Study
from trainables.config import TrainerConfig

EMPTIED = "emptied"
"""Attribute of the Optuna study, see `Trials.emptied`."""


class Trials:
    """A row for each trial, stored as one JSON attribute of Optuna's; decides nothing about them."""

    def __init__(self, study: optuna.Study, spec: Study, destinations: Destinations) -> None:
        """Read the rows of all trials that were begun; raises `Refused` for those of another version."""
        self._optuna, self._spec, self._folder = study, spec, destinations.storage
        self._checkpoints, self._id = destinations.checkpoints, study.user_attrs["id"]
        self.groups = places(spec)
        stored = study.user_attrs.get(DECISION)
        self.decision = None if stored is None else Decision.restored(stored)
        """What is confirmed; None while the search goes on."""
        self.rows = {trial.number: self._restored(trial) for trial in self.begun()}
        """Number of the trial -> its row."""
        trials = study.get_trials(deepcopy=False)
        self._ids = {trial.number: storage_id(trial) for trial in trials}
        self._replaced = {t.user_attrs["retry_of"] for t in trials if "retry_of" in t.user_attrs}
        """Numbers of failed trials that have one in their place, be it only in the queue."""

        self._shown: dict[int, dict[str, str | None]] = {}
        """Trial -> its state and reason as Optuna has them."""
        self.emptied: set[int] = set()
        """Trials whose models and checkpoints were removed; Optuna's own trials cannot be written to once they end."""
        for number in study.user_attrs.get(EMPTIED, ()):
            self._forget(number)

    def begun(self) -> list[optuna.trial.FrozenTrial]:
        """Optuna's trials but those that only wait in its queue."""
        return [t for t in self._optuna.get_trials(deepcopy=False) if t.state != optuna.trial.TrialState.WAITING]

    def frozen(self, number: int) -> optuna.trial.FrozenTrial:
        """Optuna's trial as it stands."""
        return self._optuna.get_trials(deepcopy=False)[number]

    def trial(self, number: int) -> optuna.Trial:
        """Optuna's trial, to be written to."""
        return optuna.Trial(self._optuna, self._id_of(number))

    def searched(self, row: TrialRecord) -> optuna.Trial:
        """Optuna's trial, to be asked for parameters and whether to prune it: its study has the trials of its group."""
        return optuna.Trial(alone(self._optuna, row.group), self._id_of(row.number))

    def _id_of(self, number: int) -> int:
        """The trial's id in the database, which it keeps: to look it up is to read every trial that runs."""
        if number not in self._ids:
            self._ids[number] = storage_id(self.frozen(number))
        return self._ids[number]

    def of(self, group: int | None) -> list[TrialRecord]:
        """The rows of a group's search by number, but for failed ones that are run again."""
        rows = [row for _, row in sorted(self.rows.items()) if row.group == group and row.confirms is None]
        return [row for row in rows if row.number not in self._replaced]

    def confirming(self) -> list[TrialRecord]:
        """The rows of the trials that confirm the search by number, but for failed ones that are run again."""
        return [
            row for _, row in sorted(self.rows.items()) if row.confirms is not None and row.number not in self._replaced
        ]

    def peers(self, row: TrialRecord) -> list[TrialRecord]:
        """The rows that share their seeds with this one, and are compared with it."""
        if row.confirms is None:
            return self.of(row.group)
        return [other for other in self.confirming() if other.group == row.group]

    def seeds(self, row: TrialRecord) -> tuple[int, ...]:
        """The seeds of a trial's replicates."""
        if row.confirms is None:
            return self._spec.seeds
        assert self.decision is not None, "a trial that confirms was decided on"
        return self.decision.seeds

    def decide(self) -> Decision | None:
        """Put on record what is confirmed, once, and queue it; None where the study confirms nothing."""
        if self._spec.confirm is None:
            return None
        if self.decision is None:
            name, more = self._spec.objectives[0].name, self._spec.objectives[0].direction == "maximize"
            searched = [
                Searched(
                    row.number, row.values[name] if row.state == TrialState.COMPLETE else None,
                    self._spec.group_name(group), row.control,
                )
                for group in self.groups
                for row in self.of(group)
            ]  # fmt: skip
            self.decision = Decision.of(searched, more, self._spec.confirm, self._spec.seeds)
            self._optuna.set_user_attr(DECISION, self.decision.stored)
        begun = {trial.user_attrs.get(CONFIRMS) for trial in self._optuna.get_trials(deepcopy=False)}
        for number in self.decision.numbers:
            if number not in begun:
                # Group and seeds are the trial's own from the start: a kill leaves it whole or not there.
                row = self.rows[number]
                group = {} if row.group is None else {GROUP: row.group}
                self._optuna.enqueue_trial(row.params, user_attrs={CONFIRMS: number} | group)
        return self.decision

    def winner(self, found: Finalists) -> int | None:
        """The finalist that has won so far, by its validation values over the fresh seeds."""
        objective = self._spec.objectives[0]
        whole = {
            row.confirms: [told.values[objective.name] for told in row.replicates]
            for row in self.confirming()
            if row.confirms is not None and row.state == TrialState.COMPLETE
        }
        return winner(found, whole, objective.direction == "maximize")

    def counted(self, group: int | None) -> int:
        """How many trials of its budget a group has used."""
        return len(self.of(group))

    def queued(self) -> bool:
        """Whether failed trials wait to be run again."""
        return any(t.state == optuna.trial.TrialState.WAITING for t in self._optuna.get_trials(deepcopy=False))

    def config(self, row: TrialRecord) -> TrainerConfig:
        """The config that the trial trains with; ValueError where its parameters make none."""
        return self._spec.config_with(self.settings(row) | {"cache": str(self._folder.cache)})

    def settings(self, row: TrialRecord) -> dict[str, Any]:
        """What the trial changes in the config: what its group gives it, and its parameters."""
        return self._spec.groups[row.group or 0] | row.params

    def store(self, row: TrialRecord) -> None:
        """Write the trial's row, and for those who look at Optuna's trials its state and its reason."""
        # An `optuna.Trial` would read all of the trial first.
        write = partial(storage_of(self._optuna).set_trial_user_attr, self._id_of(row.number))
        write("row", _finite(asdict(row)))
        told = {"state": str(row.state), "reason": row.reason}
        if row.number not in self._shown:
            attributes = self.frozen(row.number).user_attrs
            self._shown[row.number] = {key: attributes.get(key) for key in told}
        for key, value in told.items():
            if self._shown[row.number][key] != value:
                write(key, value)
                self._shown[row.number][key] = value

    def tell(self, row: TrialRecord) -> None:
        """End the trial in Optuna, if it has not ended there yet."""
        trial = self.trial(row.number)
        if self.frozen(row.number).state.is_finished():
            return
        # TPE does not look at failed trials: where the parameters are to be avoided, they are pruned to it.
        learnt = row.state in (TrialState.COMPLETE, TrialState.COLLAPSED, TrialState.PRUNED) or row.refused
        constraint = "refused" if row.refused else "collapse"
        if learnt and constraint not in trial.constraints:
            violated = 1.0 if row.refused or row.state == TrialState.COLLAPSED else -1.0
            trial.set_constraint(constraint, violated)
            show_constraint(trial, violated)
        if row.state == TrialState.COMPLETE:
            self._optuna.tell(trial, [row.values[o.name] for o in self._spec.objectives])
        else:
            self._optuna.tell(trial, state=optuna.trial.TrialState.PRUNED if learnt else optuna.trial.TrialState.FAIL)

    def empty(self, number: int) -> None:
        """Put on record that the models and checkpoints of a trial were removed."""
        self._optuna.set_user_attr(EMPTIED, sorted(self.emptied | {number}))
        self._forget(number)

    def _forget(self, number: int) -> None:
        self.emptied.add(number)
        self.rows[number] = replace(self.rows[number], checkpoint=None)

    def enqueue_failed(self) -> None:
        """Put the parameters of failed trials back in the queue; the failed ones stay on record. Once the search is
        over only those that confirm it."""
        for row in list(self.rows.values()):
            # What the config refused it would refuse again.
            own = (row.confirms is None) == (self.decision is None)
            if own and row.state == TrialState.FAILED and not row.refused and row.number not in self._replaced:
                group = {} if row.group is None else {GROUP: row.group}
                confirms = {} if row.confirms is None else {CONFIRMS: row.confirms}
                self._optuna.enqueue_trial(row.params, user_attrs={"retry_of": row.number} | group | confirms)
                self._replaced.add(row.number)

    def place(self, number: int) -> str | None:
        """Where an object store keeps what the trial writes; None where the storage folder does."""
        return stored_trial(self._checkpoints, self._id, number) if self._checkpoints else None

    def newest_checkpoint(self, number: int) -> str | None:
        """A path in the study's folder, or a URI; None before the first."""
        place = self.place(number)
        if place is not None:
            replicates = self.rows[number].replicates
            complete = [n for n, told in enumerate(replicates) if told.state == ReplicateState.COMPLETE]
            return stored_model(place, complete[-1]) if complete else place
        newest = self._folder.trial(number).newest()
        return None if newest is None else self._folder.inside(newest)

    def best(self, group: int | None) -> list[int]:
        """The best complete trial of a group that is no control, or the Pareto front where there are several
        objectives."""
        searched = [row for row in self.of(group) if row.state == TrialState.COMPLETE and not row.control]
        if not searched:
            return []
        if len(self._spec.objectives) > 1:
            return front(searched, self._spec.objectives)
        objective = self._spec.objectives[0]
        pick = max if objective.direction == "maximize" else min
        return [pick(searched, key=lambda row: row.values[objective.name]).number]

    def importances(self) -> dict[int | None, dict[str, float]]:
        """Group -> share of each parameter in the variance of the objective, see `optuna_study.importances`; stored."""
        found = {group: importances(alone(self._optuna, group), self._spec) for group in self.groups}
        for group, shares in found.items():
            self._optuna.set_user_attr(self._importances_key(group), shares)
        return found

    def stored_importances(self) -> dict[int | None, dict[str, float]]:
        """What `importances` found last."""
        stored = self._optuna.user_attrs
        return {group: stored.get(self._importances_key(group), {}) for group in self.groups}

    def _importances_key(self, group: int | None) -> str:
        return "importances" if group is None else f"importances.{group}"

    def _restored(self, trial: optuna.trial.FrozenTrial) -> TrialRecord:
        stored = trial.user_attrs.get("row")
        # A trial without a row was killed between its creation and its last parameter.
        try:
            row = TrialRecord.restored(stored) if stored else TrialRecord(trial.number, 0)
            row.group, row.confirms = trial.user_attrs.get(GROUP), trial.user_attrs.get(CONFIRMS)
        except (KeyError, TypeError, ValueError) as error:
            raise Refused(
                f"trial {trial.number} in the ledger of {self._optuna.study_name} was recorded by another version "
                f"({error}): use that one, or begin anew with --fresh"
            ) from error
        if row.checkpoint:
            row.checkpoint = self._folder.inside(self._folder.resolved(row.checkpoint))
        return row


def _finite(value: Any) -> Any:
    """JSON has no NaN: non-finite numbers become null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
