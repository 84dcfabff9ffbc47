"""The loop's records reach the ledger whole, whenever the worker or the ledger is lost."""

from __future__ import annotations

import json
import types
from pathlib import Path

import pytest
import torch
from line_recipe import Line

from trainables import loop
from trainables.checkpoints import Checkpoints
from trainables.config import Optimiser, Stage, TrainerConfig
from trainables.context import Context

loop_step = lambda: 0  # noqa: E731
"""The step that the loop of a test is at."""
CONFIG = TrainerConfig(steps=12, evaluate_every=12, checkpoint_every=2, batch_size=2)


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


def train(
    folder: Path, arrived: list, reports: int = 10**6, attempt: int = 1, config: TrainerConfig = CONFIG
) -> loop.Result:
    context = Losing(seed=0, folder=folder, device=torch.device("cpu"), attempt=attempt)
    context.arrived, context.reports = arrived, reports
    return loop.run(types.SimpleNamespace(build=lambda config, context: Line()), config, context)


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


class Slow(Context):
    """A ledger that takes as long to answer as ten steps take; asked before that, it would hold the loop up."""

    arrived: list
    waits: int = 0

    def report(self, records, wait):
        self.waits += not wait and not self.ready()
        self.arrived += records
        self.asked_at = loop_step() if self.arrived else -10
        return

    def ready(self):
        return loop_step() - self.__dict__.get("asked_at", -10) >= 10


def test_a_slow_ledger_does_not_hold_up_the_loop(tmp_path, monkeypatch) -> None:
    """It fell to one step for each answer."""
    monkeypatch.setattr(loop, "REPORT_EVERY_S", 0.0)
    line = Line()
    made: list[int] = []
    batch = line.batch
    monkeypatch.setattr(line, "batch", lambda step: made.append(step) or batch(step))
    monkeypatch.setitem(globals(), "loop_step", lambda: max(made, default=0))
    context = Slow(seed=0, folder=tmp_path, device=torch.device("cpu"))
    context.arrived = []
    config = CONFIG.model_copy(update={"steps": 60, "evaluate_every": 60})
    loop.run(types.SimpleNamespace(build=lambda config, context: line), config, context)
    assert context.waits == 0
    assert [record["step"] for record in context.arrived] == list(range(61))


class TwoStages(TrainerConfig):
    """Five steps with a constant rate, not measured, then the others with a falling one."""

    @property
    def stages(self):
        rest = Optimiser(lr=0.1, warmup=0, schedule="linear")
        return (
            Stage("first", 5, Optimiser(lr=0.5, warmup=0, schedule="constant"), evaluated=False),
            Stage("second", self.steps - 5, rest),
        )


STAGES = TwoStages(steps=9, evaluate_every=2, checkpoint_every=100, batch_size=2)


def test_each_stage_has_a_schedule_and_a_checkpoint_of_its_own(tmp_path) -> None:
    arrived: list = []
    train(tmp_path, arrived, config=STAGES)
    rates = [r["metrics"]["train.lr"] for r in arrived if "train.lr" in r["metrics"]]
    assert rates == pytest.approx([0.5] * 5 + [0.1, 0.075, 0.05, 0.025])
    assert [r["step"] for r in arrived if "ndcg_at_10" in r["metrics"]] == [0, 6, 8, 9]
    assert (tmp_path / "model-first").is_dir()
    assert (tmp_path / "model").is_dir()


@pytest.mark.parametrize("reports", range(4, 11, 2))
def test_a_stage_that_is_resumed_goes_on_as_if_nothing_had_happened(tmp_path, monkeypatch, reports) -> None:
    """Moments of an earlier stage must not come back with its checkpoint, nor those of its own be lost."""
    monkeypatch.setattr(loop, "REPORT_EVERY_S", 0.0)
    whole: list = []
    train(tmp_path / "whole", whole, config=STAGES)
    arrived: list = []
    for every in (100, 1):  # the only checkpoint is that of the stage's end; one after each step
        folder = tmp_path / str(every)
        config = STAGES.model_copy(update={"checkpoint_every": every})
        with pytest.raises(Lost):
            train(folder, [], reports, config=config)
        train(folder, arrived, attempt=2, config=config)
        losses = {r["step"]: r["metrics"]["train.loss"] for r in whole if "train.loss" in r["metrics"]}
        resumed = {r["step"]: r["metrics"]["train.loss"] for r in arrived if "train.loss" in r["metrics"]}
        assert resumed.items() <= losses.items()
        assert 9 in resumed


