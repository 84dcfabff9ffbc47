"""Is this a tracking URI that a study can be recorded at? Answered in seconds, without importing MLflow."""

from __future__ import annotations

import errno
import os
import socket
from configparser import ConfigParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from study.databases import check_sqlite
from study.uris import NO_FILE, check_quoted, redacted, sqlite_path
from trainables.errors import told

if TYPE_CHECKING:
    import requests

DATABASES = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
"""Default port of each database server that MLflow can keep its records in."""
ACCEPTED = "sqlite:////absolute/path/mlflow.db, http(s)://HOST:PORT or postgresql|mysql|mssql://USER@HOST/DATABASE"


def check_uri(uri: str, timeout_s: float = 3.0) -> None:
    """Refuse a URI that cannot work, before anything is started.

    An SQLite file is checked on disk and its folder created. A server is asked once whether it is alive
    and once whether it lets us in, a database server whether its port is open; each may take `timeout_s`
    seconds to answer. Raises ValueError that names the URI (without its password) and what is accepted.
    """
    try:
        check_quoted(uri)
    except ValueError as error:
        raise ValueError(f"tracking URI {redacted(uri)!r}: {error}") from error
    scheme = _parts(uri).scheme.partition("+")[0]
    path = sqlite_path(uri)
    if path is not None:
        _check_sqlite(uri, path)
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
        raise ValueError(f"tracking URI {redacted(uri)!r} has an unknown scheme; accepted: {ACCEPTED}")


def _parts(uri: str) -> SplitResult:
    try:
        parts = urlsplit(uri)
        # Read, because only that shows whether it is a number.
        _ = parts.port
    except ValueError as error:
        raise ValueError(f"tracking URI {redacted(uri)!r} is no URI ({error}); accepted: {ACCEPTED}") from None
    return parts


def _check_sqlite(uri: str, path: Path) -> None:
    if path.name in NO_FILE:
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
        raise ValueError(f"tracking URI {redacted(uri)!r} lacks a host or a database; accepted: {ACCEPTED}")
    try:
        socket.create_connection((parts.hostname, parts.port or port), timeout_s).close()
    except OSError as error:
        raise ValueError(f"no database server answers at tracking URI {redacted(uri)!r}: {told(error)}") from error


def _check_server(uri: str, timeout_s: float) -> None:
    if not _parts(uri).hostname:
        raise ValueError(f"tracking URI {redacted(uri)!r} lacks a host; accepted: {ACCEPTED}")
    # /health is open to everybody, so the second question is one that needs a permission.
    for path in ("/health", "/api/2.0/mlflow/experiments/search?max_results=1"):
        answer = get(uri, path, timeout_s)
        if answer.status_code in (401, 403):
            raise ValueError(
                f"the server at tracking URI {redacted(uri)!r} refuses us ({answer.status_code}: "
                f"{answer.text.strip()[:200]}); set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, "
                "or MLFLOW_TRACKING_TOKEN"
            )
        if answer.status_code >= 500:
            raise ValueError(f"the server at tracking URI {redacted(uri)!r} is failing ({answer.status_code})")
    if answer.status_code != 200 or "json" not in answer.headers.get("content-type", ""):
        raise ValueError(f"the server at tracking URI {redacted(uri)!r} is not an MLflow server ({answer.status_code})")


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
        reason = str(error).replace(uri, redacted(uri))
        raise ValueError(
            f"no server answers at tracking URI {redacted(uri)!r} within {timeout_s:g} s: {reason}"
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
