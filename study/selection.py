"""Which study, and which of its trials: what the commands that read a study's folder are told alike."""

from __future__ import annotations

import argparse
from pathlib import Path

from study.profiles import existing
from study.protocol.folder import StudyFolder
from study.protocol.states import TrialState
from study.protocol.summary import StudySummary, TrialSummary
from trainables.places import typed


def name_a_study(parser: argparse.ArgumentParser) -> None:
    """Add NAME, --profile and --storage, which `named` reads."""
    parser.add_argument("name", metavar="NAME", help="the study's name, or the .py file it was run from")
    parser.add_argument("--profile", help="variant of the study (default: its default one)")
    parser.add_argument(
        "--storage", type=typed, metavar="DIR", help="the study's folder (default: where study.run keeps the profile)"
    )


def named(options: argparse.Namespace) -> StudyFolder:
    """The folder of the study that the options name; raises ValueError where another profile's results are there."""
    name = Path(options.name).stem if options.name.endswith(".py") else options.name
    return StudyFolder(existing(name, options.profile, options.storage))


def finished_trials(summary: StudySummary, option: str, asked: str, *, several: bool) -> list[TrialSummary]:
    """The finished trials that `option` names: `best`, or numbers, where `several` may be named with commas between.

    `best` is one trial, or the Pareto front of several objectives. Raises ValueError for a trial that is not there or
    not finished.
    """
    trials = {trial.number: trial for trial in summary.trials}
    complete = [number for number, trial in trials.items() if trial.state == TrialState.COMPLETE]
    finished = f"finished are {', '.join(map(str, complete))}" if complete else "no trial is finished"
    if asked == "best":
        numbers = list(summary.best)
        if not numbers:
            raise ValueError(f"{option} best: {summary.study} has no best trial yet; {finished}")
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
