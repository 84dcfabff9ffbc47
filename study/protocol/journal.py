"""The format of a study's journal: the kinds of its entries, and how each is a line.

A line is one JSON object. Its first key `op` says which kind of entry it is, the others are that kind's fields:

    study      a launch begins, perhaps not the first one; the only kind that says the `format`
    inputs     what reading the study's inputs brought
    trial      a trial is handed out, perhaps not for the first time
    replicate  a replicate begins, or is carried on
    metrics    what a replicate measured, step by step
    values     figures of a replicate, of a trial as a whole, or of the study
    end        a replicate, a trial or the study has ended
    artifact   a file or folder to keep with the study
    answer     what the study has found, in words
    model      the finished model of a trial, to be kept so that others can open it

The first line is one of `study`, and says whose journal it is. `trial: null` is the study, `replicate: null` the trial
as a whole. An entry that begins something reopens what an `end` closed. Numbers that are not finite are the strings
"nan", "inf" and "-inf", so that every line is standard JSON.

Format 1 had the words of a tracking server: a status instead of a state, names of runs and of commits among the tags.
Its lines are read as if they were of format 2, one by one, so that a journal may begin with them and go on with others.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from study.protocol.states import ReplicateState, StudyStatus, TrialState
from trainables.context import Record

FORMAT = 2
"""The format that is written; a journal of a higher one is refused."""

Ending = TrialState | ReplicateState | StudyStatus


class Unreadable(ValueError):
    """The journal cannot be read; the message says where and why."""


class Damaged(Unreadable):
    """What is in the file is not what the ledger has put there."""


class Newer(Unreadable):
    """The journal is of a later format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyBegun:
    """A launch begins. `id`, `launch` and `name` are None where a version before them wrote it."""

    op: ClassVar[str] = "study"
    trial: ClassVar[None] = None
    replicate: ClassVar[None] = None
    id: str | None = None
    launch: str | None = None
    """Token that no other launch has."""
    name: str | None = None
    """How people call the study's run."""
    params: dict[str, Any] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    """Where the figures come from and what was run; `git.commit` and the like."""
    time: int
    """When the launch began, in milliseconds since the epoch; so is `time` in every other entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputsRead:
    """Names, sizes and digests of the study's inputs."""

    op: ClassVar[str] = "inputs"
    trial: ClassVar[None] = None
    replicate: ClassVar[None] = None
    tags: dict[str, str]
    time: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialBegun:
    """A trial is handed out: its whole config as flat `params`."""

    op: ClassVar[str] = "trial"
    replicate: ClassVar[None] = None
    trial: int
    name: str | None = None
    replicates: int = 1
    """How many replicates the trial has."""
    params: dict[str, Any] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    time: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicateBegun:
    """A replicate begins, with facts about its data among the tags."""

    op: ClassVar[str] = "replicate"
    trial: int
    replicate: int
    name: str | None = None
    seed: int
    tags: dict[str, str] = field(default_factory=dict)
    time: int


@dataclass(frozen=True, slots=True)
class Metrics:
    """Steps of one replicate, in order."""

    op: ClassVar[str] = "metrics"
    trial: int
    replicate: int
    records: list[Record]


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """Figures that belong to no step alone, as of `step`."""

    op: ClassVar[str] = "values"
    trial: int | None = None
    replicate: int | None = None
    values: dict[str, float]
    step: int = 0
    time: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A replicate, a trial or the study has ended: `state` is of the enumeration of what ended."""

    op: ClassVar[str] = "end"
    trial: int | None = None
    replicate: int | None = None
    state: Ending
    reason: str | None = None
    attempts: int | None = None
    """Gangs that took the trial over; None for what is no trial."""
    time: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """The file or folder at `path`, in the study's folder, belongs in the folder `place` of what a tracker keeps."""

    op: ClassVar[str] = "artifact"
    trial: ClassVar[None] = None
    replicate: ClassVar[None] = None
    path: str
    place: str
    time: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What the study has found, as its report says it; `report` is the artifact that says more, or None."""

    op: ClassVar[str] = "answer"
    trial: ClassVar[None] = None
    replicate: ClassVar[None] = None
    answer: str
    report: str | None = None
    time: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The finished model of a trial is in the folder at `path`, in the study's folder."""

    op: ClassVar[str] = "model"
    replicate: ClassVar[None] = None
    trial: int
    path: str
    step: int
    """Training steps behind it."""
    register: str | None = None
    """Name under which a registry has it, or None."""
    time: int


