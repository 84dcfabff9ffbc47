"""The studies that were run here: `python -m study.list [FOLDER]`.

A line each: whether it runs, how many of its trials have ended, its best trial, and when it last said something. What
`--fresh` has set aside is listed, too. Which studies there are to run is said by `python -m study.run --list`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from study.ledger.standing import standing
from study.profiles import STUDIES
from study.protocol.folder import StudyFolder
from study.protocol.states import StudyStatus
from study.protocol.summary import read
from study.reporting.formatting import answers, at, ended, objective, reported
from study.reporting.metrics import DeclaredMetrics
from study.selection import all_studies, ledger, name_a_ledger
from study.terminal import View
from trainables.arguments import command, parsed
from trainables.errors import FINISHED, WRONG, told
from trainables.places import typed

HEAD = ("study", "state", "trials", "best", "last word")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = command(
        "study.list", "List the studies that were run here.",
        "",
        "/shared/studies",
    )  # fmt: skip
    parser.add_argument(
        "folder", nargs="?", type=typed, default=STUDIES, metavar="FOLDER", help="where they are (default: studies)"
    )
    name_a_ledger(parser)
    return parser


def main(arguments: list[str] | None = None) -> int:
    options = parsed(parser(), arguments)
    try:
        text = listing(options.folder, options)
    except (ValueError, OSError) as error:
        print(f"error: {told(error)}", file=View(sys.stderr))
        return WRONG
    print(text, file=View(sys.stdout))
    return FINISHED


def listing(folder: Path, options: argparse.Namespace) -> str:
    """The table, or a sentence where there is nothing to list."""
    found = all_studies(folder)
    if not found:
        return f"no study was run below {folder.absolute()}; python -m study.run --list shows those that there are"
    rows = [HEAD, *(_row(storage, options) for storage in found)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(lines)


def _row(storage: StudyFolder, options: argparse.Namespace) -> tuple[str, ...]:
    try:
        summary = read(storage.summary)
        runs = standing(storage, summary.study, ledger(options, storage)).runs
    except ValueError as error:
        return storage.path.name, "unreadable", "", told(error), ""
    killed = summary.status == StudyStatus.RUNNING
    state = "running" if runs else "may run" if runs is None else "not running" if killed else str(summary.status)
    metric, _ = objective(summary)
    metrics = DeclaredMetrics(summary.metrics)
    found = []
    for best in answers(summary):
        key = reported(best, metric)
        found.append(f"{at(best, summary.parameter)}: {metrics.label(key)} {metrics.show(key, best.values.get(key))}")
    shown = "; ".join(found)
    trials = f"{ended(summary)}/{summary.planned_runs}"
    return storage.path.name, state, trials, shown, f"{summary.updated.astimezone():%Y-%m-%d %H:%M}"


if __name__ == "__main__":
    sys.exit(main())
