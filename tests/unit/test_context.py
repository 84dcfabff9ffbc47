"""A worker trains on what it holds: on the CPU where it holds no GPU, whatever CUDA shows it."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch

from study.engine import trial
from study.protocol.messages import Assignment
from study.spec import Resources
from study.suites import worker_pool
from study.tracking.pages import metric_key
from trainables import loop, machine
from trainables.context import LedgerContext, worker_device


@pytest.fixture
def with_cuda(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda index: None)


def test_without_gpus_on_the_cpu(with_cuda) -> None:
    assert worker_device(0) == torch.device("cpu")
    assert worker_device(0.5) == torch.device("cuda", 0)


def test_a_gpu_that_torch_cannot_use_is_no_reason_to_train_on_the_cpu(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match=r"holds a GPU \(gpus_per_worker=1\) that torch .* cannot use"):
        worker_device(1)


@pytest.mark.parametrize(("gpus", "device"), [(0.0, "cpu"), (1.0, "cuda:0")])
def test_the_worker_of_a_trial_is_told(with_cuda, monkeypatch, tmp_path, gpus, device) -> None:
    seen = []

    def run(recipe, config, context):
        seen.append(context.device)
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "run", run)
    method = SimpleNamespace(remote=print)
    ledger = SimpleNamespace(report=method, describe=method, alive=method)
    begun = Assignment(
        "splade", {"precision": "float32"}, attempt=1, study="a-1", seeds=(0,), folder=str(tmp_path), store=None
    )
    resources = Resources(cpus_per_worker=1, gpus_per_worker=gpus)
    with pytest.raises(KeyboardInterrupt):
        trial._train(begun, 0, resources, 0, 1, ledger)
    assert seen == [torch.device(device)]


@pytest.mark.parametrize(("gpus", "device"), [(0.0, "cpu"), (1.0, "cuda:0")])
def test_the_worker_of_an_evaluation_is_told(with_cuda, gpus, device) -> None:
    assert worker_pool.Worker([], threads=1, gpus=gpus).device == torch.device(device)


def test_what_a_replicate_takes_of_its_machine_goes_with_its_newest_record(monkeypatch, tmp_path) -> None:
    """At most once in ten seconds, and under names that MLflow draws as system metrics."""
    ray = SimpleNamespace(get=lambda sent: None, wait=lambda sent, timeout: (sent, []))
    monkeypatch.setitem(sys.modules, "ray", ray)
    clock = iter((100.0, 100.0, 105.0, 111.0, 111.0))
    monkeypatch.setattr(machine, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    got: list[dict] = []
    context = LedgerContext(
        seed=0, folder=tmp_path, device=torch.device("cpu"), send=lambda records: got.extend(records) or "sent",
        send_facts=print, send_phase=print, notice=lambda: None,
        machine=machine.Machine(torch.device("cpu")),
    )  # fmt: skip
    for step in range(3):
        context.report([{"step": step, "time": step, "metrics": {"train.loss": 1.0}}], wait=True)
    measured = [record["metrics"].keys() - {"train.loss"} for record in got]
    assert measured[0] == measured[2] >= {"system.cpu_utilization_percentage", "system.system_memory_usage_megabytes"}
    assert measured[1] == set()
    assert {metric_key(name, {}) for name in measured[0]} == {name.replace(".", "/", 1) for name in measured[0]}
