"""What every trainer must hold, found by glob: a new one is covered the day it appears."""

from __future__ import annotations

import dataclasses
import importlib
import json
from pathlib import Path

import pytest
import torch

from trainables import loop, overrides
from trainables.context import Context

ROOT = Path(__file__).resolve().parents[2]
TRAINERS = sorted(path.parent.name for path in (ROOT / "trainables").glob("*/recipe.py"))
GOLDEN = ROOT / "tests" / "golden"

SMALL = {
    "steps": 6, "batch_size": 8, "evaluate_every": 3, "checkpoint_every": 2, "threads": 1,
    "evaluation.max_documents": 60, "evaluation.bm25": False, "train.limit": 64,
}  # fmt: skip


class Stopped(Context):
    """Told to stop at the first report at or after a step, as by Ctrl-C."""

    stop_at = 0
    records: list

    def report(self, records, wait):
        self.records = [*getattr(self, "records", []), *records]
        return "interrupted" if self.stop_at and records and records[-1]["step"] >= self.stop_at else None


def small_config(trainer: str, cache: Path, **more):
    config = importlib.import_module(f"trainables.{trainer}.config").Config()
    known = overrides.keys(config)
    values = {key: value for key, value in SMALL.items() if key in known}
    return overrides.apply(config, values | {"cache": str(cache)} | more)


def run(trainer: str, config, folder: Path, stop_at: int = 0, attempt: int = 1, seed: int = 0):
    torch.set_num_threads(1)
    context = Stopped(seed=seed, folder=folder, device=torch.device("cpu"), attempt=attempt)
    context.stop_at = stop_at
    outcome = loop.run(importlib.import_module(f"trainables.{trainer}.recipe"), config, context)
    return outcome, getattr(context, "records", [])


def losses(records) -> dict[int, float]:
    return {r["step"]: r["metrics"]["train.loss"] for r in records if "train.loss" in r["metrics"]}


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def finished(tmp_path_factory, cache):
    """One undisturbed run per trainer, shared by the tests below: trainer -> (outcome, records, folder)."""
    runs = {}

    def get(trainer: str):
        if trainer not in runs:
            folder = tmp_path_factory.mktemp(trainer)
            runs[trainer] = (*run(trainer, small_config(trainer, cache), folder), folder)
        return runs[trainer]

    return get


@pytest.mark.parametrize("trainer", TRAINERS)
def test_reports_what_it_declares(trainer, finished) -> None:
    outcome, records, _ = finished(trainer)
    metrics = importlib.import_module(f"trainables.{trainer}.config").METRICS
    assert outcome.state == "complete"
    assert set(metrics.values()) <= {"maximize", "minimize"}
    for name in metrics:
        for prefix in ("", "test.", "untrained.", "untrained.test."):
            assert prefix + name in outcome.values
    assert [r["step"] for r in records] == list(range(7))
    assert all(set(metrics) <= r["metrics"].keys() for r in records if r["step"] in (0, 3, 6))


@pytest.mark.parametrize("trainer", TRAINERS)
def test_prepare_reads_the_inputs(trainer, cache) -> None:
    module = importlib.import_module(f"trainables.{trainer}.config")
    prepared = module.prepare(small_config(trainer, cache))
    assert prepared.facts
    assert all(isinstance(value, str) for value in prepared.facts.values())


@pytest.mark.parametrize("trainer", TRAINERS)
def test_resume_repeats_the_losses_to_the_last_bit(trainer, finished, cache, tmp_path) -> None:
    whole, records, _ = finished(trainer)
    config = small_config(trainer, cache)
    stopped, first = run(trainer, config, tmp_path, stop_at=3)
    assert stopped.state == "stopped"
    assert stopped.step < config.steps
    resumed, second = run(trainer, config, tmp_path, attempt=2)
    assert resumed.state == "complete"
    assert losses(first) | losses(second) == losses(records)
    assert {k: v for k, v in resumed.values.items()} == whole.values


@pytest.mark.parametrize("trainer", TRAINERS)
def test_finished_run_only_returns_its_result(trainer, finished, cache) -> None:
    outcome, _, folder = finished(trainer)
    again, records = run(trainer, small_config(trainer, cache), folder, attempt=2)
    assert dataclasses.asdict(again) == json.loads(json.dumps(dataclasses.asdict(outcome)))
    assert records == []


@pytest.mark.parametrize("trainer", TRAINERS)
def test_export_loads_in_transformers(trainer, finished) -> None:
    from transformers import AutoModel, AutoTokenizer

    _, _, folder = finished(trainer)
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    model = AutoModel.from_pretrained(folder / "model")
    batch = tokenizer(["open a file"], return_tensors="pt")
    assert model(**batch).last_hidden_state.isfinite().all()


@pytest.mark.parametrize("trainer", TRAINERS)
def test_batch_is_a_function_of_seed_and_step(trainer, cache, tmp_path) -> None:
    module = importlib.import_module(f"trainables.{trainer}.recipe")
    config = small_config(trainer, cache)

    def batch(seed: int, step: int):
        context = Context(seed=seed, folder=tmp_path, device=torch.device("cpu"))
        loop.seed_streams(seed)
        recipe = module.build(config, context)
        recipe.batch(0)
        loop.seed_streams(seed, step, 0)
        return repr(recipe.batch(step))

    assert batch(0, 5) == batch(0, 5)
    assert batch(0, 5) != batch(0, 4)
    assert batch(0, 5) != batch(1, 5)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_golden_losses(trainer, finished) -> None:
    """A refactoring that moves these is a change of behaviour; write them anew with `pytest --write-golden`."""
    _, records, _ = finished(trainer)
    golden = json.loads((GOLDEN / f"{trainer}.json").read_text())
    assert losses(records) == pytest.approx({int(k): v for k, v in golden["losses"].items()}, rel=2e-3)
