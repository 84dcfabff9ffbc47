"""What a ledger costs those who train, when its study is long and its MLflow slow: figures beside the bars they must
meet.

One process stands for all gangs, a thread for each: it makes steps at a fixed pace and reports them as
`trainables.loop` does, to a ledger actor as `study.run` starts it. Most of the study's trials have ended before.
Then, in processes of their own, a finished study of long trials is opened again, and an empty one.

    python -m benchmarks.ledger [--trials 1000] [--gangs 64] [--seconds 60]

Exits with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna

from benchmarks.slow_mlflow import answering_in
from study.engine.executor import Engine
from study.ledger.ledger import Ledger
from study.protocol.destinations import Destinations
from study.protocol.folder import StudyFolder
from study.protocol.messages import Outcome
from study.protocol.states import ReplicateState
from study.spec import Budget, Objective, Pruner, Study
from trainables.context import LedgerContext, Record
from trainables.loop import REPORT_EVERY_S
from trainables.splade.config import Config

SIGNALS = 12
STEP_S = 0.1
MLFLOW_S = 0.3
STEPS, EVALUATE_EVERY = 150_000, 250
EVALUATIONS = 5
"""Of a trial that has ended before the gangs begin."""
RECORDS = 2_000
"""Of a long trial that has ended."""
LONG_TRIALS = 50
TELLS = 30

REPORT_MS, SLOWED, ASK_TELL_MS, REOPEN_S, REOPEN_MIB = 20.0, 0.02, 20.0, 10.0, 300.0
"""The bars."""


def space(trial: Any) -> None:
    trial.suggest_float("k", 1, 64, log=True)
    trial.suggest_float("optimiser.lr", 1e-6, 1e-3, log=True)
    trial.suggest_float("lambda_document", 1e-4, 1e-1, log=True)


def study(trials: int) -> Study:
    return Study(
        question="What does a ledger cost?", trainer="splade", parameter="k", space=space,
        config=Config(steps=STEPS, evaluate_every=EVALUATE_EVERY), objectives=(Objective(name="ndcg_at_10"),),
        pruner=Pruner(kind="median"), budget=Budget(trials=trials),
    )  # fmt: skip


def record(step: int, evaluated: bool = False) -> Record:
    metrics = {f"train.signal_{n}": random.random() for n in range(SIGNALS - 2)}
    metrics |= {"train.loss": random.random(), "train.lr": 1e-5}
    if evaluated:
        metrics |= {"ndcg_at_10": random.random(), "flops": random.random()}
    return {"step": step, "time": time.time_ns() // 1_000_000, "metrics": metrics}


def outcome() -> Outcome:
    values = {"ndcg_at_10": random.random(), "test.ndcg_at_10": random.random()}
    return Outcome(ReplicateState.COMPLETE, None, STEPS, values, seconds=1.0, seconds_per_step=1e-3)


@dataclass
class Measured:
    """Seconds of single calls, at whoever makes them."""

    reports: list[float] = field(default_factory=list)
    asks: list[float] = field(default_factory=list)
    tells: list[float] = field(default_factory=list)
    slowed: list[float] = field(default_factory=list)
    """Of each gang, the share of its time that goes to reporting."""


class Gang(threading.Thread):
    """A trial's gang, whose steps take `STEP_S` each; its trial is there from before until after it."""

    def __init__(self, ledger: Any, number: int, attempt: int, seconds: float, measured: Measured) -> None:
        super().__init__(daemon=True)
        self.ledger, self.number, self.attempt, self.seconds, self.measured = ledger, number, attempt, seconds, measured
        self.context = LedgerContext(
            seed=0, folder=Path(), device=None, send=self._send, send_facts=lambda facts: None, notice=lambda: None
        )

    def _send(self, records: list[Record]) -> Any:
        began = time.perf_counter()
        sent = self.ledger.report.remote(self.number, self.attempt, 0, records)
        sent.future().add_done_callback(lambda _: self.measured.reports.append(time.perf_counter() - began))
        return sent

    def run(self) -> None:
        began = last = time.monotonic()
        unsent: list[Record] = []
        reporting, step = 0.0, 0
        time.sleep(random.uniform(0, 2 * REPORT_EVERY_S))
        while time.monotonic() - began < self.seconds:
            time.sleep(STEP_S)
            step += 1
            evaluated = (step + self.number) % EVALUATE_EVERY == 0
            unsent.append(record(step, evaluated))
            asked = time.perf_counter()
            if evaluated or (time.monotonic() - last > REPORT_EVERY_S and self.context.ready()):
                self.context.report(unsent, wait=evaluated)
                unsent, last = [], time.monotonic()
            reporting += time.perf_counter() - asked
        self.measured.slowed.append(reporting / (step * STEP_S))


def timed(call: Callable[[], Any], into: list[float]) -> Any:
    began = time.perf_counter()
    answer = call()
    into.append(time.perf_counter() - began)
    return answer


