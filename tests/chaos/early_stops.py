"""Trials that stop early leave nothing behind.

    python tests/chaos/early_stops.py --trials 20

One launch whose trials blow up or lag behind, and are stopped for it. While the cluster is still there,
no actor, worker process, placement group or resource of theirs may be held; once it is gone, no process,
temporary folder, lock or half-written file.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path

import launches
from launches import say

SHARED = {"LedgerActor", "_AutoscalingCoordinatorActor"}
"""Actors of which a cluster has one, for all its trials."""
SETTLE_S = 30.0


def held() -> list[str]:
    """What the cluster still holds for trials."""
    import ray
    from ray._private import state

    alive = Counter(a["ActorClassName"] for a in state.actors().values() if a["State"] != "DEAD")
    found = [f"{count} x {name}" for name, count in alive.items() if name not in SHARED or count > 1]
    groups = ray.util.placement_group_table().values()
    found += [f"placement group {group['state']}" for group in groups if group["state"] != "REMOVED"]
    total, free = ray.cluster_resources(), ray.available_resources()
    # What is used up is left out of `free`, and a group that is going may be in one of the two only.
    rest = {name: (free.get(name, 0), amount) for name, amount in total.items()}
    found += [f"{left:g} of {amount:g} {name}" for name, (left, amount) in rest.items() if left < amount]
    return found


def working(mark: str) -> list[str]:
    """Processes of trials; idle ones, which Ray keeps for whatever comes next, do not count."""
    busy = ("RayTrainWorker", "TrainController", "ImplicitFunc", "SynchronizationActor")
    return [name for name in launches.named(launches.marked(mark)) if any(word in name for word in busy)]


def locked(path: Path) -> bool:
    """Whether somebody holds the lock at `path`."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def shared_memory() -> set[str]:
    """What Ray's object store, torch and Python's multiprocessing may leave there; others use it too."""
    return {name for name in os.listdir("/dev/shm") if name.startswith(("plasma", "ray", "torch_", "psm_", "sem."))}


def check(storage: Path, trials: int) -> None:
    """Run one healthy trial and `trials` that stop early; AssertionError says what was left behind."""
    mark = os.environ[launches.MARK] = uuid.uuid4().hex
    temporary = launches.temporary_folder(storage)
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
    before = shared_memory()

    import ray

    from study import spec
    from study.engine.executor import Engine
    from study.ledger.lock import Lock
    from study.protocol.destinations import Destinations
    from study.protocol.folder import StudyFolder

    _, study = spec.load(launches.TINY, "stops", {}, {"budget.trials": 1 + trials})
    began = time.monotonic()
    folder = StudyFolder(storage)
    lock = Lock(folder.lock)
    engine = Engine(folder, None)
    engine.start()
    try:
        ledger = engine.open_ledger("tiny_study", "stops", study, Destinations(folder))
        engine.fit(study)
        ray.get(ledger.conclude.remote())
        ended = time.monotonic()
        while left := held() + working(mark):
            assert time.monotonic() - ended < SETTLE_S, f"still held after {SETTLE_S:g} s: {left}"
            time.sleep(0.1)
        settled = time.monotonic() - ended
        groups = len(ray.util.placement_group_table())
        assert groups > trials, "the trials had no placement groups to leave behind"
        ray.get(ledger.close.remote([], 0))
    finally:
        stopping = time.monotonic()
        engine.stop()
        lock.release()
    gone = time.monotonic() - stopping

    states = Counter(trial["state"] for trial in launches.summary(storage)["trials"])
    assert states["collapsed"] + states["pruned"] == trials, states
    assert states["collapsed"], states
    assert states["pruned"], states
    left = {
        "processes": launches.named(launches.marked(mark)),
        "temporary files": [name for name in os.listdir(temporary) if not name.startswith("torchinductor_")],
        "locks": [path.name for path in (folder.lock, folder.ledger_lock) if locked(path)],
        "half-written files": launches.temporary_files(storage),
        "shared memory": sorted(shared_memory() - before),
    }
    shutil.rmtree(temporary)
    assert not any(left.values()), {what: found for what, found in left.items() if found}
    say(
        f"{trials} trials stopped early ({states['collapsed']} collapsed, {states['pruned']} pruned) in "
        f"{stopping - began:.0f} s; {groups} placement groups, all removed, every resource free {settled:.1f} s after "
        f"the last trial; nothing left {gone:.1f} s after the engine was stopped: no {', '.join(left)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20, metavar="N", help="trials that stop early")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="stops-"))
    check(folder / "storage", options.trials)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
