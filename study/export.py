"""Take a model of a study away: `python -m study.export NAME FOLDER`.

FOLDER is a copy of what a trial's replicate has left, from the study's folder or from the object store of its
checkpoints, with a card that says what the study found out about it. It is there as a whole or not at all.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from study.profiles import existing
from study.protocol.folder import StudyFolder, stored_model, stored_replicate, trial_of
from study.protocol.states import TrialState
from study.protocol.summary import TrialSummary
from study.reporting.formatting import at
from study.reporting.model_card import intervals, sections
from study.reporting.results import Findings, per_item
from study.terminal import View
from trainables import card, overrides, trainers
from trainables.arguments import parsed
from trainables.checkpoints import RESULT
from trainables.errors import FINISHED, WRONG, told
from trainables.object_store import ObjectStore
from trainables.places import typed
from trainables.training_record import FILE as RECORD
from trainables.training_record import TrainingRecord

STORE_WAIT_S = 60.0
"""How long an object store may be away."""


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
        _check_free(options.folder)
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


def write(findings: Findings, trial: TrialSummary, replicate: int, folder: Path, *, onnx: bool = False) -> bool:
    """Make `folder` of the model of a replicate; ValueError where there is none.

    Returns whether it has a card: one without a record of its training, of an earlier version, cannot have one.
    """
    source = _source(findings.storage, trial, replicate)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as aside:
        model = Path(aside) / "model"
        source.copy(model)
        record = TrainingRecord.read(model) if (model / RECORD).exists() else None
        if onnx:
            from trainables import onnx_export

            onnx_export.write(model, trust_remote_code=bool(record and record.config["trust_remote_code"]))
        if record is not None:
            module = trainers.module(record.trainer, "config")
            config = overrides.validate(module.Config, record.config)
            card.write(
                model,
                config,
                record,
                title=f"{findings.summary.study}, trial {trial.number}",
                opening=sections(findings, trial, record.seed),
                intervals=intervals(record.values, source.per_item(), module.metrics(config)),
            )
        _check_free(folder)
        model.rename(folder)
    return record is not None


@dataclass(frozen=True)
class _Source:
    """Where a replicate's model and its result are: below a folder, or a URI."""

    place: str
    model_place: str

    def copy(self, target: Path) -> None:
        if "://" in self.model_place:
            ObjectStore(self.model_place, STORE_WAIT_S).download("", target)
        else:
            shutil.copytree(self.model_place, target)

    def per_item(self) -> Mapping[str, Mapping[str, Mapping[str, float]]]:
        """Split -> metric -> query or pair id -> value; {} where the result is no more there."""
        if "://" not in self.place:
            path = Path(self.place) / RESULT
            return per_item(path.read_bytes(), path) if path.exists() else {}
        content = ObjectStore(self.place, STORE_WAIT_S).read(RESULT)
        return {} if content is None else per_item(content, f"{self.place} {RESULT}")


def _source(storage: StudyFolder, trial: TrialSummary, replicate: int) -> _Source:
    """ValueError where the replicate has no model."""
    seeds = len(trial.replicates)
    if not 0 <= replicate < seeds:
        has = "is 0" if seeds == 1 else f"are 0 to {seeds - 1}"
        raise ValueError(f"--replicate {replicate}: trial {trial.number} has {seeds} replicate(s), whose number {has}")
    place = trial.checkpoint or ""
    if "://" in place:
        stored = trial_of(place)
        return _Source(stored_replicate(stored, replicate), stored_model(stored, replicate))
    found = storage.replicate(trial.number, replicate)
    if not found.model.is_dir():
        raise ValueError(f"{found.model} does not exist: the model of trial {trial.number} was removed")
    return _Source(str(found.path), str(found.model))


def _check_free(folder: Path) -> None:
    """ValueError unless a model may be put there without writing over anything."""
    there = next(path for path in (folder, *folder.parents) if path.exists() or path.is_symlink())
    if not there.is_dir():
        raise ValueError(f"FOLDER {folder}: {there} is a file; name a folder that is new or empty")
    if there == folder and any(folder.iterdir()):
        raise ValueError(f"FOLDER {folder}: there are files in it; name one that is new or empty")


if __name__ == "__main__":
    sys.exit(main())
