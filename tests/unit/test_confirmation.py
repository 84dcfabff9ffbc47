"""Search, then confirm: finalists, their seeds and the winner, as pure functions."""

from __future__ import annotations

import numpy as np
import pytest

from study.confirmation import Confirm, Finalists, Searched, finalists, fresh_seeds, parse, winner
from study.reporting.confirmed import differences
from study.stats.significance import holm

THREE = Confirm(finalists=3, seeds=5)
TRIALS = [
    Searched(0, 0.2, control=True), Searched(1, 0.5), Searched(2, None), Searched(3, 0.7), Searched(4, 0.5),
    Searched(5, 0.6),
]  # fmt: skip


def test_the_best_few_and_the_controls_are_confirmed() -> None:
    assert finalists(TRIALS, True, THREE) == [Finalists(None, (3, 5, 1), (0,))]
    assert finalists(TRIALS, False, THREE) == [Finalists(None, (1, 4, 5), (0,))]
    best_control = [*TRIALS, Searched(6, 0.9, control=True)]
    assert finalists(best_control, True, THREE) == [Finalists(None, (3, 5, 1), (0, 6))]


def test_each_group_has_finalists_of_its_own() -> None:
    trials = [Searched(n, value, "ab"[n % 2]) for n, value in enumerate((0.1, 0.9, 0.2, 0.8, 0.3, 0.7))]
    two = Confirm(finalists=2, seeds=3)
    assert finalists(trials, True, two) == [Finalists("a", (4, 2), ()), Finalists("b", (1, 3), ())]


def test_fewer_complete_trials_than_finalists_are_all_confirmed_and_it_is_said() -> None:
    (found,) = finalists([Searched(0, 0.5, "x"), Searched(1, None, "x")], True, THREE)
    assert (found.chosen, found.missing) == ((0,), 2)
    assert found.said == "1 finalist(s) of x instead of 3: no more trials are complete"
    (none,) = finalists([Searched(0, None)], True, THREE)
    assert (none.chosen, none.said) == ((), "0 finalist(s) instead of 3: no more trials are complete")
    assert finalists(TRIALS, True, THREE)[0].said == ""


def test_seeds_are_fresh_and_the_same_for_all() -> None:
    assert fresh_seeds(THREE, [7, 8, 7]) == (9, 10, 11, 12, 13)
    assert fresh_seeds(THREE, []) == (0, 1, 2, 3, 4)


def test_the_winner_has_the_best_validation_mean_whatever_the_search_said() -> None:
    found = Finalists(None, (3, 5, 1), (0,))
    values = {0: [0.9, 0.9], 1: [0.5, 0.7], 3: [0.4, 0.6], 5: [0.6, 0.6]}
    assert winner(found, values, more=True) == 5
    assert winner(found, values, more=False) == 3
    del values[5]
    assert winner(found, values, more=True) == 1
    assert winner(found, {0: [0.9]}, more=True) is None


@pytest.mark.parametrize("text", ["3", "x5", "3x1", "0x5", "3x5x2", "3 x 5", "-1x5"])
def test_what_is_no_confirmation_is_refused(text) -> None:
    with pytest.raises(ValueError, match="is not FINALISTSxSEEDS, such as 3x5"):
        parse(text)
    assert parse("3x5") == THREE


def test_the_winner_is_compared_on_test_queries_with_all_else_that_was_confirmed() -> None:
    draw = np.random.default_rng(0)
    base = draw.random(60)

    def seeds(shift: float) -> list[dict[str, float]]:
        return [
            {f"q{n}": float(v) for n, v in enumerate(base + shift + 0.05 * draw.standard_normal(60))} for _ in range(5)
        ]

    found = differences(3, {0: seeds(0.0), 3: seeds(0.1), 5: seeds(0.1), 7: [{"other": 1.0}] * 5})
    assert [(one.other, one.distinct) for one in found] == [(0, True), (5, False)]
    assert [(one.gap.seeds, one.gap.items) for one in found] == [(5, 60), (5, 60)]
    assert [one.adjusted_p for one in found] == holm([one.gap.p for one in found])
    assert found[0].gap.low < 0.1 < found[0].gap.high
