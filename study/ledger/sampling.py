"""Which parameters a trial gets, by Optuna's samplers as functions of the seed; and the study's pruner."""

from __future__ import annotations

import hashlib
import warnings
from functools import cached_property
from typing import Any

import optuna
from optuna.distributions import BaseDistribution

from study.ledger.space import explore
from study.private_names import OwnPlace
from study.spec import Pruner, Study


def control_of(spec: Study, study: optuna.Study, number: int) -> dict[str, Any] | None:
    """The control that this trial runs, or None for a trial that is searched.

    Where trials have groups, `study` and `number` are those of the group alone.
    """
    place = place_of(study, number)
    return spec.controls[place] if place < len(spec.controls) else None


def place_of(study: optuna.Study, number: int) -> int:
    """Where a trial stands in the order of trials without the retries; a retry stands where its failed trial does."""
    # Hyperband hands samplers a study whose own method shows the trials of one bracket only.
    trials = optuna.Study.get_trials(study, deepcopy=False)
    if "retry_of" in trials[number].user_attrs:
        return place_of(study, trials[number].user_attrs["retry_of"])
    return number - sum("retry_of" in t.user_attrs for t in trials[:number])


def seed_of(*parts: Any) -> int:
    """A seed that depends on `parts` only."""
    return int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()[:4], "little")


class Sampler(optuna.samplers.BaseSampler):
    """Samples as the study's sampler does, with a random stream that depends on (seed, trial, parameter) only.

    So the sequence of trials is a function of the seed and of what was told, not of how often the
    process was started; and a trial that was killed between two parameters gets the second as if
    nothing had happened. The first trials after the controls take the study's points. Quasi-random trials
    take the points of one scrambled Sobol sequence, each the one at its own place in the order.
    """

    def __init__(self, spec: Study) -> None:
        self._spec = spec

    @cached_property
    def _axes(self) -> dict[str, BaseDistribution]:
        """Dimensions of the Sobol sequence."""
        return {name: found for name, found in explore(self._spec).items() if not found.single()}

    def _searched(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> int:
        """The trial's place, from 0, among the trials that are searched; negative for controls and points."""
        return place_of(study, trial.number) - len(self._spec.controls) - len(self._spec.points)

    def _point(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> dict[str, Any]:
        index = self._searched(study, trial) + len(self._spec.points)
        return self._spec.points[index] if 0 <= index < len(self._spec.points) else {}

    def _inner(
        self, study: optuna.Study, trial: optuna.trial.FrozenTrial, what: str = ""
    ) -> optuna.samplers.BaseSampler:
        if self._spec.sampler == "qmc" and not what:
            return _Sobol(seed_of(self._spec.seed, "qmc"), self._searched(study, trial), self._axes)
        seed = seed_of(self._spec.seed, trial.number, what)
        if self._spec.sampler in ("random", "qmc"):
            return optuna.samplers.RandomSampler(seed=seed)
        # Groups, because controls and conditional parameters leave no parameter that all trials share.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return optuna.samplers.TPESampler(seed=seed, multivariate=True, group=True)

    def infer_relative_search_space(self, study, trial):
        return {} if self._point(study, trial) else self._inner(study, trial).infer_relative_search_space(study, trial)

    def sample_relative(self, study, trial, search_space):
        if not search_space:
            return {}
        inner = self._inner(study, trial)
        # The sampler keeps the groups of parameters that it has found.
        inner.infer_relative_search_space(study, trial)
        return inner.sample_relative(study, trial, search_space)

    def sample_independent(self, study, trial, param_name, param_distribution):
        point = self._point(study, trial)
        if param_name in point:
            return point[param_name]
        if self._spec.sampler == "qmc" and not point:
            raise ValueError(f"{param_name} is not in every trial, which sampler='qmc' needs; use 'tpe' or 'random'")
        return self._inner(study, trial, param_name).sample_independent(study, trial, param_name, param_distribution)


class _Sobol(OwnPlace, optuna.samplers.QMCSampler):
    """The point at one place of a Sobol sequence over `axes` (Joe & Kuo 2008), scrambled by the seed (Matoušek 1998).

    Optuna counts points in its storage instead: a trial that is suggested again after a kill would get another
    one, and processes without a common seed points of different sequences.
    """

    def __init__(self, seed: int, place: int, axes: dict[str, BaseDistribution]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            super().__init__(qmc_type="sobol", scramble=True, seed=seed)
        self.place, self._axes = place, axes

    def infer_relative_search_space(self, study, trial):
        return self._axes


def pruner(wanted: Pruner, steps: int) -> optuna.pruners.BasePruner:
    """Optuna's pruner for trials of so many steps."""
    match wanted.kind:
        case "none":
            return optuna.pruners.NopPruner()
        case "median":
            return optuna.pruners.MedianPruner(wanted.startup_trials, wanted.first_step)
        case "successive_halving":
            return optuna.pruners.SuccessiveHalvingPruner(
                min_resource=wanted.first_step, reduction_factor=wanted.reduction_factor
            )
        case "hyperband":
            return optuna.pruners.HyperbandPruner(
                min_resource=wanted.first_step, max_resource=steps, reduction_factor=wanted.reduction_factor
            )
