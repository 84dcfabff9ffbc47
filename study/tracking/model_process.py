"""The process that makes a loadable model and sends it: started, looked after, and ended with whoever asked for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

MARKS = ("modules.json", "config_sentence_transformers.json")
"""Files of a model that sentence-transformers opens."""
LINES = 3
"""Last lines of what the process said that are told when it fails."""


def loadable(folder: Path) -> bool:
    """Whether there is a model in the folder that can be kept so that others load it."""
    return all((folder / mark).is_file() for mark in MARKS)


@dataclass(frozen=True)
class ModelRequest:
    """A model to be kept at a tracking store."""

    uri: str
    """The store, with its password: never on a command line."""
    experiment_id: str
    runs: tuple[str, ...]
    """Runs that have brought it: first the trial's, from which it gets its parameters and figures."""
    step: int
    """Training steps behind the model."""
    name: str
    tags: dict[str, str]
    """What tells the model from others of this name."""
    path: str
    """Its folder, as sentence-transformers opens it."""
    register: str | None = None
    """Name under which the registry gets it, or None."""


class ModelProcess:
    """A process of `study.tracking.keep_model`; leaving the block ends it."""

    def __init__(self, request: ModelRequest) -> None:
        self._request = request

    def __enter__(self) -> ModelProcess:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "study.tracking.keep_model"],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self._asked: str | None = json.dumps(asdict(self._request))
        return self

    def ended(self, within_s: float) -> bool:
        """Wait so long, and say whether the process has ended; RuntimeError with its last words if it failed."""
        try:
            said, _ = self._process.communicate(self._asked, timeout=within_s)
        except subprocess.TimeoutExpired:
            # What was given is on its way; it must not be given again.
            self._asked = None
            return False
        if self._process.returncode:
            raise RuntimeError("; ".join(said.strip().splitlines()[-LINES:]) or f"exit code {self._process.returncode}")
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()
