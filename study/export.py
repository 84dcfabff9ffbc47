"""Take a model of a study away: `python -m study.export NAME FOLDER`.

FOLDER is a copy of what a trial's replicate has left, from the study's folder or from the object store of its
checkpoints, with a card that says what the study found out about it. It is there as a whole or not at all.
"""

from __future__ import annotations

import argparse
import sys

from study.protocol.summary import read
from study.reporting.exported_model import check_free, write
from study.reporting.formatting import at
from study.reporting.results import Findings
from study.selection import finished_trials, name_a_study, named
from study.terminal import View
from trainables import card
from trainables.arguments import command, parsed
from trainables.errors import FINISHED, WRONG, told
from trainables.places import typed


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = command(
        "study.export",
        "Copy a finished model of a study into a folder that sentence-transformers opens, with its card.",
        "splade_k_search models/splade",
        "splade_k_search models/splade --trial 4 --onnx",
    )  # fmt: skip
    name_a_study(parser)
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
    return parser


def main(arguments: list[str] | None = None) -> int:
    options = parsed(parser(), arguments)
    try:
        if options.onnx:
            from trainables import onnx_export

            onnx_export.check()
        check_free(options.folder)
        storage = named(options)
        summary = read(storage.summary)
        trial = finished_trials(summary, "--trial", options.trial, several=False)[0]
        group = next((group for group in summary.groups if group.name == trial.group), None)
        findings = Findings(storage, summary if group is None else summary.alone(group))
        # Of a Pareto front the one that is best in the first objective.
        if options.trial == "best" and findings.best is not None:
            trial = findings.best
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


if __name__ == "__main__":
    sys.exit(main())
