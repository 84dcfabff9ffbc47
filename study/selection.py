"""Which study, and which of its trials: what the commands that read a study's folder are told alike."""

from __future__ import annotations

import argparse
import difflib
import os
from pathlib import Path

from study.profiles import STUDIES, existing
from study.protocol.folder import StudyFolder
from study.protocol.states import TrialState
from study.protocol.summary import StudySummary, TrialSummary
from study.uris import absolute_uri
from trainables.places import typed


def name_a_study(parser: argparse.ArgumentParser, optional: bool = False) -> None:
    """Add NAME, --profile and --storage, which `named` reads."""
    parser.add_argument(
        "name",
        metavar="NAME",
        nargs="?" if optional else None,
        help="the study's name, its folder, or the .py file it was run from",
    )
    parser.add_argument("--profile", help="variant of the study (default: its default one)")
    parser.add_argument(
        "--storage", type=typed, metavar="DIR", help="the study's folder (default: where study.run keeps the profile)"
    )


def named(options: argparse.Namespace) -> StudyFolder:
    """The folder of the study that the options name.

    Raises ValueError where there is none, with the nearest, or where another profile's results are there.
    """
    if options.name is None:
        return _begun(StudyFolder(options.storage))
    return folder_of(options.name, options.profile, options.storage)


def folder_of(name: str, profile: str | None = None, storage: Path | None = None) -> StudyFolder:
    """The folder of a study that is called by its name, by the .py file it was run from, or by its folder.

    Raises ValueError as `named` does.
    """
    if storage is None and profile is None and StudyFolder(typed(name)).summary.is_file():
        return StudyFolder(typed(name))
    study = Path(name).stem if name.endswith(".py") else name
    return _begun(StudyFolder(existing(study, profile, storage)))


def _begun(storage: StudyFolder) -> StudyFolder:
    if storage.traces():
        return storage
    there = [found.path.name for found in all_studies()]
    near = difflib.get_close_matches(storage.path.name, there, n=1)
    hints = [f"did you mean '{near[0]}'?" if near else f"there are {', '.join(there)};"] if there else []
    hint = " ".join([*hints, "--storage names another"])
    raise ValueError(f"{storage.summary} does not exist: no study was run in this folder; {hint}")


def all_studies(folder: Path = STUDIES) -> list[StudyFolder]:
    """The folders of studies in a `folder`, by name; those that --fresh has set aside among them."""
    return StudyFolder.within(folder)


def name_a_ledger(parser: argparse.ArgumentParser) -> None:
    """Add --ledger, which `ledger` reads."""
    parser.add_argument(
        "--ledger", metavar="URL", help="database of the ledger, where it is not in the study's folder "
        "(default: $STUDY_LEDGER)",
    )  # fmt: skip


def ledger(options: argparse.Namespace, storage: StudyFolder) -> str | None:
    """URL of the database that the study's ledger is kept in; None where that is in its folder.

    What `--ledger` names counts before a database in the folder, and that before $STUDY_LEDGER.
    """
    if options.ledger:
        return absolute_uri(options.ledger)
    return None if storage.database.exists() else absolute_uri(os.environ.get("STUDY_LEDGER") or "") or None


def finished_trials(summary: StudySummary, option: str, asked: str, *, several: bool) -> list[TrialSummary]:
    """The finished trials that `option` names: `best`, or numbers, where `several` may be named with commas between.

    `best` is one trial, or the Pareto front of several objectives; of each group where a study has groups, so that it
    names none where only one may be named. Raises ValueError for a trial that is not there or not finished.
    """
    trials = {trial.number: trial for trial in summary.runs}
    complete = [number for number, trial in trials.items() if trial.state == TrialState.COMPLETE]
    finished = f"finished are {', '.join(map(str, complete))}" if complete else "no trial is finished"
    if asked == "best":
        numbers = list(summary.best)
        if not numbers:
            raise ValueError(f"{option} best: {summary.study} has no best trial yet; {finished}")
        if summary.groups and not several:
            best = ", ".join(f"{', '.join(map(str, group.best)) or 'none'} of {group.name}" for group in summary.groups)
            raise ValueError(f"{option} best: each {summary.group} has its own; give a number: {best}")
    else:
        parts = [part.strip() for part in asked.split(",")] if several else [asked]
        if not all(part.isdecimal() for part in parts):
            accepted = "'best', or numbers of trials such as 0,3" if several else "'best', or the number of a trial"
            raise ValueError(f"{option} {asked}: give {accepted}; {finished}")
        numbers = list(dict.fromkeys(map(int, parts)))
    for number in numbers:
        if number not in trials:
            raise ValueError(f"{option} {asked}: {summary.study} has no trial {number}; {finished}")
        if number not in complete:
            raise ValueError(f"{option} {asked}: trial {number} is {trials[number].state}; {finished}")
    return [trials[number] for number in numbers]
