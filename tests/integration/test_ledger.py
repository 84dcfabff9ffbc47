"""The ledger on SQLite and on a real PostgreSQL: endings, carrying on, fencing, pruning, budgets. No Ray, no torch."""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, replace

import numpy as np
import pytest

from study.ledger.ledger import Ledger
from study.ledger.lock import Held
from study.ledger.optuna_study import Refused, existing_study, outlook
from study.ledger.space import explore
from study.protocol.journal import Ended, Metrics, StudyBegun
from study.spec import Budget, Objective, Pruner, Resources
from study.tracking.mlflow_runs import status_of
from tests.ledgers import ledger_url, open_ledger
from tests.toy_ledger import ToyConfig, dies, opened, outcome, record, run_trial, toy, trial_of

pytestmark = pytest.mark.usefixtures("toy_trainer", "database")

ENDINGS = [
    # ended by, ledger state, Optuna state, MLflow status, reason
    ("complete", "complete", "COMPLETE", "FINISHED", None),
    ("pruned", "pruned", "PRUNED", "KILLED", "pruned at step 4"),
    ("collapsed", "collapsed", "PRUNED", "KILLED", "loss is nan at step 3"),
    ("exception", "failed", "FAIL", "FAILED", "ValueError: no"),
    ("nan objective", "failed", "FAIL", "FAILED", "ndcg_at_10 is not finite"),
    ("lost gang", "failed", "FAIL", "FAILED", "its gang was lost"),
]


@pytest.mark.parametrize(("how", "state", "told", "status", "reason"), ENDINGS, ids=[e[0] for e in ENDINGS])
def test_endings(tmp_path, how, state, told, status, reason) -> None:
    study = toy(pruner=Pruner(kind="median", startup_trials=1), sampler="random")
    ledger = opened(tmp_path, study)
    first = ledger.ask()
    begun = ledger.begin(first)
    ledger.report(first, begun.attempt, 0, [record(4, ndcg_at_10=0.9)])
    good = outcome("complete", ndcg_at_10=0.9)
    ledger.replicate_ended(first, 1, 0, good)
    ledger.finish(first, 1, good)

    number = ledger.ask()
    attempt = ledger.begin(number).attempt
    match how:
        case "complete" | "nan objective":
            ended = outcome("complete", ndcg_at_10=0.4 if how == "complete" else float("nan"))
            ledger.replicate_ended(number, attempt, 0, ended)
            ledger.finish(number, attempt, ended)
        case "pruned":
            answer = ledger.report(number, attempt, 0, [record(4, ndcg_at_10=0.1)])
            assert answer.startswith("pruned at step 4")
            ledger.finish(number, attempt, outcome("stopped", step=4, reason=answer, ndcg_at_10=0.1))
        case "collapsed":
            ended = outcome("collapsed", step=3, reason=reason)
            ledger.replicate_ended(number, attempt, 0, ended)
            ledger.finish(number, attempt, ended)
        case "exception":
            ledger.finish(number, attempt, None, reason)
        case "lost gang":
            ledger.abandon(number, reason)

    row = ledger.summary().trials[number]
    assert row.state == state
    assert (row.reason or "").startswith(reason or "")
    trial = trial_of(ledger, number)
    assert trial.state.name == told
    if how == "pruned":
        assert trial.intermediate_values == {4: 0.1}
        assert row.saved_worker_seconds == pytest.approx(6 * 0.5)
    constraint = trial.system_attrs.get("constraints:collapse")
    assert constraint == {"collapsed": 1.0, "failed": None}.get(state, -1.0)
    # What optuna-dashboard shows: names, attributes, and collapsed trials as infeasible, in a key of its own.
    assert ledger._optuna.metric_names == ["ndcg_at_10"]
    assert (trial.user_attrs["state"], trial.user_attrs.get("reason")) == (state, row.reason)
    assert trial.system_attrs.get("constraints") == (None if constraint is None else [constraint])
    (end,) = (e for _, e in ledger.journal.read() if isinstance(e, Ended) and e.trial == number)
    assert (end.state, end.reason, status_of(end.state)) == (state, row.reason, status)
    assert json.loads((tmp_path / "summary.json").read_text())["trials"][number]["state"] == state


