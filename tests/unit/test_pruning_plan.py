"""What a plan says that pruning can save."""

from __future__ import annotations

import random

import pytest

from study import spec
from study.ledger.rehearsal import DRAWS, saved
from study.planning import pruning
from study.spec import Budget, Group, Pruner, Study


def study(pruner: Pruner, **changes) -> Study:
    embedded = spec.profiles(spec.available()["splade_k_search"])["embedded"]
    config = embedded.config.model_copy(update={"steps": 100, "evaluate_every": 10})
    made = {"config": config, "points": (), "pruner": pruner, "budget": Budget(trials=12)}
    return embedded.model_copy(update=made | changes)


def test_two_trials_are_halved_once() -> None:
    """The second one to come is stopped at its first evaluation if it is the worse, and saves nine tenths of itself."""
    draws = random.Random(0)
    better_first = sum(draws.sample(range(2), 2)[0] for _ in range(DRAWS))
    assert 0 < better_first < DRAWS
    halving = study(Pruner(kind="successive_halving", first_step=10, reduction_factor=100))
    for at_once in (1, 2):
        assert saved(halving, 2, at_once) == pytest.approx(0.9 * better_first / DRAWS / 2)


@pytest.mark.parametrize("kind", ["successive_halving", "hyperband"])
def test_halving_saves_however_many_run_at_once(kind) -> None:
    one, all_of_them = (saved(study(Pruner(kind=kind, first_step=10)), 12, n) for n in (1, 12))
    assert 0.25 < one < 0.8
    assert 0.25 < all_of_them < 0.8


def test_median_saves_nothing_where_none_has_finished_before_the_others() -> None:
    median = study(Pruner(kind="median", first_step=10))
    assert saved(median, 12, 12) == 0
    assert 0.2 < saved(median, 12, 1) < 0.5
    (line,) = pruning.outlook(median)
    assert "the 12 searched trials of the study" in line
    assert line.endswith("about 0% all 12 at once (none has finished when the others are judged)")


def test_trials_at_a_time_are_shared_by_the_groups() -> None:
    """Eight at a time over four groups are two of each; controls are not searched."""
    group = Group(key="lambda_query", values=(0.1, 0.2, 0.3, 0.4))
    median = study(Pruner(kind="median", first_step=10), group=group, controls=({"k": 1},))
    at_a_time = median.model_copy(
        update={"resources": median.resources.model_copy(update={"concurrency": 8})}
    )  # fmt: skip
    (line,) = pruning.outlook(at_a_time)
    assert "the 11 searched trials of each group" in line
    assert line.endswith(f"about {saved(median, 11, 2):.0%} 8 at a time")
    assert pruning.outlook(median)[0].endswith(
        "about 0% all 48 at once (none has finished when the others are judged)"
    )  # fmt: skip


def test_nothing_is_said_where_nothing_is_pruned() -> None:
    assert pruning.outlook(study(Pruner())) == []
    assert pruning.outlook(study(Pruner(kind="median"), controls=({"k": 1},), budget=Budget(trials=1))) == []
