"""The ledger on SQLite and on a real PostgreSQL: endings, carrying on, fencing, pruning, budgets. No Ray, no torch."""

from __future__ import annotations

import errno
import json
import math
import sys
import time
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import optuna
import pytest
from pydantic import model_validator

from study.ledger.faults import NODE_FAULTS, STARTS, Faults
from study.ledger.ledger import Ledger
from study.ledger.lock import Held
from study.ledger.optuna_study import Refused, existing_study, outlook
from study.ledger.queue import FUTILE
from study.ledger.space import explore
from study.protocol.destinations import Destinations
from study.protocol.folder import StudyFolder
from study.protocol.journal import Ended, Metrics, StudyBegun
from study.protocol.messages import HandOut, Outcome, Trouble
from study.protocol.states import ReplicateState
from study.spec import Budget, Objective, Pruner, Resources, Study
from study.suites.measurements import trial_configs
from study.tracking.mlflow_runs import status_of
from tests.ledgers import ledger_url, open_ledger
from trainables.config import TrainerConfig
from trainables.faults import Fault
from trainables.report import Metric


class ToyConfig(TrainerConfig):
    k: float = 1.0
    width: int = 4
    dims: tuple[int, ...] = (8, 16)


class Picky(ToyConfig):
    refused: ClassVar[Callable[[Picky], bool]] = lambda config: False

    @model_validator(mode="after")
    def _picked(self) -> Picky:
        if type(self).refused(self):
            raise ValueError(f"k is {self.k:g} and width {self.width}: no such thing")
        return self


@pytest.fixture(autouse=True)
def toy_trainer(monkeypatch):
    """A trainer of which only the config exists: the ledger never trains."""
    module = types.ModuleType("trainables.toy.config")
    gain, cost = Metric(label="gain", meaning="?"), Metric(label="cost", meaning="?", direction="minimize")
    module.metrics = lambda config: {"ndcg_at_10": gain, "flops": cost}
    package = types.ModuleType("trainables.toy")
    package.config = module
    monkeypatch.setitem(sys.modules, "trainables.toy", package)
    monkeypatch.setitem(sys.modules, "trainables.toy.config", module)


@pytest.fixture(autouse=True, params=["sqlite", "postgresql"])
def database(request, monkeypatch) -> Iterator[None]:
    """Where a ledger is kept: in a file of its storage folder, or in a database on a server, one for each folder."""
    if request.param == "sqlite":
        yield
        return
    server, urls = request.getfixturevalue("postgres"), {}
    with ExitStack() as stack:

        def url(storage: StudyFolder) -> str:
            if storage not in urls:
                urls[storage] = stack.enter_context(server.database())
            return urls[storage]

        monkeypatch.setattr(Destinations, "ledger_url", property(lambda self: self.ledger or url(self.storage)))
        yield


def space(trial):
    trial.suggest_float("k", 0.1, 10, log=True)
    trial.suggest_int("width", 1, 8)


def toy(**changes) -> Study:
    return Study(
        **{
            "question": "Which k?", "trainer": "toy", "parameter": "k", "config": ToyConfig(steps=10),
            "space": space, "objectives": (Objective(name="ndcg_at_10"),), "budget": Budget(trials=4),
        } | changes
    )  # fmt: skip


def opened(storage: Path, study: Study | None = None, **arguments) -> Ledger:
    return open_ledger("toy", study or toy(), storage, **arguments)


def dies(ledger: Ledger) -> None:
    """What a SIGKILL leaves: the files as they are, the lock free, and a lease whose holder is gone."""
    ledger.journal.close()
    ledger._lease.release()
    ledger._lock.release()


def record(step: int, **metrics: float) -> dict:
    return {"step": step, "time": 1000 + step, "metrics": metrics}


def outcome(state: str, step: int = 10, reason: str | None = None, **values: float) -> Outcome:
    return Outcome(ReplicateState(state), reason, step, values, seconds=5.0, seconds_per_step=0.5)


def trial_of(ledger: Ledger, number: int) -> optuna.trial.FrozenTrial:
    return ledger._optuna.get_trials()[number]


