"""Where a study is recorded, as a URI: in one form, its file if it has one, and without its secrets."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from urllib.parse import quote, unquote

SQLITE = re.compile(r"sqlite(?:\+\w+)?://(?:/([^?]*))?")
NO_FILE = ("", ":memory:")
"""Names of SQLite databases that nobody finds again."""
TRACKING_FILE = "mlflow.db"
"""An SQLite store of runs, beside the folders of the studies that share it."""
DEFAULT_TRACKING = f"sqlite:///studies/{TRACKING_FILE}"
"""Where studies on this machine are recorded, unless another place is named."""
CREDENTIALS = re.compile(r"://([^/\s:@]*):(.*)@")


def redacted(uri: str) -> str:
    """The URI without its passwords, for screens, logs and files.

    A password that should have been quoted is hidden too, at the price of what an `@` behind it stands for.

    >>> redacted("postgresql://me:se/c@ret@host/runs?password=secret&sslmode=require")
    'postgresql://me:***@host/runs?password=***&sslmode=require'
    """
    return re.sub(r"(?<=password=)[^&\s]+", "***", CREDENTIALS.sub(r"://\1:***@", uri))


def anonymous(uri: str) -> str:
    """The URI without passwords and without the user's name, which may be a token: for what is passed around.

    >>> anonymous("https://token@host/runs?password=secret")
    'https://***@host/runs?password=***'
    """
    return re.sub(r"://[^/?#]*@", "://***@", redacted(uri))


VIEWER = "http://127.0.0.1:5000"
"""Where `mlflow ui` shows a store, unless it is told otherwise."""


def viewer(uri: str) -> str:
    """Where recorded runs can be looked at: the server's address, or the command that shows a store.

    >>> viewer("sqlite:///studies/mlflow.db")
    'mlflow ui --backend-store-uri sqlite:///studies/mlflow.db'
    """
    shown = anonymous(uri)
    return shown if _served(uri) else f"mlflow ui --backend-store-uri {shlex.quote(shown)}"


def runs_page(uri: str, page: str | None) -> str:
    """The address of the page with a study's runs, on its server or on the viewer of its store.

    `page` is what stands behind the address of either; None is their first page.

    >>> runs_page("http://me:secret@host:5000/", "#/experiments/1/runs"), runs_page("sqlite:///mlflow.db", None)
    ('http://***@host:5000/#/experiments/1/runs', 'http://127.0.0.1:5000')
    """
    place = anonymous(uri).rstrip("/") if _served(uri) else VIEWER
    return f"{place}/{page}" if page else place


def _served(uri: str) -> bool:
    return uri.startswith(("http://", "https://"))


def check_quoted(uri: str) -> None:
    """Raise ValueError where a password would be taken for a host, which every message would show."""
    found = CREDENTIALS.search(uri)
    if found and set(found[2]) & set("@/?#"):
        raise ValueError("write @ in a password as %40, / as %2F, ? as %3F and # as %23")


def with_driver(url: str) -> str:
    """A PostgreSQL URL names psycopg2, unless it names another driver.

    Otherwise it would be SQLAlchemy's version that decides: psycopg2 up to 2.0, psycopg from 2.1 on.
    """
    return re.sub("^postgresql://", "postgresql+psycopg2://", url)


def sqlite_uri(path: Path) -> str:
    """The URI of an SQLite file, whatever signs its path has.

    >>> sqlite_uri(Path("/data/50%41/what?/ledger.db"))
    'sqlite:////data/50%2541/what%3F/ledger.db'
    """
    return "sqlite:///" + quote(str(path))


def absolute_uri(uri: str) -> str:
    """The URI of the same place from any working folder, for any version of SQLAlchemy."""
    path = sqlite_path(uri)
    if path is None:
        return with_driver(uri)
    if path.name in NO_FILE:
        return uri
    place, mark, settings = uri.partition("?")
    return f"{place.partition('://')[0]}:///{quote(str(path.absolute()))}{mark}{settings}"


def sqlite_path(uri: str) -> Path | None:
    """The file of an SQLite URI, with its driver or without; None for another kind of store.

    >>> sqlite_path("sqlite+pysqlite:///my%20runs.db?timeout=9"), sqlite_path("postgresql://host/runs")
    (PosixPath('my runs.db'), None)
    """
    found = SQLITE.match(uri)
    return Path(unquote(found[1] or "")) if found else None
