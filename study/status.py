"""How a study stands, from any terminal: `python -m study.status [NAME]`.

Without a NAME it tells of all studies that run below `studies/`. It reads the study's folder and its lease in the
ledger, starts neither Ray nor anything else, and changes nothing. Whether a study runs is told by the process that
holds it, not by its last words: a study that was killed is said to be not running.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

from study.ledger.standing import Standing, standing
from study.profiles import STUDIES
from study.protocol.folder import StudyFolder
from study.protocol.journal import StudyBegun
from study.protocol.states import StudyStatus, TrialState
from study.protocol.summary import StudySummary, TrialSummary, read
from study.reporting.formatting import at, confirming, counts, seconds, steps
from study.reporting.metrics import DeclaredMetrics
from study.reporting.progress import done
from study.reporting.screen import result
from study.selection import all_studies, ledger, name_a_ledger, name_a_study, named
from study.terminal import View
from trainables.arguments import command, parsed
from trainables.errors import FINISHED, WRONG, told


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = command(
        "study.status", "Say what runs, how far it is, since when and on which cluster.",
        "",
        "splade_k_search",
        "my_study.py --storage /shared/studies/mine",
    )  # fmt: skip
    name_a_study(parser, optional=True)
    name_a_ledger(parser)
    return parser


def main(arguments: list[str] | None = None) -> int:
    options = parsed(parser(), arguments)
    try:
        text = _one(options) if options.name or options.storage else _running(options)
    except (ValueError, OSError) as error:
        print(f"error: {told(error)}", file=View(sys.stderr))
        return WRONG
    print(text, file=View(sys.stdout))
    return FINISHED


def _one(options: argparse.Namespace) -> str:
    storage = named(options)
    summary = read(storage.summary)
    return told_of(storage, summary, standing(storage, summary.study, ledger(options, storage)))


def _running(options: argparse.Namespace) -> str:
    """Those of all studies below `studies/` that run, or may."""
    found, others = [], 0
    for storage in all_studies():
        try:
            summary = read(storage.summary)
        except ValueError as error:
            found.append(f"{storage}: {told(error)}")
            continue
        stands = standing(storage, summary.study, ledger(options, storage))
        if stands.runs is False:
            others += 1
        else:
            found.append(told_of(storage, summary, stands))
    if found:
        return "\n\n".join(found)
    if not others:
        return f"no study was run below {STUDIES.absolute()}; --storage names the folder of one elsewhere"
    return f"nothing runs; python -m study.list shows the {others} that were run below {STUDIES}/"


def told_of(storage: StudyFolder, summary: StudySummary, stands: Standing) -> str:
    """How the study stands, in a few lines."""
    return "\n".join(_lines(storage, summary, stands))


def _lines(storage: StudyFolder, summary: StudySummary, stands: Standing) -> Iterator[str]:
    launches = storage.launches()
    launch = launches[-1] if launches else None
    killed = stands.runs is False and summary.status == StudyStatus.RUNNING
    if stands.runs is False and not killed:
        yield f"{summary.study}: {summary.status}"
    else:
        yield f"{summary.study}: {stands}"
    if stands.runs and launch is not None and "cluster" in launch.tags:
        yield f"cluster  {launch.tags['cluster']}"
    yield f"trials   {counts(summary)}; {progress(summary):.0%} done"
    if summary.confirmation is not None:
        yield f"         {confirming(summary)}"
    for trial in summary.runs:
        if trial.state == TrialState.RUNNING and stands.runs is not False:
            yield f"         {_trial(summary, trial)}"
    yield f"result   {result(summary)}"
    if summary.tracking.error:
        yield f"MLflow   {summary.tracking.pending} records wait: {summary.tracking.error}"
    age = (datetime.now(UTC) - summary.updated).total_seconds()
    yield f"folder   {storage}, last word {seconds(max(0.0, age))} ago"
    if stands.runs:
        yield f"watch    python -m study.watch {_name(summary, storage)}"
    elif stands.runs is False and summary.status != StudyStatus.FINISHED:
        yield f"carry on {_command(launch) or 'with the command that ran it'}"


def progress(summary: StudySummary) -> float:
    """Share of the study that is done, from 0 to 1: trials that have ended, and the steps of those that have not."""
    return min(1.0, done(summary) / max(1, summary.planned_runs))


def _trial(summary: StudySummary, trial: TrialSummary) -> str:
    objective, metrics = summary.objectives[0].name, DeclaredMetrics(summary.metrics)
    value = trial.latest.get(objective)
    told = f", {metrics.label(objective)} {metrics.show(objective, value)}" if value is not None else ""
    return f"trial {trial.number} ({at(trial, summary.parameter)}) step {steps(trial)}{told}"


def _command(launch: StudyBegun | None) -> str | None:
    """The command of a launch."""
    return launch.tags.get("command") if launch is not None else None


def _name(summary: StudySummary, storage: StudyFolder) -> str:
    """The words that name the study to a command."""
    if (STUDIES / summary.study).absolute() == storage.path.absolute():
        return shlex.quote(summary.study)
    return f"{shlex.quote(summary.study)} --storage {shlex.quote(str(storage))}"


if __name__ == "__main__":
    sys.exit(main())
