"""Whose folder is it? A study's id is in all that it writes, and what disagrees with the ledger is refused.

    study.json                    the id, and the host and path of the folder when it was last used
    journal.jsonl                 the id and a token of each launch, in its entries of the study, the first one included
    trials/N/replicate-R/...      the id, in result.json and in the manifest of each checkpoint
    MLflow's run of the study     the id, and token, host and path of the newest launch, as tags

A folder that was moved is carried on. A copy is refused while the folder that it came from still holds the id. What
cannot be looked at, a folder of another host, is told by the newest launch: a folder whose journal does not know it
has been overtaken by another one. Folders of earlier versions have no ids; they get them at their first opening, if
their trials are those of the ledger.
"""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from study.ledger.optuna_study import Refused
from study.ledger.trial_record import TrialRecord
from study.protocol.folder import ReplicateFolder, StudyFolder
from study.protocol.journal import StudyBegun, TrialBegun
from trainables.checkpoints import RESULT, problem_of, whole_result
from trainables.files import write_whole

LAUNCH, HOST, FOLDER = "study.launch", "study.host", "study.folder"
"""Tags of MLflow's run of a study."""


@dataclass(frozen=True)
class Launch:
    """Where a study was run, and which time it was."""

    token: str
    host: str
    folder: str

    @classmethod
    def of(cls, tags: Mapping[str, str]) -> Launch | None:
        """The launch that these tags tell of, if any."""
        return cls(tags[LAUNCH], tags.get(HOST, "?"), tags.get(FOLDER, "?")) if LAUNCH in tags else None

    @property
    def tags(self) -> dict[str, str]:
        return {LAUNCH: self.token, HOST: self.host, FOLDER: self.folder}


def check(storage: StudyFolder, study_id: str | None, name: str, ledger: str) -> None:
    """Raise `Refused` unless the folder is that of the study of this id, or nobody's; writes nothing.

    `study_id` is None where the ledger, shown as `ledger`, has no study of this name yet.
    """
    has = f"the ledger {ledger} has {study_id} under this name" if study_id else f"the ledger {ledger} has no {name}"
    advice = "name the --storage and the --ledger that belong together, or another --storage to begin anew"
    for where, found in (
        ("", _recorded(storage).get("id")),
        (f"/{storage.journal.name}", _begun(storage)),
    ):
        if found is not None and found != study_id:
            raise Refused(f"--storage {storage}{where} belongs to study {found}, but {has}; {advice}")
    if study_id is None and next(_trials(storage), None) is not None:
        raise Refused(f"--storage {storage} holds trials of a study without id, but {has}; {advice}")
    if study_id is not None:
        _check_copy(storage, study_id)


def check_launch(storage: StudyFolder, study_id: str, newest: Launch | None, where: str, way_out: str = "") -> None:
    """Raise `Refused` where the `newest` launch, known from `where`, was that of another folder with this id."""
    if newest is None or newest.token in launches(storage):
        return
    other = Path(newest.folder)
    if newest.host == socket.gethostname() and not _still_in(other, storage, study_id, unseen=True):
        return
    raise Refused(
        f"--storage {storage} is an older copy: the study {study_id} was carried on in {other} on {newest.host}, as "
        f"{where} tells; carry on there{way_out}"
    )


def launches(storage: StudyFolder) -> set[str]:
    """Tokens of all launches that the folder's journal knows."""
    return {begun.launch for begun in storage.entries(StudyBegun) if begun.launch is not None}


def take(storage: StudyFolder, study_id: str, rows: Mapping[int, TrialRecord]) -> None:
    """Put the id into the folder, after a look at what it holds; raises `Refused` where that is of another study.

    `rows` are the ledger's trials, with which those of the folder have to agree.
    """
    nameless = _recorded(storage).get("id") is None and _begun(storage) is None
    _check_trials(storage, study_id, rows, nameless)
    if nameless:
        for folder in _trials(storage):
            _stamp(folder, study_id)
    for folder in _trials(storage):
        if rows[folder.trial].state.ended:
            continue
        for path in folder.stamped():
            content = _content(path)
            if content is None or content.get("study") == study_id or not _whole(path):
                # What is damaged is passed over by the trial, too.
                continue
            whose = f"study {content['study']}" if content.get("study") else "no study"
            raise Refused(
                f"{path} belongs to {whose}, but trial {folder.trial} is one of {study_id}; move it elsewhere"
            )
    place = {"id": study_id, "host": socket.gethostname(), "folder": str(storage)}
    if _recorded(storage) != place:
        write_whole(storage.identity, json.dumps(place))


