"""What the system or a library says, as one line of a message; and the exit code of a command that says it."""

from __future__ import annotations

import errno
from pathlib import Path

MENDED = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EMFILE, errno.ENFILE}
"""Numbers of OSErrors that last until somebody does something about them, such as a full disk."""
PASSING = ("ray", "sqlalchemy")
"""Libraries whose errors are about processes and servers, which may be back a moment later."""


FINISHED, FAILED, WRONG, INTERRUPTED = 0, 1, 2, 130
"""Exit codes of every command: done; begun, and failed; not begun, because the request is wrong; stopped on request."""


def told(error: BaseException, most: int = 2000) -> str:
    """The error in one line; one of the system names its file, what is wrong with it, and whose it is.

    What a library says is cut after `most` characters; an error without a word is told by its type.

    >>> told(FileNotFoundError(2, "No such file or directory", "/data/pairs.tsv"))
    '/data/pairs.tsv: no such file or directory'
    """
    # Ray wraps what is raised elsewhere, and shows it with its traceback.
    cause = getattr(error, "cause", None)
    if isinstance(cause, BaseException):
        return told(cause, most)
    if isinstance(error, OSError) and error.strerror:
        reason = f"{error.strerror[:1].lower()}{error.strerror[1:]}"
        if error.filename is None:
            return reason
        return f"{_short(str(error.filename))}: {reason}{_owner(error)}"
    return one_line(str(error))[:most] or type(error).__name__


def one_line(text: str) -> str:
    r"""
    >>> one_line("no answer:\n\tis it running? ")
    'no answer: is it running?'
    """
    return " ".join(text.split())


def first_line(error: BaseException) -> str:
    """What a library says first; SQL and advice stand in the lines behind it, SQLAlchemy's own words around it."""
    return str(getattr(error, "orig", None) or error).strip().partition("\n")[0]


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
    """A file name as a sentence can show it: cut where it is too long for the system."""
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
