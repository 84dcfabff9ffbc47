"""Checkpoints of one replicate: a folder per step, whole or not there.

    FOLDER/attempt                       number of the attempt that may write here
    FOLDER/step-00000100/tensors.safetensors, meta.json, manifest.json
    FOLDER/model/                        the finished model in Hugging Face format
    FOLDER/model-STAGE/                  the model at the end of an earlier stage
    FOLDER/result.json                   how the replicate ended; nothing is trained after it exists

Files are written in a hidden folder beside their place, the manifest with their digests last, and the
folder is then renamed into place. The newest folder whose digests agree is the checkpoint; a damaged
one is passed over for the one before it. Nothing is unpickled.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables.digests import file_digest
from trainables.errors import told
from trainables.files import sync, write_whole

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

KEEP = 2
"""Step folders that stay: the newest and one to fall back on."""
NAMES = ("tensors.safetensors", "meta.json")
"""Files of a step folder, which its manifest has the digests of."""
ATTEMPT, RESULT, MODEL, MANIFEST = "attempt", "result.json", "model", "manifest.json"
_STEP = "step-"


class StaleAttempt(RuntimeError):
    """A newer attempt has taken this replicate over; this process must not write any more."""


class Foreign(ValueError):
    """What is in the folder belongs to another study, or to none."""


class Checkpoints:
    """The checkpoints of one replicate, written by attempt number `attempt` only while no newer one exists.

    They carry the id of their `study`, None for a run of its own. What carries another one raises `Foreign` when it
    is read.
    """

    def __init__(self, folder: Path, attempt: int, study: str | None = None) -> None:
        self.folder = folder
        self.attempt = attempt
        self.study = study

    def claim(self) -> None:
        """Make this attempt the writer and clear what a killed writer left half-done."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._check_attempt()
        write_whole(self.folder / ATTEMPT, str(self.attempt))
        for leftover in self.folder.glob(".*"):
            # A writer that still lives may put another file in: it is refused in the end, and clears up itself.
            if leftover.is_dir():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink(missing_ok=True)

    def save(self, step: int, tensors: dict[str, torch.Tensor], meta: dict[str, Any]) -> Path:
        """Write the checkpoint of `step`; raise `StaleAttempt` if a newer attempt exists."""
        from safetensors.torch import save_file

        def write(folder: Path) -> None:
            save_file(tensors, folder / "tensors.safetensors")
            (folder / "meta.json").write_text(json.dumps(meta))
            for name in NAMES:
                sync(folder / name)
            manifest = self._owned({"step": step}) | {"sha256": {name: file_digest(folder / name) for name in NAMES}}
            (folder / MANIFEST).write_text(json.dumps(manifest))
            sync(folder / MANIFEST)

        place = self.folder / f"{_STEP}{step:08d}"
        self._write_folder(place, write)
        for old in step_folders(self.folder)[KEEP:]:
            shutil.rmtree(old)
        return place

    def newest(self) -> int | None:
        """Step of the newest whole checkpoint, or None."""
        for folder in step_folders(self.folder):
            problem = problem_of(folder)
            if problem is None:
                self._check_owner(json.loads((folder / MANIFEST).read_text()), folder)
                return int(folder.name.removeprefix(_STEP))
            log.warning("checkpoint %s is passed over: %s", folder, problem)
        return None

    def load(self, step: int) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Tensors and meta of the checkpoint of `step`."""
        return read(self.folder / f"{_STEP}{step:08d}")

    def export(self, write: Callable[[Path], None], stage: str | None = None) -> Path:
        """Write the finished model, or that of an earlier stage, by `write(folder)`, whole or not at all."""
        place = self.folder / (f"{MODEL}-{stage}" if stage else MODEL)
        self._write_folder(place, write)
        return place

    def finish(self, result: dict[str, Any]) -> None:
        """Record how the replicate ended, then drop the step folders that only a resume would need."""
        self._check_attempt()
        write_whole(self.folder / RESULT, json.dumps(self._owned(result)))
        self.drop_steps()

    def drop_steps(self) -> None:
        """Remove all step folders; a finished replicate needs none."""
        for folder in step_folders(self.folder):
            shutil.rmtree(folder)

    def result(self) -> dict[str, Any] | None:
        """What `finish` recorded, or None while the replicate is unfinished."""
        path = self.folder / RESULT
        result = whole_result(path.read_bytes(), path) if path.exists() else None
        return None if result is None else self._own(result, path)

    def _own(self, result: dict[str, Any], where: Path | str) -> dict[str, Any]:
        """The result without the study's id, once that id has been checked; raises `Foreign` for another one."""
        self._check_owner(result, where)
        return {key: value for key, value in result.items() if key != "study"}

    def _owned(self, content: dict[str, Any]) -> dict[str, Any]:
        return content if self.study is None else content | {"study": self.study}

    def _check_owner(self, content: dict[str, Any], where: Path | str) -> None:
        found = content.get("study")
        if found != self.study:
            theirs, ours = (f"study {name}" if name else "no study" for name in (found, self.study))
            raise Foreign(f"{where} belongs to {theirs}, and this run to {ours}: train in another folder")

    def _check_attempt(self) -> None:
        newest = newest_attempt(self.folder)
        if newest > self.attempt:
            raise StaleAttempt(f"attempt {self.attempt} of {self.folder} was superseded by attempt {newest}")

    def _write_folder(self, place: Path, write: Callable[[Path], None]) -> None:
        aside = self.folder / f".writing-{self.attempt}-{place.name}"
        aside.mkdir(parents=True)
        write(aside)
        try:
            self._check_attempt()
        except StaleAttempt:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        if place.exists():
            # Only a damaged folder, or one of an attempt that was killed before it recorded it, is in the way.
            shutil.rmtree(place) if place.is_dir() else place.unlink()
        aside.rename(place)
        sync(self.folder)