def test_a_gang_of_a_trial_that_has_ended_changes_nothing(tmp_path) -> None:
    """Its steps were 0 afterwards, and its attempts one more."""
    ledger = opened(tmp_path)
    number = ledger.ask()
    attempt = ledger.begin(number).attempt
    ledger.report(number, attempt, 0, [record(3, **{"train.loss": 2.0})])
    ledger.finish(number, attempt, None, "RuntimeError: no")
    before = ledger.summary().trials[number]
    assert before.steps == 3
    assert ledger.begin(number) is None
    assert ledger.summary().trials[number] == before


def test_interrupted_trial_stays_open_and_comes_first(tmp_path) -> None:
    ledger = opened(tmp_path)
    number = ledger.ask()
    params = ledger.summary().trials[0].params
    attempt = ledger.begin(number).attempt
    ledger.halt("interrupted")
    assert ledger.report(number, attempt, 0, [record(1, **{"train.loss": 2.0})]) == "interrupted"
    assert ledger.finish(number, attempt, outcome("stopped", step=1, reason="interrupted")) == "interrupted"
    assert ledger.ask() is None
    assert ledger.conclude().status == "interrupted"
    assert trial_of(ledger, number).state.name == "RUNNING"
    ledger.close([], 0)

    again = opened(tmp_path)
    assert again.ask() == number
    assert again.begin(number).attempt == 2
    assert again.summary().trials[0].params == params
    assert again.ask() == 1


def test_kill_at_any_moment_repeats_the_undisturbed_sequence(tmp_path) -> None:
    whole = opened(tmp_path / "whole")
    for value in (0.1, 0.4, 0.3, 0.2):
        run_trial(whole, value)
    wanted = [t.params for t in whole.summary().trials]
    assert whole.ask() is None

    storage = tmp_path / "killed"
    ledger = opened(storage)
    run_trial(ledger, 0.1)
    ledger.ask()
    dies(ledger)
    ledger = opened(storage)
    assert run_trial(ledger, 0.4) == 1
    trial = ledger._optuna.ask()
    trial.suggest_float("k", 0.1, 10, log=True)  # killed between the two parameters of trial 2
    dies(ledger)
    ledger = opened(storage)
    assert run_trial(ledger, 0.3) == 2
    ledger._optuna.ask()  # killed before the first parameter of trial 3
    dies(ledger)
    ledger = opened(storage)
    assert run_trial(ledger, 0.2) == 3
    assert [t.params for t in ledger.summary().trials] == wanted
    assert [t.state for t in ledger.summary().trials] == ["complete"] * 4
    assert ledger.ask() is None


def test_the_sequence_of_trials_is_that_of_sqlite(tmp_path) -> None:
    (tmp_path / "file").mkdir()
    ledgers = opened(tmp_path / "here"), opened(tmp_path / "file", url=f"sqlite:///{tmp_path / 'file' / 'ledger.db'}")
    for ledger in ledgers:
        for value in (0.1, 0.4, 0.3, 0.2):
            run_trial(ledger, value)
    here, file = ([t.params for t in ledger.summary().trials] for ledger in ledgers)
    assert here == file


