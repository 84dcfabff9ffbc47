"""The writer of a study's journal: every event and every logged step, in order, once, on disk.

The ledger actor appends; the tracker replays it into MLflow from where it left off, and the report reads its curves
from it. What its lines hold is in `study.protocol.journal`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from study.protocol.journal import (
    BEGIN,
    Ended,
    Entry,
    Metrics,
    ReplicateBegun,
    StudyBegun,
    TrialBegun,
    encode,
)
from study.protocol.journal_reader import JournalReader
from trainables.context import Record


class Journal(JournalReader):
    """Append-only JSON lines with the high-water mark of each replicate. One process writes.

    Raises `Damaged` where the file holds anything else, `Newer` where it is of a later format.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._marks: dict[tuple[int, int], int] = {}
        self._times: dict[int, int] = {}
        self._ended: set[tuple[int | None, int | None]] = set()
        self.began = 0
        """When the study was, in milliseconds since the epoch."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._end = self._drop_partial_line()
        offset = 0
        for end, entry in self.read():
            try:
                self._note(entry)
            except (KeyError, TypeError, ValueError) as error:
                raise self._damaged(offset) from error
            offset = end
        self._file = path.open("ab", buffering=0)

    def high_water(self, trial: int, replicate: int) -> int:
        """The newest step in the journal, -1 before the first."""
        return self._marks.get((trial, replicate), -1)

    def last_time(self, trial: int) -> int | None:
        """When the newest record of the trial was made, in milliseconds since the epoch."""
        return self._times.get(trial)

    def ended(self, trial: int | None, replicate: int | None = None) -> bool:
        """Whether the run has an `end` that nothing reopened."""
        return (trial, replicate) in self._ended

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
            self._note(entry)

    def append_records(self, trial: int, replicate: int, records: Iterable[Record]) -> list[Record]:
        """Append the records above the high-water mark, and return those."""
        mark = self.high_water(trial, replicate)
        fresh = [record for record in records if record["step"] > mark]
        if fresh:
            self.append(Metrics(trial, replicate, fresh))
        return fresh

    def close(self) -> None:
        self._file.close()

    def _note(self, entry: Entry) -> None:
        match entry:
            case Metrics(trial, replicate, records) if records:
                mark = self.high_water(trial, replicate)
                self._marks[trial, replicate] = max(mark, *(record["step"] for record in records))
                self._times[trial] = max(record["time"] for record in records)
            case Ended():
                self._ended.add((entry.trial, entry.replicate))
            case StudyBegun() | TrialBegun() | ReplicateBegun():
                self.began = self.began or entry.time
                self._ended.discard((entry.trial, entry.replicate))

    def _drop_partial_line(self) -> int:
        """A kill in the middle of a write leaves half a line, promised to nobody. Returns the size left."""
        if not self.path.exists():
            return 0
        with self.path.open("r+b") as file:
            data = file.read()
            end = data.rfind(b"\n") + 1
            partial = data[end:]
            if not partial.startswith(BEGIN[: len(partial)]):
                raise self._damaged(end)
            if partial:
                file.truncate(end)
        return end
