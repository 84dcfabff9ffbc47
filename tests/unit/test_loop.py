"""The loop's records reach the ledger whole, whenever the worker or the ledger is lost."""

from __future__ import annotations

import types
from pathlib import Path

import pytest
import torch

from trainables import loop
from trainables.context import Context
from trainables.recipe import Evaluation, TrainerConfig

CONFIG = TrainerConfig(steps=12, evaluate_every=12, checkpoint_every=2, batch_size=2)


class Line:
    """A recipe that fits one weight; its steps take no time, so that many lie between two reports."""

    rules = ()
    description = {}  # noqa: RUF012

    def __init__(self) -> None:
        self.model = torch.nn.Linear(1, 1, bias=False)

    def parameter_groups(self, weight_decay):
        return [{"params": list(self.model.parameters()), "weight_decay": weight_decay}]

    def batch(self, step):
        return torch.full((2, 1), float(step))

    def loss(self, batch, step):
        return (self.model(batch) - 1).square().mean(), {}

    def evaluate(self, splits):
        return {split: Evaluation({"metric": float(self.model.weight)}) for split in splits}

    def export(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)


class Lost(Exception):
    pass


class Losing(Context):
    """A ledger whose answers are late by one report without `wait`, and that is gone after `reports` of them.

    As with an actor, what was sent last may or may not have arrived; here it has not.
    """

    reports = 10**6
    arrived: list

    def report(self, records, wait):
        self.__dict__.setdefault("_under_way", [])
        self.reports -= 1
        if self.reports < 0:
            raise Lost
        self.arrived += self._under_way
        self._under_way = [] if wait else records
        self.arrived += records if wait else []


def train(folder: Path, arrived: list, reports: int = 10**6, attempt: int = 1) -> loop.Outcome:
    context = Losing(seed=0, folder=folder, device=torch.device("cpu"), attempt=attempt)
    context.arrived, context.reports = arrived, reports
    return loop.run(types.SimpleNamespace(build=lambda config, context: Line()), CONFIG, context)


@pytest.mark.parametrize("report_every_s", [0.0, 0.004, 3600.0])
@pytest.mark.parametrize("reports", range(1, 10))
def test_a_lost_ledger_loses_no_step(tmp_path, monkeypatch, report_every_s, reports) -> None:
    """Checkpoints overtake reports: a step between two of them must not be lost with its report."""
    monkeypatch.setattr(loop, "REPORT_EVERY_S", report_every_s)
    arrived: list = []
    try:
        train(tmp_path, arrived, reports)
    except Lost:
        train(tmp_path, arrived, attempt=2)
    high, kept = -1, []
    for record in arrived:  # as the journal takes them
        if record["step"] > high:
            high = record["step"]
            kept.append(high)
    assert kept == list(range(13))
