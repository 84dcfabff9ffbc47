"""Dotted overrides of a frozen config, and validation errors as one readable sentence."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

ConfigType = TypeVar("ConfigType", bound=BaseModel)


def keys(config: BaseModel | type[BaseModel], prefix: str = "") -> list[str]:
    """All dotted keys of a config that hold a value: `k`, `optimiser.lr`, ..."""
    found = []
    model = config if isinstance(config, type) else type(config)
    for name, field in model.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            found += keys(section, f"{prefix}{name}.")
        else:
            found.append(prefix + name)
    return found


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one with dotted keys.

    >>> flat({"a": {"b": 1}, "c": 2})
    {'a.b': 1, 'c': 2}
    """
    found: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


def unknown_key(key: str, known: Iterable[str]) -> str:
    """One sentence for a key that does not exist: the nearest one, or all of them."""
    known = list(known)
    near = difflib.get_close_matches(key, known, n=1) or [k for k in known if k.rsplit(".", 1)[-1] == key][:1]
    hint = f"did you mean '{near[0]}'?" if near else f"known keys: {', '.join(known)}"
    return f"unknown key '{key}'; {hint}"


def parse(assignments: Iterable[str], option: str = "--set") -> dict[str, Any]:
    """`["k=4", "train.source=pairs.tsv"]` -> {"k": 4, "train.source": "pairs.tsv"}.

    A value is read as JSON where it is JSON (numbers, true, null, lists) and as text otherwise.
    """
    values: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not key:
            raise ValueError(f"{option} takes KEY=VALUE, not '{assignment}'")
        try:
            values[key] = json.loads(text)
        except ValueError:
            values[key] = text
    return values


def apply(config: ConfigType, values: Mapping[str, Any]) -> ConfigType:
    """A copy of `config` with dotted keys replaced, validated as a whole.

    Raises ValueError with one sentence that names the key, the value and what is accepted.
    """
    known = keys(config)
    tree = config.model_dump()
    for key, value in values.items():
        if key not in known:
            raise ValueError(unknown_key(key, known))
        node = tree
        *sections, leaf = key.split(".")
        for section in sections:
            node = node[section]
        node[leaf] = value
    return validate(type(config), tree)


def validate(model: type[ConfigType], tree: Mapping[str, Any]) -> ConfigType:
    """`model(**tree)` with pydantic's errors as one sentence each."""
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        raise ValueError(sentences(error, model)) from None


def sentences(error: ValidationError, model: type[BaseModel] | None = None) -> str:
    """What pydantic found, for people; with the `model`, an unknown key is told with the nearest one."""
    return "; ".join(_sentence(item, model, error.title) for item in error.errors())


def _sentence(item: Any, model: type[BaseModel] | None, title: str) -> str:
    key = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        return unknown_key(key, keys(model)) if model else f"{title} has no '{key}'"
    if item["type"] == "missing":
        return f"{title} needs '{key}'"
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] == "value_error" and not key:
        return message
    if isinstance(item["input"], Mapping):
        # A whole section: what is wrong in it is said by the message.
        return f"{key}: {message}"
    return f"{key}={item['input']!r}: {message[:1].lower()}{message[1:]}"
