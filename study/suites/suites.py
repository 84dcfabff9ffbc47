"""What a full evaluation can be asked for: published suites by name, or folders in BEIR layout.

A folder keeps documents with the query's own id, as studies do: there equal ids may mean nothing.
"""

from __future__ import annotations

import difflib
from pathlib import Path

from trainables.data.formats import COMPRESSIONS
from trainables.evaluation.metrics import METRICS
from trainables.evaluation.suites import SUITES, Dataset, Suite
from trainables.places import near_path, typed


def resolve(text: str) -> Suite:
    """The suite of this name, or that of a folder in BEIR layout or of several such; ValueError for neither."""
    if text in SUITES:
        return SUITES[text]
    folder = typed(text)
    if folder.is_dir():
        return _of_folder(folder.resolve())
    near = near_path(folder) if "/" in text else difflib.get_close_matches(text, SUITES, n=1, cutoff=0.4)
    hint = f"did you mean '{near[0]}'? " if near else ""
    raise ValueError(f"unknown suite '{text}'; {hint}There are {', '.join(SUITES)}, or give a folder in BEIR layout")


def _of_folder(folder: Path) -> Suite:
    if _has_corpus(folder):
        found = [folder]
    else:
        found = [path for path in sorted(folder.iterdir()) if path.is_dir() and _has_corpus(path)]
    if not found:
        raise ValueError(
            f"--suite {folder}: neither it nor a folder in it has a corpus.jsonl; "
            "BEIR layout is corpus.jsonl, queries.jsonl and qrels/test.tsv"
        )
    return Suite(folder.name, METRICS, tuple(Dataset(path.name, str(path)) for path in found))


def _has_corpus(folder: Path) -> bool:
    return any((folder / f"corpus.jsonl{suffix}").is_file() for suffix in ("", *COMPRESSIONS))
