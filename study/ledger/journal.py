"""The writer of a study's journal: every event and every logged step, in order, once, on disk.

The ledger actor appends; the tracker replays it into MLflow from where it left off, and the report reads its curves
from it. What its lines hold is in `study.protocol.journal`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from study.ledger.marks import Marks
from study.protocol.journal import BEGIN, Entry, Metrics, encode
from study.protocol.journal_reader import CHUNK, JournalReader
from trainables.context import Record

KEEP_EVERY = 8 * 2**20
"""Bytes after which the marks are kept anew: what a launch has to read after a kill, at most."""


class Journal(JournalReader):
    """Append-only JSON lines with the high-water mark of each replicate. One process writes.

    `marks` is a file that spares reading it from the beginning; None keeps none. Raises `Damaged` where what is read
    holds anything else, `Newer` where it is of a later format.
    """

    def __init__(self, path: Path, marks: Path | None = None) -> None:
        super().__init__(path)
        self._place = marks
        path.parent.mkdir(parents=True, exist_ok=True)
        self._end = self._drop_partial_line()
        self._marks, offset = Marks.load(marks, path) if marks is not None else (Marks(), 0)
        self._kept = offset
        for end, entry in self.read(offset):
            try:
                self._marks.note(entry)
            except (KeyError, TypeError, ValueError) as error:
                raise self._damaged(offset) from error
            offset = end
        self._file = path.open("ab", buffering=0)

    @property
    def began(self) -> int:
        """When the study was, in milliseconds since the epoch."""
        return self._marks.began

    def high_water(self, trial: int, replicate: int) -> int:
        """The newest step in the journal, -1 before the first."""
        return self._marks.steps.get((trial, replicate), -1)

    def last_time(self, trial: int) -> int | None:
        """When the newest record of the trial was made, in milliseconds since the epoch."""
        return self._marks.times.get(trial)

    def ended(self, trial: int | None, replicate: int | None = None) -> bool:
        """Whether the run has an `end` that nothing reopened."""
        return (trial, replicate) in self._marks.ended

    def append(self, *entries: Entry) -> None:
        """Write the entries and put them on disk before returning; after an OSError none of them is there."""
        data = "".join(map(encode, entries)).encode()
        try:
            written = 0
            while written < len(data):
                written += self._file.write(data[written:])
            os.fsync(self._file.fileno())
        except OSError:
            # Half an entry would spoil the next one, a whole one would be there twice after a second try.
            self._file.truncate(self._end)
            raise
        self._end += len(data)
        for entry in entries:
            self._marks.note(entry)
        if self._end - self._kept >= KEEP_EVERY:
            self._keep()

    def append_records(self, trial: int, replicate: int, records: Iterable[Record]) -> list[Record]:
        """Append the records above the high-water mark, and return those."""
        mark = self.high_water(trial, replicate)
        fresh = [record for record in records if record["step"] > mark]
        if fresh:
            self.append(Metrics(trial, replicate, fresh))
        return fresh

    def close(self) -> None:
        self._keep()
        self._file.close()

    def _keep(self) -> None:
        if self._place is not None:
            self._marks.save(self._place, self.path, self._end)
        self._kept = self._end

    def _drop_partial_line(self) -> int:
        """A kill in the middle of a write leaves half a line, promised to nobody. Returns the size left."""
        if not self.path.exists():
            return 0
        with self.path.open("r+b") as file:
            start, partial = file.seek(0, os.SEEK_END), b""
            while start and b"\n" not in partial:
                step = min(CHUNK, start)
                start = file.seek(start - step)
                partial = file.read(step) + partial
            end = start + partial.rfind(b"\n") + 1
            partial = partial[partial.rfind(b"\n") + 1 :]
            if not partial.startswith(BEGIN[: len(partial)]):
                raise self._damaged(end)
            if partial:
                file.truncate(end)
        return end
