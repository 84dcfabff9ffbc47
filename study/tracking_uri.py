"""Is this a tracking URI that a study can be recorded at? Answered in seconds, without importing MLflow."""

from __future__ import annotations

import errno
import os
import re
import socket
from configparser import ConfigParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, quote, unquote, urlsplit

from study.files import check_sqlite
from trainables.errors import told

if TYPE_CHECKING:
    import requests

SQLITE = "sqlite:///"
DATABASES = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
"""Default port of each database server that MLflow can keep its records in."""
ACCEPTED = "sqlite:////absolute/path/mlflow.db, http(s)://HOST:PORT or postgresql|mysql|mssql://USER@HOST/DATABASE"
CREDENTIALS = re.compile(r"://([^/\s:@]*):(.*)@")


def masked(uri: str) -> str:
    """The URI without its passwords, for screens, logs and files.

    A password that should have been quoted is hidden too, at the price of what an `@` behind it stands for.

    >>> masked("postgresql://me:se/c@ret@host/runs?password=secret&sslmode=require")
    'postgresql://me:***@host/runs?password=***&sslmode=require'
    """
    return re.sub(r"(?<=password=)[^&\s]+", "***", CREDENTIALS.sub(r"://\1:***@", uri))


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
    """The address of an SQLite file, whatever signs its path has.

    >>> sqlite_uri(Path("/data/50%41/what?/ledger.db"))
    'sqlite:////data/50%2541/what%3F/ledger.db'
    """
    return SQLITE + quote(str(path))


def absolute_uri(uri: str) -> str:
    """The same place seen from any working folder and by any SQLAlchemy."""
    if not uri.startswith(SQLITE):
        return with_driver(uri)
    _, mark, settings = uri.partition("?")
    return sqlite_uri(sqlite_path(uri).absolute()) + mark + settings


def sqlite_path(uri: str) -> Path:
    """The file of a `sqlite:///` URI."""
    return Path(unquote(uri.removeprefix(SQLITE).partition("?")[0]))


def check_uri(uri: str, timeout_s: float = 3.0) -> None:
    """Refuse a URI that cannot work, before anything is started.

    An SQLite file is checked on disk and its folder created. A server is asked once whether it is alive
    and once whether it lets us in, a database server whether its port is open; each may take `timeout_s`
    seconds to answer. Raises ValueError that names the URI (without its password) and what is accepted.
    """
    try:
        check_quoted(uri)
    except ValueError as error:
        raise ValueError(f"tracking URI {masked(uri)!r}: {error}") from error
    scheme = _parts(uri).scheme.partition("+")[0]
    if uri.startswith(SQLITE):
        _check_sqlite(uri)
    elif scheme in ("http", "https"):
        _check_server(uri, timeout_s)
    elif scheme in DATABASES:
        _check_database(uri, DATABASES[scheme], timeout_s)
    elif scheme in ("", "file"):
        raise ValueError(
            f"tracking URI {uri!r} names no database or server (MLflow no longer writes to folders); "
            f"accepted: {ACCEPTED}"
        )
    else:
        raise ValueError(f"tracking URI {masked(uri)!r} has an unknown scheme; accepted: {ACCEPTED}")


def _parts(uri: str) -> SplitResult:
    try:
        parts = urlsplit(uri)
        # Read, because only that shows whether it is a number.
        _ = parts.port
    except ValueError as error:
        raise ValueError(f"tracking URI {masked(uri)!r} is no URI ({error}); accepted: {ACCEPTED}") from None
    return parts


def _check_sqlite(uri: str) -> None:
    path = sqlite_path(uri)
    if path.name in ("", ":memory:"):
        raise ValueError(f"tracking URI {uri!r} names no file; accepted: {ACCEPTED}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        tables = check_sqlite(path, thoroughly=False)
        if tables and "experiments" not in tables:
            raise ValueError("it is a database of something else, without MLflow's tables")
        if not os.access(path.parent, os.W_OK):
            raise PermissionError(errno.EACCES, "Permission denied", str(path.parent))
    except (OSError, ValueError) as error:
        raise ValueError(f"tracking URI {uri!r} cannot be opened: {told(error)}; name another file") from error


def _check_database(uri: str, port: int, timeout_s: float) -> None:
    parts = _parts(uri)
    if not parts.hostname or not parts.path.strip("/"):
        raise ValueError(f"tracking URI {masked(uri)!r} lacks a host or a database; accepted: {ACCEPTED}")
    try:
        socket.create_connection((parts.hostname, parts.port or port), timeout_s).close()
    except OSError as error:
        raise ValueError(f"no database server answers at tracking URI {masked(uri)!r}: {told(error)}") from error


def _check_server(uri: str, timeout_s: float) -> None:
    if not _parts(uri).hostname:
        raise ValueError(f"tracking URI {masked(uri)!r} lacks a host; accepted: {ACCEPTED}")
    # /health is open to everybody, so the second question is one that needs a permission.
    for path in ("/health", "/api/2.0/mlflow/experiments/search?max_results=1"):
        answer = get(uri, path, timeout_s)
        if answer.status_code in (401, 403):
            raise ValueError(
                f"the server at tracking URI {masked(uri)!r} refuses us ({answer.status_code}: "
                f"{answer.text.strip()[:200]}); set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, "
                "or MLFLOW_TRACKING_TOKEN"
            )
        if answer.status_code >= 500:
            raise ValueError(f"the server at tracking URI {masked(uri)!r} is failing ({answer.status_code})")
    if answer.status_code != 200 or "json" not in answer.headers.get("content-type", ""):
        raise ValueError(f"the server at tracking URI {masked(uri)!r} is not an MLflow server ({answer.status_code})")


def get(uri: str, path: str, timeout_s: float) -> requests.Response:
    """The answer of an MLflow server, asked as its client asks; ValueError where there is none in time."""
    import requests

    insecure = os.environ.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() in ("true", "1")
    token = os.environ.get("MLFLOW_TRACKING_TOKEN")
    credentials = _credentials()
    try:
        return requests.get(
            uri.rstrip("/") + path,
            auth=credentials,
            headers={"Authorization": f"Bearer {token}"} if token and not credentials else {},
            verify=not insecure and (os.environ.get("MLFLOW_TRACKING_SERVER_CERT_PATH") or True),
            timeout=timeout_s,
        )
    except (requests.RequestException, OSError) as error:
        reason = str(error).replace(uri, masked(uri))
        raise ValueError(
            f"no server answers at tracking URI {masked(uri)!r} within {timeout_s:g} s: {reason}"
        ) from error


def _credentials() -> tuple[str, str] | None:
    """User and password from where MLflow's client takes them: the environment, then its credentials file."""
    file = ConfigParser()
    file.read(Path("~/.mlflow/credentials").expanduser())
    user, password = (
        os.environ.get(name) or file.get("mlflow", name.lower(), fallback=None)
        for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
    )
    return (user, password) if user and password else None
