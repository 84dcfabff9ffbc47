"""Synthetic searches for tests: a config, a space and a goal, told to a real ledger over Optuna's storage in memory,
which outlives the ledger."""

from __future__ import annotations

import math
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import optuna
import pytest
from pydantic import model_validator

from study.ledger import optuna_study
from study.ledger.view import View
from study.protocol.messages import Outcome
from study.protocol.states import ReplicateState
from study.spec import Budget, Objective, Pruner, Study
from tests.ledgers import open_ledger
from trainables.config import TrainerConfig
from trainables.report import Metric

TRIALS, STEPS, REPORTED = 60, 81, (1, 3, 9, 27, 81)
FIRST_STEP, FACTOR, STARTUP = 3, 3, 4
ENOUGH = Objective(name="ndcg_at_10"), Objective(name="flops", direction="minimize")


class ToyConfig(TrainerConfig):
    k: float = 1.0
    width: int = 4
    arm: bool = False
    shape: str | tuple[int, ...] = "round"
    limit: ClassVar[float] = math.inf
    """Of k; lowered after the start it is met by trials only."""
    refused_shape: ClassVar[str] = ""
    """A shape that no config may have from then on."""

    @model_validator(mode="after")
    def _limited(self) -> ToyConfig:
        if self.k > self.limit or self.shape == self.refused_shape:
            raise ValueError(f"k is {self.k:g} and width {self.width}: no such thing")
        return self


def provide_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `toy` a trainer of which only the config exists, and have ledgers write no files for others."""
    module: Any = types.ModuleType("trainables.toy.config")
    gain, cost = Metric(label="gain", meaning="?"), Metric(label="cost", meaning="?", direction="minimize")
    module.metrics = lambda config: {"ndcg_at_10": gain, "flops": cost}
    monkeypatch.setitem(sys.modules, "trainables.toy", types.ModuleType("trainables.toy"))
    monkeypatch.setitem(sys.modules, "trainables.toy.config", module)
    # The ledger outlives nothing here but itself: what it writes for others, and when, is tested elsewhere.
    monkeypatch.setattr(View, "due", False)
    monkeypatch.setattr("os.fsync", lambda file: None)


def space(trial) -> None:
    trial.suggest_float("k", 0.1, 10, log=True)
    trial.suggest_int("width", 1, 8)


def goal(params: dict[str, Any], step: int) -> dict[str, float]:
    """Best at k = 1 and width 3; a trial is ahead of another one at every step or at none."""
    k, width = params.get("k", 1), params.get("width", 3)
    return {"ndcg_at_10": -(math.log10(k) ** 2) - ((width - 3) / 8) ** 2 - 1 / step, "flops": width}


def toy(sampler: str, kind: str = "none", **changes: Any) -> Study:
    return Study(
        **{
            "question": "Which k?", "trainer": "toy", "parameter": "k", "config": ToyConfig(steps=STEPS),
            "space": space, "objectives": ENOUGH[:1], "budget": Budget(trials=TRIALS), "sampler": sampler,
            "pruner": Pruner(kind=kind, first_step=FIRST_STEP, reduction_factor=FACTOR, startup_trials=STARTUP),
        } | changes
    )  # fmt: skip


@dataclass(frozen=True)
class Ended:
    params: dict[str, Any]
    state: str
    reason: str | None
    last: int
    """Newest step that it reported."""


class Studied:
    """A study that is run, killed and run again; Optuna's storage is all that stays, with the study's folder."""

    def __init__(self, monkeypatch, folder: Path, study: Study, goal: Callable[..., dict[str, float]] = goal) -> None:
        self.storage, self.folder, self.study, self.goal = optuna.storages.InMemoryStorage(), folder, study, goal
        monkeypatch.setattr(optuna_study, "_database", lambda url, fence=None: self.storage)
        self.open()

    def open(self, **arguments: Any) -> None:
        self.ledger = open_ledger("toy", self.study, self.folder, **arguments)

    def die(self) -> None:
        self.ledger.journal.close()
        self.ledger._lease.release()
        self.ledger._lock.release()
        del self.ledger

    def params(self, number: int) -> dict[str, Any]:
        """What the trial changes in the config, by its group or by its parameters."""
        return self.ledger._trials.settings(self.ledger._rows[number])

    def report(self, number: int, attempt: int, step: int) -> str | None:
        metrics = self.goal(self.params(number), step)
        return self.ledger.report(number, attempt, 0, [{"step": step, "time": step, "metrics": metrics}])

    def run_trial(self) -> int | None:
        number = self.ledger.ask()
        if number is None:
            return None
        self.end(number, self.ledger.begin(number).attempt)
        return number

    def end(self, number: int, attempt: int) -> None:
        """Let a trial run to its end, or until it is told to stop."""
        for step in REPORTED:
            stop = self.report(number, attempt, step)
            if stop:
                break
        outcome = Outcome(
            ReplicateState.STOPPED if stop else ReplicateState.COMPLETE, stop, step,
            self.goal(self.params(number), step), seconds=1.0, seconds_per_step=0.1,
        )  # fmt: skip
        if not stop:
            self.ledger.replicate_ended(number, attempt, 0, outcome)
        self.ledger.finish(number, attempt, outcome)

    def run(self) -> list[Ended]:
        while self.run_trial() is not None:
            pass
        return self.ended()

    def ended(self) -> list[Ended]:
        return [
            Ended(self.params(row.number), row.state, row.reason, row.step or STEPS)
            for row in self.ledger._rows.values()
        ]

    def run_with_kills(self) -> list[Ended]:
        """A kill inside the 21st trial, between two reports, one inside the suggestion of the 41st, and one between the
        making of the 44th and its first parameter."""
        for _ in range(20):
            self.run_trial()
        number = self.ledger.ask()
        self.report(number, self.ledger.begin(number).attempt, REPORTED[0])
        self.die()
        self.open()
        for _ in range(20):
            self.run_trial()
        begun = self.ledger._trials.searched(self.ledger._queue.next(()))
        begun.suggest_float("k", 0.1, 10, log=True)
        self.die()
        self.open()
        for _ in range(3):
            self.run_trial()
        self.ledger._optuna.ask()
        self.die()
        self.open()
        return self.run()


def run(monkeypatch, folder: Path, study: Study, **more: Any) -> list[Ended]:
    return Studied(monkeypatch, folder, study, **more).run()
