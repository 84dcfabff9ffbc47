"""Checkpoints of one replicate on an object store, where nothing can be renamed.

    URI/attempt-0002                 attempt 2 has begun: lower ones must not write any more
    URI/step-00000100.2/             the checkpoint of attempt 2, whole when its manifest.json is there
    URI/model/, URI/model-STAGE/     as in a folder; `model` is whole when result.json is there
    URI/result.json                  how the replicate ended

No two attempts write the same checkpoint, and each looks before every file whether there is a newer one. What is
sent is first written to a local folder, where nothing stays.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables.checkpoints import KEEP, MODEL, Checkpoints, StaleAttempt, problem_of, read, whole_result
from trainables.digests import text_digest
from trainables.object_store import ObjectStore

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)


class StoredCheckpoints(Checkpoints):
    """`Checkpoints` at `uri`; `folder` is one of this process alone, as `working_folder` makes it."""

    def __init__(self, folder: Path, attempt: int, uri: str, study: str | None = None) -> None:
        super().__init__(folder, attempt, study)
        self.store = ObjectStore(uri)

    def claim(self) -> None:
        self._check_attempt()
        self.store.write(f"attempt-{self.attempt:04d}", b"")
        super().claim()
        for name in self._stored_steps():
            # A writer that was killed left it half-sent.
            if not self._whole(name):
                self.store.remove(name)

    def save(self, step: int, tensors: dict[str, torch.Tensor], meta: dict[str, Any]) -> Path:
        place = super().save(step, tensors, meta)
        self._send(place, f"{place.name}.{self.attempt}", last="manifest.json")
        for old in list(filter(self._whole, self._stored_steps()))[KEEP:]:
            self.store.remove(old)
        return place

    def newest(self) -> int | None:
        for name in self._stored_steps():
            if (folder := self._fetched(name)) is not None:
                self._check_owner(json.loads((folder / "manifest.json").read_text()), f"{self.store.uri} {name}")
                return _step(name)
        return None

    def load(self, step: int) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        for name in self._stored_steps():
            if _step(name) == step and (folder := self._fetched(name)) is not None:
                found = read(folder)
                shutil.rmtree(folder)
                return found
        raise FileNotFoundError(f"the checkpoint of step {step} is no longer at {self.store.uri}")

    def export(self, write: Callable[[Path], None], stage: str | None = None) -> Path:
        place = super().export(write, stage)
        self._check_attempt()
        self.store.remove(place.name)
        self._send(place, place.name, last="config.json")
        return place

    def finish(self, result: dict[str, Any]) -> None:
        self._check_attempt()
        self.store.write("result.json", json.dumps(self._owned(result)).encode())
        self.drop_steps()

    def drop_steps(self) -> None:
        super().drop_steps()
        for name in self._stored_steps():
            self.store.remove(name)

    def result(self) -> dict[str, Any] | None:
        content = self.store.read("result.json")
        result = None if content is None else whole_result(content, self.store.uri)
        return None if result is None else self._own(result, f"{self.store.uri} result.json")

    def _check_owner(self, content: dict[str, Any], where: Path | str) -> None:
        """Raise `Foreign` for content of another study. Content without an id was written before files carried one, and
        is this study's, whose id the store's folder is named by."""
        if "study" in content:
            super()._check_owner(content, where)

    def _send(self, place: Path, name: str, last: str) -> None:
        self.store.upload(place, name, last, self._check_attempt)
        shutil.rmtree(place)

    def _whole(self, name: str) -> bool:
        return self.store.has(f"{name}/manifest.json")

    def _stored_steps(self) -> list[str]:
        """Names of the step folders, the newest step first and, within a step, the newest attempt first."""
        found = (name for name in self.store.folders() if name.startswith("step-"))
        return sorted(found, key=lambda name: (_step(name), int(name.rpartition(".")[2])), reverse=True)

    def _fetched(self, name: str) -> Path | None:
        """A local copy of a step folder; None if it is not whole, with a word in the log if it is damaged."""
        folder = self.folder / "fetched" / name
        if not self._whole(name):
            return None
        if not folder.exists():
            self.store.download(name, folder)
        problem = problem_of(folder)
        if problem is None:
            return folder
        log.warning("checkpoint %s at %s is passed over: %s", name, self.store.uri, problem)
        shutil.rmtree(folder)
        return None

    def _check_attempt(self) -> None:
        begun = (name.removeprefix("attempt-") for name in self.store.files() if name.startswith("attempt-"))
        newest = max(map(int, begun), default=0)
        if newest > self.attempt:
            raise StaleAttempt(f"attempt {self.attempt} at {self.store.uri} was superseded by attempt {newest}")


def empty_store(uri: str) -> None:
    """Remove what an object store has of the checkpoints and the models of a replicate; its result stays."""
    store = ObjectStore(uri)
    for name in store.folders():
        if name.startswith(("step-", MODEL)):
            store.remove(name)


@contextmanager
def working_folder(uri: str, attempt: int, rank: int) -> Iterator[Path]:
    """A local folder for one rank of one attempt, removed at the end; what killed attempts left here goes first."""
    mark = f"study-{text_digest(uri)[:12]}-{rank}"
    for abandoned in Path(tempfile.gettempdir()).glob(f"{mark}-*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{mark}-{attempt}-") as folder:
        yield Path(folder)


def _step(name: str) -> int:
    return int(name.removeprefix("step-").partition(".")[0])
