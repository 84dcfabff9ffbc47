"""Where a study keeps what it has: its folder, its ledger, its records in MLflow, its checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, field

from study.protocol.folder import StudyFolder
from study.uris import sqlite_uri


@dataclass(frozen=True)
class Destinations:
    """The places of one study. URLs may hold passwords: no repr shows one."""

    storage: StudyFolder
    ledger: str | None = field(default=None, repr=False)
    """SQLAlchemy URL of a database that is named; None keeps the ledger in the storage folder."""
    tracking: str | None = field(default=None, repr=False)
    """URI of the tracking store; None where none is named, and a ledger opened so stays out of it."""
    checkpoints: str | None = field(default=None, repr=False)
    """URI of an object store that keeps what trials write, in a folder with the study's id; None is the storage
    folder."""

    @property
    def ledger_url(self) -> str:
        """SQLAlchemy URL of the ledger: the one that is named, or SQLite beside the results."""
        return self.ledger or sqlite_uri(StudyFolder(self.storage.path.resolve()).database)


def shared_tracking(storage: StudyFolder) -> str:
    """SQLite beside the study's folder, shared by the studies there: on a cluster only that folder is sure to stay."""
    return sqlite_uri(storage.shared_tracking)
