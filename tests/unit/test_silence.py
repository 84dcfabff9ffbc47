"""Which gangs are believed to hang, by a clock that the test sets."""

from __future__ import annotations

import pytest

from study.engine.trial import COLLECTIVE_WAIT_S
from study.ledger.faults import SHARED_PATIENCE_S
from study.ledger.silence import LOOKED_S, TIMES, UNKNOWN, Silence
from trainables import object_store, patience
from trainables.context import Phase

FLOOR_S = 100.0


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Gangs:
    """Silence, looked at every second."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.silence = Silence(FLOOR_S, self.clock)

    def waits(self, seconds: float) -> dict[int, str]:
        for _ in range(round(seconds)):
            self.clock.now += 1
            hung = self.silence.hung()
        return hung


@pytest.fixture
def gangs() -> Gangs:
    found = Gangs()
    found.silence.begins(4)
    return found


def steps(gangs: Gangs, gap_s: float) -> None:
    gangs.silence.hear(4, Phase.STEPS)
    gangs.waits(gap_s)
    gangs.silence.hear(4)


def test_a_gang_of_quick_steps_hangs_after_the_floor(gangs) -> None:
    steps(gangs, 1)
    assert gangs.waits(FLOOR_S) == {}
    assert gangs.waits(1) == {4: "its gang hangs: it steps, and has been silent for 101 s"}


def test_a_phase_with_slow_signs_of_life_is_given_many_times_its_pace(gangs) -> None:
    steps(gangs, 60)
    assert gangs.waits(60 * TIMES) == {}
    assert gangs.waits(1).keys() == {4}


def test_each_phase_has_its_own_pace(gangs) -> None:
    steps(gangs, 1)
    gangs.silence.hear(4, Phase.EVALUATES)
    assert gangs.waits(50 * FLOOR_S / 10) == {}, "nobody knows yet how long it takes"
    gangs.silence.hear(4, Phase.STEPS)
    assert gangs.waits(FLOOR_S + 1).keys() == {4}


def test_a_phase_that_nobody_has_ended_yet_may_be_long_and_not_endless(gangs) -> None:
    assert gangs.waits(UNKNOWN * FLOOR_S) == {}
    assert gangs.waits(1) == {4: "its gang hangs: it starts, and has been silent for 3601 s"}


def test_what_is_written_may_wait_for_what_it_is_written_to(gangs) -> None:
    gangs.silence.hear(4, Phase.SAVES)
    gangs.silence.hear(4, Phase.SAVES)
    assert gangs.waits(patience.PATIENCE_S + FLOOR_S) == {}
    assert gangs.waits(1).keys() == {4}


def test_silence_while_nobody_listens_does_not_count(gangs) -> None:
    """The ledger waited for its database, or the machine slept."""
    steps(gangs, 1)
    gangs.clock.now += 7 * 24 * 3600
    assert gangs.silence.hung() == {}
    assert gangs.waits(FLOOR_S - LOOKED_S) == {}


def test_a_trial_without_a_gang_is_not_listened_to(gangs) -> None:
    gangs.silence.leaves(4)
    gangs.silence.hear(4, Phase.STEPS)
    assert gangs.waits(2 * UNKNOWN * FLOOR_S) == {}


def test_ranks_wait_for_each_other_longer_than_any_of_them_is_patient() -> None:
    """Rank 0 may wait for a report to arrive, and then for a checkpoint to be stored, while the others wait for it."""
    assert patience.PATIENCE_S + object_store.PATIENCE_S < COLLECTIVE_WAIT_S
    assert SHARED_PATIENCE_S < COLLECTIVE_WAIT_S
