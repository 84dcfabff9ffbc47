"""The check of a study's inputs, before any trial, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from study.ledger.variants import variants
from study.protocol.folder import StudyFolder
from study.spec import Study
from trainables import overrides
from trainables.check import DOING, distinct
from trainables.errors import WRONG

POLL_S = 0.1
PATIENCE_S = 10.0
"""The check of the inputs says what it is doing when it takes longer."""


class InputCheck:
    """Reads a study's inputs and puts a few texts through its models, in a process of its own, before any trial."""

    def __init__(self, study: Study, storage: StudyFolder) -> None:
        self.log = storage.check_log
        config = overrides.apply(study.config, {"cache": str(storage.cache)})
        changes = json.dumps(distinct(study.config, variants(study)))
        self.began = time.monotonic()
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "trainables.check", study.trainer, config.model_dump_json(), changes],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
            )  # fmt: skip
        self.doing, self.found = "", ""
        """What the process says it is doing, and its last word."""
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in map(str.strip, self.process.stdout):
            if line.startswith(DOING):
                self.doing = line.removeprefix(DOING)
            else:
                self.found = line

    def raise_if_refused(self) -> None:
        """Raise the refusal if there already is one; does not wait."""
        if self.process.poll() not in (None, 0):
            self.result(lambda _: None)

    def at_work(self) -> bool:
        return self.process.poll() is None

    def result(self, say: Callable[[str], None], stopped: Callable[[], bool] = lambda: False) -> dict[str, Any]:
        """{"facts": ..., "baselines": ..., "notes": [...]}; ValueError with the refusal. Says what takes long.

        Raises KeyboardInterrupt as soon as it is `stopped`.
        """
        said = ""
        while self.process.poll() is None:
            if stopped():
                raise KeyboardInterrupt
            if self.doing != said and time.monotonic() - self.began > PATIENCE_S:
                said = self.doing
                say(f"checking the inputs: {said}")
            time.sleep(POLL_S)
        self.reader.join()
        if self.process.returncode == WRONG and self.found:
            raise ValueError(self.found)
        if self.process.returncode != 0:
            raise RuntimeError(f"the inputs could not be checked, see {self.log}")
        return json.loads(self.found)

    def stop(self) -> None:
        """End the process if it is still at work."""
        self.process.kill()
        self.process.wait()
