"""A study with groups is as many studies as it has groups: none learns anything from another.

Each group is compared with the study that has this group alone, which is another run of the real ledger.
"""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest

from study.ledger.optuna_study import outlook
from study.ledger.queue import FUTILE, HOPELESS
from study.ledger.space import check_settings, explore
from study.ledger.variants import variants
from study.protocol.journal import TrialBegun, Values
from study.spec import Budget, Group, Pruner, Study
from tests.synthetic_search import Ended, Studied, ToyConfig, provide_trainer, space, toy
from trainables.overrides import apply

SAMPLERS = get_args(Study.model_fields["sampler"].annotation)
PRUNERS = get_args(Pruner.model_fields["kind"].annotation)
SHAPES = ("round", "square", "flat")
BEST = {"round": 0.2, "square": 5.0, "flat": 1.0}
"""k that is best for each."""
LEVEL = {"round": 0.0, "square": 100.0, "flat": -100.0}
"""What the values of each lie around: the worst of one is far above the best of another."""
EACH = 16


@pytest.fixture(autouse=True)
def toy_trainer(monkeypatch) -> None:
    provide_trainer(monkeypatch)


def by_shape(params: dict[str, Any], step: int) -> dict[str, float]:
    k, width, shape = params.get("k", 1), params.get("width", 3), params["shape"]
    miss = math.log10(k / BEST[shape]) ** 2 + ((width - 3) / 8) ** 2
    return {"ndcg_at_10": LEVEL[shape] - miss - 1 / step, "flops": width}


def grouped(sampler: str = "tpe", kind: str = "none", **changes: Any) -> Study:
    return toy(sampler, kind, **{"group": Group(key="shape", values=SHAPES), "budget": Budget(trials=EACH)} | changes)


def alone(study: Study, shape: str) -> Study:
    return study.model_copy(update={"group": None, "config": apply(study.config, {"shape": shape})})


def own(studied: Studied, shape: str) -> list[Ended]:
    """The trials of a group, as a study of it alone has them."""
    return [
        Ended({k: v for k, v in trial.params.items() if k != "shape"}, trial.state, trial.reason, trial.last)
        for trial in studied.ended()
        if trial.params["shape"] == shape
    ]


@pytest.mark.parametrize("kind", PRUNERS)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_no_value_of_a_group_reaches_the_sampler_or_the_pruner_of_another(sampler, kind, monkeypatch, tmp_path) -> None:
    """Kills included: one within a trial, one between its parameters, one before it has a group."""
    study = grouped(sampler, kind, controls=({"arm": True},), points=({"k": 2.0},))
    whole = Studied(monkeypatch, tmp_path / "whole", study, by_shape)
    whole.run()
    assert [row.group for row in whole.ledger._rows.values()] == [0, 1, 2] * EACH
    for shape in SHAPES:
        single = alone(study, shape)
        goal = {"shape": shape}
        lone = Studied(
            monkeypatch, tmp_path / shape, single, lambda params, step, goal=goal: by_shape(params | goal, step)
        )
        assert own(whole, shape) == lone.run()
    killed = Studied(monkeypatch, tmp_path / "killed", study, by_shape)
    assert killed.run_with_kills() == whole.ended()


def summed(study: Study, studied: Studied) -> Any:
    studied.ledger.conclude()
    return studied.ledger.summary()


def test_each_group_has_its_best_its_importances_and_its_controls(monkeypatch, tmp_path) -> None:
    study = grouped("random", controls=({"arm": True},))
    studied = Studied(monkeypatch, tmp_path, study, by_shape)
    studied.run()
    summary = summed(study, studied)
    assert (summary.group, summary.planned_trials, len(summary.trials)) == ("shape", 3 * EACH, 3 * EACH)
    assert [group.name for group in summary.groups] == list(SHAPES)
    assert summary.best == tuple(number for group in summary.groups for number in group.best)
    assert summary.importances == {}
    for group in summary.groups:
        own = [trial for trial in summary.trials if trial.group == group.name]
        assert len(own) == group.planned_trials == EACH
        assert all("shape" not in trial.params for trial in own)
        searched = [trial for trial in own if not trial.control]
        assert len(own) - len(searched) == 1
        best = max(searched, key=lambda trial: trial.values["ndcg_at_10"])
        assert group.best == (best.number,)
        assert set(group.importances) == {"k", "width"}
        view = summary.alone(group)
        assert (view.groups, view.best, view.planned_trials) == ((), group.best, EACH)
        assert [trial.number for trial in view.trials] == [trial.number for trial in own]
    assert sum(group.worker_seconds.used for group in summary.groups) == pytest.approx(
        summary.worker_seconds.used, abs=0.01
    )
    entries = [entry for _, entry in studied.ledger.journal.read()]
    begun = [entry for entry in entries if isinstance(entry, TrialBegun)]
    assert [entry.params["shape"] for entry in begun] == [*SHAPES] * EACH
    assert [entry.tags["group"] for entry in begun] == [*SHAPES] * EACH
    assert begun[0].name == "trial 0 · round · control"
    assert begun[3].name.startswith("trial 3 · round · k=")
    (values,) = (entry.values for entry in entries if isinstance(entry, Values) and entry.trial is None)
    assert {f"best.{shape}.ndcg_at_10" for shape in SHAPES} <= values.keys()
    assert [values[f"best.{shape}.trial"] for shape in SHAPES] == list(summary.best)