def test_a_stage_begins_with_fresh_moments(tmp_path, monkeypatch) -> None:
    begun: list = []
    real = torch.optim.AdamW

    def counted(*arguments, **more):
        begun.append(more["lr"])
        return real(*arguments, **more)

    monkeypatch.setattr(torch.optim, "AdamW", counted)
    train(tmp_path, [], config=STAGES)
    assert begun == [0.5, 0.1]


def test_a_step_past_the_last_stage_belongs_to_none() -> None:
    assert [STAGES.stage_of(step)[1] for step in (0, 4, 5, 8)] == [0, 4, 0, 3]
    with pytest.raises(IndexError, match="past the end"):
        STAGES.stage_of(9)


def judged(folder: Path, seen: dict, reports: int = 10**6, attempt: int = 1, config: TrainerConfig = STAGES) -> None:
    """Train with a rule that writes down what it is shown at each step, and never stops."""

    class Watched(Line):
        def __init__(self) -> None:
            super().__init__()
            self.rules = (lambda history: seen.__setitem__(history.before + history.done, json.dumps(history.state())),)

    context = Losing(seed=0, folder=folder, device=torch.device("cpu"), attempt=attempt)
    context.arrived, context.reports = [], reports
    loop.run(types.SimpleNamespace(build=lambda config, context: Watched()), config, context)


@pytest.mark.parametrize("reports", range(4, 11, 2))
def test_rules_see_the_same_history_after_a_resume(tmp_path, monkeypatch, reports) -> None:
    monkeypatch.setattr(loop, "REPORT_EVERY_S", 0.0)
    whole: dict = {}
    judged(tmp_path / "whole", whole)
    assert sorted(whole) == list(range(1, 10)), "short stages are judged at every step"
    last = json.loads(whole[9])
    assert (last["stage"], last["before"], last["done"]) == ("second", 5, 4)
    assert [step for step, _ in last["evaluations"]["ndcg_at_10"]] == [0, 6, 8]
    seen: dict = {}
    config = STAGES.model_copy(update={"checkpoint_every": 1})
    with pytest.raises(Lost):
        judged(tmp_path / "lost", seen, reports, config=config)
    judged(tmp_path / "lost", seen, attempt=2, config=config)
    assert seen == whole


def test_a_checkpoint_that_holds_every_step_is_carried_on(tmp_path, monkeypatch) -> None:
    """As releases before the histories were summed up wrote it."""
    monkeypatch.setattr(loop, "REPORT_EVERY_S", 0.0)
    whole: dict = {}
    judged(tmp_path / "whole", whole)
    config = STAGES.model_copy(update={"checkpoint_every": 1})
    arrived: list = []
    with pytest.raises(Lost):
        train(tmp_path / "old", arrived, 9, config=config)
    newest = max((tmp_path / "old").glob("step-*"))
    tensors, meta = Checkpoints(tmp_path / "old", 1).load(done := int(newest.name[5:]))
    assert done > 5
    blocks = json.loads(whole[9])["blocks"][: done - 5]
    steps = [{name: middle for name, (middle, _, _) in block.items()} for block in blocks]
    Checkpoints(tmp_path / "old", 1).save(done, tensors, meta | {"history": [{"loss": 1.0}] * 5 + steps})
    seen: dict = {}
    judged(tmp_path / "old", seen, attempt=2, config=config)
    assert json.loads(seen[9])["blocks"] == json.loads(whole[9])["blocks"]
    evaluated = json.loads(seen[9])["evaluations"]
    assert {name for name in meta["values"] if "." not in name} == evaluated.keys()
    assert [[step for step, _ in found][:2] for found in evaluated.values()] == [[0, done]]


