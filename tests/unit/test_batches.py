"""Figures are gathered run by run, and nothing counts as sent that is still held."""

from __future__ import annotations

from study.tracking import batches
from study.tracking.batches import Batches


def test_a_run_is_due_with_a_batch_of_its_own() -> None:
    gathered = Batches()
    for entry in range(6):
        gathered.add(str(entry % 3), ["figure"] * (400 if entry % 3 == 0 else 10), 100 * entry)
    assert gathered.due() == []
    gathered.add("0", ["figure"] * 200, 600)
    assert gathered.due() == ["0"]
    assert gathered.begin(700) == 0
    assert len(gathered.take("0")) == batches.PER_BATCH
    assert gathered.begin(700) == 100, "the oldest figure that is held"
    for key in gathered.of(None):
        gathered.take(key)
    assert gathered.begin(700) == 700


def test_news_of_a_trial_concern_its_replicates_and_no_other_trial() -> None:
    gathered = Batches()
    for key in ("study", "1", "1/0", "1/1", "10", "11/1"):
        gathered.add(key, ["figure"], 0)
    assert gathered.of(1) == ["1", "1/0", "1/1"]
    assert len(gathered.of(None)) == 6


def test_the_run_that_waits_longest_goes_first_where_too_much_is_held(monkeypatch) -> None:
    monkeypatch.setattr(batches, "MOST", 4)
    gathered = Batches()
    for entry, key in enumerate("abab"):
        gathered.add(key, ["figure"], entry)
    assert gathered.due() == ["a"]