def test_studies_of_different_names_share_a_database(tmp_path) -> None:
    ledger, other = opened(tmp_path / "one"), tmp_path / "other"
    url = ledger_url(tmp_path / "one")
    run_trial(ledger, 0.4)
    number = ledger.ask()
    second = open_ledger("second", toy(budget=Budget(trials=1)), other, url=url)
    assert second.id != ledger.id
    assert run_trial(second, 0.9) == 0
    assert second.ask() is None
    for alive in (ledger, second):
        dies(alive)
    again = opened(tmp_path / "one", url=url)
    assert again.ask() == number == 1
    assert [t.values.get("ndcg_at_10") for t in again.summary().trials] == [0.4, None]
    again = open_ledger("second", toy(budget=Budget(trials=1)), other, url=url)
    assert again.ask() is None
    assert [t.values["ndcg_at_10"] for t in again.summary().trials] == [0.9]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_no_numbers_are_kept(tmp_path, value) -> None:
    """They go to the journal as they are, and to nothing that compares trials."""
    ledger = opened(tmp_path, toy(pruner=Pruner(kind="median", startup_trials=1)))
    run_trial(ledger, 0.5)
    number = ledger.ask()
    ledger.begin(number)
    assert ledger.report(number, 1, 0, [record(4, ndcg_at_10=value), record(5, ndcg_at_10=0.6)]) is None
    ended = outcome("complete", ndcg_at_10=0.6, flops=value)
    ledger.replicate_ended(number, 1, 0, ended)
    assert ledger.finish(number, 1, ended) == "complete"
    dies(ledger)
    again = opened(tmp_path, toy(pruner=Pruner(kind="median", startup_trials=1)))
    (kept,) = (e.records for _, e in again.journal.read() if isinstance(e, Metrics))
    assert [repr(r["metrics"]["ndcg_at_10"]) for r in kept] == [repr(value), "0.6"]
    assert trial_of(again, number).intermediate_values == {5: 0.6}
    assert json.loads((tmp_path / "summary.json").read_text())["trials"][number]["values"]["flops"] is None
    assert again.summary().best == (number,)


def test_killed_between_end_and_tell(tmp_path) -> None:
    ledger = opened(tmp_path)
    number = ledger.ask()
    attempt = ledger.begin(number).attempt
    ended = outcome("complete", ndcg_at_10=0.5)
    ledger.replicate_ended(number, attempt, 0, ended)
    ledger._optuna.tell = lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        ledger.finish(number, attempt, ended)
    dies(ledger)
    again = opened(tmp_path)
    assert trial_of(again, number).state.name == "COMPLETE"
    assert sum(isinstance(e, Ended) for _, e in again.journal.read()) == 1
    assert again.ask() == 1


def test_older_attempt_is_refused(tmp_path) -> None:
    ledger = opened(tmp_path)
    number = ledger.ask()
    old, new = ledger.begin(number).attempt, ledger.begin(number).attempt
    assert (old, new) == (1, 2)
    assert ledger.report(number, old, 0, [record(1, **{"train.loss": 1.0})]) == "superseded by attempt 2"
    assert ledger.journal.high_water(number, 0) == -1
    assert ledger.replicate_ended(number, old, 0, outcome("complete", ndcg_at_10=0.1)) is False
    ledger.finish(number, old, outcome("complete", ndcg_at_10=0.1))
    assert trial_of(ledger, number).state.name == "RUNNING"


def test_steps_are_kept_once_whatever_is_sent_again(tmp_path) -> None:
    ledger = opened(tmp_path)
    number = ledger.ask()
    ledger.begin(number)
    ledger.report(number, 1, 0, [record(s, **{"train.loss": float(s)}) for s in (1, 2, 3)])
    dies(ledger)
    again = opened(tmp_path)
    again.ask()
    again.begin(number)
    again.report(number, 2, 0, [record(s, **{"train.loss": -1.0}) for s in (2, 3, 4)])
    kept = [r for _, e in again.journal.read() if isinstance(e, Metrics) for r in e.records]
    assert [(r["step"], r["metrics"]["train.loss"]) for r in kept] == [(1, 1.0), (2, 2.0), (3, 3.0), (4, -1.0)]


