"""What the system or a library says, as one line of a message."""

from __future__ import annotations

import errno
from pathlib import Path

MENDED = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EMFILE, errno.ENFILE}
"""What the system refuses until somebody does something about it."""
PASSING = ("ray", "sqlalchemy")
"""Libraries whose errors are those of processes and servers, which come back."""


def told(error: BaseException) -> str:
    """The error in one line; one of the system names its file, what is wrong with it, and whose it is.

    >>> told(FileNotFoundError(2, "No such file or directory", "/data/pairs.tsv"))
    '/data/pairs.tsv: no such file or directory'
    """
    # Ray wraps what is raised elsewhere, and shows it with its traceback.
    cause = getattr(error, "cause", None)
    if isinstance(cause, BaseException):
        return told(cause)
    if isinstance(error, OSError) and error.strerror:
        reason = f"{error.strerror[:1].lower()}{error.strerror[1:]}"
        if error.filename is None:
            return reason
        return f"{_short(str(error.filename))}: {reason}{_owner(error)}"
    return " ".join(str(error).split())[:2000] or type(error).__name__


def failure(error: BaseException, details: Path | None = None) -> str:
    """Why something that had begun could not go on, and what helps: the same command only where it does.

    >>> failure(OSError(28, "No space left on device", "/data/journal.jsonl"))
    '/data/journal.jsonl: no space left on device; when that is mended, the same command carries on'
    """
    cause = getattr(error, "cause", None) or error
    where = f"; {details} holds the details" if details else ""
    if isinstance(cause, OSError) and cause.errno in MENDED:
        return f"{told(cause)}; when that is mended, the same command carries on{where}"
    if isinstance(cause, OSError) or type(cause).__module__.partition(".")[0] in PASSING:
        return f"{told(cause)}; the same command carries on{where}"
    return f"{type(cause).__name__}: {told(cause)}; what has ended is kept{where}"


def _short(name: str, most: int = 300) -> str:
    """A name that is too long for the system is too long for a sentence."""
    return name if len(name) <= most else f"{name[:most]}..."


def _owner(error: OSError) -> str:
    if not isinstance(error, PermissionError):
        return ""
    path = Path(str(error.filename))
    try:
        return f" (it belongs to {path.owner()})"
    except KeyError:
        return f" (it belongs to user {path.stat().st_uid})"
    except OSError:
        # Not even its folder can be looked into.
        return ""
