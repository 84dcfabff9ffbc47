"""A study whose ledger is on a real PostgreSQL, on the real command line; `test_ledger.py` has the ledger alone."""

from __future__ import annotations

import launches
import pytest
from launches import Launch

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

STEPS = 24


def test_a_killed_study_carries_on_and_its_password_is_written_nowhere(tmp_path, postgres, monkeypatch) -> None:
    storage = tmp_path / "study"
    arguments = ("--trials", "1", "--set", f"steps={STEPS}")
    url = postgres.database()
    monkeypatch.setenv("STUDY_LEDGER", url)
    with Launch(storage, *arguments) as launch:
        launch.trained(3)
        head = f"process {launch.process.pid} on"
        launch.kill_all()
    monkeypatch.delenv("STUDY_LEDGER")
    with Launch(storage, *arguments, "--ledger", url) as launch:
        launch.wait(0)
        assert f"taken over from {head}" in launch.said()
        assert "which is gone" in launch.said()
    told = launches.summary(storage)
    assert [(t["state"], t["steps"], t["attempts"]) for t in told["trials"]] == [("complete", STEPS, 2)]
    assert launches.steps_of(storage).keys() == {(0, 0, step) for step in range(STEPS + 1)}
    assert launches.same_in_mlflow(storage, launches.database(storage)) > STEPS
    assert not (storage / "ledger.db").exists()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"journal.jsonl", "summary.json", "report.html", "driver.log", "study.mlflow.db", "study.screen"} <= {
        path.name for path in files
    }
    assert [path for path in files if b"hunter2" in path.read_bytes()] == []
    assert b"--ledger 'postgresql://study:***@127.0.0.1" in (storage / "journal.jsonl").read_bytes()
