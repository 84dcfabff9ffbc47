"""Training never waits for MLflow: its server is killed in the middle of a study and started again.

    python tests/chaos/outage.py --down 60

A real `mlflow server` on this machine. The gaps between consecutive steps while it is away are compared
with those before, and in the end every step must be there once.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import launches
from launches import Launch, say, until

STEPS = 200
LONGER = 4.0
"""How many times the longest step before may a step during the outage take; other work shares the cores."""
ALLOWED_S = 2.0
"""Seconds that a step may take in any case. A wait for the server would last for one of its time-outs: 30 s and
more."""


class Server:
    """An MLflow server over an SQLite file, that may be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, launches.free_port()
        self.address = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{self.folder}/server.db",
                 "--artifacts-destination", str(self.folder / "artifacts"), "--host", "127.0.0.1",
                 "--port", str(self.port), "--workers", "1"],
                cwd=self.folder, env=os.environ | quiet, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        until(self.answers, "the server")

    def answers(self) -> bool:
        from study.tracking.uri_check import check_uri

        try:
            check_uri(self.address)
        except ValueError:
            return False
        return True

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def check(folder: Path, down_s: float) -> None:
    """Run a study through an outage of `down_s` seconds; AssertionError says what went wrong."""
    storage = folder / "study"
    arguments = ["--trials", "2", "--set", f"steps={STEPS}", "--set", "checkpoint_every=50"]
    with ExitStack() as stack:
        server = Server(folder)
        stack.callback(server.kill)
        server.start()
        launch = stack.enter_context(Launch(storage, *arguments, tracking_uri=server.address))
        launch.trained(STEPS // 4)
        killed = time.time()
        server.kill()
        before = launches.steps_of(storage)
        until(lambda: not launch.alive() or time.time() - killed >= down_s, "the outage", down_s + 60)
        during = time.time()
        steps = launches.steps_of(storage)
        ended = "the study was still under way" if launch.alive() else "the study ended meanwhile"
        time.sleep(max(0.0, killed + down_s - during))
        server.start()
        launch.wait(0)
        again = launches.summary(storage)["tracking"]["pending"]
        if again:
            stack.enter_context(Launch(storage, *arguments, tracking_uri=server.address)).wait(0)
        points = launches.same_in_mlflow(storage, server.address)
    calm = gaps(before, 0, killed)
    outage = gaps(steps, killed, during)
    assert outage, "no step was made during the outage"
    ratio = max(outage) / max(calm)
    assert max(outage) < max(ALLOWED_S, LONGER * max(calm)), (max(outage), max(calm))
    say(
        f"server away for {down_s:g} s, {ended}: {len(outage)} steps meanwhile, the longest {max(outage):.2f} s "
        f"({max(calm):.2f} s before: x {ratio:.1f}), the median {statistics.median(outage):.3f} s "
        f"({statistics.median(calm):.3f} s before)"
    )
    sent = f"{again} entries sent by the same command once more" if again else "all sent before its end"
    say(f"exit 0; {len(launches.steps_of(storage))} steps in the journal, {sent}: {points} points in MLflow, each once")


def gaps(steps: dict[launches.Step, dict], begin: float, end: float) -> list[float]:
    """Seconds between consecutive training steps of a trial whose second one was made in [begin, end]."""
    found = []
    for (trial, replicate, step), record in steps.items():
        previous = steps.get((trial, replicate, step - 1))
        if step > 1 and previous is not None and begin <= record["time"] / 1000 <= end:
            found.append((record["time"] - previous["time"]) / 1000)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--down", type=float, default=60.0, metavar="SECONDS", help="how long the server is away")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="outage-"))
    check(folder, options.down)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
