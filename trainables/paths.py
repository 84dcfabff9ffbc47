"""The paths of a config: found by the types of its keys, made absolute once, looked at, told by their content."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel

from trainables import overrides
from trainables.digests import file_digest, lines_digest
from trainables.places import MODEL, NoPath, Parts, Place

ConfigType = TypeVar("ConfigType", bound=BaseModel)

_OF_A_MODEL = (".json", ".safetensors", ".bin", ".txt", ".model", ".py", ".jinja")
"""Files of a model's folder that transformers reads: settings, weights, vocabulary, code."""


def marks(config: BaseModel | type[BaseModel]) -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """(dotted key, type, what is annotated to it and to its alternatives) of all keys that hold a value."""
    for name, field in (config if isinstance(config, type) else type(config)).model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from ((f"{name}.{key}", *rest) for key, *rest in marks(field.annotation))
        else:
            alternatives = (get_args(part) for part in get_args(field.annotation))
            yield name, field.annotation, (*field.metadata, *(mark for found in alternatives for mark in found))


def places(config: BaseModel | type[BaseModel]) -> dict[str, Place]:
    """Dotted key -> what its type says, of the keys that may hold a path."""
    return {key: mark for key, _, found in marks(config) for mark in found if isinstance(mark, Place)}


def untold(config: BaseModel | type[BaseModel]) -> list[str]:
    """Keys that hold any text and whose type does not say whether it may be a path; every config has none.

    Paths in lists and the like are not said either: nothing here would find them.
    """
    return [
        key
        for key, kind, found in marks(config)
        if str in (kind, *get_args(kind), *found)
        and not any(isinstance(mark, NoPath) or (isinstance(mark, Place) and _is_text(kind)) for mark in found)
    ]


def located(config: ConfigType, base: Path) -> ConfigType:
    """A copy whose paths are absolute, those that are not being relative to `base`.

    ValueError that names the key where a text is mistyped, see `Place.parts`.
    """
    values = {key: locate(key, place, value_of(config, key), base) for key, place in places(config).items()}
    return renamed(config, values)


def parts(key: str, place: Place, value: Any, base: Path) -> Parts | None:
    """Where in the value of a key its path is, if it has one; ValueError as `located`."""
    try:
        return place.parts(value, base) if isinstance(value, str) else None
    except ValueError as error:
        raise ValueError(f"{key} {error}") from None


def locate(key: str, place: Place, value: Any, base: Path) -> Any:
    """The value of a key with its path made absolute; ValueError as `located`."""
    if not isinstance(value, str):
        return value
    try:
        return place.located(value, base)
    except ValueError as error:
        raise ValueError(f"{key} {error}") from None


def renamed(config: ConfigType, values: Mapping[str, Any]) -> ConfigType:
    """A copy of the config with these values; the config itself where it has them already."""
    changed = {key: value for key, value in values.items() if value != value_of(config, key)}
    return overrides.apply(config, changed) if changed else config


def check(config: BaseModel) -> None:
    """ValueError that names the key unless all that the config names by paths is there, and of the right kind."""
    for key, place in places(config).items():
        check_value(key, place, value_of(config, key), section_of(config, key))


def check_value(key: str, place: Place, value: Any, section: Any = None) -> None:
    """ValueError that names the key unless all that one value names by a path is there, and of the right kind;
    `section` is the part of a config that the value belongs to."""
    if isinstance(value, str):
        try:
            place.check(value, section)
        except ValueError as error:
            raise ValueError(f"{key} {error}") from None


def digest(place: Place, value: str) -> str | None:
    """sha256 of what `value`, with an absolute path, names: of a file's bytes, or of a folder's files and their names.

    Of a model's folder, those files that transformers reads. None for a value without a path. OSError where
    something cannot be read.
    """
    parts = place.parts(value)
    if parts is None or place.look is None:
        return None
    path = Path(parts.path)
    if path.is_file():
        return file_digest(path)
    if path.is_dir():
        model = place is MODEL
        inside = (entry for entry in (path.iterdir() if model else path.rglob("*")) if entry.is_file())
        files = {str(file.relative_to(path)): file for file in inside if not model or file.suffix in _OF_A_MODEL}
    else:
        files = {file: Path(file) for file in glob.glob(parts.path, recursive=True)}
    return lines_digest(f"{Path(name).as_posix()}\n{file_digest(file)}" for name, file in sorted(files.items()))


def value_of(config: BaseModel, key: str) -> Any:
    """What a config has under a dotted key; the config itself under none."""
    for part in key.split(".") if key else ():
        config = getattr(config, part)
    return config


def section_of(config: BaseModel, key: str) -> Any:
    """The part of a config that has the last name of a dotted key."""
    return value_of(config, key.rpartition(".")[0])


def _is_text(kind: Any) -> bool:
    return get_origin(kind) in (None, Union, UnionType)
