"""What a launch finds in the folder of a study: can it be used? Asked before anything is started."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from trainables.errors import one_line, told

if TYPE_CHECKING:
    from study.protocol.folder import StudyFolder

SQLITE_HEADER = b"SQLite format 3\x00"


def check(storage: StudyFolder) -> None:
    """Raise ValueError that names the first thing in a study's folder that this process cannot use."""
    try:
        for path in _folders(storage):
            if not path.is_dir():
                raise ValueError(f"{path} is a file where a study has a folder; move it away")
            if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
                raise PermissionError(13, "Permission denied", str(path))
        written_on = _written_on(storage)
        for path in (*written_on, *_views(storage)):
            if not path.is_file():
                raise ValueError(f"{path} is {_kind(path)} where a study has a file; move it away")
        for path in written_on:
            path.open("r+b").close()
    except OSError as error:
        raise ValueError(
            f"--storage {storage} cannot be used: {told(error)}; make everything in it yours to read and write, or "
            "name a folder you own"
        ) from error


def check_sqlite(path: Path, *, thoroughly: bool = True) -> set[str]:
    """The tables of an SQLite database, none where there is no file yet; ValueError where it is not a whole one.

    `thoroughly` reads all of it. The message goes on where the caller has named the file.
    """
    if not path.exists():
        return set()
    if not path.is_file():
        raise ValueError(f"it is {_kind(path)}, not a file")
    try:
        with path.open("r+b") as file:
            header = file.read(len(SQLITE_HEADER))
        if header not in (b"", SQLITE_HEADER):
            # A few bytes of something else would be an empty database to SQLite, and overwritten.
            raise ValueError("it is no SQLite database")
        with closing(sqlite3.connect(path, timeout=5)) as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            found = database.execute("PRAGMA quick_check(1)").fetchone()[0] if thoroughly else "ok"
    except OSError as error:
        raise ValueError(f"it cannot be opened ({told(error)})") from error
    except sqlite3.OperationalError as error:
        raise ValueError(f"it cannot be used now ({error}): something else has it open, or its disk fails") from error
    except sqlite3.DatabaseError as error:
        raise ValueError(f"it is damaged ({error})") from error
    if found != "ok":
        raise ValueError(f"it is damaged ({one_line(found)})")
    return tables


def _folders(storage: StudyFolder) -> list[Path]:
    """The folders that are there."""
    replicates = [replicate.path for replicate in storage.replicates()]
    trials = [trial.path for trial in storage.all_trials()]
    return _there(storage.path, storage.logs, storage.cache, storage.trials, *trials, *replicates)


def _written_on(storage: StudyFolder) -> list[Path]:
    """The files that are there, and that a launch opens and goes on with."""
    attempts = [replicate.attempt for replicate in storage.replicates()]
    own = (storage.lock, storage.ledger_lock, storage.database, storage.journal)
    return _there(*own, *storage.all_logs(), *attempts)


def _views(storage: StudyFolder) -> list[Path]:
    """The files that are there, and are written anew as a whole, whatever they were."""
    results = [replicate.result for replicate in storage.replicates()]
    return _there(storage.summary, storage.tracking, storage.report, *results)


def _there(*paths: Path) -> list[Path]:
    """A link to nothing is there, too."""
    return [path for path in paths if os.path.lexists(path)]


def _kind(path: Path) -> str:
    if path.is_dir():
        return "a folder"
    return "something else" if path.exists() else "a link to nothing"