def test_resumed_trial_that_was_pruned_is_told_again(tmp_path) -> None:
    study = toy(pruner=Pruner(kind="median", startup_trials=1))
    ledger = opened(tmp_path, study)
    number = ledger.ask()
    ledger.begin(number)
    ledger.report(number, 1, 0, [record(4, ndcg_at_10=0.9)])
    good = outcome("complete", ndcg_at_10=0.9)
    ledger.replicate_ended(number, 1, 0, good)
    ledger.finish(number, 1, good)
    number = ledger.ask()
    ledger.begin(number)
    answer = ledger.report(number, 1, 0, [record(4, ndcg_at_10=0.1)])
    dies(ledger)
    again = opened(tmp_path, study)
    assert again.ask() == number
    assert again.begin(number).attempt == 2
    assert again.report(number, 2, 0, [record(4, ndcg_at_10=0.1)]) == answer


def test_replicates_are_averaged_and_all_kept(tmp_path) -> None:
    ledger = opened(tmp_path, toy(replicates=3))
    number = ledger.ask()
    begun = ledger.begin(number)
    assert begun.seeds == (0, 1, 2)
    for replicate, value in enumerate((0.1, 0.2, 0.6)):
        ended = outcome("complete", ndcg_at_10=value)
        assert ledger.replicate_ended(number, 1, replicate, ended) is (replicate < 2)
    ledger.finish(number, 1, ended)
    row = ledger.summary().trials[0]
    assert row.values["ndcg_at_10"] == pytest.approx(0.3)
    assert [(r.seed, r.values["ndcg_at_10"]) for r in row.replicates] == [(0, 0.1), (1, 0.2), (2, 0.6)]
    assert row.steps == row.planned_steps == 30
    assert trial_of(ledger, 0).value == pytest.approx(0.3)


def test_points_come_first_and_retries_take_none_of_them(tmp_path) -> None:
    points = tuple({"k": k, "width": 2} for k in (1.0, 2.0, 4.0))
    study = toy(points=points)
    ledger = opened(tmp_path, study)
    run_trial(ledger)
    number = ledger.ask()
    ledger.begin(number)
    ledger.finish(number, 1, None, "OutOfMemoryError: no")
    ledger.conclude()
    ledger.close([], 0)
    again = opened(tmp_path, study, retry_failed=True)
    for _ in range(3):
        run_trial(again)
    assert again.ask() is None
    rows = again.summary().trials
    assert [(r.params["k"], r.state, r.retry_of) for r in rows] == [
        (1.0, "complete", None), (2.0, "failed", None), (2.0, "complete", 1), (4.0, "complete", None),
        (rows[4].params["k"], "complete", None),
    ]  # fmt: skip
    assert rows[4].params["k"] not in (1.0, 2.0, 4.0)


def test_a_control_stands_beside_the_search(tmp_path) -> None:
    """It runs first and with values of its own, a failed one again with the same, and is never the best."""
    study = toy(
        controls=({"width": 100, "batch_size": 4},), points=({"k": 2.0, "width": 2},),
        budget=Budget(trials=10), pruner=Pruner(kind="median", startup_trials=1, first_step=1),
    )  # fmt: skip
    ledger = opened(tmp_path, study)
    number = ledger.ask()
    assert ledger.begin(number).config["width"] == 100
    ledger.finish(number, 1, None, "OutOfMemoryError: no")
    ledger.conclude()
    ledger.close([], 0)
    again = opened(tmp_path, study, retry_failed=True)
    number = again.ask()
    config = again.begin(number).config
    assert (config["width"], config["batch_size"], config["k"]) == (100, 4, 1.0)
    assert again.report(number, 1, 0, [record(1, ndcg_at_10=0.9)]) is None
    ended = outcome("complete", ndcg_at_10=0.9)
    again.replicate_ended(number, 1, 0, ended)
    again.finish(number, 1, ended)
    for value in (0.5, 0.2, 0.3, 0.4, 0.6, 0.1, 0.35, 0.45, 0.55):
        run_trial(again, value)
    assert again.ask() is None
    summary = again.conclude()
    assert [(t.control, t.state) for t in summary.trials[:3]] == [
        (True, "failed"), (True, "complete"), (False, "complete"),
    ]  # fmt: skip
    assert summary.trials[1].params == {"width": 100, "batch_size": 4}
    assert summary.trials[2].params == {"k": 2.0, "width": 2}
    assert all(set(t.params) == {"k", "width"} for t in summary.trials[2:])
    assert trial_of(again, 1).intermediate_values == {}
    assert summary.trials[summary.best[0]].values["ndcg_at_10"] == 0.6
    assert set(summary.importances) == {"k", "width"}
    assert sum(summary.importances.values()) == pytest.approx(1)


