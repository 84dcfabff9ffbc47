"""Graded pairs: two sentences and how alike they are, from files, `datasets` or installed packages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from trainables.data import assemble, local
from trainables.data.config import PairData
from trainables.data.labels import Labels
from trainables.data.once import once
from trainables.data.types import ROLES, GradedPair, PairSet, Role
from trainables.digests import lines_digest
from trainables.places import PAIRS

_STSB = "genre, file, year, id, score, sentence1 and sentence2"


@once
def pair_sets(data: PairData, cache: Path | None = None) -> dict[Role, PairSet]:
    """The three splits that `data` names.

    ValueError where a source cannot be read, a split is not named, a label is not what `Labels` reads, or all labels
    of a split are equal, which leaves nothing to rank.
    """
    labels = Labels(data)
    if data.train == "embedded" and data.validation is None and data.test is None:
        from trainables.data.embedded_pairs import embedded_pairs

        return {role: _checked(name, found) for role, (name, found) in embedded_pairs(cache).items()}
    return {role: _read(role, data, labels) for role in ROLES}


def _read(role: Role, data: PairData, labels: Labels) -> PairSet:
    source = getattr(data, role)
    if source is None and data.train.startswith("datasets:"):
        from trainables.data.hub import has_splits

        source = data.train if has_splits(data.train.removeprefix("datasets:")) else None
    if source is None:
        raise ValueError(
            f"data.{role} is not given, and {data.train!r} has no such split of its own; accepted are {PAIRS.accepted}"
        )
    kind, colon, rest = source.partition(":")
    if source == "embedded":
        raise ValueError(
            f"data.{role} is 'embedded': embedded pairs come with all three splits, so name no other split"
        )
    if colon and kind == "datasets":
        from trainables.data.hub import datasets_rows

        numbered = enumerate(datasets_rows(rest, role))
        found = (_pair(row, data, labels, f"{source}, {role} row {n}", n) for n, row in numbered)
    elif colon and kind == "stsb":
        found = (_pair(row, data, labels, where, n) for n, (where, row) in enumerate(_stsb(_file(role, rest), data)))
    else:
        found = (_pair(row, data, labels, where, n) for n, (where, row) in enumerate(local.rows(_file(role, source))))
    return _checked(source, found)


def _file(role: Role, source: str) -> Path:
    path = Path(source).expanduser()
    if not path.exists():
        raise ValueError(f"data.{role}: no file {source}; accepted are {PAIRS.accepted}")
    return path


def _stsb(path: Path, data: PairData) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows of an STS-Benchmark file: tabs, no header, no quoting, sometimes two more columns for a licence."""
    for number, line in local.lines(path):
        cells = line.split("\t")
        if len(cells) < 7:
            raise ValueError(f"{path}, line {number}: {len(cells)} columns; expected are {_STSB} with tabs between")
        yield f"{path}, line {number}", {data.label: cells[4], data.sentence1: cells[5], data.sentence2: cells[6]}


def _pair(row: Mapping[str, Any], data: PairData, labels: Labels, where: str, number: int) -> GradedPair | None:
    """The pair in one row; None where a sentence is null or blank."""
    for key in ("sentence1", "sentence2", "label"):
        if getattr(data, key) not in row:
            raise assemble.no_column(row, getattr(data, key), f"data.{key}", where)
    first, second = (
        assemble.optional(row[name], f"{where}: column {name!r}") for name in (data.sentence1, data.sentence2)
    )
    if not first.strip() or not second.strip():
        return None
    return GradedPair(str(number), first, second, labels.read(row[data.label], f"{where}: column {data.label!r}"))


def _checked(name: str, found: Iterable[GradedPair | None]) -> PairSet:
    rows = list(found)
    pairs = [pair for pair in rows if pair is not None]
    left_out = len(rows) - len(pairs)
    if not pairs:
        blank = f"; {assemble.counted(left_out, 'row')} without one of the sentences" if left_out else ""
        raise ValueError(f"{name}: no pairs{blank}")
    notes = [f"{name}: {assemble.counted(left_out, 'pair')} of {len(rows):,} left out, without one of the sentences"]
    if len({pair.label for pair in pairs}) == 1:
        raise ValueError(f"{name}: all {len(pairs)} labels are {pairs[0].label:g}, so there is nothing to rank")
    identity = lines_digest(json.dumps([pair.id, pair.first, pair.second, pair.label]) for pair in pairs)
    return PairSet(name, identity, pairs, tuple(notes) if left_out else ())
