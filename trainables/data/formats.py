"""Which files and folders are read, told by their names alone: nothing is opened."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

FORMATS = (".jsonl", ".json", ".tsv")
TEXT_FORMATS = (".txt", *FORMATS)
COMPRESSIONS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}

_BEIR = "corpus.jsonl (_id, title, text), queries.jsonl (_id, text) and qrels/SPLIT.tsv (query-id, corpus-id, score)"


def check_file(path: Path, formats: tuple[str, ...] = FORMATS) -> None:
    """ValueError unless there is a file that is called as one of `formats`; does not open it."""
    accepted = f"{', '.join(formats)}, with or without {', '.join(COMPRESSIONS)}"
    if path.is_dir():
        raise ValueError(
            f"{path} is a folder; expected is a file ({accepted}). "
            f"A folder that `datasets` opens or its `save_to_disk` wrote is given as datasets:{path}"
        )
    if not path.exists():
        raise ValueError(f"no file {path}")
    kind = format_of(path)
    if kind not in formats:
        builder = {".csv": "csv", ".parquet": "parquet"}.get(kind)
        hint = f"; datasets:{builder}:{path} reads it" if builder else ""
        raise ValueError(f"{path} ends in {kind!r}; accepted are {accepted}{hint}")


def beir_files(folder: Path, qrels_split: str) -> tuple[Path, Path, Path]:
    """Corpus, queries and qrels of a folder in BEIR layout; ValueError names what is missing."""
    if not folder.is_dir():
        found = "a file" if folder.exists() else "nothing"
        raise ValueError(f"{folder}: expected a folder that holds {_BEIR}; found {found}")
    corpus, queries = (_inside(folder, name) for name in ("corpus.jsonl", "queries.jsonl"))
    return corpus, queries, _inside(folder, f"qrels/{qrels_split}.tsv")


def format_of(path: Path) -> str:
    """The format of a file by the end of its name, compression left aside."""
    return (path.with_suffix("") if path.suffix in COMPRESSIONS else path).suffix


def _inside(folder: Path, name: str) -> Path:
    for path in (folder / f"{name}{suffix}" for suffix in ("", *COMPRESSIONS)):
        if path.is_file():
            return path
    near = (folder / name).parent
    found = sorted(entry.name for entry in near.iterdir()) if near.is_dir() else []
    where = "" if near == folder else f"{near.name}/"
    raise ValueError(
        f"{folder} has no {name}; expected are {_BEIR}. "
        + (f"Found: {', '.join(where + name for name in found)}" if found else f"{near} is empty or missing")
    )
