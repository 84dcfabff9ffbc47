"""Trainers by name: `splade` is the package `trainables.splade`, a name with a dot is the package of that name.

The latter is any package that can be imported where the study runs: from the current folder, from PYTHONPATH, or
installed. Imports nothing of a trainer but the module that is asked for.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Literal


def package_of(name: str) -> str:
    """What a trainer is imported from.

    >>> package_of("splade"), package_of("my_package.late_interaction")
    ('trainables.splade', 'my_package.late_interaction')
    """
    return name if "." in name else f"trainables.{name}"


def module(name: str, part: Literal["config", "recipe"]) -> ModuleType:
    """`config.py` of a trainer, which imports neither torch nor ray, or its `recipe.py`.

    ValueError with what was looked for, and with the nearest, where there is no such trainer. What one that is there
    raises while it is imported is raised.
    """
    wanted = f"{package_of(name)}.{part}"
    if not all(word.isidentifier() for word in name.split(".")):
        raise ValueError(
            f"trainer '{name}': accepted are the name of a package of trainables/ and the dotted name of a package of "
            "your own"
        )
    try:
        return importlib.import_module(wanted)
    except ModuleNotFoundError as error:
        if error.name is None or not (wanted == error.name or wanted.startswith(f"{error.name}.")):
            raise
        raise ValueError(_unknown(name, wanted)) from None


def folder_of(name: str) -> Path:
    """Where the modules of a trainer are; ValueError as `module`."""
    return Path(str(module(name, "config").__file__)).resolve().parent


def names() -> list[str]:
    """The trainers that come with the project."""
    return _trainers("trainables")


def _unknown(name: str, wanted: str) -> str:
    where = f"trainer '{name}': there is no module {wanted}"
    parent, _, last = package_of(name).rpartition(".")
    siblings = _trainers(parent)
    near = difflib.get_close_matches(last, siblings, n=1)
    if near:
        return f"{where}; did you mean '{near[0] if '.' not in name else f'{parent}.{near[0]}'}'?"
    if "." not in name:
        return f"{where}; there are {', '.join(siblings)}, and the dotted name of a package of your own is accepted too"
    return f"{where} in the current folder, on PYTHONPATH or installed"


def _trainers(parent: str) -> list[str]:
    """Folders of the package `parent` that have a `recipe.py`."""
    try:
        found = importlib.util.find_spec(parent)
    except (ImportError, ValueError):
        return []
    places = (found.submodule_search_locations or ()) if found else ()
    return sorted(path.parent.name for place in places for path in Path(place).glob("*/recipe.py"))
