"""A gang whose trial has ended removes what trials have left and the study does not keep."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from study.protocol.folder import TrialFolder, stored_replicate
from study.protocol.messages import Leftover
from trainables.errors import told
from trainables.patience import answer

log = logging.getLogger(__name__)


def clear(ledger: Any) -> None:
    """Remove what the ledger says, and tell it; what cannot be removed now is said in the log, and a later launch's."""
    for leftover in answer(lambda: ledger.surplus.remote()):
        try:
            remove(leftover)
        except OSError as error:
            log.warning("the checkpoints of trial %d stay for now: %s", leftover.number, told(error, 300))
        else:
            answer(lambda: ledger.emptied.remote(leftover.number))  # noqa: B023


def remove(leftover: Leftover) -> None:
    """Remove checkpoints and models of a trial, wherever they are; results stay. Raises OSError."""
    from trainables.checkpoints import empty
    from trainables.stored_checkpoints import empty_store

    for replicate in TrialFolder(Path(leftover.folder)).replicates():
        empty(replicate.path)
    if leftover.store is not None:
        for number in range(leftover.replicates):
            empty_store(stored_replicate(leftover.store, number))
