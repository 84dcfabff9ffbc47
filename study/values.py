"""Values as they come back from storage: made of JSON's own types where a study names them, or refused there."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from enum import Enum
from numbers import Integral, Real
from typing import Any


def plain(value: Any, what: str) -> Any:
    """`value` in the types that JSON brings back: None, bool, int, float, str, and lists and mappings of them.

    Numbers and arrays of numpy become Python's, tuples lists, enumerations their values, paths text. Raises
    ValueError, with `what` in front, for anything else, infinity and NaN included.

    >>> plain((8, 16), "dims")
    [8, 16]
    """
    if isinstance(value, Enum):
        value = value.value
    # Scalars and arrays of numpy, and what is like them.
    if hasattr(value, "tolist"):
        value = value.tolist()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        if not math.isfinite(value):
            raise ValueError(f"{what}={float(value)}: use a finite number")
        return float(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (list, tuple, range)):
        return [plain(item, what) for item in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {plain(key, what): plain(item, what) for key, item in value.items()}
    raise ValueError(
        f"{what}={value!r}: a {type(value).__name__} does not come back from storage as it went in; accepted are "
        "numbers, text, True, False, None, and lists of them"
    )
