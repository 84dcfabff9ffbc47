"""Ledgers for tests: opened in this process, with one argument for each place and each option of a launch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from study.ledger.launch_options import LaunchOptions
from study.ledger.ledger import Ledger
from study.protocol.destinations import Destinations
from study.protocol.folder import StudyFolder
from study.spec import Study


def open_ledger(
    name: str,
    study: Study,
    storage: Path,
    profile: str = "embedded",
    *,
    url: str | None = None,
    tracking: str | None = None,
    checkpoints: str | None = None,
    **options: Any,
) -> Ledger:
    """The ledger of the study in this folder; `options` are those of `LaunchOptions`."""
    places = Destinations(StudyFolder(storage), url, tracking, checkpoints)
    return Ledger(name, profile, study, places, LaunchOptions(**options))


def ledger_url(storage: Path) -> str:
    """Where the ledger of a study in this folder is, unless a database is named."""
    return Destinations(StudyFolder(storage)).ledger_url
