"""The study's journal: every event and every logged step, in order, once, on disk.

The ledger actor appends; tracking replays it into MLflow from where it left off, and the report reads
its curves from it. A line is one JSON object with a key `op`:

    {"op": "study", "id": study's id, "launch": token, "params": {...}, "tags": {...}, "time": ms}
    {"op": "trial", "trial": n, "replicates": number of them, "params": {...}, "tags": {...}, "time": ms}
    {"op": "replicate", "trial": n, "replicate": r, "seed": s, "tags": {...}, "time": ms}
    {"op": "metrics", "trial": n, "replicate": r, "records": [{"step": s, "time": ms, "metrics": {...}}]}
    {"op": "values", "trial": n | null, "replicate": r | null, "values": {...}, "step": s, "time": ms}
    {"op": "end", "trial": n | null, "replicate": r | null, "status": "FINISHED" | "KILLED" | "FAILED",
     "tags": {...}, "time": ms}
    {"op": "artifact", "path": path in the study's folder, "artifact_path": folder in the run, "time": ms}

The first entry is one of `study` and says whose journal it is; only what a launch begins with has an `id`.
`trial: null` is the study (MLflow's parent run), `replicate: null` the trial as a whole. `trial` and
`study` may come again after an interruption: they reopen the same run. Non-finite metrics are written
as the strings "nan", "inf" and "-inf", so that every line is standard JSON.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any


class Damaged(ValueError):
    """What is in the file is not what the ledger has put there."""


class Journal:
    """Append-only JSON lines with the high-water mark of each replicate. One process writes.

    Raises `Damaged` where the file holds anything else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._marks: dict[tuple[int, int], int] = {}
        self._times: dict[int, int] = {}
        self._ended: set[tuple[int | None, int | None]] = set()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._end = self._drop_partial_line()
        offset = 0
        for end, entry in self.read():
            try:
                self._note(entry)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
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

    def append(self, *entries: dict[str, Any]) -> None:
        """Write the entries and put them on disk before returning; after an OSError none of them is there."""
        lines = [json.dumps(_encode(entry), separators=(",", ":"), allow_nan=False) + "\n" for entry in entries]
        data = "".join(lines).encode()
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

    def append_records(self, trial: int, replicate: int, records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Append the records above the high-water mark, and return those."""
        mark = self.high_water(trial, replicate)
        fresh = [record for record in records if record["step"] > mark]
        if fresh:
            self.append({"op": "metrics", "trial": trial, "replicate": replicate, "records": fresh})
        return fresh

    def read(self, offset: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
        """What was appended from byte `offset` on, each entry with the offset just behind it."""
        if offset >= self._end:
            return
        with self.path.open("rb") as file:
            file.seek(offset)
            while offset < self._end:
                line = file.readline()
                try:
                    entry = _decode(json.loads(line))
                except (KeyError, TypeError, ValueError, AttributeError) as error:
                    raise self._damaged(offset) from error
                offset += len(line)
                yield offset, entry

    def pending(self, offset: int) -> int:
        """How many entries there are from byte `offset` on."""
        if offset >= self._end:
            return 0
        with self.path.open("rb") as file:
            file.seek(offset)
            return file.read(self._end - offset).count(b"\n")

    def begins_at(self, offset: int) -> bool:
        """Whether an entry begins at this byte, or the next one will."""
        if not 0 < offset <= self._end:
            return offset == 0
        with self.path.open("rb") as file:
            file.seek(offset - 1)
            return file.read(1) == b"\n"

    def close(self) -> None:
        self._file.close()

    def _damaged(self, offset: int) -> Damaged:
        line = self.path.read_bytes()[:offset].count(b"\n") + 1
        return Damaged(
            f"{self.path}, line {line}: no entry of a study's journal; the file is damaged or another one: put a copy "
            "of it back, or begin anew with --fresh"
        )

    def _note(self, entry: dict[str, Any]) -> None:
        match entry["op"]:
            case "metrics" if entry["records"]:
                key = (entry["trial"], entry["replicate"])
                self._marks[key] = max(self.high_water(*key), *(r["step"] for r in entry["records"]))
                self._times[entry["trial"]] = max(r["time"] for r in entry["records"])
            case "end":
                self._ended.add((entry["trial"], entry["replicate"]))
            case "study" | "trial" | "replicate":
                self._ended.discard((entry.get("trial"), entry.get("replicate")))

    def _drop_partial_line(self) -> int:
        """A kill in the middle of a write leaves half a line, promised to nobody. Returns the size left."""
        if not self.path.exists():
            return 0
        with self.path.open("r+b") as file:
            data = file.read()
            end = data.rfind(b"\n") + 1
            partial = data[end:]
            if not partial.startswith(_BEGIN[: len(partial)]):
                raise self._damaged(end)
            if partial:
                file.truncate(end)
        return end


_BEGIN = b'{"op":'
"""How every line begins."""
_NAMES = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def entries(path: Path, op: str) -> Iterator[dict[str, Any]]:
    """The entries of one kind in a journal that may be growing, half a last line left out; none without a file.

    Of the others, which may be nearly all, no more is looked at than whether they may be entries. Raises `Damaged`
    with file and line where one cannot be read.
    """
    if not path.exists():
        return
    begin, wanted = _BEGIN.decode() + '"', f'{_BEGIN.decode()}"{op}"'
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.endswith("\n"):
                return
            # A hole that a disk leaves is full of zeros.
            if line.startswith(begin) and not line.startswith(wanted) and "\0" not in line:
                continue
            entry = _entry(path, number, line)
            if entry["op"] == op:
                yield entry


def first(path: Path) -> dict[str, Any]:
    """The journal's first entry, which says whose it is; {} where there is none. Raises `Damaged`."""
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", errors="replace") as lines:
        line = lines.readline()
    return _entry(path, 1, line) if line.endswith("\n") else {}


def _entry(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        entry = _decode(json.loads(line))
        entry["op"]
    except (KeyError, TypeError, ValueError, AttributeError):
        raise Damaged(f"{path}, line {number}: no entry of a study's journal; the file is damaged") from None
    return entry


def _encode(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {key: _encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encode(item) for item in value]
    return value


def _decode(entry: dict[str, Any]) -> dict[str, Any]:
    for record in entry.get("records", ()):
        record["metrics"] = {k: _NAMES.get(v, v) if isinstance(v, str) else v for k, v in record["metrics"].items()}
    if "values" in entry:
        entry["values"] = {k: _NAMES.get(v, v) if isinstance(v, str) else v for k, v in entry["values"].items()}
    return entry
