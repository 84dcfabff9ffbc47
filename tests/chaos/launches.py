"""Start studies on the real command line, disturb them, and read what they left behind."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[2]
# `python tests/chaos/NAME.py` sees this folder only.
sys.path.append(str(ROOT))
TINY = ROOT / "tests" / "chaos" / "tiny_study.py"
MARK = "CHAOS_LAUNCH"
"""Environment variable by which everything that a launch started is found, orphans included."""

PATIENCE_S = 300.0
"""How long a check waits for what takes seconds on an idle machine."""

STATUS = {"complete": "FINISHED", "pruned": "KILLED", "collapsed": "KILLED", "failed": "FAILED"}
Step = tuple[int, int, int]
"""(trial, replicate, step)."""


def say(message: str) -> None:
    print(message, flush=True)


def until(condition: Callable[[], Any], what: str, patience_s: float = PATIENCE_S, pause_s: float = 0.05) -> Any:
    """The first true answer of `condition`; fails after `patience_s`."""
    deadline = time.monotonic() + patience_s
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"waited {patience_s:g} s in vain for {what}"
        time.sleep(pause_s)
    return answer


def marked(mark: str) -> list[psutil.Process]:
    """Every living process with the mark in its environment, whoever its parent is now."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def named(processes: list[psutil.Process]) -> list[str]:
    names = []
    for process in processes:
        with suppress(psutil.Error):
            names.append(f"{process.pid} {' '.join(process.cmdline())[:80]}")
    return names


