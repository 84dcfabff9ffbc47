"""Files and folders: JSONL, JSON and TSV examples; test collections in BEIR layout. All may be compressed."""

from __future__ import annotations

import errno
import json
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from trainables.data import assemble
from trainables.data.config import EvaluationData, TrainData
from trainables.data.formats import COMPRESSIONS, beir_files, check_file, format_of
from trainables.data.types import Collection, TrainingSet

_OF_THE_FILE = (None, errno.EACCES, errno.EPERM)
"""Numbers of an OSError that is about the file, not the machine: compressed files that are none have no number."""


def read_examples(path: Path, data: TrainData) -> TrainingSet:
    """Examples of a file with the columns that `data` names; see `assemble.example` for their form.

    JSONL has an object per line, JSON one array of objects or an object per line, TSV a first line with the names
    of its columns and no quoting; a TSV cell that starts with `[` is a JSON list where a list is expected (scores,
    several negatives). ValueError names file and line.
    """
    found = islice(rows(path), data.limit)
    return assemble.training_set(
        path.name, (assemble.example(_cells(row, data, path), data, where) for where, row in found)
    )


def rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file and line, row) of a file in one of FORMATS; ValueError as `read_examples`."""
    check_file(path)
    yield from {".jsonl": jsonl, ".json": _json, ".tsv": _tsv}[format_of(path)](path)


def read_beir(folder: Path, data: EvaluationData) -> Collection:
    """The collection of a folder in BEIR layout (Thakur et al. 2021); a document is its title and text.

    A document whose id is its query's own is a document like any other; BEIR's scripts drop it from the
    results, which matters for ArguAna and Quora. ValueError names what is missing, or file and line.
    """
    corpus, queries, qrels = beir_files(folder, data.qrels_split)
    asked = dict(read_texts(queries))
    judgements, notes = read_qrels(qrels)
    return assemble.collection(folder.name, read_texts(corpus), asked, judgements, data.max_documents, notes=notes)


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines that are not blank, with their numbers from 1."""
    return ((number, line) for number, line in _all_lines(path) if line.strip())


def _all_lines(path: Path) -> Iterator[tuple[int, str]]:
    with opened(path) as file:
        for number, raw in enumerate(file, start=1):
            yield number, decoded(raw, number == 1, f"{path}, line {number}").rstrip("\r\n")


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The file's bytes, unpacked; ValueError where it is damaged or may not be read, then or while it is."""
    try:
        with COMPRESSIONS.get(path.suffix, Path.open)(path, "rb") as file:
            yield file
    except (EOFError, lzma.LZMAError, zlib.error, OSError) as error:
        if isinstance(error, OSError) and error.errno not in _OF_THE_FILE:
            raise
        kind = {".gz": " as gzip", ".bz2": " as bzip2", ".xz": " as xz"}.get(path.suffix, "")
        raise ValueError(f"{path}: not readable{kind} ({error})") from None


def decoded(raw: bytes, first: bool, where: str) -> str:
    """The text of a line, which is the `first` of a file or a later one; ValueError begins with `where`."""
    try:
        line = raw.decode("utf-8-sig" if first else "utf-8")
    except UnicodeDecodeError as error:
        kind = next((f"; it is {name}" for start, name in _FOREIGN.items() if first and raw.startswith(start)), "")
        raise ValueError(f"{where}: not UTF-8 ({error.reason}){kind}") from None
    if first and "\r" in line.rstrip("\r\n") and not line.endswith("\n"):
        raise ValueError(f"{where}: its lines end in carriage returns alone; needed are line feeds")
    return line


_FOREIGN = {
    b"\xff\xfe": "UTF-16, which is to be converted", b"\xfe\xff": "UTF-16, which is to be converted",
    b"\x1f\x8b": "gzip, whose name must end in .gz", b"\xfd7zXZ": "xz, whose name must end in .xz",
}  # fmt: skip
"""First bytes of files that are no UTF-8 text, and what such a file is."""


def jsonl(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file and line, object) of each line, whatever the file is called."""
    for number, line in lines(path):
        where = f"{path}, line {number}"
        yield where, json_object(line, where)


def json_object(line: str, where: str) -> dict[str, Any]:
    """The object on one line; ValueError begins with `where`."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where}: not JSON ({error.msg} at column {error.colno})") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: not readable as JSON ({_short(error)})") from None
    return _object(row, where)


def _short(error: Exception) -> str:
    """Why Python's reader gives up on what may well be JSON: numbers of thousands of digits, deep nesting."""
    return str(error).partition(";")[0].partition(" while ")[0].lower()


