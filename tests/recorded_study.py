"""A study that a ledger has recorded without training, and the servers that show it: MLflow's, and optuna-dashboard."""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from search_spaces.splade_k_search import EMBEDDED
from study.ledger.ledger import Ledger
from study.protocol.messages import Assignment, Conclusion, Outcome
from study.protocol.states import ReplicateState
from study.spec import Budget, Pruner
from study.tracking.model_process import MARKS
from study.uris import sqlite_uri
from tests.ledgers import open_ledger

NAME = "splade_k_search"
STEPS, EVERY = 100, 50
GRID = (1 / 2, 1, 2, 4, 1 / 64, 128, 8, 64)
"""Values of k: five that train, two that collapse, one of them behind its first evaluation, and one that is pruned."""
COLLAPSED = {1 / 64: (24, "loss is nan at step 24"), 128: (60, "all document vectors are zero for 20 steps")}
FACTS = {
    "data.train": "embedded, 5,412 pairs", "data.train.identity": "5f" * 32, "data.train.examples": "5412",
    "data.validation": "embedded", "data.validation.identity": "1a" * 32, "data.validation.queries": "300",
    "data.test": "embedded, held out", "data.test.identity": "9c" * 32, "data.test.queries": "300",
}  # fmt: skip
ANSWER = "Best k = 2: test nDCG@10 0.418 (95% CI 0.39–0.44 over 300 queries); BM25 0.40."


@dataclass(frozen=True)
class Recorded:
    """Where the study is recorded."""

    folder: Path
    """Where the study was started."""
    tracking: str
    page: str
    """The page with its runs, behind the address of MLflow's server."""
    run: str
    trials: dict[int, str]


def record(folder: Path) -> Recorded:
    """Make the study where `study.run` does in `folder`, with MLflow's store beside it, which may be there already."""
    storage, tracking = folder / "studies" / NAME, sqlite_uri(folder / "studies" / "mlflow.db")
    model = storage / "model"
    model.mkdir(parents=True)
    for mark in MARKS:
        (model / mark).write_text('{"model_type": "SparseEncoder"}')
    (storage / "report.html").write_text(f"<!doctype html><title>{NAME}</title><p>{ANSWER}</p>")
    study = EMBEDDED.model_copy(
        update={
            "points": tuple({"k": k} for k in GRID), "budget": Budget(trials=len(GRID)),
            "pruner": Pruner(kind="median", first_step=EVERY, startup_trials=5),
        }
    )  # fmt: skip
    tags = {"git.commit": "1f2a" * 10, "source": f"search_spaces/{NAME}.py", "source.type": "LOCAL", "user": "ada"}
    ledger = open_ledger(NAME, study, storage, tracking=tracking, tags=tags)
    ledger.prepared(FACTS, {"bm25": {"ndcg_at_10": 0.41, "test.ndcg_at_10": 0.40}}, {})
    while (number := ledger.ask()) is not None:
        assignment = ledger.begin(number)
        assert assignment is not None
        _train(ledger, number, assignment)
    (best,) = ledger.conclude().best
    ledger.found(Conclusion(ANSWER, "report/report.html", ((best, "model"),), "splade-code"))
    assert ledger.close([("report.html", "report")], 120)
    told = ledger.summary()
    assert told.tracking.page is not None
    assert told.tracking.run_id is not None
    runs = {trial.number: trial.run_id for trial in told.trials if trial.run_id is not None}
    return Recorded(folder, tracking, told.tracking.page, told.tracking.run_id, runs)


def _train(ledger: Ledger, number: int, assignment: Assignment) -> None:
    """What a gang tells of a trial: all steps up to an evaluation at a time."""
    k, attempt = assignment.config["k"], assignment.attempt
    last, reason = COLLAPSED.get(k, (STEPS, None))
    state, stop, values = ReplicateState.COLLAPSED if reason else ReplicateState.COMPLETE, None, {}
    for first in range(0, last + 1, EVERY):
        steps = [0] if first == 0 else range(first - EVERY + 1, min(first, last) + 1)
        records = [_record(k, step, number) for step in steps]
        stop = ledger.report(number, attempt, 0, records)
        for record in records:
            values |= {name: value for name, value in record["metrics"].items() if not name.startswith("train.")}
        if stop:
            state, reason, last = ReplicateState.STOPPED, stop, first
            break
    ended = Outcome(state, reason, last, values, None, 0.2, 0.2 * last)
    ledger.replicate_ended(number, attempt, 0, ended)
    ledger.finish(number, attempt, ended)


def _record(k: float, step: int, number: int) -> dict:
    reached = 1 - math.exp(-step / 30)
    before, after = 0.30 / (1 + math.log2(k) ** 2 / 16), 0.45 - 0.01 * math.log2(k / 2) ** 2
    measured = {
        "ndcg_at_10": before + (after - before) * reached, "mrr_at_10": (before + (after - before) * reached) * 0.9,
        "recall_at_100": 0.5 + 0.3 * reached, "flops": 40 / k * (1 - reached) + 6 / k * reached,
    }  # fmt: skip
    metrics = {}
    if step:
        metrics |= {"train.loss": 0.4 + 3 * math.exp(-step / 40), "train.lr": 1e-3 * (1 - step / STEPS)}
    if step % EVERY == 0:
        metrics |= measured
    if step in (0, STEPS):
        prefix = "untrained." if step == 0 else ""
        metrics |= {f"{prefix}test.{name}": 0.95 * value for name, value in measured.items()}
        metrics |= {f"untrained.{name}": value for name, value in measured.items()} if step == 0 else {}
    return {"step": step, "time": 1_796_000_000_000 + 60_000 * number + 200 * step, "metrics": metrics}


@contextmanager
def mlflow_server(uri: str, folder: Path) -> Iterator[str]:
    """MLflow's own server of a store; its address."""
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", uri, "--workers", "1"]
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with _served(command, folder, quiet) as address:
        yield address


DASHBOARD = f"optuna-dashboard sqlite:///studies/{NAME}/ledger.db"
"""As the documentation prints it."""


@contextmanager
def dashboard(folder: Path) -> Iterator[str]:
    """optuna-dashboard of the study that was started in `folder`; its address."""
    program, *arguments = DASHBOARD.split()
    with _served([str(Path(sys.executable).with_name(program)), *arguments], folder, {}) as address:
        yield address


@contextmanager
def _served(command: list[str], folder: Path, environment: dict[str, str]) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    with (folder / "server.log").open("ab") as log:
        server = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            stdout=log, stderr=log, cwd=folder, env=os.environ | environment, start_new_session=True,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + 120
        while not _answers(address):
            assert server.poll() is None, (folder / "server.log").read_text()
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.1)
        yield address
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5):
            return True
    except OSError:
        return False
