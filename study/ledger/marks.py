"""What a ledger has to know of its journal: how far each replicate is, and what has ended.

It is kept in a file beside the journal, so that a launch reads what was appended since, and not a history of weeks. The
file is a cache: without one that fits the journal, all of the journal is read.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass, field
from pathlib import Path

from study.protocol.journal import Ended, Entry, Metrics, ReplicateBegun, StudyBegun, TrialBegun
from trainables.errors import told
from trainables.files import write_whole

log = logging.getLogger(__name__)

TAIL = 4096
"""Bytes of the journal that a digest is made of, to tell it from another one."""


@dataclass
class Marks:
    """What the journal's entries up to some byte say."""

    steps: dict[tuple[int, int], int] = field(default_factory=dict)
    """(trial, replicate) -> its newest step."""
    times: dict[int, int] = field(default_factory=dict)
    """Trial -> when its newest record was made, in milliseconds since the epoch."""
    ended: set[tuple[int | None, int | None]] = field(default_factory=set)
    """(trial, replicate) of what has an `end` that nothing reopened."""
    began: int = 0
    """When the study did, in milliseconds since the epoch."""

    def note(self, entry: Entry) -> None:
        """Take an entry into account that follows all before."""
        match entry:
            case Metrics(trial, replicate, records) if records:
                mark = self.steps.get((trial, replicate), -1)
                self.steps[trial, replicate] = max(mark, *(record["step"] for record in records))
                self.times[trial] = max(record["time"] for record in records)
            case Ended():
                self.ended.add((entry.trial, entry.replicate))
            case StudyBegun() | TrialBegun() | ReplicateBegun():
                self.began = self.began or entry.time
                self.ended.discard((entry.trial, entry.replicate))

    def save(self, path: Path, journal: Path, end: int) -> None:
        """Keep the marks of the journal's first `end` bytes; where that fails, a word in the log."""
        try:
            content = {
                "end": end, "tail": _tail(journal, end), "changed": journal.stat().st_mtime_ns, "began": self.began,
                "steps": [[*key, step] for key, step in self.steps.items()],
                "times": list(self.times.items()), "ended": list(self.ended),
            }  # fmt: skip
            write_whole(path, json.dumps(content))
        except OSError as error:
            log.warning("%s is not written just now: %s", path, told(error))

    @classmethod
    def load(cls, path: Path, journal: Path) -> tuple[Marks, int]:
        """(marks, up to which byte of the journal they go); (none, 0) without a file that fits the journal."""
        try:
            stored, found = json.loads(path.read_bytes()), journal.stat()
            end = int(stored["end"])
            # A journal that has not grown since was not written to by a ledger.
            fits = end < found.st_size or (end == found.st_size and stored["changed"] == found.st_mtime_ns)
            if fits and stored["tail"] == _tail(journal, end):
                steps = {(trial, replicate): step for trial, replicate, step in stored["steps"]}
                ended = {(trial, replicate) for trial, replicate in stored["ended"]}
                return cls(steps, dict(stored["times"]), ended, stored["began"]), end
        except FileNotFoundError:
            return cls(), 0
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("%s is passed over: %s", path, told(error))
        log.info("%s is read from its beginning", journal)
        return cls(), 0


def _tail(journal: Path, end: int) -> str:
    with journal.open("rb") as file:
        file.seek(max(0, end - TAIL))
        return hashlib.sha256(file.read(end - file.tell())).hexdigest()
