"""Databases before they are used: whether an SQLite file is whole, and how long a driver waits for a server."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import sqlalchemy

from trainables.errors import one_line, told

SQLITE_HEADER = b"SQLite format 3\x00"


def check_sqlite(path: Path, *, thoroughly: bool = True) -> set[str]:
    """The tables of an SQLite database, none where there is no file yet; ValueError where it is not a whole one.

    `thoroughly` reads all of it. The message goes on where the caller has named the file.
    """
    if not path.exists():
        return set()
    if not path.is_file():
        raise ValueError(f"it is {kind_of(path)}, not a file")
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


def patience(url: str) -> dict[str, object]:
    """Arguments for the driver of a database: a server that is unreachable is an error after seconds, not minutes."""
    if sqlalchemy.make_url(url).drivername in ("postgresql+psycopg2", "postgresql+psycopg"):
        return {"connect_timeout": 5, "tcp_user_timeout": 10_000, "keepalives_idle": 5, "keepalives_interval": 2,
                "keepalives_count": 3}  # fmt: skip
    return {"timeout": 5.0} if sqlalchemy.make_url(url).drivername == "sqlite" else {}


def kind_of(path: Path) -> str:
    """What is at a path that should be a file and is none, in words."""
    if path.is_dir():
        return "a folder"
    return "something else" if path.exists() else "a link to nothing"
