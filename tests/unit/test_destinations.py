"""The places of a study in one value."""

from __future__ import annotations

from pathlib import Path

from study.protocol.destinations import Destinations
from study.protocol.folder import StudyFolder


def test_no_repr_shows_a_password() -> None:
    url = "://ada:hunter2@host/x"
    places = Destinations(StudyFolder(Path("/k")), f"postgresql{url}", f"https{url}", f"s3{url}")
    assert "/k" in repr(places)
    assert "hunter2" not in f"{places!r} {places} {[places]}"


def test_the_ledger_is_in_the_folder_unless_a_database_is_named(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Destinations(StudyFolder(Path("k"))).ledger_url == f"sqlite:///{tmp_path}/k/ledger.db"
    assert Destinations(StudyFolder(Path("k")), "postgresql://host/k").ledger_url == "postgresql://host/k"
