"""Study -> ray.tune.Tuner: starts what the ledger hands out, and decides nothing.

Tune and Train are only launchers here. Every launch gets a name of its own, so that no state of theirs
is ever restored: what is to be done next is in the ledger alone.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.search import Searcher

from study import trial
from study.ledger import Ledger
from study.processes import descendants, kill
from study.spec import Study

log = logging.getLogger(__name__)

HEAD = "node:__internal_head__"
"""A resource of the head node alone; a thousandth of it pins the small processes of a study there."""

LOCAL = {
    # One machine, one user, a few minutes: no usage report, no event export, short polls.
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.3",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "180",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_DEDUP_LOGS": "0",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_MAX_PENDING_TRIALS_PG": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",
}


class Unreachable(ValueError):
    """There is no Ray cluster at the address, or it lacks what the study asks for."""


class Engine:
    """A Ray connection, the ledger actor and a Tuner, from start to stop."""

    def __init__(self, storage: Path, address: str | None) -> None:
        self.storage = storage
        self.address = address
        self.launch = time.strftime("%Y%m%d-%H%M%S") + f"-{os.getpid()}"
        self._temporary: str | None = None
        self.ledger: Any = None

    def start(self) -> None:
        """Connect to the cluster at `address`, or start one on this machine that ends with this process."""
        for name, value in LOCAL.items():
            os.environ.setdefault(name, value)
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": False}
        if self.address is not None:
            _check_reachable(self.address)
            try:
                ray.init(address=self.address, **quiet)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise Unreachable(f"--address {self.address}: no Ray cluster answers there ({error})") from error
            return
        # A short path: Ray puts Unix sockets below it, whose names may have 107 bytes. The storage's digest in
        # it tells the folders that killed launches of this study have left, which the study's lock makes ours.
        prefix = f"study-{hashlib.sha256(str(self.storage).encode()).hexdigest()[:6]}-"
        for abandoned in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
            shutil.rmtree(abandoned, ignore_errors=True)
        self._temporary = tempfile.mkdtemp(prefix=prefix)
        ray.init(
            num_cpus=len(os.sched_getaffinity(0)),
            object_store_memory=200 * 2**20,
            include_dashboard=False,
            _temp_dir=self._temporary,
            **quiet,
        )

    def open_ledger(self, **arguments: Any) -> Any:
        """Start the ledger actor on this node with the arguments of `Ledger`, and wait until it is open."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        actor = ray.remote(num_cpus=0, max_restarts=0)(Ledger)
        self._address = {"name": f"ledger-{self.launch}", "namespace": "study"}
        self.ledger = actor.options(**self._address, scheduling_strategy=here).remote(**arguments)
        ray.get(self.ledger.summary.remote())
        return self.ledger

    def concurrency(self, study: Study) -> int:
        """Trials at a time: what was asked for, or what the cluster has room for; raises `Unreachable` for none."""
        have = ray.cluster_resources()
        wanted = study.resources
        gang = {"CPU": wanted.workers * wanted.cpus_per_worker, "GPU": wanted.workers * wanted.gpus_per_worker}
        for kind, amount in gang.items():
            if amount > have.get(kind, 0):
                raise Unreachable(
                    f"a trial needs {amount:g} {kind} ({wanted.workers} workers), the cluster has "
                    f"{have.get(kind, 0):g}; "
                    "lower resources.workers, or use a larger cluster with --address"
                )
        room = min(int(have[kind] // amount) for kind, amount in gang.items() if amount)
        return min(wanted.concurrency or room, room)

    def fit(self, study: Study, concurrency: int) -> None:
        """Run trials until the ledger hands out no more."""
        scratch = self.storage / "ray"
        job = {
            "ledger": self._address,
            "launch": self.launch,
            "own_cluster": self._temporary is not None,
            "resources": study.resources.model_dump(),
            "scratch": str(scratch),
            "logs": str(self.storage / "logs"),
        }
        tuner = tune.Tuner(
            tune.with_resources(trial.launch, tune.PlacementGroupFactory([{HEAD: 0.001}])),
            tune_config=tune.TuneConfig(
                search_alg=LedgerSearcher(self.ledger, job),
                num_samples=-1,
                max_concurrent_trials=concurrency,
                reuse_actors=True,
                trial_dirname_creator=lambda started: f"trial-{started.config['number']:04d}",
            ),
            run_config=tune.RunConfig(
                name=self.launch,
                storage_path=str(scratch),
                verbose=0,
                failure_config=tune.FailureConfig(max_failures=0),
            ),
        )
        tuner.fit()
        shutil.rmtree(scratch, ignore_errors=True)

    def stop(self) -> None:
        """Leave the cluster; one that `start` started ends here, and its logs move to the storage folder."""
        started = descendants() if self._temporary is not None else []
        ray.shutdown()
        # A worker that waits for an answer can miss the end of its cluster, and would wait for ever.
        kill(started)
        if self._temporary is not None:
            logs = Path(self._temporary) / "session_latest" / "logs"
            if logs.exists():
                target = self.storage / "logs" / f"ray-{self.launch}"
                shutil.copytree(logs.resolve(), target, dirs_exist_ok=True, ignore_dangling_symlinks=True)
        self.remove_temporary()

    def remove_temporary(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)


class LedgerSearcher(Searcher):
    """Hands Tune the trials that the ledger hands out."""

    def __init__(self, ledger: Any, job: dict[str, Any]) -> None:
        super().__init__(metric="trial", mode="max")
        self.ledger, self.job = ledger, job
        self.numbers: dict[str, int] = {}

    def suggest(self, trial_id: str) -> Any:
        number = ray.get(self.ledger.ask.remote())
        if number is None:
            return Searcher.FINISHED
        self.numbers[trial_id] = number
        return {"number": number, "job": self.job}

    def on_trial_complete(self, trial_id: str, result: dict | None = None, error: bool = False) -> None:
        """A trial that ended without telling the ledger was lost together with its process."""
        number = self.numbers.pop(trial_id)
        ray.get(self.ledger.abandon.remote(number, "its process was lost; see the logs of Ray"))

    def save(self, checkpoint_path: str) -> None:
        """Nothing to save: the ledger is the state."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing to restore: the ledger is the state."""


def _check_reachable(address: str) -> None:
    """Raise `Unreachable` unless something listens at HOST:PORT; `ray.init` itself would try for minutes."""
    if address == "auto":
        return
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or "/" in host:
        raise Unreachable(f"--address {address}: give HOST:PORT of the cluster's head (port 6379), or 'auto'")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        raise Unreachable(f"--address {address}: no Ray cluster answers there ({error.strerror or error})") from error
