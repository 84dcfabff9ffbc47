"""`summary.json`: a view of the ledger, which must neither stop a study nor hold it up."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from study.protocol.summary import StudySummary
from trainables.errors import told
from trainables.files import write_whole

CHEAP_S = 0.02
"""A view that takes no longer is written after every event."""
SHARE = 0.01
"""Of the ledger's time goes to a larger one: reports of trials wait meanwhile."""
STALE_S = 5.0
"""While trials report steps, one that is cheap enough is at most so old: those who watch from elsewhere see nothing
else."""


class View:
    """Writes a study's summary to `path`; what fails is told to `say` once, until it works again."""

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self._path, self._say = path, say
        self._cost_s, self._ended, self._fails = 0.0, 0.0, False
        self.stale = False
        """Whether something has happened since that it does not show."""

    @property
    def due(self) -> bool:
        """Whether it may be written again by now."""
        return self._cost_s <= CHEAP_S or time.monotonic() - self._ended >= self._cost_s / SHARE

    @property
    def old(self) -> bool:
        """Whether it should be written though only steps were made."""
        return self.due and time.monotonic() - self._ended > STALE_S

    def write(self, make: Callable[[], StudySummary]) -> StudySummary:
        """Make the summary and write it; returns it, written or not."""
        began = time.monotonic()
        summary = make()
        try:
            write_whole(self._path, summary.text())
            self.stale = self._fails = False
        except OSError as error:
            if not self._fails:
                self._say(f"{self._path.name} is not written just now: {told(error)}")
            self._fails = True
        self._ended = time.monotonic()
        self._cost_s = self._ended - began
        return summary
