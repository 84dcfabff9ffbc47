"""What a launch finds in the folder of a study: can it be used? Asked before anything is started."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from study.databases import kind_of
from trainables.errors import told

if TYPE_CHECKING:
    from study.protocol.folder import StudyFolder


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
                raise ValueError(f"{path} is {kind_of(path)} where a study has a file; move it away")
        for path in written_on:
            path.open("r+b").close()
    except OSError as error:
        raise ValueError(
            f"--storage {storage} cannot be used: {told(error)}; make everything in it yours to read and write, or "
            "name a folder you own"
        ) from error


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
    return _there(storage.summary, storage.tracking, storage.marks, storage.report, *results)


def _there(*paths: Path) -> list[Path]:
    """Those of the paths that exist; a link to nothing counts as existing."""
    return [path for path in paths if os.path.lexists(path)]
