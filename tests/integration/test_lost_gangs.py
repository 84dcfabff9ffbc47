"""What the engine reads from the errors of Ray Train, as Ray words them."""

from __future__ import annotations

from ray.exceptions import OutOfMemoryError
from ray.train import ControllerError, WorkerGroupError
from ray.train.v2._internal.exceptions import WorkerGroupStartupFailedError, WorkerGroupStartupTimeoutError

from study.engine.lost_gangs import LostGang
from trainables.faults import Fault

NODE = "ab" * 28


def test_a_machine_without_memory_is_one_sentence() -> None:
    """Ray's own text has forty lines."""
    text = (
        "1 worker(s) were killed due to the node running low on memory. "
        f"Memory on the node (IP: 10.0.0.7, ID: {NODE}) was 22.50GB used / 23.50GB limit (0.957447)\n"
    ) + "\n".join(f"PID {n} MEM(GB) 1.0" for n in range(40))
    lost = LostGang.of(WorkerGroupError("worker failed", {0: ValueError("collateral"), 1: OutOfMemoryError(text)}))
    assert lost.trouble is not None
    assert (lost.trouble.kind, lost.trouble.node) == (Fault.NODE, NODE)
    assert lost.reason.startswith("the machine 10.0.0.7 ran out of memory (22.50 of 23.50 GB used), and Ray ended")
    assert "\n" not in lost.reason


def test_a_gang_without_room_has_not_failed() -> None:
    lost = LostGang.of(ControllerError(WorkerGroupStartupTimeoutError(num_workers=2)))
    assert (lost.before_its_start, lost.lacked_room, lost.trouble) == (True, True, None)
    assert lost.reason == "its gang could not start: the cluster has no room for it"


def test_a_gang_that_does_not_start_says_why() -> None:
    lost = LostGang.of(ControllerError(WorkerGroupStartupFailedError("no such environment")))
    assert (lost.before_its_start, lost.lacked_room) == (True, False)
    assert lost.reason == "its gang could not start: no such environment"


def test_a_lost_worker_is_its_own_error() -> None:
    lost = LostGang.of(WorkerGroupError("worker failed", {0: RuntimeError("a worker died")}))
    assert lost == LostGang("its gang was lost: a worker died")