def run_trial(ledger: Ledger, value: float = 0.5, state: str = "complete", **more) -> int:
    number = ledger.ask()
    attempt = ledger.begin(number).attempt
    ended = outcome(state, ndcg_at_10=value, **more)
    ledger.replicate_ended(number, attempt, 0, ended)
    ledger.finish(number, attempt, ended)
    return number


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


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_server_that_hung_up_is_called_again(tmp_path, postgres) -> None:
    ledger = opened(tmp_path)
    number = ledger.ask()
    postgres.hang_up()
    ledger.begin(number)
    postgres.hang_up()
    assert ledger.report(number, 1, 0, [record(4, ndcg_at_10=0.5)]) is None
    ended = outcome("complete", ndcg_at_10=0.5)
    ledger.replicate_ended(number, 1, 0, ended)
    postgres.hang_up()
    assert ledger.finish(number, 1, ended) == "complete"
    assert trial_of(ledger, number).state.name == "COMPLETE"


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


def test_three_failures_in_a_row_end_the_study(tmp_path) -> None:
    ledger = opened(tmp_path)
    for _ in range(3):
        number = ledger.ask()
        ledger.begin(number)
        ledger.finish(number, 1, None, "RuntimeError: always")
    assert ledger.ask() is None
    assert ledger.conclude().status == "failed"


def test_parameters_that_the_config_refuses_fail_their_trial_alone(tmp_path, monkeypatch) -> None:
    """Whatever comes of a launch that was killed before it could say so: the next one is not held up either."""
    ledger = opened(tmp_path, toy(config=Picky(steps=10)))
    run_trial(ledger)
    ledger._optuna.ask().suggest_float("k", 0.1, 10, log=True)  # killed before the second parameter of trial 1
    dies(ledger)
    ledger = opened(tmp_path, toy(config=Picky(steps=10)))
    params = []

    def refused(config: Picky) -> bool:
        params.append((config.k, config.width))
        return len(params) == 1

    monkeypatch.setattr(Picky, "refused", refused)
    assert run_trial(ledger) == 2
    monkeypatch.setattr(Picky, "refused", lambda config: False)
    row = ledger.summary().trials[1]
    k, width = params[0]
    assert (row.state, row.reason) == ("failed", f"k is {k:g} and width {width}: no such thing")
    assert (row.params, row.attempts, row.worker_seconds) == ({"k": k, "width": width}, 0, 0)
    trial = trial_of(ledger, 1)
    assert (trial.state.name, trial.constraints["refused"]) == ("PRUNED", 1.0)
    entries = [entry for _, entry in ledger.journal.read() if entry.trial == 1]
    assert [entry.op for entry in entries] == ["trial", "values", "end"]
    assert (entries[0].params["k"], entries[0].params["steps"]) == (k, 10)
    assert (entries[2].state, entries[2].reason) == ("failed", row.reason)
    # Its parameters make no config, which nobody asks for.
    monkeypatch.setattr(sys.modules["trainables.toy.config"], "Config", Picky, raising=False)
    monkeypatch.setattr(Picky, "refused", lambda config: config.k == k)
    assert set(trial_configs("toy", StudyFolder(tmp_path), {0, 2})) == {0, 2}
    dies(ledger)
    again = opened(tmp_path, toy(config=Picky(steps=10)))
    assert run_trial(again) == 3
    assert again.ask() is None
    assert again.conclude().status == "finished"


def test_refused_parameters_are_not_run_again_with_the_failed_ones(tmp_path, monkeypatch) -> None:
    ledger = opened(tmp_path, toy(config=Picky(steps=10), budget=Budget(trials=3)))
    number = ledger.ask()
    ledger.begin(number)
    ledger.finish(number, 1, None, "OutOfMemoryError: no")
    monkeypatch.setattr(Picky, "refused", lambda config: True)
    assert ledger.ask() is None
    monkeypatch.setattr(Picky, "refused", lambda config: False)
    dies(ledger)
    again = opened(tmp_path, toy(config=Picky(steps=10), budget=Budget(trials=3)), retry_failed=True)
    assert run_trial(again) == 3
    assert again.ask() is None
    assert [row.retry_of for row in again.summary().trials] == [None, None, None, 0]


