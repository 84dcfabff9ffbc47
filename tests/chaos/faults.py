"""A study around which machines fail, short of a kill, ends as one that nothing happened to.

    python tests/chaos/faults.py
    python tests/chaos/faults.py --do hung-worker lost-folder

Runs a small study undisturbed in one folder. In another one it brings one fault after the other about and runs the same
command again, to the end. Then both must have the same trials, values and losses to the last bit, and MLflow one run
for each trial and each metric of each step once. The full disk is a tmpfs of some megabytes, which needs root.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import kills
import launches
from launches import Launch, say, until

SILENCE_S = 4.0


@contextmanager
def launched(storage: Path, arguments: tuple[str, ...]) -> Iterator[Launch]:
    with Launch(storage, *arguments) as launch:
        yield launch
        launch.gone(10)
        assert launch.leftovers() == [], launch.leftovers()


def running(launch: Launch, steps: int) -> int:
    """Wait for steps more; returns the trial that made the last one."""
    launch.trained(steps)
    return max(step[0] for step in launches.steps_of(launch.storage))


def interrupted(launch: Launch, sentence: str) -> None:
    launch.wait(130)
    assert sentence in launch.said(), launch.said()[-3000:]
    states = {trial["state"] for trial in launches.summary(launch.storage)["trials"]}
    assert states <= {"complete", "interrupted"}, states


def locked_database(storage: Path, arguments: tuple[str, ...]) -> None:
    """Somebody holds the ledger's database for longer than SQLite waits; the trial waits for it and goes on."""
    with launched(storage, arguments) as launch:
        running(launch, 3)
        with sqlite3.connect(storage / "ledger.db", isolation_level=None) as other:
            other.execute("begin exclusive")
            time.sleep(20)
            other.execute("rollback")
        launch.trained(5)
        launch.interrupt()
        launch.wait(130)
    say(f"  the ledger's database locked for 20 s: the trial went on; {kills._progress(storage)}")


def hung_worker(storage: Path, arguments: tuple[str, ...]) -> None:
    """The process that trains stands still, as in a call that never returns."""
    with launched(storage, arguments) as launch:
        trial = running(launch, 5)
        before = launches.summary(storage)["trials"][trial]["attempts"]
        (worker,) = [p for p in launches.marked(launch.mark) if p.cmdline() and "RayTrainWorker" in p.cmdline()[0]]
        worker.suspend()
        until(lambda: "its gang hangs" in launch.said(), "the silence to be noticed")
        row = until(lambda: launches.completed(storage).get(trial), f"the end of trial {trial}")
        assert (row["state"], row["attempts"]) == ("complete", before + 1), row
        if launch.alive():
            launch.interrupt()
        assert launch.process.wait(120) in (0, 130)
    told = [e["tags"]["fault"] for e in launches.entries(storage) if e["op"] == "trial" and "fault" in e["tags"]]
    assert "its gang hangs" in told[-1], told
    say(f"  a worker that stands still: {told[-1]}; trial {trial} complete at attempt {row['attempts']}")


def lost_folder(storage: Path, arguments: tuple[str, ...]) -> None:
    """A cleaner removes Ray's folder; nothing fails, and the logs are kept."""
    with launched(storage, arguments) as launch:
        running(launch, 3)
        for folder in launch.temporary.glob("study-*"):
            shutil.rmtree(folder)
        interrupted(launch, "was removed from under the study")
    assert list(storage.glob("logs/ray-*/worker-*.err")), "Ray's logs are gone"
    say(f"  Ray's folder removed: interrupted, no trial failed, its logs are there; {kills._progress(storage)}")


def sigterm_to_group(storage: Path, arguments: tuple[str, ...]) -> None:
    """As `timeout` and container runtimes stop a study."""
    with launched(storage, arguments) as launch:
        running(launch, 2)
        os.killpg(launch.process.pid, signal.SIGTERM)
        interrupted(launch, "interrupted")
    say(f"  SIGTERM to the process group: interrupted; {kills._progress(storage)}")


def full_disk(storage: Path, arguments: tuple[str, ...]) -> None:
    """The disk of the storage folder is full for a while; what waits for it goes on when there is room."""
    with launched(storage, arguments) as launch:
        running(launch, 3)
        filler = storage / "filler"
        with filler.open("wb") as file:
            while True:
                try:
                    file.write(b"0" * 2**16)
                    file.flush()
                except OSError:
                    break
        time.sleep(20)
        assert launch.alive(), launch.said()[-3000:]
        filler.unlink(missing_ok=True)
        launch.trained(2)
        launch.interrupt()
        launch.wait(130)
    states = {trial["state"] for trial in launches.summary(storage)["trials"]}
    assert states <= {"complete", "interrupted"}, states
    say(f"  the disk full for 20 s: {kills._progress(storage)}")


FAULTS = {
    "hung-worker": hung_worker,
    "lost-folder": lost_folder,
    "locked-database": locked_database,
    "sigterm-to-group": sigterm_to_group,
    "full-disk": full_disk,
}
SHORT = ("hung-worker", "lost-folder", "locked-database")


@contextmanager
def small_disk(folder: Path, mib: int = 400) -> Iterator[None]:
    """A disk that can be filled without harm."""
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "none", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def check(folder: Path, faults: tuple[str, ...], trials: int) -> None:
    arguments = ("--trials", str(trials), "--silence", str(SILENCE_S))
    kills.undisturbed(folder / "undisturbed", arguments)
    storage = folder / "disk" / "disturbed"
    if "full-disk" in faults:
        with small_disk(folder / "disk"):
            _disturbed(storage, faults, arguments, folder)
    else:
        _disturbed(storage, faults, arguments, folder)


def _disturbed(storage: Path, faults: tuple[str, ...], arguments: tuple[str, ...], folder: Path) -> None:
    began = time.monotonic()
    for name in faults:
        FAULTS[name](storage, arguments)
    with launched(storage, arguments) as launch:
        launch.wait(0)
    say(f"{len(faults)} faults: ended after {time.monotonic() - began:.0f} s")
    kills.compare(storage, folder / "undisturbed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--do", nargs="+", choices=FAULTS, default=tuple(FAULTS), help="these faults only")
    parser.add_argument("--trials", type=int, default=6, metavar="N", help="trials of the study")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    check(folder, tuple(options.do), options.trials)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
