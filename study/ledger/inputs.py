"""The paths of a study: of its config, its groups, points and controls, and the choices of its space.

A `space` is what `study.ledger.optuna_study.explore` finds: parameter -> distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from study.spec import Study
from trainables import overrides, paths
from trainables.places import Place

Rename = Callable[[str, Any], Any]
"""(key of the config, value) -> the value's other name."""


@dataclass(frozen=True, slots=True)
class Space:
    """A search space whose choices have other names in Optuna's storage than in the function that suggests them."""

    space: Callable[[Any], Any]
    rename: Rename

    def __call__(self, trial: Any) -> Any:
        return self.space(_Trial(trial, self.rename))


class _Trial:
    """An Optuna trial that stores a choice under its other name, and gives it back as the space wrote it."""

    def __init__(self, trial: Any, rename: Rename) -> None:
        self._trial, self._rename = trial, rename

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        choices = list(choices)
        other = [self._rename(name, choice) for choice in choices]
        if other == choices:
            return self._trial.suggest_categorical(name, choices)
        chosen = self._trial.suggest_categorical(name, other)
        return next(choice for choice, known in zip(choices, other, strict=True) if known == chosen)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trial, name)


@dataclass(frozen=True, slots=True)
class _Located:
    """Makes the paths of a config's keys absolute. Each text is looked up once, so that it counts as a path even if its
    folder disappears meanwhile."""

    places: Mapping[str, Place]
    base: Path
    found: dict[tuple[str, str], str] = field(default_factory=dict)

    def __call__(self, key: str, value: Any) -> Any:
        if key not in self.places or not isinstance(value, str):
            return value
        if (key, value) not in self.found:
            self.found[key, value] = paths.locate(key, self.places[key], value, self.base)
        return self.found[key, value]


def renamed(study: Study, rename: Rename) -> Study:
    """A copy of the study in which every value that a key of the config may have is called by its other name."""
    config = {key: rename(key, paths.value_of(study.config, key)) for key in paths.places(study.config)}
    group = study.group
    if group is not None:
        group = group.model_copy(update={"values": tuple(rename(group.key, value) for value in group.values)})
    return study.model_copy(
        update={
            "group": group,
            "config": paths.renamed(study.config, config),
            "points": tuple({key: rename(key, value) for key, value in point.items()} for point in study.points),
            "controls": tuple({key: rename(key, value) for key, value in point.items()} for point in study.controls),
            "space": Space(study.space, rename),
        }
    )


def located(study: Study, base: Path) -> Study:
    """The study with absolute paths, those that are not being relative to `base`; ValueError for a mistyped one."""
    return renamed(study, _Located(paths.places(study.config), base))


def values(study: Study, space: Mapping[str, Any]) -> Iterator[tuple[str, Place, Any, Any]]:
    """(key, what its type says, value, its section of the config) of all values of keys that may hold a path.

    A choice has no section: it is known only together with the trial's other parameters.
    """
    places = paths.places(study.config)
    for point in ({}, *filter(None, study.groups), *study.controls, *study.points):
        config = overrides.apply(study.config, point) if point else study.config
        for key in places if not point else places.keys() & point.keys():
            yield key, places[key], paths.value_of(config, key), paths.section_of(config, key)
    for key in places.keys() & space.keys():
        yield from ((key, places[key], choice, None) for choice in getattr(space[key], "choices", ()))


def check(study: Study, space: Mapping[str, Any]) -> None:
    """ValueError that names the key unless all that a located study names by paths is there, and of the right kind."""
    for key, place, value, section in values(study, space):
        paths.check_value(key, place, value, section)


def check_elsewhere(study: Study, space: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """ValueError unless the paths of a study that is not located are absolute: it will run on other machines.

    Whether anything is there cannot be seen from here. `settings` are those of `--set`.
    """
    for key, place, value, _ in values(study, space):
        parts = paths.parts(key, place, value, Path.cwd())
        if parts is not None and not Path(parts.path).is_absolute():
            where = f"--set {key}" if settings.get(key) == value else f"the study file: {key}"
            raise ValueError(f"{where}={value}: a path on this machine; give an absolute one that all nodes see")


def contents(study: Study, space: Mapping[str, Any]) -> dict[str, str]:
    """Value -> sha256 of the files that it names, of all values of a located study that name some.

    A source that is streamed is not read to its end for that. ValueError where a file cannot be read.
    """
    found: dict[str, str] = {}
    for key, place, value, section in values(study, space):
        streamed = getattr(section or paths.section_of(study.config, key), "streaming", False)
        if isinstance(value, str) and value not in found and not streamed:
            try:
                digest = paths.digest(place, value)
            except OSError as error:
                raise ValueError(f"{key} {value!r} cannot be read: {error.strerror or error}") from None
            found |= {value: digest} if digest is not None else {}
    return found
