"""What a full evaluation can be asked for: published suites by name, or folders in BEIR layout.

A published suite has its convention. In folders documents with the query's own id are results unless the request says
otherwise, as in studies: there equal ids may mean nothing.
"""

from __future__ import annotations

import difflib
from dataclasses import replace
from pathlib import Path

from trainables.data.formats import COMPRESSIONS
from trainables.evaluation.metrics import METRICS
from trainables.evaluation.suites import OWN_ID_DROPPED, OWN_ID_KEPT, SUITES, Dataset, Suite
from trainables.places import near_path, typed


def resolve(
    text: str, *, qrels_split: str | None = None, drop_own_id: bool = False, licensed: Path | None = None
) -> Suite:
    """The suite of this name, or that of a folder in BEIR layout or of several such; ValueError for neither.

    `qrels_split` (`test` unless given) and `drop_own_id` are for folders, and part of the name of what is measured with
    another value than the default. `licensed` is the folder with those of a suite's collections that are not free.
    """
    suite = SUITES.get(text)
    if suite is not None:
        for option, given in (("--qrels-split", qrels_split is not None), ("--drop-own-id", drop_own_id)):
            if given:
                raise ValueError(f"{option} is for folders; {text} has a convention of its own: {suite.convention}")
        return _with_licensed(suite, licensed)
    if licensed is not None:
        raise ValueError(f"--licensed {licensed}: only {_needing()} has collections that must be licensed")
    folder = typed(text)
    if folder.is_dir():
        return _of_folder(folder.resolve(), qrels_split or "test", drop_own_id)
    near = near_path(folder) if "/" in text else difflib.get_close_matches(text, SUITES, n=1, cutoff=0.4)
    hint = f"did you mean '{near[0]}'? " if near else ""
    raise ValueError(f"unknown suite '{text}'; {hint}There are {', '.join(SUITES)}, or give a folder in BEIR layout")


def _needing() -> str:
    return ", ".join(name for name, suite in SUITES.items() if suite.licensed)


def _with_licensed(suite: Suite, folder: Path | None) -> Suite:
    """The suite with the collections that `folder` has for it."""
    if folder is None and not suite.licensed:
        return suite
    if not suite.licensed:
        raise ValueError(f"--licensed {folder}: all collections of {suite.name} are free; {_needing()} needs it")
    names = ", ".join(suite.licensed)
    if folder is None:
        raise ValueError(
            f"{suite.name} has collections that must be licensed: name their folder by --licensed DIR, each "
            f"in BEIR layout in a folder of its own ({names})"
        )
    missing = [name for name in suite.licensed if not _has_corpus(folder / name)]
    if missing:
        raise ValueError(f"--licensed {folder}: no corpus.jsonl in {', '.join(missing)}; needed are {names}")
    brought = tuple(Dataset(name, str(folder.resolve() / name), own_id=False) for name in suite.licensed)
    return replace(suite, datasets=suite.datasets + brought)


def _of_folder(folder: Path, qrels_split: str, drop_own_id: bool) -> Suite:
    if _has_corpus(folder):
        found = [folder]
    else:
        found = [path for path in sorted(folder.iterdir()) if path.is_dir() and _has_corpus(path)]
    if not found:
        raise ValueError(
            f"--suite {folder}: neither it nor a folder in it has a corpus.jsonl; "
            "BEIR layout is corpus.jsonl, queries.jsonl and qrels/test.tsv"
        )
    name = folder.name + (f"-{qrels_split}" if qrels_split != "test" else "") + "-own-id-dropped" * drop_own_id
    datasets = tuple(Dataset(path.name, str(path), not drop_own_id, qrels_split=qrels_split) for path in found)
    return Suite(name, METRICS, datasets, OWN_ID_DROPPED if drop_own_id else OWN_ID_KEPT)


def _has_corpus(folder: Path) -> bool:
    return any((folder / f"corpus.jsonl{suffix}").is_file() for suffix in ("", *COMPRESSIONS))
