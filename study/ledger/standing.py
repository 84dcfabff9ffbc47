"""Does a study run? Told by its lock and its lease: the summary of a study that was killed says that it does."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from study.ledger import lease, lock
from study.protocol.folder import StudyFolder
from study.uris import redacted, sqlite_uri
from trainables.errors import first_line


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether a study runs, and who runs it or ran it last."""

    runs: bool | None
    """None where that cannot be told from here."""
    head: str = ""
    """The process, its machine and since when; empty where nothing is known of it."""
    why: str = ""
    """Why it does not run, or why that cannot be told; empty for a study that runs, or has come to its end."""

    def __str__(self) -> str:
        if self.runs:
            return f"runs: {self.head}"
        if self.runs is None:
            return f"may run: {self.why}"
        return "not running" + (f": {self.head}, {self.why}" if self.head else "")


def standing(storage: StudyFolder, name: str, ledger: str | None = None) -> Standing:
    """How the study of this name in a folder stands; changes nothing, and starts neither Ray nor Optuna.

    `ledger` is the URL of a database that its ledger is kept in; None is that of the folder. Raises ValueError where
    that database cannot be asked.
    """
    here = lock.holder(storage.lock) or lock.holder(storage.ledger_lock)
    if here is not None:
        return Standing(True, here)
    if ledger is None and not storage.database.exists():
        if not storage.journal.exists():
            return Standing(False)
        return Standing(None, why="its ledger is in a database elsewhere; name that with --ledger")
    url = ledger or sqlite_uri(storage.database.resolve())
    try:
        head = lease.head(url, name)
    except (SQLAlchemyError, ArgumentError) as error:
        raise ValueError(f"--ledger {redacted(url)}: it cannot be asked: {redacted(first_line(error))}") from error
    if head is None:
        return Standing(False)
    holder, end = head
    return Standing(True, str(holder)) if end is None else Standing(False, str(holder), f"which {end}")
