"""Which changes to its config a study's trials will make: what the input check tries before any of them."""

from __future__ import annotations

from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution, IntDistribution

from study.ledger.space import explore, suggest
from study.spec import Study
from study.values import plain

TRIES = 5
"""Draws of the other parameters for a choice that is refused together with the first."""


def variants(spec: Study) -> list[dict[str, Any]]:
    """Controls, points, and a point of the space for each choice and both ends of each range of integers, per group.

    Each is a mapping of dotted keys that the config accepts; a choice that it never accepts is left to its trial.
    """
    found = [group | control for group in spec.groups for control in spec.controls]
    wanted: list[dict[str, Any]] = [*map(dict, spec.points), {}]
    for name, distribution in explore(spec).items():
        if isinstance(distribution, CategoricalDistribution):
            wanted += [{name: choice} for choice in distribution.choices]
        elif isinstance(distribution, IntDistribution):
            wanted += [{name: distribution.low}, {name: distribution.high}]
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        probe = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
        points = (_point(probe, spec, group, given) for group in spec.groups for given in wanted)
        found += [point for point in points if point is not None]
    finally:
        optuna.logging.set_verbosity(verbosity)
    return [point for place, point in enumerate(found) if point not in found[:place]]


def _point(probe: optuna.Study, spec: Study, group: dict[str, Any], given: dict[str, Any]) -> dict[str, Any] | None:
    """A point of the space with the given values, as far as it has these parameters, for a trial of the group."""
    wanted = {name: plain(value, f"a value of {name}") for name, value in given.items()}
    for _ in range(TRIES):
        probe.enqueue_trial(wanted)
        trial = probe.ask()
        try:
            suggest(spec, trial)
            spec.config_with(group | trial.params)
        except ValueError:
            continue  # the space raises, or the config refuses
        # A parameter may exist only beside another's value.
        if all(name in trial.params and trial.params[name] == value for name, value in wanted.items()):
            return group | trial.params
    return None
