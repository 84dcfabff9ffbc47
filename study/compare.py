"""Two studies side by side: `python -m study.compare A B`.

A and B are names, study files or folders. What differs in their settings is listed, their answers stand one below the
other, and their best trials are compared query by query where both answered the same queries.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from study.protocol.folder import StudyFolder
from study.protocol.summary import StudySummary, read
from study.reporting.conclusions import answer, over
from study.reporting.formatting import at, difference, p_value, setting
from study.reporting.groups import grouped
from study.reporting.results import Findings
from study.selection import folder_of
from study.stats.significance import LEVEL, over_items
from study.terminal import View
from trainables.arguments import command, parsed
from trainables.errors import FINISHED, WRONG, told

WIDTH = 40
"""Longer values are cut; the differences that matter are short."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = command(
        "study.compare", "Compare two studies: settings that differ, answers, and their best trials paired by query.",
        "splade_k_search splade_k_search.search",
        "studies/mine /shared/studies/mine",
    )  # fmt: skip
    parser.add_argument("a", metavar="A", help="a study: its name, NAME.PROFILE, its file or its folder")
    parser.add_argument("b", metavar="B", help="another one")
    return parser


def main(arguments: list[str] | None = None) -> int:
    options = parsed(parser(), arguments)
    try:
        text = compared(folder_of(options.a), folder_of(options.b))
    except (ValueError, OSError) as error:
        print(f"error: {told(error)}", file=View(sys.stderr))
        return WRONG
    print(text, file=View(sys.stdout))
    return FINISHED


def compared(one: StudyFolder, other: StudyFolder) -> str:
    """The comparison as text, group by group where both have groups.

    Raises ValueError for a folder without a study, and for studies of which one has groups that the other has not.
    """
    left, right = read(one.summary), read(other.summary)
    lines = [f"A  {left.study}, in {one}", f"B  {right.study}, in {other}", "", *_settings(one, left, other, right)]
    if left.group != right.group:
        raise ValueError(
            f"A is a study {_of_groups(left)}, B is one {_of_groups(right)}: their best trials answer other questions"
        )
    ours, theirs = _findings(one, left), _findings(other, right)
    for name in [name for name in ours if name in theirs]:
        a, b = ours[name], theirs[name]
        head = f" for {left.group} {name}" if name else ""
        lines += ["", f"Answers{head}", f"  A  {answer(a)}", f"  B  {answer(b)}", "", f"Paired  {paired(a, b)}"]
    alone = [f"{name} (A)" for name in ours if name not in theirs] + [f"{n} (B)" for n in theirs if n not in ours]
    return "\n".join([*lines, *(["", f"In one of them only: {', '.join(alone)}"] if alone else [])])


def _findings(storage: StudyFolder, summary: StudySummary) -> dict[str, Findings]:
    """Name of each group, "" in a study without -> what was found for it."""
    groups = grouped(storage, summary)
    return {group.name: group.findings for group in groups} or {"": Findings(storage, summary)}


def _of_groups(summary: StudySummary) -> str:
    return "without groups" if summary.group is None else f"of groups by {summary.group}"


def _settings(a: StudyFolder, left: StudySummary, b: StudyFolder, right: StudySummary) -> Iterator[str]:
    """A table of the settings that differ."""
    one, other = settings(a, left), settings(b, right)
    names = [name for name in dict.fromkeys([*one, *other]) if one.get(name, "–") != other.get(name, "–")]
    if not names:
        yield "Settings: none differ"
        return
    rows = [("Settings that differ", "A", "B")]
    rows += [(f"  {name}", _cut(one.get(name, "–")), _cut(other.get(name, "–"))) for name in names]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def settings(storage: StudyFolder, summary: StudySummary) -> dict[str, str]:
    """What the study was run with, by name: what it asks, its config and seeds as of its newest launch, its inputs and
    code."""
    found: dict[str, Any] = {
        "profile": summary.profile,
        "question": summary.question,
        "objective": ", ".join(f"{one.direction} {one.name}" for one in summary.objectives),
        "parameter": summary.parameter,
        "design": summary.design,
        "planned trials": summary.planned_trials,
    }
    launches = storage.launches()
    if launches:
        found |= launches[-1].params
    found |= {f"inputs: {name}": value for name, value in summary.dataset.items()}
    if launches:
        code = ("git.commit", "version.retrieval-study", "version.torch", "version.transformers")
        found |= {name: launches[-1].tags[name] for name in code if name in launches[-1].tags}
    return {name: setting(value) for name, value in found.items()}


def paired(a: Findings, b: Findings) -> str:
    """How the best trials of both differ on test queries that both answered, or why that cannot be said."""
    if a.best is None or b.best is None:
        return "not possible: both need a best trial"
    if a.metric != b.metric:
        return f"not possible: A is judged by {a.metric}, B by {b.metric}"
    changed = [
        name
        for name, value in a.summary.dataset.items()
        if name.startswith("evaluation") and name.endswith(".identity") and b.summary.dataset.get(name, value) != value
    ]
    if changed:
        return f"not possible: they were measured on other data ({', '.join(changed)})"
    one, other = a.items[a.best.number], b.items[b.best.number]
    gap = over_items(other, one) if one and other else None
    if gap is None:
        return f"not possible: no {a.metrics.label(a.metric)} per test query that both have"
    key = f"test.{a.metric}"
    interval = f"95% CI {difference(gap.low)} to {difference(gap.high)} over {over(gap)}, {p_value(gap.p)}"
    verdict = "a difference" if gap.p < LEVEL else "no difference that these queries can show"
    return (
        f"{a.metrics.label(key)} of B's best ({at(b.best, b.parameter)}) less A's ({at(a.best, a.parameter)}): "
        f"{difference(gap.value)} ({interval}): {verdict}"
    )


def _cut(text: str) -> str:
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 3]}..."


if __name__ == "__main__":
    sys.exit(main())