class Launch:
    """One start of a study. All launches of a storage folder share one for temporary files, where leftovers show."""

    def __init__(self, storage: Path, *arguments: str, tracking_uri: str | None = None) -> None:
        self.storage = storage
        self.mark = uuid.uuid4().hex
        self.temporary = temporary_folder(storage)
        self.screen = storage.with_name(f"{storage.name}.screen")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "MLFLOW_"))}
        environment |= {MARK: self.mark, "TMPDIR": str(self.temporary), "OMP_NUM_THREADS": "1"}
        environment |= {"PYTHONPATH": str(ROOT), "MLFLOW_DISABLE_TELEMETRY": "true"}
        storage.parent.mkdir(parents=True, exist_ok=True)
        self._screen = self.screen.open("a")
        self._screen_start = self.screen.stat().st_size
        self.process = subprocess.Popen(
            [sys.executable, "-m", "study.run", str(TINY), "--profile", "kills", "--storage", str(storage),
             "--tracking-uri", tracking_uri or database(storage), *arguments],
            cwd=storage.parent, env=environment, stdin=subprocess.DEVNULL, stdout=self._screen,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def said(self) -> str:
        """What this launch has printed so far."""
        return self.screen.read_text()[self._screen_start :]

    def __enter__(self) -> Launch:
        return self

    def __exit__(self, *error: object) -> None:
        """End the launch: a failed check must not leave a study running."""
        self.kill_all()
        self._screen.close()
        shutil.rmtree(self.temporary, ignore_errors=True)

    def alive(self) -> bool:
        return self.process.poll() is None

    def wait(self, expected: int, patience_s: float = 2 * PATIENCE_S) -> float:
        """Seconds from now to the end, which must have this exit code."""
        began = time.monotonic()
        try:
            code = self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not ended after {patience_s:g} s:\n{self.said()[-3000:]}") from None
        assert code == expected, f"exit code {code}, not {expected}:\n{self.said()[-3000:]}"
        return time.monotonic() - began

    def trained(self, steps: int, ended: int = 0) -> None:
        """Wait until that many steps and ends of trials more are on record."""
        steps += len(steps_of(self.storage))
        ended += ends_of(self.storage)

        def there() -> bool:
            return len(steps_of(self.storage)) >= steps and ends_of(self.storage) >= ended

        until(lambda: there() or not self.alive(), f"{steps} steps and {ended} ends of trials")
        assert self.alive(), f"ended before it was disturbed:\n{self.said()[-3000:]}"

    def kill_all(self) -> int:
        """SIGKILL for the study and everything that it started; returns how many processes that were."""
        killed: set[int] = set()
        while left := marked(self.mark):
            for process in left:
                with suppress(psutil.Error):
                    process.kill()
                    killed.add(process.pid)
            self.process.poll()
            time.sleep(0.05)
        self.process.wait()
        return len(killed)

    def interrupt(self) -> None:
        """Ctrl-C: the terminal sends SIGINT to the whole foreground process group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def gone(self, within_s: float) -> float:
        """Seconds until nothing of this launch runs any more; fails after `within_s`."""
        began = time.monotonic()
        while left := marked(self.mark):
            assert time.monotonic() - began < within_s, f"still alive after {within_s:g} s: {named(left)}"
            time.sleep(0.05)
        return time.monotonic() - began

    def leftovers(self) -> list[str]:
        """What is in its folder for temporary files, but for torch's cache, which every process of a user shares."""
        return sorted(path.name for path in self.temporary.iterdir() if not path.name.startswith("torchinductor_"))


def temporary_folder(storage: Path) -> Path:
    """A short path: Ray puts Unix sockets below it, whose names may have 107 bytes."""
    folder = Path("/tmp") / f"c{hashlib.sha256(str(storage).encode()).hexdigest()[:8]}"
    folder.mkdir(exist_ok=True)
    return folder


def database(storage: Path) -> str:
    """An MLflow database beside the storage folder; its schema takes seconds, so it is made once and copied."""
    path = storage.with_name(f"{storage.name}.mlflow.db")
    template = storage.with_name("empty.mlflow.db")
    if not template.exists():
        from study.tracking.mlflow_runs import initialise

        aside = template.with_suffix(".new")
        initialise(f"sqlite:///{aside}")
        aside.rename(template)
    if not path.exists():
        path.write_bytes(template.read_bytes())
    return f"sqlite:///{path}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# --- what a study left behind ------------------------------------------------------------------------


def entries(storage: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of the journal."""
    path = storage / "journal.jsonl"
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else []:
        if line.endswith(b"\n"):
            yield json.loads(line)


def steps_of(storage: Path) -> dict[Step, dict[str, Any]]:
    """Every step on record with its time and metrics; fails if one is there twice."""
    found: dict[Step, dict[str, Any]] = {}
    for entry in entries(storage):
        for record in entry["records"] if entry["op"] == "metrics" else []:
            step = entry["trial"], entry["replicate"], record["step"]
            assert step not in found, f"step {step} is in the journal twice"
            found[step] = record
    return found


def ends_of(storage: Path) -> int:
    return sum(e["op"] == "end" and e["trial"] is not None and e["replicate"] is None for e in entries(storage))


def summary(storage: Path) -> dict[str, Any]:
    path = storage / "summary.json"
    return json.loads(path.read_text()) if path.exists() else {"trials": []}


def completed(storage: Path) -> dict[int, dict[str, Any]]:
    """What must not change any more: trials that have ended."""
    keys = ("state", "params", "values", "steps", "worker_seconds", "attempts", "run_id")
    ended = [t for t in summary(storage)["trials"] if t["state"] in STATUS]
    return {t["number"]: {key: t[key] for key in keys} for t in ended}


def same_study(storage: Path, undisturbed: Path) -> int:
    """Fails unless both have the same trials, values and, bit by bit, losses; returns the number of steps."""
    ours, theirs = summary(storage), summary(undisturbed)
    assert ours["status"] == theirs["status"] == "finished"
    for key in ("number", "state", "params", "values", "steps"):
        assert [t[key] for t in ours["trials"]] == [t[key] for t in theirs["trials"]], key
    assert ours["best"] == theirs["best"]
    steps, expected = steps_of(storage), steps_of(undisturbed)
    assert steps.keys() == expected.keys(), sorted(steps.keys() ^ expected.keys())
    for step, record in expected.items():
        assert steps[step]["metrics"] == record["metrics"], f"{step}: {steps[step]['metrics']} != {record['metrics']}"
    return len(steps)


def same_in_mlflow(storage: Path, uri: str) -> int:
    """Fails unless MLflow has one parent, one child per trial, and each metric of each step once.

    Returns the number of points.
    """
    from mlflow.tracking import MlflowClient

    from study.tracking.pages import metric_key

    client = MlflowClient(uri)
    told = summary(storage)
    experiment = client.get_experiment_by_name(told["tracking"]["experiment"])
    runs = client.search_runs([experiment.experiment_id])
    levels = Counter(run.data.tags["study.level"] for run in runs)
    assert levels == {"study": 1, "trial": len(told["trials"])}, levels
    (parent,) = (run for run in runs if run.data.tags["study.level"] == "study")
    assert parent.info.status == "FINISHED"
    assert parent.info.run_id == told["tracking"]["run_id"]
    children = {run.info.run_id: run for run in runs if run is not parent}
    journal = steps_of(storage)
    objectives = {objective["name"]: objective["direction"] for objective in told["objectives"]}
    points = 0
    for trial in told["trials"]:
        run = children.pop(trial["run_id"])
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert run.info.status == STATUS[trial["state"]], (trial["number"], run.info.status)
        records = [(step, record) for (number, _, step), record in journal.items() if number == trial["number"]]
        named = [(metric_key(name, objectives), step) for step, record in records for name in record["metrics"]]
        named += [(metric_key(name, objectives), trial["steps"]) for name in trial["values"]]
        wanted = Counter({(key, step) for key, step in named if key is not None})
        points += _same_points(client, run, wanted)
    _same_points(client, parent, None)
    return points


def _same_points(client: Any, run: Any, wanted: Counter | None) -> int:
    found: Counter = Counter()
    for name in run.data.metrics:
        found.update((name, point.step) for point in client.get_metric_history(run.info.run_id, name))
    doubled = [point for point, times in found.items() if times > 1]
    assert not doubled, f"more than once in {run.info.run_name}: {doubled[:8]}"
    assert wanted is None or found == wanted, (run.info.run_name, found - wanted, wanted - found)
    return found.total()


def temporary_files(storage: Path) -> list[str]:
    """Half-written files and scratch folders in a storage folder."""
    found = [*storage.rglob(".*"), *storage.rglob("*.new"), *storage.glob("ray")]
    return sorted(str(path.relative_to(storage)) for path in found)


def newest_checkpoint(storage: Path, trial: int) -> int | None:
    """Step of the newest checkpoint of a trial's first replicate."""
    folders = (storage / "trials" / f"{trial:04d}" / "replicate-0").glob("step-*")
    return max((int(re.sub(r"\D", "", folder.name)) for folder in folders), default=None)