def _json(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """One array of objects, or an object per line: JGLUE and others call such files `.json`, so the content decides."""
    if next((line for _, line in lines(path)), "").lstrip().startswith("{"):
        yield from jsonl(path)
        return
    try:
        rows = json.loads("\n".join(line for _, line in _all_lines(path)))
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{path}, line {error.lineno}: neither one JSON array nor an object per line "
            f"({error.msg} at column {error.colno})"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not readable as JSON ({_short(error)})") from None
    if not isinstance(rows, list):
        raise ValueError(f"{path}: holds {type(rows).__name__}, expected an array of objects")
    for number, row in enumerate(rows, start=1):
        yield f"{path}, entry {number}", _object(row, f"{path}, entry {number}")


def _object(row: Any, where: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise ValueError(f"{where}: {row!r:.80} is not a JSON object")
    return row


def _tsv(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    numbered = lines(path)
    names = next(numbered, (0, ""))[1].split("\t")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{path}, line 1: two columns are called {twice!r}")
    for number, line in numbered:
        cells = line.split("\t")
        if len(cells) != len(names):
            raise ValueError(
                f"{path}, line {number}: {len(cells)} columns, but the first line names {len(names)}: "
                f"{', '.join(names)}"
            )
        yield f"{path}, line {number}", dict(zip(names, cells, strict=True))


def _cells(row: dict[str, Any], data: TrainData, path: Path) -> dict[str, Any]:
    """A TSV row with its JSON lists read; rows of other formats as they are."""
    if format_of(path) != ".tsv":
        return row
    lists = {}
    for name in (data.negatives, data.scores):
        cell = row.get(name, "")
        if cell.startswith("["):
            try:
                lists[name] = json.loads(cell)
            except json.JSONDecodeError:
                lists[name] = cell  # a text that starts with a bracket; no list of scores, which is said later
    return row | lists


def read_texts(path: Path) -> Iterator[tuple[str, str]]:
    """(id, title and text) of each line; either may be blank."""
    seen = set()
    for where, row in jsonl(path):
        id, body = document(row, where)
        if id in seen:
            raise ValueError(f"{where}: _id {id!r} comes a second time")
        seen.add(id)
        yield id, body


def document(row: dict[str, Any], where: str) -> tuple[str, str]:
    """(id, title and text) of a line of `corpus.jsonl` or `queries.jsonl`; ValueError begins with `where`.

    The text may be null or blank: some published documents are nothing but a title, and some are empty.
    """
    for name in ("_id", "text"):
        if name not in row:
            raise ValueError(f"{where}: no column {name!r}; found are: {', '.join(row)}")
    id = row["_id"]
    if isinstance(id, bool) or not isinstance(id, (str, int)):
        raise ValueError(f"{where}: _id is {id!r:.80}, not a text or a whole number")
    id = assemble.text(str(id), f"{where}: _id")
    title, body = (
        assemble.text("" if part is None else part, f"{where}: {name} of {id!r}")
        for name, part in (("title", row.get("title")), ("text", row["text"]))
    )
    return id, f"{title} {body}".strip() if title else body


def read_qrels(path: Path) -> tuple[dict[str, dict[str, int]], tuple[str, ...]]:
    """Judgements of a BEIR qrels file, whose first line may name the columns, or of one as trec_eval reads them;
    and a sentence on what was judged again.

    TREC's lines have four columns, the second of which says nothing, with any white space between. Of several
    judgements of a document for a query the last counts.
    """
    qrels: dict[str, dict[str, int]] = {}
    again = 0
    for number, line in lines(path):
        cells = line.split("\t")
        if len(cells) not in (3, 4):
            cells = line.split()
        if len(cells) == 4:
            del cells[1]
        grade = _grade(cells[2]) if len(cells) == 3 else None
        if grade is None:
            if number == 1 and len(cells) == 3:
                continue
            raise ValueError(
                f"{path}, line {number}: {line!r:.80} is not query-id, corpus-id and a whole number with tabs between"
            )
        row = qrels.setdefault(cells[0], {})
        again += row.get(cells[1], grade) != grade
        row[cells[1]] = grade
    if not again:
        return qrels, ()
    return qrels, (f"{path}: {assemble.counted(again, 'judgement')} changed by a later line; the last one counts",)


def _grade(cell: str) -> int | None:
    """The whole number in a cell, `1` or `1.0`; None where there is none."""
    try:
        number = float(cell)
    except ValueError:
        return None
    return int(number) if number.is_integer() else None