def test_parameters_of_a_conditional_space_are_sampled_together(tmp_path) -> None:
    """TPE learns from the trials that have a parameter, whatever others lack it."""

    def conditional(trial):
        if trial.suggest_float("k", 0.1, 10, log=True) < 1:
            trial.suggest_int("width", 1, 100)

    study = toy(space=conditional, budget=Budget(trials=40))
    ledger = opened(tmp_path, study)
    for _ in range(40):
        number = ledger.ask()
        params = ledger.summary().trials[number].params
        attempt = ledger.begin(number).attempt
        ended = outcome("complete", ndcg_at_10=-abs(params.get("width", 1000) - 50))
        ledger.replicate_ended(number, attempt, 0, ended)
        ledger.finish(number, attempt, ended)
    late = [t.params.get("width") for t in ledger.summary().trials[-12:]]
    assert sum(width is not None and 25 <= width <= 75 for width in late) >= 9, late


def test_more_trials_add_to_a_finished_study(tmp_path) -> None:
    ledger = opened(tmp_path, toy(budget=Budget(trials=1)))
    run_trial(ledger)
    assert ledger.ask() is None
    assert ledger.conclude().status == "finished"
    ledger.close([], 0)
    study = toy(budget=Budget(trials=2))
    assert outlook(existing_study(ledger_url(tmp_path), "toy", study), study).new == 1
    again = opened(tmp_path, study)
    assert run_trial(again) == 1
    assert again.ask() is None


@pytest.mark.parametrize("budget", [{"worker_hours": 1e-9}, {"gpu_hours": 1e-9}])
def test_spent_budget_stops_trials_and_finishes_the_study(tmp_path, budget) -> None:
    ledger = opened(tmp_path, toy(budget=Budget(trials=4, **budget), resources=Resources(gpus_per_worker=2)))
    number = ledger.ask()
    ledger.begin(number)
    assert ledger.report(number, 1, 0, [record(1, **{"train.loss": 1.0})]) == "budget spent"
    assert ledger.finish(number, 1, outcome("stopped", step=1, reason="budget spent")) == "interrupted"
    assert ledger.ask() is None
    assert ledger.conclude().status == "finished"


def test_gpu_hours_are_those_of_all_workers_of_the_gang(tmp_path) -> None:
    gang = Resources(workers=2, gpus_per_worker=4, gpu_hour_price=3)
    ledger = opened(tmp_path, toy(resources=gang))
    number = ledger.ask()
    ledger._account._opened[number] -= 900
    ledger.begin(number)
    ledger.finish(number, 1, None, "OutOfMemoryError: no")
    summary = ledger.summary()
    assert summary.gpu_hours.used == summary.trials[number].gpu_hours == pytest.approx(2.0, abs=0.01)
    assert summary.gpu_hours.price == 3


@pytest.mark.parametrize("hours", [2, -2])
def test_a_clock_that_is_set_changes_no_duration(tmp_path, monkeypatch, hours) -> None:
    """Two hours forward spent a budget at once; backward the study had run for less than no time."""
    now = time.time
    ledger = opened(tmp_path, toy(budget=Budget(trials=4, worker_hours=1, wall_clock_s=3600)))
    number = ledger.ask()
    ledger.begin(number)
    monkeypatch.setattr(time, "time", lambda: now() + hours * 3600)
    assert ledger.report(number, 1, 0, [record(1, **{"train.loss": 1.0})]) is None
    ledger.finish(number, 1, outcome("complete", step=10, ndcg_at_10=0.5))
    summary = ledger.summary()
    assert 0 <= summary.wall_seconds < 600
    assert 0 < summary.trials[number].worker_seconds < 600


