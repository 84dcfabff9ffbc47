"""A study's groups, each with a search of its own: samplers and pruners are shown a study that has no other group.

What keeps groups apart is the storage that they are shown, through which all that they can read comes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Container
from typing import Any

import optuna
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial

from study.private_names import storage_of
from study.spec import Study

GROUP = "group"
"""Attribute of an Optuna trial: the place of its group in the order of the study's groups."""
CONFIRMS = "confirms"
"""Attribute of an Optuna trial: the number of the trial of the search that it runs again to confirm it."""


def places(spec: Study) -> list[int | None]:
    """The places of the study's groups in their order; None alone for a study without groups."""
    return [None] if spec.group is None else list(range(len(spec.groups)))


def alone(study: optuna.Study, group: int | None) -> optuna.Study:
    """The study as it would be if it had this group only; None stands for a study without groups, which is itself.

    Its trials are numbered from 0. What is written to one of them is written to the trial of the whole study.
    """
    if group is None:
        return study
    storage = _GroupStorage(storage_of(study), study.study_name, group)
    return optuna.load_study(
        study_name=study.study_name, storage=storage, sampler=study.sampler, pruner=study.pruner
    )  # fmt: skip


def _of_the_whole(name: str) -> Callable[..., Any]:
    def call(self: _GroupStorage, *arguments: Any, **keywords: Any) -> Any:
        return getattr(self._whole, name)(*arguments, **keywords)

    return call


_Whole: Any = type("_Whole", (BaseStorage,), {name: _of_the_whole(name) for name in BaseStorage.__abstractmethods__})
"""A storage that asks another one, `_whole`, for all that a storage must have."""


class _GroupStorage(_Whole):
    """An Optuna storage in which one study has the trials of one of its groups, and no others."""

    def __init__(self, whole: BaseStorage, name: str, group: int) -> None:
        self._whole, self._study, self._group = whole, whole.get_study_id_from_name(name), group

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[optuna.trial.TrialState] | None = None
    ) -> list[FrozenTrial]:
        found = [self._renumbered(trial, place) for place, trial in enumerate(self._trials(deepcopy))]
        return [trial for trial in found if states is None or trial.state in states]

    def get_trial(self, trial_id: int) -> FrozenTrial:
        trial = self._whole.get_trial(trial_id)
        return self._renumbered(trial, self._place(trial.number))

    def _trials(self, deepcopy: bool = False) -> list[FrozenTrial]:
        trials = self._whole.get_all_trials(self._study, deepcopy=deepcopy)
        searched = (trial for trial in trials if CONFIRMS not in trial.user_attrs)
        return [trial for trial in searched if trial.user_attrs.get(GROUP) == self._group]

    def _place(self, number: int) -> int:
        return [trial.number for trial in self._trials()].index(number)

    def _renumbered(self, trial: FrozenTrial, place: int) -> FrozenTrial:
        found = copy.copy(trial)
        found.number = place
        if "retry_of" in trial.user_attrs:
            found.user_attrs = trial.user_attrs | {"retry_of": self._place(trial.user_attrs["retry_of"])}
        return found
