"""Inputs that moved while a study waited: the same content is the same input, wherever it lies.

A study keeps the names that it was begun with, in its ledger and in MLflow. Where a launch calls an input otherwise,
its content has to be the same; the gangs alone are told where it is now.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from study.ledger import inputs
from study.spec import Study
from trainables import paths
from trainables.config import TrainerConfig
from trainables.places import MODEL, Place, absolute

Moves = dict[str, dict[str, str]]
"""Key of the config -> path as the study was begun with it -> path now."""

ANEW = (
    "begin anew: with --fresh, or in another folder with --storage; where --ledger or STUDY_LEDGER names a database, "
    "in another one of those"
)
"""How a study of the same name is begun beside one that is there."""


@dataclass(frozen=True, slots=True)
class Begun:
    """The inputs that a study was begun with; empty for one that is new, or has not learnt from any yet."""

    moves: Moves = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    """Names, sizes and digests that reading the data brought."""
    contents: Mapping[str, str] | None = None
    """Value -> sha256 of its files; None where the ledger is older than this record."""

    def check(
        self, name: str, study: Study, space: Mapping[str, Any], facts: Mapping[str, str], contents: Mapping[str, str]
    ) -> None:
        """ValueError unless the inputs of `study`, called as they are now, have the content that it was begun with.

        The data of the config are the same if what is read from them is; all else, such as a backbone, if its files
        are. `facts` and `contents` are those of now.
        """
        identities = {key: value for key, value in self.facts.items() if key.endswith(".identity")}
        changed = [key for key, value in identities.items() if facts.get(key, value) != value]
        found = []
        for key, place, new, _ in inputs.values(study, space):
            old = self.name(key, new)
            data = place is not MODEL and new == paths.value_of(study.config, key)
            if (data and identities and not changed) or self._same(place, old, new, contents):
                continue
            found.append(
                f"{key} was {old}, now {new}, which is not known to have the same content"
                if old != new
                else f"{key} {new} has another content than it had"
            )
        if not found and self.contents is not None:
            found = [self._read(key.removesuffix(".identity"), facts) for key in changed]
        if found:
            raise ValueError(
                f"the study {name} was begun with other inputs: {'; '.join(dict.fromkeys(found))}. Undo the change, "
                f"or {ANEW}"
            )

    def name(self, key: str, value: Any) -> Any:
        """What a value of now was called when the study began."""
        return next((old for old, new in self.moves.get(key, {}).items() if new == value), value)

    def _read(self, what: str, facts: Mapping[str, str]) -> str:
        then, now = (f"{known.get(what, what)} ({known[f'{what}.identity'][:12]})" for known in (self.facts, facts))
        return f"{what} was {then}, now {now}"

    def _same(self, place: Place, old: Any, new: Any, contents: Mapping[str, str]) -> bool:
        """Whether two values name the same files; where no content is on record, whether they name the same place."""
        if self.contents is not None and old in self.contents:
            return self.contents[old] == contents.get(new)
        return old == new or _place(place, old) == _place(place, new)


def since(definition: Mapping[str, Any], now: Mapping[str, Any], places: Mapping[str, Place]) -> Moves:
    """What may have moved between two definitions of a study: paths that stand where other paths stood."""
    moves: Moves = {}
    for key, place in places.items():
        pairs = set(_pairs(key, definition, now))
        # Where two paths became one, or one became two, more has changed than a place.
        one_to_one = len(pairs) == len({old for old, _ in pairs}) == len({new for _, new in pairs})
        other = {old: new for old, new in pairs if old != new}
        if other and one_to_one and all(_place(place, value) for pair in other.items() for value in pair):
            moves[key] = other
    return moves


def as_begun(study: Study, begun: Begun) -> Study:
    """The study with its inputs called as they were when it was begun."""
    return inputs.renamed(study, begun.name) if begun.moves else study


def as_now(config: TrainerConfig, moves: Moves) -> TrainerConfig:
    """A trial's config with the names that its inputs have now."""
    values = {key: paths.value_of(config, key) for key in moves}
    return paths.renamed(config, {key: moves[key].get(value, value) for key, value in values.items()})


def _pairs(key: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Texts that the key has, or may have, at the same place in both definitions."""
    found = [(before.get(f"config.{key}"), now.get(f"config.{key}"))]
    for name in ("points", "controls"):
        found += [(a.get(key), b.get(key)) for a, b in zip(before.get(name) or (), now.get(name) or (), strict=False)]
    if before.get("group.key") == now.get("group.key") == key:
        found += zip(before["group.values"], now["group.values"], strict=False)
    found += zip(_choices(before.get(f"space.{key}")), _choices(now.get(f"space.{key}")), strict=False)
    yield from ((old, new) for old, new in found if isinstance(old, str) and isinstance(new, str))


def _choices(distribution: str | None) -> list[Any]:
    return json.loads(distribution)["attributes"].get("choices", []) if distribution else []


def _place(place: Place, value: Any) -> Path | None:
    """Where the path in a value leads, links followed; None for a value without one."""
    parts = place.parts(value) if isinstance(value, str) and value else None
    return absolute(parts.path, Path.cwd()).resolve() if parts is not None else None