@pytest.mark.parametrize("report_every_s", [0.0, 3600.0])
def test_what_a_ledger_refuses_when_it_says_stop_is_sent_again(tmp_path, monkeypatch, report_every_s) -> None:
    """A head that has lost its lease takes no records; a step was on no record then."""
    monkeypatch.setattr(loop, "REPORT_EVERY_S", report_every_s)
    arrived: list = []

    class Refusing(Context):
        lost = False

        def report(self, records, wait):
            self.lost = self.lost or any(record["step"] >= 4 for record in records)
            arrived.extend([] if self.lost else records)
            return "taken over" if self.lost else None

    config = CONFIG.model_copy(update={"evaluate_every": 6})
    context = Refusing(seed=0, folder=tmp_path, device=torch.device("cpu"))
    ended = loop.run(types.SimpleNamespace(build=lambda config, context: Line()), config, context)
    assert ended.state == "stopped"
    train(tmp_path, arrived, attempt=2, config=config)
    assert sorted({record["step"] for record in arrived}) == list(range(13))


def test_what_a_ledger_refuses_at_a_collapse_is_sent_by_the_next_gang(tmp_path) -> None:
    """The replicate has ended then, and only its result is looked at again."""

    class Collapsing(Line):
        def __init__(self) -> None:
            super().__init__()
            self.rules = (lambda history: "hopeless" if history.done >= 5 else None,)

    class Refusing(Context):
        def report(self, records, wait):
            refused = any(record["step"] >= 3 for record in records)
            arrived.extend([] if refused else records)
            return "taken over" if refused else None

    class Taking(Context):
        def report(self, records, wait):
            arrived.extend(records)

    arrived: list = []
    module = types.SimpleNamespace(build=lambda config, context: Collapsing())
    for attempt, kind in enumerate((Refusing, Taking), start=1):
        context = kind(seed=0, folder=tmp_path, device=torch.device("cpu"), attempt=attempt)
        ended = loop.run(module, CONFIG, context)
        assert (ended.state, ended.reason, ended.step) == ("collapsed", "hopeless", 5)
    assert sorted({record["step"] for record in arrived}) == list(range(6))


BINS = TwoStages(steps=23, evaluate_every=4, checkpoint_every=3, batch_size=2, log_every=6)


@pytest.mark.parametrize("reports", range(2, 9))
def test_bins_are_the_same_wherever_a_run_is_killed(tmp_path, monkeypatch, reports) -> None:
    monkeypatch.setattr(loop, "REPORT_EVERY_S", 0.0)
    whole: list = []
    train(tmp_path / "whole", whole, config=BINS)
    trained = [r["step"] for r in whole if "train.loss" in r["metrics"]]
    assert trained == [5, 6, 12, 18, 23], "a bin ends at a multiple of six, and with its stage"
    assert [r["step"] for r in whole if "ndcg_at_10" in r["metrics"]] == [0, 8, 12, 16, 20, 23]
    arrived: list = []
    with pytest.raises(Lost):
        train(tmp_path / "lost", arrived, reports, config=BINS)
    train(tmp_path / "lost", arrived, attempt=2, config=BINS)
    high, kept = -1, []
    for record in arrived:  # as the journal takes them
        if record["step"] > high:
            high = record["step"]
            kept.append((high, record["metrics"]))
    assert kept == [(r["step"], r["metrics"]) for r in whole]


def test_a_checkpoint_does_not_grow_with_the_steps(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(Checkpoints, "drop_steps", lambda self: None)
    sizes = []
    for steps in (250, 1000):
        config = CONFIG.model_copy(
            update={"steps": steps, "evaluate_every": steps // 10, "checkpoint_every": steps - 1, "log_every": 50}
        )
        train(tmp_path / str(steps), [], config=config)
        sizes.append((tmp_path / str(steps) / f"step-{steps - 1:08d}" / "meta.json").stat().st_size)
    assert sizes[1] < 1.2 * sizes[0]


@pytest.mark.parametrize("log_every", [1, 4, 100])
def test_how_often_steps_are_recorded_changes_no_verdict(tmp_path, log_every) -> None:
    class Collapsing(Line):
        rules = (lambda history: f"loss {history.past('loss', 3)[-1].mean:g}" if history.done >= 7 else None,)

    context = Losing(seed=0, folder=tmp_path, device=torch.device("cpu"))
    context.arrived = []
    config = CONFIG.model_copy(update={"log_every": log_every})
    ended = loop.run(types.SimpleNamespace(build=lambda config, context: Collapsing()), config, context)
    assert (ended.state, ended.step) == ("collapsed", 7)
    assert ended.reason == "loss 5.03381", "the loss of step 7"
    assert context.arrived[-1]["step"] == 7, "the steps up to the verdict are on record"