Entry = StudyBegun | InputsRead | TrialBegun | ReplicateBegun | Metrics | Values | Ended | Artifact | Answered | Model
E = TypeVar("E", StudyBegun, InputsRead, TrialBegun, ReplicateBegun, Metrics, Values, Ended, Artifact, Answered, Model)

BEGIN = b'{"op":'
"""How every line begins."""
_BEGIN_KIND = BEGIN.decode() + '"'


def encode(entry: Entry) -> str:
    """The entry as a line, with its end.

    >>> encode(Artifact(path="report.html", place="report", time=5))
    '{"op":"artifact","path":"report.html","place":"report","time":5}\\n'
    """
    line: dict[str, Any] = {"op": entry.op}
    if isinstance(entry, StudyBegun):
        line["format"] = FORMAT
    line |= {name: getattr(entry, name) for name in entry.__slots__}
    try:
        return json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n"
    except ValueError:
        return json.dumps(_named(line), separators=(",", ":"), allow_nan=False) + "\n"


def decode(line: str | bytes) -> Entry:
    """The entry that the line is.

    Raises `Newer` for one of a later format, and ValueError for what is no entry; neither names the file.

    >>> decode('{"op":"metrics","trial":0,"replicate":1,"records":[{"step":3,"time":5,"metrics":{"loss":"nan"}}]}')
    Metrics(trial=0, replicate=1, records=[{'step': 3, 'time': 5, 'metrics': {'loss': nan}}])
    >>> decode('{"op":"end","trial":0,"replicate":null,"status":"KILLED","tags":{"state":"pruned"},"time":5}').state
    <TrialState.PRUNED: 'pruned'>
    """
    try:
        fields = json.loads(line)
        return _KINDS[fields.pop("op")](fields)
    except Newer:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError("no entry of a study's journal") from error


def read(path: Path, kind: type[E]) -> Iterator[E]:
    """The entries of one kind in a journal that may be growing, half a last line left out; none without a file.

    Of the others, which may be nearly all, no more is looked at than whether they may be entries. Raises `Unreadable`
    with file and line where one cannot be read.
    """
    if not path.exists():
        return
    # A launch says of which format the lines behind it are.
    wanted = tuple(f'{_BEGIN_KIND}{op}"' for op in (kind.op, StudyBegun.op))
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.endswith("\n"):
                return
            # A hole that a disk leaves is full of zeros.
            if line.startswith(_BEGIN_KIND) and not line.startswith(wanted) and "\0" not in line:
                continue
            entry = _decoded(path, number, line)
            if isinstance(entry, kind):
                yield entry


def first(path: Path) -> StudyBegun | None:
    """What the journal begins with, which says whose it is; None where that is nothing. Raises `Unreadable`."""
    if not path.exists():
        return None
    with path.open(encoding="utf-8", errors="replace") as lines:
        line = lines.readline()
    entry = _decoded(path, 1, line) if line.endswith("\n") else None
    return entry if isinstance(entry, StudyBegun) else None


def _decoded(path: Path, number: int, line: str) -> Entry:
    try:
        return decode(line)
    except Newer as error:
        raise Newer(f"{path} {error}") from None
    except ValueError:
        raise Damaged(f"{path}, line {number}: no entry of a study's journal; the file is damaged") from None


# --- numbers -------------------------------------------------------------------------------------