def test_the_time_of_a_launch_that_was_killed_counts(tmp_path) -> None:
    ledger = opened(tmp_path)
    number = ledger.ask()
    ledger.begin(number)
    ledger._account._started -= 1000
    ledger.report(number, 1, 0, [record(1, **{"train.loss": 1.0})])
    dies(ledger)
    assert 1000 <= opened(tmp_path).summary().wall_seconds < 1600


def test_changed_study_is_refused_and_names_the_key(tmp_path) -> None:
    dies(opened(tmp_path))
    with pytest.raises(Refused, match=r"config\.steps was 10, now 20.*--fresh"):
        opened(tmp_path, toy(config=ToyConfig(steps=20)))
    with pytest.raises(Refused, match=r"space\.k"):
        opened(tmp_path, toy(space=lambda trial: trial.suggest_float("k", 1, 2)))


def test_a_study_from_before_there_was_a_key_is_carried_on(tmp_path) -> None:
    """At the default of its class; from then on the key is part of the study."""
    storage, study = tmp_path / "study", toy(points=({"k": 2.0, "width": 2},))
    ledger = opened(storage, study)
    run_trial(ledger)
    stored = ledger._optuna.user_attrs["definition"]
    earlier = {key: value for key, value in stored.items() if key not in ("config.width", "replicates", "points")}
    earlier |= {"objectives": [{"name": "ndcg_at_10"}], "points": stored["points"]}
    ledger._optuna.set_user_attr("definition", earlier)
    ledger._optuna.set_user_attr("at_default", [])
    dies(ledger)
    url = ledger_url(storage)
    with pytest.raises(Refused, match=r": config\.width was absent, now 8\. Undo"):
        existing_study(url, "toy", toy(points=study.points, config=ToyConfig(steps=10, width=8)))
    assert existing_study(url, "toy", study) is not None
    again = opened(storage, study)
    assert again._optuna.user_attrs["definition"] == stored
    assert run_trial(again) == 1
    dies(again)
    with pytest.raises(Refused, match=r": config\.width was 4, now 8; points\.0\.k was 2\.0, now 4\.0\. Undo"):
        opened(storage, toy(points=({"k": 4.0, "width": 2},), config=ToyConfig(steps=10, width=8)))


def test_a_study_with_a_key_that_is_no_more_is_carried_on(tmp_path) -> None:
    """Where the key was at its default; who went back to an earlier version meets it too."""

    class Former(ToyConfig):
        depth: int = 2

    dies(opened(tmp_path / "default", toy(config=Former(steps=10))))
    dies(opened(tmp_path / "default", toy()))
    dies(opened(tmp_path / "changed", toy(config=Former(steps=10, depth=3))))
    with pytest.raises(Refused, match=r": config\.depth was 3, now absent\. Undo"):
        opened(tmp_path / "changed", toy())


def of_numpy(trial) -> None:
    trial.suggest_float("k", np.float32(0.5), np.float64(4), log=np.bool_(True))
    trial.suggest_int("batch_size", np.int64(2), np.int32(8), step=np.int64(2))
    assert trial.suggest_categorical("width", list(2 ** np.arange(2, 5))) in (4, 8, 16)
    # The space gets back what it named.
    assert isinstance(trial.suggest_categorical("dims", [(8, 16), np.array([16, 32])]), (tuple, np.ndarray))


