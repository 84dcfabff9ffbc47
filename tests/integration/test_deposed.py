"""A head that loses its lease in the middle of a trial, on the real command line."""

from __future__ import annotations

import sqlite3

import launches
import pytest
from launches import Launch

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

STEPS = 60


def test_a_head_that_was_replaced_stops_with_its_gangs_and_the_next_one_carries_on(tmp_path) -> None:
    storage = tmp_path / "study"
    arguments = ("--trials", "1", "--set", f"steps={STEPS}")
    with Launch(storage, *arguments) as launch:
        launch.trained(3)
        with sqlite3.connect(storage / "ledger.db", timeout=20) as database:
            # What a takeover does to the row; nobody is there to go on.
            database.execute("update study_lease set epoch = epoch + 1, holder = '', expires = 0")
        launch.wait(130)
        assert "the study was taken over; the same command carries on" in launch.said()
        assert launch.gone(10) < 10
    (trial,) = launches.summary(storage)["trials"]
    assert (trial["state"], launches.summary(storage)["status"]) == ("interrupted", "interrupted")
    before = launches.steps_of(storage).keys()
    assert max(step for _, _, step in before) < STEPS
    with Launch(storage, *arguments) as launch:
        launch.wait(0)
    assert [(t["state"], t["attempts"]) for t in launches.summary(storage)["trials"]] == [("complete", 2)]
    assert launches.steps_of(storage).keys() == {(0, 0, step) for step in range(STEPS + 1)}
