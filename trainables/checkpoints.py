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

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

KEEP = 2
"""Step folders that stay: the newest and one to fall back on."""


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
        write_text(self.folder / "attempt", str(self.attempt))
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
            names = ("tensors.safetensors", "meta.json")
            for name in names:
                _sync(folder / name)
            manifest = self._owned({"step": step}) | {"sha256": {name: _sha256(folder / name) for name in names}}
            (folder / "manifest.json").write_text(json.dumps(manifest))
            _sync(folder / "manifest.json")

        place = self.folder / f"step-{step:08d}"
        self._write_folder(place, write)
        for old in self._step_folders()[KEEP:]:
            shutil.rmtree(old)
        return place

    def newest(self) -> int | None:
        """Step of the newest whole checkpoint, or None."""
        for folder in self._step_folders():
            problem = problem_of(folder)
            if problem is None:
                self._check_owner(json.loads((folder / "manifest.json").read_text()), folder)
                return int(folder.name.removeprefix("step-"))
            log.warning("checkpoint %s is passed over: %s", folder, problem)
        return None

    def load(self, step: int) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Tensors and meta of the checkpoint of `step`."""
        return read(self.folder / f"step-{step:08d}")

    def export(self, write: Callable[[Path], None], stage: str | None = None) -> Path:
        """Write the finished model, or that of an earlier stage, by `write(folder)`, whole or not at all."""
        place = self.folder / (f"model-{stage}" if stage else "model")
        self._write_folder(place, write)
        return place

    def finish(self, result: dict[str, Any]) -> None:
        """Record how the replicate ended, then drop the step folders that only a resume would need."""
        self._check_attempt()
        write_text(self.folder / "result.json", json.dumps(self._owned(result)))
        self.drop_steps()

    def drop_steps(self) -> None:
        """Remove all step folders; a finished replicate needs none."""
        for folder in self._step_folders():
            shutil.rmtree(folder)

    def result(self) -> dict[str, Any] | None:
        """What `finish` recorded, or None while the replicate is unfinished."""
        path = self.folder / "result.json"
        if not path.exists():
            return None
        result = json.loads(path.read_text())
        self._check_owner(result, path)
        result.pop("study", None)
        return result

    def _owned(self, content: dict[str, Any]) -> dict[str, Any]:
        return content if self.study is None else content | {"study": self.study}

    def _check_owner(self, content: dict[str, Any], where: Path | str) -> None:
        found = content.get("study")
        if found != self.study:
            theirs, ours = (f"study {name}" if name else "no study" for name in (found, self.study))
            raise Foreign(f"{where} belongs to {theirs}, and this run to {ours}: train in another folder")

    def _step_folders(self) -> list[Path]:
        return sorted(self.folder.glob("step-*"), reverse=True)

    def _check_attempt(self) -> None:
        path = self.folder / "attempt"
        newest = int(path.read_text()) if path.exists() else 0
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
            shutil.rmtree(place)
        aside.rename(place)
        _sync(self.folder)


def write_text(path: Path, text: str) -> None:
    """Replace a small file in one step: readers see the old text or the new one, never a part."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(text)
    _sync(aside)
    aside.replace(path)


def read(folder: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Tensors and meta of a step folder."""
    from safetensors.torch import load_file

    return load_file(folder / "tensors.safetensors"), json.loads((folder / "meta.json").read_text())


def problem_of(folder: Path) -> str | None:
    """What keeps a step folder from being whole, or None."""
    path = folder / "manifest.json"
    if not path.exists():
        return "it has no manifest"
    try:
        digests = json.loads(path.read_text())["sha256"]
    except (ValueError, KeyError):
        return "its manifest cannot be read"
    for name, digest in digests.items():
        if not (folder / name).exists():
            return f"{name} is missing"
        if _sha256(folder / name) != digest:
            return f"{name} does not have the digest in the manifest"
    return None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