def test_values_come_back_from_storage_as_they_went_in(tmp_path) -> None:
    """Of choices, bounds, points and controls, through all that a study does with them."""

    def typed(value) -> object:
        return [typed(item) for item in value] if isinstance(value, list) else (type(value), value)

    def parameters(ledger: Ledger) -> list[dict[str, object]]:
        return [{name: typed(value) for name, value in t.params.items()} for t in ledger.summary().trials]

    def again(**more) -> Ledger:
        study = toy(
            space=of_numpy, parameter="width", budget=Budget(trials=16),
            controls=({"dims": (8,), "batch_size": np.int64(4)},), points=({"width": np.int64(8), "dims": (16, 32)},),
        )  # fmt: skip
        return opened(tmp_path, study, **more)

    ledger = again()
    for _ in range(12):
        run_trial(ledger)
    seen = parameters(ledger)
    assert seen[0] == {"dims": [(int, 8)], "batch_size": (int, 4)}
    assert seen[1].items() >= {"dims": [(int, 16), (int, 32)], "width": (int, 8)}.items()
    assert all(params["k"][0] is float and params["batch_size"][0] is int for params in seen[1:])
    number = ledger.ask()
    dies(ledger)
    ledger = again()
    assert parameters(ledger)[:12] == seen
    assert ledger.ask() == number
    begun = ledger.begin(number)
    params = ledger.summary().trials[number].params
    assert begun.config["dims"] == tuple(params["dims"])
    ledger.finish(number, begun.attempt, None, "RuntimeError: no")
    dies(ledger)
    ledger = again(retry_failed=True)
    number = run_trial(ledger)
    assert ledger.summary().trials[number].params == params
    run_trial(ledger)
    assert ledger.conclude().status == "finished"


def test_newer_format_is_refused(tmp_path) -> None:
    ledger = opened(tmp_path)
    ledger._optuna.set_user_attr("format", 99)
    dies(ledger)
    with pytest.raises(Refused, match="format 99"):
        existing_study(ledger_url(tmp_path), "toy", toy())


def test_second_ledger_is_refused_by_name_of_the_first(tmp_path, monkeypatch) -> None:
    first = opened(tmp_path)
    monkeypatch.setattr("time.monotonic", iter(range(0, 10**6, 30)).__next__)
    with pytest.raises(Held, match=r"in use by process \d+ on "):
        opened(tmp_path)
    assert first.ask() == 0


def test_space_over_an_unknown_key_and_points_outside_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown key 'kk'; did you mean 'k'"):
        explore(toy(space=lambda trial: trial.suggest_float("kk", 1, 2)))
    with pytest.raises(ValueError, match=r"k=99 is not in the search space"):
        explore(toy(points=({"k": 99},)))
    with pytest.raises(ValueError, match="raises ZeroDivisionError"):
        explore(toy(space=lambda trial: 1 / 0))


def test_several_objectives_give_the_pareto_front(tmp_path) -> None:
    study = toy(objectives=(Objective(name="ndcg_at_10"), Objective(name="flops", direction="minimize")))
    ledger = opened(tmp_path, study)
    for value, flops in ((0.5, 2.0), (0.4, 1.0), (0.3, 3.0)):
        number = ledger.ask()
        ledger.begin(number)
        assert ledger.report(number, 1, 0, [record(5, ndcg_at_10=value, flops=flops)]) is None
        ended = outcome("complete", ndcg_at_10=value, flops=flops)
        ledger.replicate_ended(number, 1, 0, ended)
        ledger.finish(number, 1, ended)
    assert ledger.summary().best == (0, 1)


def test_pruning_with_several_objectives_is_refused() -> None:
    with pytest.raises(ValueError, match=r"2 objectives: pruning"):
        toy(
            objectives=(Objective(name="ndcg_at_10"), Objective(name="flops", direction="minimize")),
            pruner=Pruner(kind="median"),
        )


