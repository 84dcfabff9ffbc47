"""Study -> ray.tune.Tuner: starts what the ledger hands out, and decides nothing.

Tune and Train are only launchers here. Every launch gets a name of its own, so that no state of theirs
is ever restored: what is to be done next is in the ledger alone.
"""

from __future__ import annotations

import fcntl
import logging
import math
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.autoscaler.sdk import request_resources
from ray.tune.result import EXPR_RESULT_FILE
from ray.tune.search import Searcher

from study import private_names
from study.engine import trial
from study.engine.capacity import per_worker, room
from study.engine.processes import descendants, kill
from study.ledger.launch_options import LaunchOptions
from study.ledger.lease import Holder
from study.ledger.ledger import NO_OPTIONS, Ledger
from study.protocol.destinations import Destinations
from study.protocol.folder import WorkFolder, trial_name
from study.protocol.messages import ActorName, GangSetting, HandOut, Standing
from study.spec import Study
from study.terminal import deaf_children
from trainables.digests import text_digest
from trainables.errors import told
from trainables.faults import fault_of
from trainables.patience import answer

log = logging.getLogger(__name__)

PINNED = 0.001
"""Amount that each small process of a study takes of the resource that only the head node has, which pins it there; the
node has 1."""

OWN_CLUSTER = {
    # One machine, one user, a few minutes: no usage report, no event export, nobody who takes nodes away.
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
}
EVERYWHERE = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.3",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "180",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_DEDUP_LOGS": "0",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_MAX_PENDING_TRIALS_PG": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",
}

LOOK_EVERY_S = 1.0
"""How often the room of the cluster is looked up, and a ledger that has no trial is asked again."""


SWITCH_S = 0.0005
"""How long a thread of the ledger's process computes before another one may, in seconds."""
SOCKET_BYTES = 107
"""Linux's limit for the path of a Unix socket."""
BELOW = len("/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store")
"""Bytes that the path of Ray's longest socket has behind the name of Ray's folder."""
FIRST_LOGS = "logs-of-the-start"
"""Beside the session's folder of logs: those of the processes that were there before it led to the storage folder."""
RANDOM = 8
"""Bytes that `tempfile` puts behind a prefix to make a name."""


class Unreachable(ValueError):
    """There is no Ray cluster at the address, or it lacks what the study asks for."""


