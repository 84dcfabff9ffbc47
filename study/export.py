"""Take a model of a study away: `python -m study.export NAME FOLDER`.

FOLDER is a copy of what a trial's replicate has left, from the study's folder or from the object store of its
checkpoints, with a card that says what the study found out about it. It is there as a whole or not at all.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from study.profiles import existing
from study.protocol.folder import StudyFolder
from study.protocol.states import TrialState
from study.protocol.summary import TrialSummary
from study.reporting.exported_model import check_free, write
from study.reporting.formatting import at
from study.reporting.results import Findings
from study.terminal import View
from trainables import card
from trainables.arguments import parsed
from trainables.errors import FINISHED, WRONG, told
from trainables.places import typed


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m study.export",
        description="Copy a finished model of a study into a folder that sentence-transformers opens, with its card.",
        epilog="python -m study.export splade_k_search models/splade",
    )
    parser.add_argument("name", metavar="NAME", help="the study's name, or the .py file it was run from")
    parser.add_argument("folder", type=typed, metavar="FOLDER", help="where the model goes; new, or empty")
    parser.add_argument("--trial", default="best", metavar="best|N", help="which trial (default: best)")
    parser.add_argument(
        "--replicate",
        type=int,
        default=0,
        metavar="R",
        help="which of its seeds, counted from 0 (default: %(default)s)",
    )
    parser.add_argument("--onnx", action="store_true", help="write it as ONNX, too: FOLDER/onnx/model.onnx")
    parser.add_argument("--profile", help="variant of the study (default: its default one)")
    parser.add_argument(
        "--storage", type=typed, metavar="DIR", help="the study's folder (default: where study.run keeps the profile)"
    )
    return parser


def main(arguments: list[str] | None = None) -> int:
    options = parsed(parser(), arguments)
    study = Path(options.name).stem if options.name.endswith(".py") else options.name
    try:
        if options.onnx:
            from trainables import onnx_export

            onnx_export.check()
        check_free(options.folder)
        findings = Findings(StudyFolder(existing(study, options.profile, options.storage)))
        trial = chosen(findings, options.trial)
        has_card = write(findings, trial, options.replicate, options.folder, onnx=options.onnx)
    except (ValueError, OSError) as error:
        print(f"error: {told(error)}", file=View(sys.stderr))
        return WRONG
    what = f"trial {trial.number}, {at(trial, findings.parameter)}"
    if has_card:
        print(f"{what}; {card.FILE} says how it is opened and trained again", file=View(sys.stderr))
    else:
        print(
            f"{what}, of an earlier version that kept no record of the training: it has no card", file=View(sys.stderr)
        )
    print(options.folder, file=View(sys.stdout))
    return FINISHED


def chosen(findings: Findings, asked: str) -> TrialSummary:
    """The trial that `--trial` names; ValueError for one that is not there or not finished."""
    summary = findings.summary
    finished = [trial.number for trial in summary.trials if trial.state == TrialState.COMPLETE]
    hint = f"finished are {', '.join(map(str, finished))}" if finished else "no trial is finished"
    if asked == "best":
        if findings.best is None:
            raise ValueError(f"--trial best: {summary.study} has no best trial yet; {hint}")
        return findings.best
    trials = {str(trial.number): trial for trial in summary.trials}
    if asked not in trials:
        raise ValueError(f"--trial {asked}: {summary.study} has no such trial; accepted are 'best' and numbers; {hint}")
    if trials[asked].number not in finished:
        raise ValueError(f"--trial {asked}: trial {asked} is {trials[asked].state}; {hint}")
    return trials[asked]


if __name__ == "__main__":
    sys.exit(main())