def test_arms_of_a_paired_design_must_agree_seed_by_seed(tmp_path) -> None:
    study = toy(design="paired", replicates=2, points=({"k": 1.0, "width": 2}, {"k": 2.0, "width": 2}))
    ledger = opened(tmp_path, study)
    for _ in range(2):
        ledger.begin(ledger.ask())
    assert ledger.describe(0, 1, 0, {"hash.initialisation": "a", "parameters": 3}) is None
    assert ledger.describe(0, 1, 1, {"hash.initialisation": "b"}) is None
    assert ledger.describe(1, 1, 0, {"hash.initialisation": "a", "parameters": 4}) is None
    objection = ledger.describe(1, 1, 1, {"hash.initialisation": "x"})
    assert objection.startswith("trials 0 and 1 are arms of a paired design, but differ in initialisation for seed 1")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"replicates": 1}, "at least two seeds"),
        ({"replicates": 2, "pruner": Pruner(kind="median")}, "every arm runs all its seeds"),
    ],
)
def test_paired_design_is_refused_without_seeds_or_with_pruning(changes, message) -> None:
    with pytest.raises(ValueError, match=message):
        toy(design="paired", **changes)


def test_gang_shares_gpus_whole_and_batches_evenly() -> None:
    with pytest.raises(ValueError, match="a gang of 2 workers needs whole GPUs"):
        Resources(workers=2, gpus_per_worker=0.5)
    with pytest.raises(ValueError, match=r"batch_size=32 cannot be shared by resources\.workers=3"):
        toy(resources=Resources(workers=3))


STORE = "s3://bucket/all?region=eu-west-1"


def test_what_trials_write_to_an_object_store_is_below_the_study_s_id(tmp_path) -> None:
    ledger = opened(tmp_path, checkpoints=STORE)
    number = ledger.ask()
    place = f"s3://bucket/all/{ledger.id}/trials/0000"
    begun = ledger.begin(number)
    assert begun.store == f"{place}?region=eu-west-1"
    ledger.report(number, 1, 0, [record(4, ndcg_at_10=0.3)])
    assert ledger.summary().trials[0].checkpoint == f"{place}?region=eu-west-1"
    ended = replace(outcome("complete", ndcg_at_10=0.5), per_item={"test": {"ndcg_at_10": {"q": 0.5}}})
    ledger.replicate_ended(number, 1, 0, ended)
    ledger.finish(number, 1, ended)
    assert ledger.summary().trials[0].checkpoint == f"{place}/replicate-0/model?region=eu-west-1"
    # The report reads it there.
    result = json.loads((tmp_path / "trials" / "0000" / "replicate-0" / "result.json").read_text())
    assert result == asdict(ended) | {"study": ledger.id}


@pytest.mark.parametrize(
    ("first", "then", "message"),
    [
        (STORE, None, r"has its checkpoints in s3://bucket/all\?region=eu-west-1; give --checkpoints s3://"),
        (None, STORE, "has its checkpoints in its storage folder; give no --checkpoints"),
        (STORE, "s3://other/all", "has its checkpoints in s3://bucket/all"),
    ],
    ids=["left out", "added", "another"],
)
def test_a_study_keeps_its_checkpoints_where_they_are(tmp_path, first, then, message) -> None:
    """Elsewhere its trials would begin anew, without a word."""
    dies(opened(tmp_path, checkpoints=first))
    with pytest.raises(Refused, match=message):
        opened(tmp_path, checkpoints=then)
    with pytest.raises(Refused, match=message):
        existing_study(ledger_url(tmp_path), "toy", toy(), then)
    opened(tmp_path, checkpoints=first).close([], 0)


def test_a_study_has_a_name_that_tells_it_from_others(tmp_path) -> None:
    """The one that was asked for last, or what it is called, its folder where that is another, the end of its id."""
    names = []
    for label in (None, "the first of May", None):
        ledger = opened(tmp_path / "elsewhere", label=label)
        (*_, begun) = (entry for _, entry in ledger.journal.read() if isinstance(entry, StudyBegun))
        names.append(begun.name)
        ledger.close([], 0)
    assert names == [f"toy (elsewhere, {ledger.id[-4:]})", "the first of May", "the first of May"]
    assert opened(tmp_path / "toy")._label(None) != f"toy ({ledger.id[-4:]})"