_NUMBERS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def _named(value: Any) -> Any:
    """The value with names for numbers that JSON has not."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {key: _named(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_named(item) for item in value]
    return value


def _numbers(values: dict[str, Any]) -> dict[str, Any]:
    """The values with numbers for the names of some."""
    return {name: _NUMBERS.get(value, value) if type(value) is str else value for name, value in values.items()}


# --- from a line's fields to an entry ------------------------------------------------------------


# A line of format 1 is told by what it lacks: `format`, `name`, `state` or `place`.


def _study(fields: dict[str, Any]) -> StudyBegun | InputsRead:
    written = fields.pop("format", 1)
    if written > FORMAT:
        raise Newer(
            f"has format {written}, this version reads {FORMAT}: use the newer version it was written with, or begin "
            "anew with --fresh"
        )
    if written == 1:
        tags = _own(fields.pop("tags", {}))
        if fields.keys() <= {"params", "time"} and not fields.get("params") and "name" not in tags:
            return InputsRead(tags=tags, time=fields["time"])
        fields |= {"name": tags.pop("name", None), "tags": tags}
    return StudyBegun(**fields)


def _trial(fields: dict[str, Any]) -> TrialBegun:
    return TrialBegun(**_called(fields))


def _replicate(fields: dict[str, Any]) -> ReplicateBegun:
    return ReplicateBegun(**_called(fields))


def _called(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields with the name of the run, which was a tag of format 1."""
    if "name" not in fields:
        tags = _own(fields.get("tags", {}))
        fields |= {"name": tags.pop("name", None), "tags": tags}
    return fields


def _metrics(fields: dict[str, Any]) -> Metrics:
    records = fields["records"]
    for record in records:
        record["metrics"] = _numbers(record["metrics"])
    return Metrics(fields["trial"], fields["replicate"], records)


def _values(fields: dict[str, Any]) -> Values:
    fields["values"] = _numbers(fields["values"])
    return Values(**fields)


def _end(fields: dict[str, Any]) -> Ended:
    states = StudyStatus if fields["trial"] is None else TrialState if fields["replicate"] is None else ReplicateState
    if "status" in fields:
        status, tags = fields.pop("status"), fields.pop("tags", {})
        word = tags.get("state") or _STATES_1.get(status, "stopped" if states is ReplicateState else "interrupted")
        attempts = tags.get("attempts")
        fields |= {
            "state": "finished" if word == "complete" and states is StudyStatus else word,
            "reason": tags.get("stop.reason"),
            "attempts": None if attempts is None else int(attempts),
        }
    fields["state"] = states(fields["state"])
    return Ended(**fields)


def _artifact(fields: dict[str, Any]) -> Artifact:
    if "place" not in fields:
        fields["place"] = fields.pop("artifact_path")
    return Artifact(**fields)


_KINDS: dict[str, Callable[[dict[str, Any]], Entry]] = {
    "study": _study,
    "inputs": lambda fields: InputsRead(**fields),
    "trial": _trial,
    "replicate": _replicate,
    "metrics": _metrics,
    "values": _values,
    "end": _end,
    "artifact": _artifact,
    "answer": lambda fields: Answered(**fields),
    "model": lambda fields: Model(**fields),
}

# --- words of format 1 ---------------------------------------------------------------------------

_STATES_1 = {"FINISHED": "complete", "FAILED": "failed"}
"""What a status of an `end` without a state says."""
_TAGS_1 = {
    "runName": "name", "user": "user", "source.name": "source", "source.type": "source.type",
    "source.git.commit": "git.commit",
}  # fmt: skip
"""What stood behind the tracking server's own prefix -> the word for it now."""


def _own(tags: dict[str, str]) -> dict[str, str]:
    """Tags of format 1 in the words of this project; a trial's state, which was `running` in all of them, left out."""
    named = {_TAGS_1.get(name.partition(".")[2], name): text for name, text in tags.items()}
    named.pop("state", None)
    return named
