"""Places in a study's folder, kept as paths relative to it: a folder that is moved takes them along."""

from __future__ import annotations

from pathlib import Path


def inside(storage: Path, place: str | Path) -> str:
    """The place as it is put on record; a URI, and what lies elsewhere, stays as it is.

    >>> inside(Path("/studies/k"), "/studies/k/trials/0003/replicate-0/model")
    'trials/0003/replicate-0/model'
    >>> inside(Path("/studies/k"), "s3://bucket/k/trials/0003")
    's3://bucket/k/trials/0003'
    """
    path = Path(place)
    return path.relative_to(storage).as_posix() if path.is_relative_to(storage) else str(place)


def resolved(storage: Path, place: str) -> str:
    """Where a place on record is now: a URI, or an absolute path.

    Earlier versions recorded absolute paths. Of one that the folder has left, the longest end that is in the folder
    counts; a path with no such end stays as it is.
    """
    if "://" in place:
        return place
    path = Path(place)
    if not path.is_absolute():
        return str(storage / path)
    ends = (storage.joinpath(*path.parts[start:]) for start in range(1, len(path.parts)))
    return str(next((end for end in ends if end.exists()), path))
