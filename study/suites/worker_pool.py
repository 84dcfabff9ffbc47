"""Measurements over a Ray cluster: a pool of workers, fed with shards by Ray Data.

What goes through Ray Data are numbers of shards, not texts or vectors. Workers read their slice of the corpus
themselves and leave what they make in the cache: so nothing waits in an object store, and what a kill leaves is
what the next launch finds. Ray Data brings the pool, hands a shard to whoever is free, and gives the shard of a
lost worker to another one.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from study.engine.capacity import per_worker, room
from study.engine.executor import Unreachable, alive
from study.spec import Resources
from trainables import trainers
from trainables.evaluation.measurement import Measurement
from trainables.evaluation.types import Evaluation

LOST_WORKERS = 3
"""Times that a worker of the pool is started again; Ray Data's own default is for ever."""


class WorkerFailed(RuntimeError):
    """A worker raised something; the message is its traceback."""


@dataclass(frozen=True)
class Progress:
    """A shard of measurement number `measurement` is done."""

    measurement: int
    encoded: bool
    documents: int


@dataclass(frozen=True)
class Finished:
    """All shards of measurement number `measurement` are done, and their hits merged."""

    measurement: int
    settings: dict[str, Any]
    """The settings of the workers' encoder, see `Encoder.settings`."""
    result: Evaluation


def run(
    measurements: Sequence[Measurement], resources: Resources, workers: int | None
) -> Iterator[Progress | Finished]:
    """Do all measurements with `workers` workers, or as many as the cluster has room for; results as they come.

    Raises `Unreachable` where there is no room, and `WorkerFailed`.
    """
    from ray.data import ActorPoolStrategy, DataContext, from_items

    worker = resources.model_copy(update={"workers": 1, "placement": "PACK"})
    size = _workers(worker, workers)
    shards = [{"measurement": n, "shard": shard} for n, one in enumerate(measurements) for shard in range(one.shards)]
    DataContext.get_current().enable_progress_bars = False
    options: dict[str, Any] = {"num_cpus": worker.cpus_per_worker, "num_gpus": worker.gpus_per_worker or None}
    if worker.accelerator is not None:
        options["accelerator_type"] = worker.accelerator
    if worker.labels:
        options["label_selector"] = worker.labels
    # A block for each shard, because a worker is given whole blocks.
    done = from_items(shards, override_num_blocks=len(shards)).map(
        Worker,  # type: ignore[arg-type]  # a class too, says its documentation
        fn_constructor_args=(list(measurements), int(worker.cpus_per_worker), worker.gpus_per_worker),
        # One shard in flight for each worker: a shard that waits at a busy worker could be done by another.
        compute=ActorPoolStrategy(size=min(size, len(shards)), max_tasks_in_flight_per_actor=1),
        max_restarts=LOST_WORKERS,
        max_task_retries=LOST_WORKERS,
        **options,
    )
    merge = ray.remote(num_cpus=0)(_merge)
    merges = Merges(lambda number, folder: merge.remote(measurements[number], folder), size)
    left = {n: one.shards for n, one in enumerate(measurements)}
    folders: dict[int, str] = {}
    for row in done.iter_rows():
        number = row["measurement"]
        if row["failure"]:
            raise WorkerFailed(row["failure"])
        if folders.setdefault(number, row["folder"]) != row["folder"]:
            raise RuntimeError(
                f"workers compute differently: {folders[number]} and {row['folder']} hold shards of one measurement; "
                "set the trainer's precision to float32 or bf16 instead of auto, or use nodes of one kind"
            )
        left[number] -= 1
        yield Progress(number, row["encoded"], row["documents"])
        if left[number] == 0:
            merges.add(number, row["folder"])
        yield from merges.finished(wait=False)
    while merges.left:
        yield from merges.finished(wait=True)


class Merges:
    """Tasks that merge the hits of a measurement each, at most `size` at a time: Ray gives every task that asks for no
    CPU a process of its own, and a suite of small collections has dozens of them ready at once."""

    def __init__(self, start: Callable[[int, str], Any], size: int) -> None:
        """`start` begins the task of a measurement's number and folder, and returns its reference."""
        self._start, self._size = start, size
        self._waiting: deque[tuple[int, str]] = deque()
        self._running: dict[Any, int] = {}

    @property
    def left(self) -> int:
        """Those that have not been told as finished."""
        return len(self._waiting) + len(self._running)

    def add(self, number: int, folder: str) -> None:
        self._waiting.append((number, folder))
        self._fill()

    def finished(self, wait: bool) -> Iterator[Finished]:
        """At most one that has ended since; with `wait` the next one to end."""
        if not self._running:
            return
        ready, _ = ray.wait(list(self._running), num_returns=1, timeout=None if wait else 0)
        for reference in ready:
            number = self._running.pop(reference)
            self._fill()
            yield Finished(number, *ray.get(reference))

    def _fill(self) -> None:
        while self._waiting and len(self._running) < self._size:
            number, folder = self._waiting.popleft()
            self._running[self._start(number, folder)] = number


def _workers(one: Resources, asked: int | None) -> int:
    have = room(one, alive())
    if not have or (asked or 0) > have:
        each = " and ".join(f"{amount:g} {kind}" for kind, amount in per_worker(one).items())
        raise Unreachable(
            f"{asked or 1} worker(s) with {each} each do not fit: the cluster has room for {have}; "
            "lower --workers, or use a larger cluster with --address"
        )
    return asked or have


class Worker:
    """One process of the pool. It keeps the encoder of its last model, and the queries of its last measurement."""

    def __init__(self, measurements: Sequence[Measurement], threads: int, gpus: float) -> None:
        from trainables.context import use_threads, worker_device

        use_threads(threads)
        self.measurements, self.device = measurements, worker_device(gpus)
        self._model: tuple[Path, Any] | None = None
        self._search: tuple[int, Any] | None = None

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """The shard of a row, done; a failure travels as a column, because Ray Data would bury its reason."""
        number, shard = int(row["measurement"]), int(row["shard"])
        done = {"measurement": number, "documents": 0, "folder": "", "encoded": False, "failure": ""}
        try:
            measurement = self.measurements[number]
            if self._search is None or self._search[0] != number:
                self._search = number, self._open(measurement)
            search = self._search[1]
            done["encoded"] = search.search(shard)
        except Exception:
            return done | {"failure": traceback.format_exc()}
        start, stop = measurement.bounds(shard)
        return done | {"documents": stop - start, "folder": str(search.folder)}

    def _open(self, measurement: Measurement) -> Any:
        from trainables.evaluation.shards import ShardSearch

        if self._model is None or self._model[0] != measurement.model:
            # The old encoder goes before the new one comes.
            self._model = self._search = None
            config = trainers.module(measurement.trainer, "config").Config(**measurement.config)
            encoder = trainers.module(measurement.trainer, "recipe").Encoder
            self._model = measurement.model, encoder.open(measurement.model, config, self.device)
        return ShardSearch(measurement, self._model[1], self.device)


def _merge(measurement: Measurement, folder: str) -> tuple[dict[str, Any], Evaluation]:
    """Merge the hits of all shards, in a process of its own, which may import torch: (the encoder's settings, the
    result)."""
    from trainables.evaluation import shards
    from trainables.evaluation.merge_hits import merge_hits

    return shards.settings(Path(folder)), merge_hits(measurement, Path(folder))
