"""Files that are there as a whole or not at all: written aside, put on the disk, then moved into place."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A place to write what is `path` from the end of the block on: readers see the old file or the new one.

    Whatever the block raises leaves the old file, and nothing else. A killed process leaves `.NAME.*` beside it.
    """
    # A name of its own: processes on several hosts, and threads, may write the same file at once.
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        yield aside
        sync(aside)
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def write_whole(path: Path, content: str | bytes) -> None:
    """Replace a file in one step; text is UTF-8."""
    with replacing(path) as aside:
        aside.write_bytes(content if isinstance(content, bytes) else content.encode())


def remove_asides(path: Path) -> None:
    """Remove what killed writers of `path` left beside it; nobody may be writing it."""
    for aside in path.parent.glob(f".{path.name}.*"):
        aside.unlink()


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
