"""Data that a process needs several times over are read once, where it asks for that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_KEPT: ContextVar[dict[str, tuple[Any, Any]] | None] = ContextVar("kept", default=None)
"""Name of a reader -> (its newest arguments, what it returned)."""


@contextmanager
def read_once() -> Iterator[None]:
    """In this block each reader keeps the newest that it has read: files that change meanwhile are not looked at."""
    token = _KEPT.set({})
    try:
        yield
    finally:
        _KEPT.reset(token)


def once(read: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """A reader that `read_once` applies to; what it returns must not be changed by anyone."""

    @wraps(read)
    def kept(*arguments: Arguments.args, **keywords: Arguments.kwargs) -> Result:
        store = _KEPT.get()
        if store is None:
            return read(*arguments, **keywords)
        asked = (arguments, keywords)
        if read.__name__ not in store or store[read.__name__][0] != asked:
            # The old one goes before the new one is read: both at a time may not fit.
            store.pop(read.__name__, None)
            store[read.__name__] = (asked, read(*arguments, **keywords))
        return store[read.__name__][1]

    return kept
