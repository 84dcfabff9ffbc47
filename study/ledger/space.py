"""A study's search space: what it suggests, looked at before anything starts and asked trial by trial."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from study.private_names import holds
from study.spec import Study
from study.values import plain
from trainables import overrides
from trainables.errors import one_line

# Optuna vouches for single values only; JSON brings lists back as they are.
warnings.filterwarnings("ignore", "Choices for a categorical distribution should be", UserWarning)

PROBES = 20
"""Random parameter sets that are tried before a study starts."""


class Unsuitable(ValueError):
    """No trial can run with these parameters: the space raises, or the config refuses them."""


class PlainTrial:
    """An Optuna trial as a space sees it, whose values are stored as `study.values.plain` makes them.

    A choice comes back from storage as a list where it went in as a tuple, and carrying on would meet another
    space; the space itself gets back the very choices that it named.
    """

    def __init__(self, trial: optuna.Trial) -> None:
        self._trial = trial
        self.fault: Exception | None = None
        """What Optuna or its storage raised, but for what wrong arguments cause."""

    def __getattr__(self, name: str) -> Any:
        with self._watched():
            found = getattr(self._trial, name)
        return partial(self._suggest, found) if name.startswith("suggest_") else found

    def suggest_categorical(self, name: str, choices: Iterable[Any]) -> Any:
        own = list(choices)
        kept = [plain(choice, f"a choice of {name}") for choice in own]
        for place, choice in enumerate(kept):
            first = kept.index(choice)
            if json.dumps(kept[first]) != json.dumps(choice):
                raise ValueError(
                    f"choices of {name}: {own[first]!r} and {own[place]!r} are equal, and storage could not tell them "
                    "apart; name one of them"
                )
        with self._watched():
            chosen = self._trial.suggest_categorical(name, kept)
        return own[kept.index(chosen)]

    def _suggest(self, method: Callable[..., Any], name: str, *bounds: Any, **more: Any) -> Any:
        """`suggest_float` and its kin."""
        what = f"a bound of {name}"
        given = [plain(bound, what) for bound in bounds]
        named = {key: plain(value, what) for key, value in more.items()}
        with self._watched():
            return method(name, *given, **named)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except (AttributeError, TypeError, ValueError):
            raise
        except Exception as error:
            self.fault = error
            raise


def suggest(spec: Study, trial: optuna.Trial) -> None:
    """Let the space suggest its parameters to the trial; raises `Unsuitable` if the space itself raises anything."""
    asked = PlainTrial(trial)
    try:
        spec.space(asked)
    except Exception as error:
        # A fault of the storage says nothing about the parameters.
        if asked.fault is not None:
            raise
        said = one_line(str(error))
        if not isinstance(error, ValueError):
            said = f"raises {type(error).__name__}: {said}"
        raise Unsuitable(f"the search space {said}") from error


def explore(spec: Study) -> dict[str, BaseDistribution]:
    """Parameters that the space suggests, found by sampling it; checks their names, ranges and what configs they make.

    Raises ValueError for a name that the config lacks, for parameters that it refuses, for a point outside the
    space, and for a space that the study's sampler cannot sample.
    """
    seen = _probes(spec)
    found = {name: distribution for space in seen for name, distribution in space.items()}
    for point in spec.points:
        for name, value in point.items():
            if name not in found or not holds(found[name], value):
                raise ValueError(f"point {point}: {name}={value!r} is not in the search space")
    if spec.sampler == "qmc":
        _check_quasi_random(seen)
    return found


def log_scaled(spec: Study, name: str) -> bool | None:
    """Whether the space draws the parameter on a log scale; None where it has no range of numbers for it."""
    found = explore(spec).get(name)
    return found.log if isinstance(found, FloatDistribution | IntDistribution) else None


def check_settings(spec: Study, settings: Collection[str]) -> None:
    """ValueError for a key of `--set` that no trial would take, because its group gives it to each of them or the space
    suggests it for all of them."""
    if spec.group is not None and spec.group.key in settings:
        raise ValueError(
            f"--set {spec.group.key}: every trial is given it by its group, one of {', '.join(spec.group.names)}; "
            "leave it out, or copy the study file and change its groups"
        )
    suggested = set.intersection(*(set(space) for space in _probes(spec)))
    for key in settings:
        if key in suggested and all(key in control for control in spec.controls):
            raise ValueError(
                f"--set {key}: the search space suggests {key} for every trial, so that this value would never be "
                "used; leave it out, or copy the study file and change its space"
            )


def _probes(spec: Study) -> list[dict[str, BaseDistribution]]:
    """What the space suggests in some trials that are drawn at random."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        probe = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
        groups = spec.groups
        return [_probed(spec, probe.ask(), groups[place % len(groups)]) for place in range(max(PROBES, len(groups)))]
    finally:
        optuna.logging.set_verbosity(verbosity)


def _probed(spec: Study, trial: optuna.Trial, group: Mapping[str, Any]) -> dict[str, BaseDistribution]:
    suggest(spec, trial)
    known = overrides.keys(spec.config)
    for name in trial.distributions:
        if name not in known:
            raise ValueError(f"the search space suggests an {overrides.unknown_key(name, known)}")
        if name in group:
            raise ValueError(f"the search space suggests {name}, which every trial is given by its group; leave it out")
    params = {**group, **trial.params}
    try:
        spec.config_with(params)
    except ValueError as error:
        raise ValueError(f"the search space suggests {shown(params)}, which cannot be run: {error}") from None
    return trial.distributions


def _check_quasi_random(seen: list[dict[str, BaseDistribution]]) -> None:
    """One sequence over a box: what has no place in it is refused."""
    for space in seen:
        for name, distribution in space.items():
            if isinstance(distribution, CategoricalDistribution) and not distribution.single():
                raise ValueError(
                    f"sampler='qmc': {name} has categories, which have no order; use sampler='tpe' or 'random', or a "
                    "range of numbers"
                )
    for space in seen:
        for name in space.keys() | seen[0].keys():
            if space.get(name) != seen[0].get(name):
                raise ValueError(
                    f"sampler='qmc': {name} is not in every trial, or not with the same range; use sampler='tpe' or "
                    "'random', or a space without conditions"
                )


def shown(parameters: Mapping[str, Any]) -> str:
    """Parameters in a sentence."""
    return ", ".join(f"{name}={value!r}" for name, value in parameters.items())