class Engine:
    """A Ray connection, the ledger actor and a Tuner, from start to stop."""

    def __init__(self, storage: WorkFolder, address: str | None) -> None:
        self.storage = storage
        self.address = address
        self.launch = time.strftime("%Y%m%d-%H%M%S") + f"-{os.getpid()}"
        self._temporary: str | None = None
        self._held: int | None = None
        """File descriptor of the lock on the temporary folder."""
        self._session: Path | None = None
        """Ray's folder of sockets and logs in the temporary folder."""
        self.ledger: Any = None

    @property
    def cluster(self) -> str:
        """Where trials run, in words; known from `start` on."""
        return "this machine" if self.address is None else f"Ray at {ray.get_runtime_context().gcs_address}"

    def start(self) -> None:
        """Connect to the cluster at `address`, or start one on this machine that ends with this process."""
        for name, value in (EVERYWHERE | (OWN_CLUSTER if self.address is None else {})).items():
            os.environ.setdefault(name, value)
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": False}
        if self.address is not None:
            _check_reachable(self.address)
            # The processes that start gangs read these, and on a cluster of somebody else's they inherit nothing.
            train = {name: os.environ[name] for name in EVERYWHERE if name.startswith("RAY_TRAIN_")}
            try:
                ray.init(address=self.address, runtime_env={"env_vars": train}, **quiet)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise Unreachable(f"--address {self.address}: no Ray cluster answers there ({error})") from error
            return
        # The digest of the storage folder marks what killed launches of this study have left. It is ours to remove: we
        # hold the study's lock.
        prefix = f"study-{text_digest(str(self.storage))[:6]}-"
        place = temporary_folder(len(prefix))
        for abandoned in place.glob(f"{prefix}*"):
            shutil.rmtree(abandoned, ignore_errors=True)
        self._temporary = tempfile.mkdtemp(prefix=prefix, dir=place)
        # systemd-tmpfiles, which removes what is old in /tmp, leaves a folder alone that is locked.
        self._held = os.open(self._temporary, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._held, fcntl.LOCK_SH)
        # Ray would rather connect to the cluster that it names, and so would the processes that it starts.
        os.environ.pop("RAY_ADDRESS", None)
        with deaf_children(), private_names.no_node_helpers():
            # GPUs are counted by Ray, which heeds CUDA_VISIBLE_DEVICES.
            ray.init(
                address="local",
                num_cpus=len(os.sched_getaffinity(0)),
                object_store_memory=200 * 2**20,
                include_dashboard=False,
                **(quiet | {private_names.TEMPORARY_FOLDER: self._temporary}),
            )
        self._keep_logs()

    def open_ledger(
        self,
        name: str,
        profile: str,
        study: Study,
        destinations: Destinations,
        options: LaunchOptions = NO_OPTIONS,
    ) -> Any:
        """Start the ledger actor on this node with the arguments of `Ledger`, and wait until it is open.

        The study ends with this process. Raises what `Ledger` does.
        """
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        actor = ray.remote(num_cpus=0, max_restarts=0)(LedgerActor)
        self._name = ActorName(f"ledger-{self.launch}", "study")
        self.ledger = actor.options(
            name=self._name.name, namespace=self._name.namespace, scheduling_strategy=here
        ).remote()
        try:
            options = replace(options, head=Holder.this(self.storage.path))
            ray.get(self.ledger.open.remote(name, profile, study, destinations, options))
        except ray.exceptions.RayTaskError as error:
            # What the ledger itself raises, without the traceback of its process.
            raise error.cause from error
        return self.ledger

    def check_room(self, study: Study) -> None:
        """Raise `Unreachable` unless a trial's gang fits the cluster, or the autoscaler may be asked for more."""
        wanted, here = study.resources, alive()
        if room(wanted, here) or len(here) < (wanted.max_nodes or 0):
            return
        have = ray.cluster_resources()
        gang = {kind: wanted.workers * amount for kind, amount in per_worker(wanted).items()}
        asked = " and ".join(f"{amount:g} {kind}" for kind, amount in gang.items())
        found = " and ".join(f"{have.get(kind, 0):g} {kind}" for kind in gang)
        where = f"placement {wanted.placement}"
        if wanted.accelerator:
            where += f", accelerator {wanted.accelerator}"
        if wanted.labels:
            where += f", labels {wanted.labels}"
        asks = {"cpus_per_worker": True, "gpus_per_worker": wanted.gpus_per_worker, "workers": wanted.workers > 1,
                "accelerator": wanted.accelerator, "labels": wanted.labels}  # fmt: skip
        change = ", ".join(name for name, asked_for in asks.items() if asked_for)
        larger = "name a larger cluster by --address"
        grow = larger if self._temporary is not None else f"let the cluster grow with --max-nodes, or {larger}"
        raise Unreachable(
            f"a trial needs {asked} ({wanted.workers} worker(s), {where}), the cluster has {found} on {len(here)} "
            f"node(s); ask for less with --resources ({change}), or {grow}"
        )

    def fit(self, study: Study) -> None:
        """Run trials until the ledger hands out no more."""
        scratch = self.storage.scratch
        setting = GangSetting(
            ledger=self._name,
            launch=self.launch,
            own_cluster=self._temporary is not None,
            resources=study.resources,
            scratch=str(scratch),
            storage=str(self.storage),
        )
        searcher = LedgerSearcher(self.ledger, setting, self.away)
        tuner = tune.Tuner(
            tune.with_resources(trial.launch, tune.PlacementGroupFactory([{private_names.HEAD: PINNED}])),
            tune_config=tune.TuneConfig(
                search_alg=searcher,
                num_samples=-1,
                reuse_actors=True,
                trial_dirname_creator=lambda started: trial_name(started.config["number"]),
            ),
            run_config=tune.RunConfig(
                name=self.launch,
                storage_path=str(scratch),
                verbose=0,
                failure_config=tune.FailureConfig(max_failures=0),
                callbacks=[NoMetrics()],
            ),
        )
        try:
            tuner.fit()
        finally:
            searcher.close()
        shutil.rmtree(scratch, ignore_errors=True)

    def stop(self) -> None:
        """Leave the cluster; one that `start` started ends here, and its logs move to the storage folder."""
        started = descendants() if self._temporary is not None else []
        ray.shutdown()
        # A worker that waits for an answer can miss the end of its cluster, and would wait for ever.
        kill(started)
        first = self._session and self._session / FIRST_LOGS
        if first is not None and first.exists():
            try:
                shutil.copytree(
                    first, self.storage.ray_logs(self.launch), dirs_exist_ok=True, ignore_dangling_symlinks=True
                )
            except OSError as error:
                log.warning("the logs of Ray are not all kept: %s", told(error))
        self.remove_temporary()

    def remove_temporary(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def away(self, error: BaseException | None = None) -> str | None:
        """What no trial of this launch can do without and is gone, in a sentence: Ray's folder, or what `error`, which
        has ended the engine, lacks; or None."""
        if self._session is not None and not self._session.exists():
            return (
                f"Ray's folder {self._temporary} was removed from under the study, by what cleans its parent; "
                "name another place with TMPDIR"
            )
        return told(error, 300) if error is not None and fault_of(error, self.storage.path) is not None else None

    def _keep_logs(self) -> None:
        """Have the processes that start from now on write their logs to the storage folder, where they last. Sockets
        cannot be there: their paths are too long, and a file server has none."""
        assert self._temporary is not None, "it is our own cluster"
        self._session = (Path(self._temporary) / "session_latest").resolve()
        logs, kept = self._session / "logs", self.storage.ray_logs(self.launch)
        kept.mkdir(parents=True, exist_ok=True)
        logs.rename(self._session / FIRST_LOGS)
        logs.symlink_to(kept)


class LedgerActor(Ledger):
    """A ledger that is opened by a call: what an actor raises while it is made arrives as the text of a traceback."""

    def __init__(self) -> None:
        """Make an actor whose ledger is not open yet."""
        # The tracker's thread may compute for as long as this while a report waits.
        sys.setswitchinterval(SWITCH_S)

    def open(self, *arguments: Any) -> None:
        Ledger.__init__(self, *arguments)

    def end_silent(self) -> None:
        """End the gangs that hang. Ray Train starts them again, and then learns that there is nothing to run."""
        for worker in self.silent():
            ray.kill(worker)


class LedgerSearcher(Searcher):
    """Hands Tune the trials that the ledger hands out, as many at a time as the cluster has room for just then."""

    def __init__(self, ledger: Any, setting: GangSetting, away: Callable[[], str | None]) -> None:
        """`away` says what no trial can do without and is gone, or None."""
        super().__init__(metric="trial", mode="max")
        self.away = away
        self.ledger, self.setting, self.resources = ledger, setting, setting.resources
        self.running: dict[str, HandOut] = {}
        """Tune's id of a trial -> the trial that the ledger handed out."""
        self.room, self.looked, self.asked = 0, -math.inf, False
        self.standing = Standing(halted=False, pausing=False, left=frozenset(), seated=0)
        self.nothing_left, self.asked_ledger = False, -math.inf

    def suggest(self, trial_id: str) -> Any:
        # A trial that does not fit would wait with its number taken: it waits in the ledger instead.
        if len(self.running) >= self._room():
            # While there is no room for any, nothing else would end the study.
            return Searcher.FINISHED if not self.running and self.standing.halted else None
        if self.nothing_left and self.running and time.monotonic() - self.asked_ledger < LOOK_EVERY_S:
            return None
        try:
            handed: HandOut | None = ray.get(self.ledger.hand_out.remote())
        except ray.exceptions.RayTaskError as error:
            if fault_of(error) is None:
                raise
            # The ledger's storage is away. Trials that run need it, too, and wait for it.
            ray.get(self.ledger.wait_for.remote(told(error, 300)))
            self.looked = -math.inf
            return None
        self.nothing_left, self.asked_ledger = handed is None, time.monotonic()
        if handed is None:
            # A trial that runs may still leave its nodes, and has to be handed out again then.
            return None if self.running else Searcher.FINISHED
        self.running[trial_id] = handed
        avoid = self._avoided(handed)
        return {"number": handed.number, "ticket": handed.ticket, "avoid": avoid, "setting": self.setting}

    def _room(self) -> int:
        """How many trials may run at a time, looked up anew every `LOOK_EVERY_S` seconds, because nodes come and go."""
        if time.monotonic() - self.looked < LOOK_EVERY_S:
            return self.room
        self._look_around()
        self.standing = ray.get(self.ledger.standing.remote())
        wanted, here = self.resources, alive()
        good = [node for node in here if node["NodeID"] not in self.standing.left]
        fits = room(wanted, good)
        if room(wanted, here) and not fits and not self.running and not self.standing.halted:
            ray.get(self.ledger.give_up.remote("every node that has room for a trial has failed several times"))
        if not self.setting.own_cluster:
            # Others may hold some of it; what gangs without their places will take still looks free.
            fits = min(fits, self.standing.seated + room(wanted, unheld(good)))
        self.room = 0 if self.standing.pausing else min(wanted.concurrency or fits, fits)
        self.looked = time.monotonic()
        if wanted.max_nodes is not None:
            short = self.room < (wanted.concurrency or self.room + 1) and len(here) < wanted.max_nodes
            self._ask_autoscaler(room(wanted, here) + 1 if short and not self.nothing_left else 0)
        return self.room

    def _look_around(self) -> None:
        """Interrupt the study where nothing would come of any trial."""
        missing = self.away()
        if missing is not None:
            ray.get(self.ledger.give_up.remote(missing))

    def _avoided(self, handed: HandOut) -> list[str]:
        """Nodes that the gang of this trial must not go to: those that left the study, and, if others are large enough,
        those that it has failed on."""
        good = [node for node in alive() if node["NodeID"] not in self.standing.left]
        untried = [node for node in good if node["NodeID"] not in handed.tried]
        return sorted(self.standing.left | (handed.tried if room(self.resources, untried) else frozenset()))

    def _ask_autoscaler(self, gangs: int) -> None:
        """Ask for room for so many gangs; 0 takes the request back, which Ray would keep for ever otherwise."""
        if not gangs and not self.asked:
            return
        bundle = per_worker(self.resources)
        if self.resources.accelerator:
            bundle |= {f"accelerator_type:{self.resources.accelerator}": 0.001}
        count = gangs * self.resources.workers
        request_resources(bundles=[bundle] * count, bundle_label_selectors=[self.resources.labels] * count)
        self.asked = gangs > 0

    def close(self) -> None:
        """Take back what was asked of the autoscaler."""
        self._ask_autoscaler(0)

    def on_trial_complete(self, trial_id: str, result: dict | None = None, error: bool = False) -> None:
        """A trial that ended without telling the ledger was lost together with its process."""
        handed = self.running.pop(trial_id)
        lost = "its process was lost; see the logs of Ray"
        self._look_around()
        answer(lambda: self.ledger.abandon.remote(handed.number, lost, handed.ticket))
        # It may have left its nodes, and wait for others.
        self.nothing_left = False

    def save(self, checkpoint_path: str) -> None:
        """Nothing to save: the ledger is the state."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing to restore: the ledger is the state."""


class NoMetrics(tune.Callback):
    """Leaves an empty file of metrics for each trial: Tune, which is told none, misses it at the end all the same."""

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        place = Path(trial.storage.trial_fs_path)
        place.mkdir(parents=True, exist_ok=True)
        (place / EXPR_RESULT_FILE).touch()


def alive() -> list[dict[str, Any]]:
    """The nodes of the cluster that are there and will stay, as far as Ray was told."""
    leaving = private_names.draining_nodes()
    return [node for node in ray.nodes() if node["Alive"] and node["NodeID"] not in leaving]


def unheld(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same nodes with only the resources that nobody holds just now."""
    free = private_names.free_resources()
    return [node | {"Resources": free.get(node["NodeID"], {})} for node in nodes]


def temporary_folder(prefix: int) -> Path:
    """Where Ray's folder goes, whose name has a prefix of so many bytes: TMPDIR, or where its path is too long /tmp.

    Raises ValueError where Ray's sockets fit nowhere.
    """
    longest = SOCKET_BYTES - BELOW - RANDOM - prefix - 1
    asked = tempfile.gettempdir()
    for place in (asked, "/tmp", "/var/tmp"):
        if len(os.fsencode(place)) <= longest and os.access(place, os.W_OK | os.X_OK):
            return Path(place)
    raise ValueError(
        f"TMPDIR={asked}: Ray puts sockets there, whose paths may have {SOCKET_BYTES} bytes, and /tmp and /var/tmp "
        f"cannot be written; name a folder for temporary files with at most {longest} bytes"
    )


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