def live(folder: StudyFolder, tracking: str, options: argparse.Namespace) -> Measured:
    """A study whose trials have ended but for those of the gangs, which run for `seconds`; then asks and tells."""
    import ray

    engine = Engine(folder, None)
    engine.start()
    places = Destinations(folder, tracking=tracking)
    ledger = engine.open_ledger("ledger", "paper", study(options.trials + TELLS), places)
    measured = Measured()

    def asked(into: list[float]) -> tuple[int, int]:
        number = timed(lambda: ray.get(ledger.hand_out.remote()), into).number
        return number, ray.get(ledger.begin.remote(number)).attempt

    def told(number: int, attempt: int, into: list[float]) -> None:
        ended = outcome()
        ray.get(ledger.replicate_ended.remote(number, attempt, 0, ended))
        timed(lambda: ray.get(ledger.finish.remote(number, attempt, ended)), into)

    for done in range(options.trials - options.gangs):
        number, attempt = asked([])
        ray.get(ledger.report.remote(number, attempt, 0, [record(n, True) for n in range(EVALUATIONS)]))
        told(number, attempt, [])
        if done % 100 == 0:
            print(f"{done} trials have ended", file=sys.stderr, flush=True)
    gangs = [Gang(ledger, *asked([]), options.seconds, measured) for _ in range(options.gangs)]
    for gang in gangs:
        gang.start()
    for gang in gangs:
        gang.join()
    for _ in range(TELLS):
        told(*asked(measured.asks), measured.tells)
    engine.stop()
    return measured


def optuna_alone(folder: Path, trials: int) -> float:
    """Milliseconds of ask, suggestions and tell of Optuna itself: the median of `TELLS`, after so many trials."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    sampler = optuna.samplers.TPESampler(seed=0, multivariate=True, group=True)
    found = optuna.create_study(storage=f"sqlite:///{folder}/optuna.db", sampler=sampler, direction="maximize")
    plain = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    plain.optimize(lambda trial: space(trial) or random.random(), n_trials=trials)
    found.add_trials(plain.get_trials(deepcopy=False))
    seconds: list[float] = []

    def one() -> None:
        trial = found.ask()
        space(trial)
        found.tell(trial, random.random())

    for _ in range(TELLS):
        timed(one, seconds)
    return 1000 * statistics.median(seconds)


def fsyncs(folder: Path) -> list[float]:
    """Seconds that it takes to append to a file, and to wait for the disk."""
    seconds: list[float] = []
    with (folder / "fsync").open("ab", buffering=0) as file:
        for _ in range(300):

            def append() -> None:
                file.write(b"x" * 2000)
                os.fsync(file.fileno())

            timed(append, seconds)
    return seconds


def opened(folder: StudyFolder, trials: int) -> Ledger:
    return Ledger("ledger", "paper", study(max(1, trials)), Destinations(folder))


def finished(folder: StudyFolder, trials: int) -> None:
    """A study of so many long trials."""
    ledger = opened(folder, trials)
    for _ in range(trials):
        number = ledger.ask()
        assert number is not None
        begun = ledger.begin(number)
        assert begun is not None
        for start in range(0, RECORDS, 5):
            ledger.journal.append_records(number, 0, [record(start + n) for n in range(5)])
        ended = outcome()
        ledger.replicate_ended(number, begun.attempt, 0, ended)
        ledger.finish(number, begun.attempt, ended)
    ledger.conclude()
    ledger.close([], 0.0)


def reopen(folder: StudyFolder, trials: int) -> None:
    """Open the ledger of a finished study once more, and print what that took."""
    before = _peak()
    began = time.perf_counter()
    ledger = opened(folder, trials)
    ledger.conclude()
    seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "mib": _peak() - before}))
    ledger.close([], 0.0)


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def reopened(folder: StudyFolder, trials: int) -> dict[str, float]:
    """`reopen` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.ledger", "--reopen", str(folder), "--trials", str(trials)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def quantile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def table(rows: list[tuple[str, float, float, str]]) -> bool:
    """Print what was measured beside its bar; whether all bars are met."""
    print(f"{'':<52}{'measured':>12}{'bar':>12}")
    for name, value, bar, unit in rows:
        missed = "" if value <= bar else "  missed"
        print(f"{name:<52}{value:>12.3g}{bar:>12.3g} {unit}{missed}")
    return all(value <= bar for _, value, bar, _ in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000, help="trials of the study")
    parser.add_argument("--gangs", type=int, default=64, help="trials that run at a time")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long they run")
    parser.add_argument("--reopen", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.reopen:
        reopen(StudyFolder(options.reopen), options.trials)
        return 0
    with tempfile.TemporaryDirectory(prefix="ledger-") as made, answering_in(MLFLOW_S) as tracking:
        place = Path(made)
        long, empty = StudyFolder(place / "long"), StudyFolder(place / "empty")
        finished(long, LONG_TRIALS)
        finished(empty, 0)
        again, nothing = reopened(long, LONG_TRIALS), reopened(empty, 0)
        alone = optuna_alone(place, options.trials)
        disk = 1000 * quantile(fsyncs(place), 0.99)
        measured = live(StudyFolder(place / "live"), tracking, options)
    pairs = [ask + tell for ask, tell in zip(measured.asks, measured.tells, strict=True)]
    ask_tell = 1000 * statistics.median(pairs)
    rows = [
        ("report, 99th percentile", 1000 * quantile(measured.reports, 0.99), REPORT_MS + disk, "ms"),
        ("loops slowed by", 100 * statistics.mean(measured.slowed), 100 * SLOWED, "%"),
        ("ask + tell, median", ask_tell, alone + ASK_TELL_MS, "ms"),
        (f"{LONG_TRIALS} long trials opened again", again["seconds"], REOPEN_S, "s"),
        ("  memory above an empty study's", again["mib"] - nothing["mib"], REOPEN_MIB, "MiB"),
    ]
    met = table(rows)
    print(f"{len(measured.reports)} reports, median {1000 * statistics.median(measured.reports):.3g} ms; the disk's "
          f"99th percentile of fsync {disk:.3g} ms; Optuna alone {alone:.3g} ms")  # fmt: skip
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
