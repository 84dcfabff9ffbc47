"""Files and folders: JSONL, JSON and TSV examples; test collections in BEIR layout. All may be gzipped."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from trainables.data import assemble
from trainables.data.types import Collection, TrainingSet
from trainables.recipe import EvaluationData, TrainData

FORMATS = (".jsonl", ".json", ".tsv")

_BEIR = "corpus.jsonl (_id, title, text), queries.jsonl (_id, text) and qrels/SPLIT.tsv (query-id, corpus-id, score)"


def read_examples(path: Path, data: TrainData) -> TrainingSet:
    """Examples of a file with the columns that `data` names; see `assemble.example` for their form.

    JSONL has an object per line, JSON one array of objects, TSV a first line with the names of its columns
    and no quoting; a TSV cell that starts with `[` is a JSON list where a list is expected (scores, several
    negatives). ValueError names file and line.
    """
    examples = [assemble.example(_cells(row, data, path), data, where) for where, row in islice(rows(path), data.limit)]
    return assemble.training_set(path.name, examples)


def rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file and line, row) of a file in one of FORMATS; ValueError as `read_examples`."""
    if path.is_dir():
        raise ValueError(
            f"{path} is a folder; expected is a file ({', '.join(FORMATS)}, with or without .gz). "
            f"A folder that `datasets.load_dataset` opens is given as datasets:{path}"
        )
    if not path.exists():
        raise ValueError(f"no file {path}")
    suffix = _format(path)
    if suffix not in FORMATS:
        raise ValueError(f"{path} ends in {suffix!r}; accepted are {', '.join(FORMATS)}, with or without .gz")
    yield from {".jsonl": jsonl, ".json": _json, ".tsv": _tsv}[suffix](path)


def read_beir(folder: Path, data: EvaluationData) -> Collection:
    """The collection of a folder in BEIR layout (Thakur et al. 2021); a document is its title and text.

    A document whose id is its query's own is a document like any other; BEIR's scripts drop it from the
    results, which matters for ArguAna and Quora. ValueError names what is missing, or file and line.
    """
    corpus, queries, qrels = beir_files(folder, data.qrels_split)
    asked = dict(read_texts(queries))
    return assemble.collection(folder.name, read_texts(corpus), asked, read_qrels(qrels), data.max_documents)


def beir_files(folder: Path, qrels_split: str) -> tuple[Path, Path, Path]:
    """Corpus, queries and qrels of a folder in BEIR layout; ValueError names what is missing."""
    if not folder.is_dir():
        found = "a file" if folder.exists() else "nothing"
        raise ValueError(f"{folder}: expected a folder that holds {_BEIR}; found {found}")
    corpus, queries = (_inside(folder, name) for name in ("corpus.jsonl", "queries.jsonl"))
    return corpus, queries, _inside(folder, f"qrels/{qrels_split}.tsv")


def _format(path: Path) -> str:
    return path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix


def _inside(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    near = (folder / name).parent
    found = sorted(entry.name for entry in near.iterdir()) if near.is_dir() else []
    where = "" if near == folder else f"{near.name}/"
    raise ValueError(
        f"{folder} has no {name}; expected are {_BEIR}. "
        + (f"Found: {', '.join(where + name for name in found)}" if found else f"{near} is empty or missing")
    )


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines that are not blank, with their numbers from 1."""
    return ((number, line) for number, line in _all_lines(path) if line.strip())


def _all_lines(path: Path) -> Iterator[tuple[int, str]]:
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        number = 0
        try:
            for number, raw in enumerate(file, start=1):
                yield number, raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}, line {number}: not UTF-8 ({error.reason})") from None
        except (EOFError, gzip.BadGzipFile) as error:
            raise ValueError(f"{path}, line {number + 1}: not readable as gzip ({error})") from None


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
    return _object(row, where)


def _json(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        rows = json.loads("\n".join(line for _, line in _all_lines(path)))
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{path}, line {error.lineno}: not one JSON array ({error.msg}); "
            "a file with an object per line is called .jsonl"
        ) from None
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
    if _format(path) != ".tsv":
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
    """(id, title and text) of each line."""
    seen = set()
    for where, row in jsonl(path):
        id, body = document(row, where)
        if id in seen:
            raise ValueError(f"{where}: _id {id!r} comes a second time")
        seen.add(id)
        yield id, body


def document(row: dict[str, Any], where: str) -> tuple[str, str]:
    """(id, title and text) of a line of `corpus.jsonl` or `queries.jsonl`; ValueError begins with `where`."""
    for name in ("_id", "text"):
        if row.get(name) is None:
            raise ValueError(f"{where}: no column {name!r}; found are: {', '.join(row)}")
    id = row["_id"] if isinstance(row["_id"], str) else json.dumps(row["_id"])
    title, body = row.get("title") or "", row["text"]
    return id, assemble.text(f"{title} {body}".strip() if title else body, f"{where}: text of {id!r}")


def read_qrels(path: Path) -> dict[str, dict[str, int]]:
    """Judgements of a BEIR qrels file; its first line may name the columns."""
    qrels: dict[str, dict[str, int]] = {}
    for number, line in lines(path):
        cells = line.split("\t")
        try:
            query, document, grade = cells[0], cells[1], int(cells[2])
            if len(cells) != 3:
                raise ValueError
        except (IndexError, ValueError):
            if number == 1 and len(cells) == 3:
                continue
            raise ValueError(
                f"{path}, line {number}: {line!r:.80} is not query-id, corpus-id and a whole number with tabs between"
            ) from None
        qrels.setdefault(query, {})[document] = grade
    return qrels
