"""What the readers make of every form that data come in: `python -m benchmarks.data_forms [--check]`.

Each form of `benchmarks.form_cases` is given to the readers it is for, and is read, with the content that it has, or
refused in one sentence; anything else is an error here. Writes the table of docs/inputs.md, or with `--check` says
whether it is up to date.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets

from benchmarks.form_cases import REFUSED, SAME, Case, cases
from trainables.data.config import EvaluationData, PairData, TextData, TrainData
from trainables.data.corpora import open_corpus
from trainables.data.pairs import pair_sets
from trainables.data.sources import evaluation_sets, training_set
from trainables.data.text import text_set

PAGE = Path(__file__).resolve().parents[1] / "docs" / "inputs.md"
BEGIN, END = "<!-- made by benchmarks/data_forms.py -->", "<!-- end of the forms -->"
READERS = {"pairs": "training pairs", "texts": "plain text", "graded": "graded pairs", "collection": "collection"}


@dataclass(frozen=True)
class Read:
    """What a source held."""

    records: int
    content: Any
    """Equal for equal content."""
    notes: tuple[str, ...]


def pairs(source: str, folder: Path, **options: Any) -> Read:
    found = training_set(TrainData(source=source, **options))
    return Read(len(found.examples), found.identity, found.notes)


def texts(source: str, folder: Path, **options: Any) -> Read:
    found = text_set(TextData(source=source, **options))
    return Read(found.size or 0, found.identity, found.notes)


def graded(source: str, folder: Path, **options: Any) -> Read:
    # A data set has splits of its own; a file or one saved split is named for each.
    whole = source.startswith("datasets:") and not list(folder.glob("saved/state.json")) and "parquet:" not in source
    more = {} if whole and "json" not in source else {"validation": source, "test": source}
    found = pair_sets(PairData(train=source, **more, **options))["train"]
    return Read(len(found.pairs), found.identity, found.notes)


def collection(source: str, folder: Path) -> Read:
    """A collection read as a study does, whole, and as `study.evaluate` does, in slices: both must agree, or both
    refuse it."""
    outcomes = [outcome(read, source, folder) for read in (_in_memory, _in_slices)]
    one, other = outcomes
    if (
        isinstance(one, Read)
        and isinstance(other, Read)
        and (one.records, one.content) == (other.records, other.content)
    ):
        if not source.startswith("ir_datasets:") and one.notes != other.notes:
            raise AssertionError(f"{source}: notes {one.notes} and {other.notes}")
        return one
    if isinstance(one, str) and isinstance(other, str):
        raise ValueError(one)
    raise AssertionError(f"{source}: in memory {one}, in slices {other}")


def _in_memory(source: str, folder: Path) -> Read:
    found = evaluation_sets(EvaluationData(source=source, test_source=source))["test"].collection
    return Read(len(found.queries), (found.documents, found.queries, found.qrels), found.notes)


def _in_slices(source: str, folder: Path) -> Read:
    corpus, topics = open_corpus(source, folder / "cache")
    documents = dict(corpus.documents(0, corpus.size))
    return Read(len(topics.queries), (documents, topics.queries, topics.qrels), topics.notes)


READ: dict[str, Callable[..., Read]] = {
    "pairs": pairs, "texts": texts, "graded": graded, "collection": collection, "collection whole": _in_memory,
}  # fmt: skip


def outcome(read: Callable[..., Read], source: str, folder: Path, **options: Any) -> Read | str:
    """What was read, or the sentence of a refusal."""
    try:
        return read(source, folder, **options)
    except ValueError as error:
        return str(error)


def run(case: Case, plain: dict[str, Any]) -> Read | str:
    """The outcome of a case; AssertionError where it is not what the case says.

    `plain` holds what each reader's first case had.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "data"
        folder.mkdir()
        source = case.make(folder)
        found = outcome(READ[case.reader], source, folder, **case.options)
    if isinstance(found, str):
        if case.expected != REFUSED or "\n" in found or not found:
            raise AssertionError(f"{case.reader}, {case.form}: expected {case.expected}, refused: {found!r}")
        return _without(name, found)
    expected = plain.setdefault(case.reader, found.content) if case.expected == SAME else case.expected
    if expected not in (found.content, found.records):
        raise AssertionError(f"{case.reader}, {case.form}: expected {case.expected}, read: {found}")
    return Read(found.records, None, tuple(_without(name, note) for note in found.notes))


def _without(name: str, text: str) -> str:
    return text.replace(f"{name}/data/", "").replace(f"{name}/", "")


def table() -> str:
    """Markdown: a row for each form, what the readers make of it."""
    plain: dict[str, Any] = {}
    rows: dict[str, dict[str, list[str]]] = {}
    for case in cases():
        found = run(case, plain)
        said = f"refused: {found}" if isinstance(found, str) else "; ".join(["read", *found.notes])
        rows.setdefault(case.form, {}).setdefault(said, []).append(READERS[case.reader.partition(" ")[0]])
    lines = ["| form | reader | what becomes of it |", "|---|---|---|"]
    for form, outcomes in rows.items():
        for place, (said, readers) in enumerate(outcomes.items()):
            lines.append(f"| {'' if place else form} | {', '.join(readers)} | {said.replace('|', chr(92) + '|')} |")
    return "\n".join(lines)


def current() -> str:
    """The table as the page has it."""
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0].strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the page is up to date")
    options = parser.parse_args()
    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as cache:
        datasets.config.HF_DATASETS_CACHE = Path(cache)
        made = table()
    if options.check:
        print("up to date" if made == current() else f"{PAGE} is not up to date: run python -m benchmarks.data_forms")
        return int(made != current())
    before, begin, rest = PAGE.read_text().partition(BEGIN)
    if not begin:
        raise SystemExit(f"{PAGE} has no line {BEGIN}")
    PAGE.write_text(f"{before}{BEGIN}\n{made}\n{END}{rest.partition(END)[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
