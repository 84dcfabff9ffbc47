"""What of a study must not change while it is carried on, and how a stored one differs from what is asked for."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from trainables.overrides import flat

_ABSENT = object()


def defaults(section: BaseModel, prefix: str = "") -> dict[str, Any]:
    """Dotted key -> the default that the class of its section gives it, as JSON; sections in tuples by their place."""
    found: dict[str, Any] = {}
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            # Another class's default for the section as a whole says nothing about what was before a key of it.
            found |= defaults(value, f"{prefix}{name}.")
            continue
        if not field.exclude and not field.is_required():
            found |= flat({name: to_jsonable_python(field.get_default(call_default_factory=True))}, prefix)
        if isinstance(value, tuple):
            for place, item in enumerate(value):
                if isinstance(item, BaseModel):
                    found |= defaults(item, f"{prefix}{name}.{place}.")
    return found


def at_default(wanted: Mapping[str, Any], by_class: Mapping[str, Any]) -> list[str]:
    """The keys of a definition that are at the default of their class; stored with it, see `differences`."""
    return sorted(key for key, value in _expanded(wanted).items() if by_class.get(key, _ABSENT) == value)


def differences(
    stored: Mapping[str, Any], wanted: Mapping[str, Any], by_class: Mapping[str, Any], were_default: Container[str] = ()
) -> list[str]:
    """`KEY was OLD, now NEW` for each difference between two flat definitions.

    A key that the stored one lacks is younger than that study. At its class default (`by_class`, from `defaults`)
    it is no difference: **a new key's default must keep the behaviour from before there was the key.** In the same
    way a key that has gone is none where it was at its default (`were_default`, stored with the definition). A
    default that has changed is a difference for every study that was begun with the old one.
    """
    before, after = _expanded(stored), _expanded(wanted)
    found = []
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key, _ABSENT), after.get(key, _ABSENT)
        younger = old is _ABSENT and by_class.get(key, _ABSENT) == new
        gone = new is _ABSENT and key in were_default and key not in by_class
        if old != new and not younger and not gone:
            found.append(f"{key} was {_shown(old)}, now {_shown(new)}{_keep(key, old, new, by_class)}")
    return found


def _expanded(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings in lists by their place: {"points": [{"k": 1}]} -> {"points.0.k": 1}."""
    return dict(item for key, value in definition.items() for item in _leaves(key, value))


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Sequence) and value and all(isinstance(item, Mapping) for item in value):
        for place, item in enumerate(value):
            yield from _expanded(flat(item, f"{key}.{place}.") or {f"{key}.{place}": {}}).items()
    else:
        yield key, value


def _keep(key: str, old: Any, new: Any, by_class: Mapping[str, Any]) -> str:
    """How the old value of a config key is asked for where nobody has asked for the new one."""
    if old is _ABSENT or new is _ABSENT or not key.startswith("config.") or by_class.get(key) != new:
        return ""
    return f" (the default; --set '{key.removeprefix('config.')}={json.dumps(old)}' keeps the old one)"


def _shown(value: Any) -> str:
    return "absent" if value is _ABSENT else repr(value)
