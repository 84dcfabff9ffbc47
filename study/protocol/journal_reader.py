"""Following a journal that grows, from a place that the reader keeps in bytes. The writer is
`study.ledger.journal.Journal`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

from study.protocol.journal import Damaged, Entry, Newer, decode

CHUNK = 2**20


class JournalReader:
    """Reads as far as the writer says that whole entries go."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._end = 0
        self._counting = threading.Lock()
        self._counted = (0, 0, 0)
        """(from byte, up to byte, entries between them), of the newest count."""

    def read(self, offset: int = 0) -> Iterator[tuple[int, Entry]]:
        """What was appended from byte `offset` on, each entry with the offset just behind it."""
        if offset >= self._end:
            return
        with self.path.open("rb") as file:
            file.seek(offset)
            while offset < self._end:
                line = file.readline()
                try:
                    entry = decode(line)
                except Newer as error:
                    raise Newer(f"{self.path} {error}") from None
                except ValueError as error:
                    raise self._damaged(offset) from error
                offset += len(line)
                yield offset, entry

    def pending(self, offset: int) -> int:
        """How many entries there are from byte `offset` on; nothing is counted twice as offset and journal grow."""
        with self._counting:
            start, end, entries = self._counted
            if not start <= offset <= end:
                start, end, entries = offset, offset, 0
            whole = max(self._end, offset)
            entries += self._lines(end, whole) - self._lines(start, offset)
            self._counted = (offset, whole, entries)
            return entries

    def _lines(self, start: int, end: int) -> int:
        if start >= end:
            return 0
        lines = 0
        with self.path.open("rb") as file:
            file.seek(start)
            while start < end and (data := file.read(min(CHUNK, end - start))):
                lines, start = lines + data.count(b"\n"), start + len(data)
        return lines

    def begins_at(self, offset: int) -> bool:
        """Whether an entry begins at this byte, or the next one will."""
        if not 0 < offset <= self._end:
            return offset == 0
        with self.path.open("rb") as file:
            file.seek(offset - 1)
            return file.read(1) == b"\n"

    def _damaged(self, offset: int) -> Damaged:
        line = self.path.read_bytes()[:offset].count(b"\n") + 1
        return Damaged(
            f"{self.path}, line {line}: no entry of a study's journal; the file is damaged or another one: put a copy "
            "of it back, or begin anew with --fresh"
        )
