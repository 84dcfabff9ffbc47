"""Complete means that every planned replicate has ended, whenever a study is told to stop. No Ray."""

from __future__ import annotations

import sys
import types

import pytest
from line_recipe import Line

from study.engine import trial
from study.ledger.ledger import Ledger
from study.spec import Budget, Objective, Resources, Study
from tests.ledgers import open_ledger
from trainables.config import TrainerConfig
from trainables.report import Metric

STEPS = 6


@pytest.fixture(autouse=True)
def line_trainer(monkeypatch):
    config = types.ModuleType("trainables.line.config")
    config.metrics, config.Config = lambda config: {"ndcg_at_10": Metric(label="gain", meaning="?")}, TrainerConfig
    recipe = types.ModuleType("trainables.line.recipe")
    recipe.build = lambda config, context: Line()
    package = types.ModuleType("trainables.line")
    package.config, package.recipe = config, recipe
    for module in (package, config, recipe):
        monkeypatch.setitem(sys.modules, module.__name__, module)


def study(**budget) -> Study:
    return Study(
        question="Which lr?", trainer="line", parameter="optimiser.lr", replicates=3,
        config=TrainerConfig(steps=STEPS, evaluate_every=3, checkpoint_every=2, batch_size=2),
        space=lambda trial: trial.suggest_float("optimiser.lr", 0.01, 0.1), objectives=(Objective(name="ndcg_at_10"),),
        budget=Budget(trials=1, **budget), resources=Resources(gpus_per_worker=1),
    )  # fmt: skip


class Actor:
    """A ledger whose calls are made as those of an actor are; `at_last_step` is done before the last report of one."""

    def __init__(self, ledger: Ledger, replicate: int = -1, at_last_step=None) -> None:
        self.ledger, self.replicate, self.at_last_step = ledger, replicate, at_last_step

    def __getattr__(self, name):
        return types.SimpleNamespace(remote=self.reported if name == "report" else getattr(self.ledger, name))

    def reported(self, number, attempt, replicate, records):
        last = any(record["step"] == STEPS for record in records)
        if last and replicate == self.replicate:
            self.at_last_step(self.ledger)
        return self.ledger.report(number, attempt, replicate, records)


def run(actor: Actor, monkeypatch, tmp_path) -> str:
    """What a gang of one does with the next trial: `study.engine.trial.work` without Ray."""
    monkeypatch.setattr("ray.get", lambda answer: answer)
    monkeypatch.setattr("study.engine.gang.taken_away", lambda: None)
    ledger = actor.ledger
    number = ledger.ask()
    begun = ledger.begin(number)
    outcome = trial._train(begun, number, Resources(), 0, 1, actor)
    return ledger.finish(number, begun.attempt, outcome)


def spend(ledger: Ledger) -> None:
    ledger._account._opened[0] -= 3600


STOPS = {
    "asked to": lambda ledger: ledger.halt("stopped by SIGINT"),
    "budget": spend,
}


@pytest.mark.parametrize("replicate", [0, 1])
@pytest.mark.parametrize("stop", STOPS)
def test_a_stop_in_the_last_evaluation_of_a_replicate(tmp_path, monkeypatch, stop, replicate) -> None:
    """It was ended as complete with one replicate of three, and no launch went back to it."""
    ledger = open_ledger("line", study(gpu_hours=0.9), tmp_path)
    assert run(Actor(ledger, replicate, STOPS[stop]), monkeypatch, tmp_path) == "interrupted"
    shown = ledger.conclude().trials[0]
    assert (shown.state, len(shown.replicates)) == ("interrupted", replicate + 1)
    assert (shown.steps, shown.planned_steps) == ((replicate + 1) * STEPS, 3 * STEPS)
    told = ledger._optuna.get_trials()[0]
    assert (told.state.name, told.values) == ("RUNNING", None)
    assert not ledger.journal.ended(0)
    ledger.close([], 0)

    again = open_ledger("line", study(gpu_hours=90), tmp_path)
    first = ledger._rows[0].replicates
    assert run(Actor(again), monkeypatch, tmp_path) == "complete"
    shown = again.conclude().trials[0]
    assert [r.seed for r in shown.replicates] == [0, 1, 2]
    assert [told.values for told in again._rows[0].replicates[: replicate + 1]] == [told.values for told in first]
    assert (shown.steps, shown.attempts) == (3 * STEPS, 2)
    told = again._optuna.get_trials()[0]
    assert (told.state.name, told.value) == ("COMPLETE", shown.values["ndcg_at_10"])
    again.close([], 0)


def test_a_stop_in_the_last_evaluation_of_the_last_replicate_changes_nothing(tmp_path, monkeypatch) -> None:
    ledger = open_ledger("line", study(), tmp_path)
    assert run(Actor(ledger, 2, STOPS["asked to"]), monkeypatch, tmp_path) == "complete"
    assert ledger.conclude().trials[0].state == "complete"
    ledger.close([], 0)
