"""A study that never trains, and what its ledger is told. The fixture `toy_trainer` has its trainer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import optuna
from pydantic import model_validator

from study.ledger.ledger import Ledger
from study.protocol.messages import Outcome
from study.protocol.states import ReplicateState
from study.spec import Budget, Objective, Study
from tests.ledgers import open_ledger
from trainables.config import TrainerConfig


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
