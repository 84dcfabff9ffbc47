"""Bins of training steps tell the truth about the steps in them, and go on from where they were."""

from __future__ import annotations

import json
import math
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.bins import Bin
from trainables.config import TrainerConfig

NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20)


@given(values=NUMBERS, split=st.integers(0, 20))
def test_a_bin_has_mean_minimum_and_maximum_wherever_it_was_interrupted(values, split) -> None:
    whole, part = Bin(), Bin()
    for value in values:
        whole.add({"loss": value})
    for value in values[:split]:
        part.add({"loss": value})
    part = Bin.restored(json.loads(json.dumps(part.state())))
    for value in values[split:]:
        part.add({"loss": value})
    told = whole.take()
    assert told == part.take()
    assert told["loss"] == pytest.approx(fmean(values), abs=1e-6)
    assert told.get("loss.min", told["loss"]) == min(values)
    assert told.get("loss.max", told["loss"]) == max(values)


@pytest.mark.parametrize("place", range(3))
def test_no_number_hides_a_step_without_one(place) -> None:
    steps = Bin()
    for value in [*[1.0] * place, math.nan, *[2.0] * (2 - place)]:
        steps.add({"loss": value})
    assert all(map(math.isnan, steps.take().values()))


def test_a_signal_that_few_steps_measure_is_told_of_those() -> None:
    steps = Bin()
    for signals in ({"loss": 1.0}, {"loss": 2.0, "gain": 7.0}, {"loss": 3.0}):
        steps.add(signals)
    assert steps.take() == {"loss": 2.0, "loss.min": 1.0, "loss.max": 3.0, "gain": 7.0}


@pytest.mark.parametrize(
    ("steps", "asked", "together"),
    [(2000, None, 1), (2001, None, 2), (150_000, None, 75), (150_000, 10, 10), (60, 7, 7)],
)
def test_runs_of_up_to_2000_steps_are_whole(steps, asked, together) -> None:
    assert TrainerConfig(steps=steps, log_every=asked).recorded_together == together