def test_a_failed_trial_is_run_again_in_its_group_and_at_its_place(monkeypatch, tmp_path) -> None:
    study = grouped("qmc", points=({"k": 2.0},), budget=Budget(trials=3))
    whole = Studied(monkeypatch, tmp_path / "whole", study, by_shape).run()
    studied = Studied(monkeypatch, tmp_path / "failed", study, by_shape)
    for _ in range(4):
        studied.run_trial()
    failed = studied.ledger.ask()
    studied.ledger.finish(failed, studied.ledger.begin(failed).attempt, None, "MemoryError: no")
    studied.die()
    studied.open(retry_failed=True)
    trials = studied.run()
    again = studied.ledger._rows[failed + 1]
    assert (again.retry_of, again.group, studied.params(again.number)) == (failed, 1, trials[failed].params)
    assert [t.params for t in [*trials[:failed], *trials[failed + 1 :]]] == [t.params for t in whole]
    assert studied.ledger.ask() is None


def test_the_budget_is_that_of_each_group(monkeypatch, tmp_path) -> None:
    """Raised, it goes on with the group that has the fewest."""
    study = grouped("random", budget=Budget(trials=2))
    studied = Studied(monkeypatch, tmp_path, study, by_shape)
    for _ in range(4):
        studied.run_trial()
    assert outlook(studied.ledger._optuna, study).new == 2
    assert outlook(None, study).new == study.trials == 6
    studied.run()
    assert outlook(studied.ledger._optuna, study).idle
    studied.die()
    studied.study = grouped("random", budget=Budget(trials=3))
    studied.open()
    assert outlook(studied.ledger._optuna, studied.study).new == 3
    studied.run()
    assert [row.group for row in studied.ledger._rows.values()] == [0, 1, 2] * 3


def test_a_group_that_only_fails_is_given_up_alone(monkeypatch, tmp_path) -> None:
    """A backbone that cannot be opened takes none of the others with it, and the study says that it lacks an answer."""
    study = grouped("random", budget=Budget(trials=6))
    studied = Studied(monkeypatch, tmp_path, study, by_shape)
    while (number := studied.ledger.ask()) is not None:
        attempt = studied.ledger.begin(number).attempt
        if studied.ledger._rows[number].group == 1:
            studied.ledger.finish(number, attempt, None, "OSError: no such model")
        else:
            studied.end(number, attempt)
    counts = [sum(row.group == group for row in studied.ledger._rows.values()) for group in range(3)]
    assert counts == [6, HOPELESS, 6]
    summary = summed(study, studied)
    assert summary.status == "failed"
    assert [bool(group.best) for group in summary.groups] == [True, False, True]


def test_parameters_that_one_group_refuses_are_its_own(monkeypatch, tmp_path) -> None:
    study = grouped("random", budget=Budget(trials=8))
    studied = Studied(monkeypatch, tmp_path, study, by_shape)
    monkeypatch.setattr(ToyConfig, "refused_shape", "square")
    studied.run()
    states = [[row.state for row in studied.ledger._rows.values() if row.group == group] for group in range(3)]
    assert states == [["complete"] * 8, ["failed"] * FUTILE, ["complete"] * 8]
    summary = summed(study, studied)
    assert summary.status == "failed"
    assert f"the parameters of {FUTILE} trials in a row cannot be run, at last shape='square', k=" in summary.reason


def test_arms_are_compared_within_their_group(monkeypatch, tmp_path) -> None:
    study = grouped(design="paired", replicates=2, points=({"k": 1.0}, {"k": 2.0}), budget=Budget(trials=2))
    ledger = Studied(monkeypatch, tmp_path, study, by_shape).ledger
    for _ in range(6):
        ledger.begin(ledger.ask())
    assert ledger.describe(0, 1, 0, {"hash.initialisation": "a"}) is None
    assert ledger.describe(1, 1, 0, {"hash.initialisation": "b"}) is None
    assert ledger.describe(3, 1, 0, {"hash.initialisation": "a"}) is None
    assert ledger.describe(4, 1, 0, {"hash.initialisation": "a"}).startswith("trials 1 and 4 are arms")


def test_every_group_is_tried_before_the_study_begins() -> None:
    tried = variants(grouped(controls=({"arm": True},), points=({"k": 2.0},)))
    for shape in SHAPES:
        assert {"shape": shape, "arm": True} in tried
        assert any(change["shape"] == shape and change.get("k") == 2.0 for change in tried)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"group": Group(key="shapes", values=("a",))}, "unknown key 'shapes'; did you mean 'shape'"),
        ({"parameter": "shape"}, "group.key='shape' is given to every trial by its group"),
        ({"controls": ({"shape": "flat"},)}, "group.key='shape' is given to every trial by its group"),
        ({"points": ({"shape": "flat", "k": 1.0},)}, "group.key='shape' is given to every trial by its group"),
        ({"group": Group(key="width", values=(2, "wide"))}, r"group \{'width': 'wide'\}: width='wide'"),
    ],
)
def test_groups_that_make_no_study_are_refused(changes, message) -> None:
    with pytest.raises(ValueError, match=message):
        grouped(**changes)


def test_names_of_groups_tell_them_apart() -> None:
    assert Group(key="k", values=("a/x", "b/x")).names == ("a-x", "b-x")
    assert Group(key="k", values=(0.5, True, "x y/z é")).names == ("0.5", "True", "z-é")
    with pytest.raises(ValueError, match=r"group\.values: a, a cannot be told apart by their names"):
        Group(key="k", values=("a", "a"))


def test_what_a_group_gives_is_neither_searched_nor_set() -> None:
    def both(trial) -> None:
        space(trial)
        trial.suggest_categorical("shape", SHAPES)

    with pytest.raises(ValueError, match="the search space suggests shape, which every trial is given by its group"):
        explore(grouped(space=both))
    with pytest.raises(
        ValueError, match="--set shape: every trial is given it by its group, one of round, square, flat"
    ):
        check_settings(grouped(), {"shape": "flat"})