def _check_copy(storage: StudyFolder, study_id: str) -> None:
    """What is not in reach, of another host or another user, is left to `check_launch`."""
    recorded = _recorded(storage).get("folder")
    if recorded is not None and _still_in(Path(recorded), storage, study_id, unseen=False):
        raise Refused(
            f"--storage {storage} is a copy of {recorded}, which still holds the study {study_id}: carry on there, "
            "or remove that folder first"
        )


def _check_trials(storage: StudyFolder, study_id: str, rows: Mapping[int, TrialRecord], nameless: bool) -> None:
    """The trials of the journal and of the folder are those of the ledger, where a trial is before it is anywhere else.

    Of a `nameless` folder the journal has to have all trials, and the ledger their results.
    """

    def refuse(number: int, what: str) -> Refused:
        if nameless:
            return Refused(
                f"--storage {storage} has no id, and is not the folder of study {study_id}: trial {number} {what}; "
                "name the folder that the study was begun in, or another ledger"
            )
        return Refused(
            f"--storage {storage} knows more of study {study_id} than the ledger, which must be an older copy: trial "
            f"{number} {what}; put the newer ledger back, or begin anew with another --storage"
        )

    journal = _params(storage)
    for number, params in journal.items():
        if number not in rows:
            raise refuse(number, "of its journal is not in the ledger")
        if not rows[number].state.ended and not rows[number].planned_steps:
            raise refuse(number, "of its journal has no parameters yet in the ledger")
        for key, value in rows[number].params.items():
            if params.get(key) != value:
                raise refuse(number, f"has {key}={params.get(key)!r} in its journal and {value!r} in the ledger")
    for folder in _trials(storage):
        number = folder.trial
        if number not in rows:
            raise refuse(number, f"has the folder {storage.inside(folder.path)}, and is not in the ledger")
        if not nameless:
            continue
        if number not in journal:
            raise refuse(number, "is not in its journal")
        path, told = folder.result, rows[number].replicates
        result = whole_result(path.read_bytes(), path) if path.exists() else None
        replicate = folder.number
        if result is not None and replicate < len(told) and not _equal(result["values"], told[replicate].values):
            raise refuse(number, f"has other values in {storage.inside(path)} than in the ledger")


def _stamp(folder: ReplicateFolder, study_id: str) -> None:
    """Put the id into what a replicate wrote before there were ids."""
    for path in folder.stamped():
        content = _content(path)
        if content is not None and "study" not in content:
            write_whole(path, json.dumps(content | {"study": study_id}))


def _params(storage: StudyFolder) -> dict[int, dict[str, Any]]:
    """Number -> parameters of each trial in the journal."""
    return {begun.trial: begun.params for begun in storage.entries(TrialBegun)}


def _begun(storage: StudyFolder) -> str | None:
    """The study's id in the folder's journal."""
    begun = storage.first_entry()
    return begun.id if begun else None


def _trials(storage: StudyFolder) -> Iterator[ReplicateFolder]:
    """Folders of replicates that hold something of use."""
    return (folder for folder in storage.replicates() if folder.used)


def _content(path: Path) -> dict[str, Any] | None:
    """What a file of a replicate says; None for a damaged one."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _whole(path: Path) -> bool:
    """Whether a result, or the checkpoint of a manifest, is one that the replicate would go on with."""
    if path.name == RESULT:
        return whole_result(path.read_bytes(), path) is not None
    return problem_of(path.parent) is None


def _recorded(storage: StudyFolder) -> dict[str, str]:
    """The content of the folder's `study.json`; {} where there is none."""
    path = storage.identity
    try:
        content = json.loads(path.read_bytes())
        if not isinstance(content, dict) or not all(isinstance(value, str) for value in content.values()):
            raise ValueError("it is not what a study has written")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except ValueError as error:
        raise Refused(f"{path} cannot be read ({error}); restore it from a copy, or remove it") from error
    return content


def _still_in(other: Path, storage: StudyFolder, study_id: str, unseen: bool) -> bool:
    """Whether a folder other than `storage` holds the study; `unseen` where only its owner may look into it."""
    try:
        same = other == storage.path or (other.exists() and other.samefile(storage.path))
        return not same and _recorded(StudyFolder(other)).get("id") == study_id
    except PermissionError:
        return unseen


def _equal(one: Mapping[str, float] | None, other: Mapping[str, float | None]) -> bool:
    """Whether both hold the same numbers; the ledger has null for one that is not finite."""

    def plain(values: Mapping[str, float | None] | None) -> dict[str, float | None]:
        return {k: v if v is not None and math.isfinite(v) else None for k, v in (values or {}).items()}

    return plain(one) == plain(other)