def step_folders(folder: Path) -> list[Path]:
    """The checkpoints in a replicate's folder, whole or not, the newest first."""
    return sorted((path for path in folder.glob(f"{_STEP}*") if path.is_dir()), reverse=True)


def empty(folder: Path) -> None:
    """Remove the checkpoints and the models of a replicate; its result stays. Nobody may be writing there."""
    for made in (*step_folders(folder), *folder.glob(MODEL), *folder.glob(f"{MODEL}-*")):
        shutil.rmtree(made)


def manifests(folder: Path) -> list[Path]:
    """The manifests of the checkpoints in a replicate's folder."""
    return [path for path in (step / MANIFEST for step in step_folders(folder)) if path.exists()]


def whole_result(content: bytes, place: object) -> dict[str, Any] | None:
    """What `Checkpoints.finish` has written, or None for anything else."""
    try:
        found = json.loads(content)
        if {"state", "step", "values"} <= found.keys():
            return found
        problem = "it lacks its state, step or values"
    except (ValueError, AttributeError) as error:
        problem = told(error)
    log.warning("%s is passed over, and the replicate trained again: %s", place, problem)
    return None


def newest_attempt(folder: Path) -> int:
    """Number of the newest attempt that has claimed the folder; 0 where none has, or its file is damaged."""
    path = folder / ATTEMPT
    if not path.exists():
        return 0
    try:
        return int(path.read_bytes())
    except ValueError as error:
        log.warning("%s is written anew: %s", path, error)
        return 0


def read(folder: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Tensors and meta of a step folder."""
    from safetensors.torch import load_file

    return load_file(folder / "tensors.safetensors"), json.loads((folder / "meta.json").read_text())


def problem_of(folder: Path) -> str | None:
    """What keeps a step folder from being whole, or None."""
    path = folder / MANIFEST
    if not path.exists():
        return "it has no manifest"
    try:
        digests = json.loads(path.read_bytes())["sha256"]
        for name in (*NAMES, *digests):
            if not (folder / name).is_file():
                return f"{name} is missing"
            if file_digest(folder / name) != digests[name]:
                return f"{name} does not have the digest in the manifest"
    except OSError as error:
        return told(error)
    except (ValueError, KeyError, TypeError):
        return "its manifest cannot be read"
    return None