def test_a_refusal_that_a_kill_cut_short_is_told(tmp_path, monkeypatch) -> None:
    ledger = opened(tmp_path, toy(config=Picky(steps=10)))
    monkeypatch.setattr(Picky, "refused", lambda config: True)
    ledger._optuna.tell = lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        ledger.ask()
    dies(ledger)
    monkeypatch.setattr(Picky, "refused", lambda config: False)
    again = opened(tmp_path, toy(config=Picky(steps=10)))
    assert (trial_of(again, 0).state.name, trial_of(again, 0).constraints["refused"]) == ("PRUNED", 1.0)
    assert run_trial(again) == 1


def test_a_space_that_raises_now_and_then_fails_its_trial_alone(tmp_path) -> None:
    moods: list[Exception] = []

    def moody(trial) -> None:
        space(trial)
        if moods:
            raise moods.pop()

    ledger = opened(tmp_path, toy(space=moody))
    moods.append(KeyError("width"))
    assert run_trial(ledger) == 1
    row = ledger.summary().trials[0]
    assert (row.state, row.reason) == ("failed", "the search space raises KeyError: 'width'")
    assert set(row.params) == {"k", "width"}


@pytest.mark.parametrize(
    "fault", [optuna.exceptions.StorageInternalError("away"), RuntimeError("not the head any more")]
)
def test_a_fault_of_the_storage_is_no_refusal(tmp_path, monkeypatch, fault) -> None:
    ledger = opened(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(type(ledger._optuna._storage), "set_trial_param", lambda *a: (_ for _ in ()).throw(fault))
        with pytest.raises(type(fault)):
            ledger.ask()
    assert run_trial(ledger) == 0


def test_refusals_in_a_row_end_the_study_and_name_the_keys(tmp_path, monkeypatch) -> None:
    """A later launch tries again, and trials that are none of them have their say in between."""
    study = toy(config=Picky(steps=10), budget=Budget(trials=16))
    ledger = opened(tmp_path, study)
    run_trial(ledger)
    monkeypatch.setattr(Picky, "refused", lambda config: True)
    assert ledger.ask() is None
    monkeypatch.setattr(Picky, "refused", lambda config: False)
    assert ledger.ask() is None
    summary = ledger.conclude()
    assert summary.status == "failed"
    assert [t.state for t in summary.trials] == ["complete"] + ["failed"] * FUTILE
    last = summary.trials[-1]
    assert summary.reason == (
        f"the parameters of {FUTILE} trials in a row cannot be run, at last k={last.params['k']!r}, "
        f"width={last.params['width']}: {last.reason}; narrow the search space"
    )
    ledger.close([], 0)
    (end,) = (e for _, e in ledger.journal.read() if isinstance(e, Ended) and e.trial is None)
    assert end.reason == summary.reason
    again = opened(tmp_path, study)
    assert again.summary().reason is None
    assert run_trial(again) == 1 + FUTILE
    seen: set[float] = set()

    def mostly(config: Picky) -> bool:
        seen.add(config.k)
        return len(seen) % FUTILE != 0

    monkeypatch.setattr(Picky, "refused", mostly)
    assert again.ask() == 1 + 2 * FUTILE
    assert again.ask() is None
    assert again.summary().reason is None


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


def test_a_trial_that_leaves_its_nodes_is_handed_out_again_in_the_same_launch(tmp_path) -> None:
    """Its gang was told that a node goes away: it stops with a checkpoint, and that is no failure."""
    ledger = opened(tmp_path, toy(budget=Budget(trials=1)))
    number = ledger.ask()
    ledger.begin(number)
    assert ledger.ask() is None
    assert ledger.finish(number, 1, outcome("stopped", step=4, reason="a node is about to be taken away")) == (
        "interrupted"
    )
    shown = ledger.summary().trials[0]
    assert (shown.state, shown.reason) == ("interrupted", "a node is about to be taken away")
    assert ledger.ask() == number
    assert ledger.begin(number).attempt == 2
    ended = outcome("complete", ndcg_at_10=0.5)
    ledger.replicate_ended(number, 2, 0, ended)
    assert ledger.finish(number, 2, ended) == "complete"
    assert ledger.summary().trials[0].reason is None
    assert ledger.conclude().status == "finished"


def test_a_gang_that_is_lost_while_the_study_stops_costs_what_it_held(tmp_path) -> None:
    ledger = opened(tmp_path)
    number = ledger.ask()
    ledger.halt("stopped by hand")
    ledger._account._opened[number] -= 3000
    assert ledger.abandon(number, "lost") == "interrupted"
    assert 3000 <= ledger.summary().trials[0].worker_seconds < 3600
    assert ledger.summary().trials[0].worker_seconds == ledger.summary().trials[0].worker_seconds


NODE = "a" * 56


def test_a_fault_of_a_machine_is_none_of_its_trial(tmp_path) -> None:
    ledger = opened(tmp_path)
    handed = ledger.hand_out()
    ledger.begin(handed.number, handed.ticket)
    trouble = Trouble(Fault.NODE, "uncorrectable ECC error", NODE)
    assert ledger.trouble(handed.number, 1, trouble) == "interrupted"
    # The rest of the gang is lost with it, and Train starts it once more.
    assert ledger.begin(handed.number, handed.ticket) is None
    assert ledger.abandon(handed.number, "its gang was lost", handed.ticket) == "running"
    assert ledger.notices() == ["trial 0 goes on elsewhere or later: uncorrectable ECC error"]
    assert ledger.notices() == []
    again = ledger.hand_out()
    assert (again.number, again.ticket, again.tried) == (handed.number, handed.ticket + 1, {NODE})
    assert ledger.begin(again.number, again.ticket).attempt == 2
    ledger.replicate_ended(again.number, 2, 0, outcome("complete", ndcg_at_10=0.5))
    assert ledger.finish(again.number, 2, outcome("complete", ndcg_at_10=0.5)) == "complete"


def test_a_bad_machine_leaves_the_study_and_no_trial_fails(tmp_path) -> None:
    ledger = opened(tmp_path)
    for attempt in range(NODE_FAULTS):
        handed = ledger.hand_out()
        attempt = ledger.begin(handed.number, handed.ticket).attempt
        ledger.trouble(handed.number, attempt, Trouble(Fault.NODE, "uncorrectable ECC error", NODE))
    assert ledger.standing().left == {NODE}
    ledger.give_up("every node that has room for a trial has failed several times")
    assert ledger.standing().halted
    summary = ledger.conclude()
    assert (summary.status, [t.state for t in summary.trials]) == ("interrupted", ["interrupted"])
    assert ledger.lost() == "every node that has room for a trial has failed several times"


def test_what_all_trials_need_is_waited_for_and_then_the_study_is_interrupted(tmp_path) -> None:
    ledger = opened(tmp_path)
    now = 0.0
    ledger._faults = Faults(lambda: now)
    while not ledger.standing().halted:
        handed = ledger.hand_out()
        attempt = ledger.begin(handed.number, handed.ticket).attempt
        ledger.trouble(handed.number, attempt, Trouble(Fault.SHARED, "no space left on device"))
        now += 600
    assert ledger.conclude().status == "interrupted"
    assert ledger.lost() == "waited in vain for what all trials need: no space left on device"


def test_waiting_for_room_is_no_failure_however_long(tmp_path) -> None:
    ledger = opened(tmp_path)
    for _ in range(40):
        handed = ledger.hand_out()
        assert handed.number == 0
        ledger.give_back(0, handed.ticket, "its gang could not start: the cluster has no room for it", True)
    assert ledger.summary().trials[0].state == "interrupted"
    assert ledger.notices() == ["trial 0 waits: its gang could not start: the cluster has no room for it"] * 40


def test_a_gang_that_never_starts_fails_its_trial(tmp_path) -> None:
    ledger = opened(tmp_path)
    states = []
    while "failed" not in states:
        handed = ledger.hand_out()
        assert handed.number == 0
        states.append(ledger.give_back(0, handed.ticket, "its gang could not start: no such environment", False))
    assert states == ["interrupted"] * STARTS + ["failed"]


@pytest.mark.parametrize("at_a_time", [1, 4])
def test_failures_in_a_row_end_a_study_whatever_ended_before(tmp_path, at_a_time) -> None:
    """59 of 60 trials failed, and the study was finished."""
    ledger = opened(tmp_path, toy(budget=Budget(trials=60)))
    run_trial(ledger)
    failed = 0
    while (number := ledger.ask()) is not None:
        live = [number, *(n for _ in range(at_a_time - 1) if (n := ledger.ask()) is not None)]
        for number in live:
            ledger.begin(number)
            ledger.finish(number, 1, None, "RuntimeError: always")
            failed += 1
    assert failed == max(5, 2 * at_a_time)
    summary = ledger.conclude()
    assert summary.status == "failed"
    assert summary.reason.startswith(f"the last {failed} trials failed, one after the other, at last trial ")


def test_a_storage_that_is_away_changes_nothing_and_is_asked_again(tmp_path, monkeypatch) -> None:
    """Each call that a gang makes, at each of its writes: it raises, and once more it does what it should have."""

    @contextmanager
    def failing(ledger: Ledger, at: int) -> Iterator[None]:
        """The write of this number, from 1, raises."""
        left = at

        def write(done: Callable, *arguments):
            nonlocal left
            left -= 1
            if left == 0:
                raise OSError(errno.EIO, "Input/output error")
            return done(*arguments)

        with monkeypatch.context() as patch:
            for owner, name in ((ledger._trials, "store"), (ledger._trials, "tell"), (ledger.journal, "append")):
                patch.setattr(owner, name, partial(write, getattr(owner, name)))
            yield

    def calls(ledger: Ledger) -> Iterator[Callable[[], object]]:
        yield lambda: ledger.begin(0, 1)
        yield lambda: ledger.describe(0, 1, 0, {"hash.data_order": "d"})
        yield lambda: ledger.report(0, 1, 0, [record(1, **{"train.loss": 1.0}), record(2, ndcg_at_10=0.4)])
        yield lambda: ledger.replicate_ended(0, 1, 0, outcome("complete", ndcg_at_10=0.5))
        yield lambda: ledger.finish(0, 1, outcome("complete", ndcg_at_10=0.5))

    repeated = 0
    for at in range(1, 5):
        ledger = opened(tmp_path / str(at))
        ledger.hand_out()
        for call in calls(ledger):
            try:
                with failing(ledger, at):
                    call()
            except OSError:
                assert not ledger._rows[0].state.ended
                call()
                repeated += 1
        trial = ledger.summary().trials[0]
        assert (trial.state, trial.attempts, trial.steps) == ("complete", 1, 10), at
        told = trial_of(ledger, 0)
        assert (told.state.name, told.value, told.intermediate_values) == ("COMPLETE", 0.5, {2: 0.4})
        assert [r["step"] for _, e in ledger.journal.read() if isinstance(e, Metrics) for r in e.records] == [1, 2]
        ledger.close([], 0)
    assert repeated >= 9


def test_a_view_that_cannot_be_written_stops_nothing(tmp_path, monkeypatch) -> None:
    ledger = opened(tmp_path)

    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("study.ledger.view.write_whole", full)
    assert run_trial(ledger) == 0
    assert [n.partition(" just now")[0] for n in ledger.notices()] == ["summary.json is not written"]


def test_a_gang_that_has_left_cannot_come_back(tmp_path) -> None:
    """Train may start it once more, or lose it: neither touches the gang that has the trial now."""
    ledger = opened(tmp_path)
    handed = ledger.hand_out()
    number, ticket = handed.number, handed.ticket
    assert ledger.begin(number, ticket).attempt == 1
    # Train starts a gang again that has lost a worker.
    assert ledger.begin(number, ticket).attempt == 2
    ledger.finish(number, 2, outcome("stopped", step=4, reason="a node is about to be taken away"))
    assert ledger.begin(number, ticket) is None
    assert ledger.hand_out() == HandOut(number, ticket + 1)
    assert ledger.begin(number, ticket) is None
    assert ledger.abandon(number, "lost", ticket) == "running"
    assert ledger.begin(number, ticket + 1).attempt == 3
    assert ledger.abandon(number, "lost", ticket + 1) == "failed"


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
