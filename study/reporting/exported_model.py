"""A model of a study, taken away: a copy of what a replicate has left, with a card that says what the study found."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from study.protocol import per_item
from study.protocol.folder import StudyFolder, TrialFolder, stored_model, stored_replicate, trial_name, trial_of
from study.protocol.summary import TrialSummary
from study.reporting.model_card import intervals, sections
from study.reporting.results import Findings
from trainables import card, overrides, trainers
from trainables.checkpoints import RESULT
from trainables.object_store import ObjectStore, fetched
from trainables.training_record import FILE as RECORD
from trainables.training_record import TrainingRecord

STORE_WAIT_S = 60.0
"""How long an object store may be away."""


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
        check_free(folder)
        model.rename(folder)
    return record is not None


def local(storage: StudyFolder, trial: TrialSummary, replicate: int) -> Path:
    """The folder of a replicate's model on this machine; ValueError where there is none.

    One that an object store has is copied into the cache of the study's folder, once; OSError where the store is away.
    """
    copies = TrialFolder(storage.cache / "models" / trial_name(trial.number))
    return fetched(_source(storage, trial, replicate).model_place, copies.replicate(replicate).path, STORE_WAIT_S)


def check_free(folder: Path) -> None:
    """ValueError unless a model may be put there without writing over anything."""
    there = next(path for path in (folder, *folder.parents) if path.exists() or path.is_symlink())
    if not there.is_dir():
        raise ValueError(f"FOLDER {folder}: {there} is a file; name a folder that is new or empty")
    if there == folder and any(folder.iterdir()):
        raise ValueError(f"FOLDER {folder}: there are files in it; name one that is new or empty")


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
            return per_item.parse(path.read_bytes(), path) if path.exists() else {}
        content = ObjectStore(self.place, STORE_WAIT_S).read(RESULT)
        return {} if content is None else per_item.parse(content, f"{self.place} {RESULT}")


def _source(storage: StudyFolder, trial: TrialSummary, replicate: int) -> _Source:
    """ValueError where the replicate has no model."""
    seeds = len(trial.replicates)
    if not 0 <= replicate < seeds:
        has = "is 0" if seeds == 1 else f"are 0 to {seeds - 1}"
        raise ValueError(f"replicate {replicate}: trial {trial.number} has {seeds} replicate(s), whose number {has}")
    place = trial.checkpoint or ""
    if "://" in place:
        stored = trial_of(place)
        return _Source(stored_replicate(stored, replicate), stored_model(stored, replicate))
    found = storage.replicate(trial.number, replicate)
    if not found.model.is_dir():
        raise ValueError(f"{found.model} does not exist: the model of trial {trial.number} was removed, as --keep says")
    return _Source(str(found.path), str(found.model))
