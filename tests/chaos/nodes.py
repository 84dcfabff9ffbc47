"""A study on a cluster whose nodes die, come and leave, and whose head is lost, ends as one that nothing happened to.

    python tests/chaos/nodes.py [--trials 4]

Runs a small study undisturbed on a cluster of its own. Then it submits the same study to a head and two nodes, all
with a token: trials are gangs of two workers, one on each node. In the middle of training one node is killed and
another one added; a node is announced to be taken away, and is; the head is killed and a new cluster started; the
study is stopped and submitted again, followed to its end. Both must then have the same trials, values and, to the last
bit, losses, and MLflow one run per trial and each metric of each step once.
"""

from __future__ import annotations

import argparse
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import kills
import launches
from cluster import Cluster
from launches import ROOT, TINY, database, say, steps_of, summary, until

GANG = ("--workers-per-trial", "2", "--resources", "placement=SPREAD")
STEPS = 240
"""Half a minute, so that what is to happen in the middle of a trial does."""


class Study:
    """The study on the cluster, as the person who submitted it sees it."""

    def __init__(self, cluster: Cluster, storage: Path, trials: int) -> None:
        self.cluster, self.storage = cluster, storage
        self.screen = storage.with_name("followed.screen")
        self.command = [
            str(TINY), "--profile", "kills", "--storage", str(storage), "--address", cluster.address,
            "--tracking-uri", database(storage), *arguments(trials),
        ]  # fmt: skip

    def follow(self) -> subprocess.Popen:
        """Submit it, or find it running, and follow it in the background."""
        with self.screen.open("a") as screen:
            return subprocess.Popen(
                [sys.executable, "-m", "study.submit", *self.command, "--follow"], cwd=self.cluster.folder,
                env=self.cluster.with_token(PYTHONPATH=str(ROOT)), stdin=subprocess.DEVNULL, stdout=screen,
                stderr=subprocess.STDOUT,
            )  # fmt: skip

    def trained(self, follower: subprocess.Popen) -> dict[str, Any]:
        """Wait for some more steps on record, in the first half of a trial; returns that trial."""
        wanted = len(steps_of(self.storage)) + 5

        def there() -> bool:
            return len(steps := steps_of(self.storage)) >= wanted and 0 < list(steps)[-1][2] < STEPS // 2

        until(lambda: there() or follower.poll() is not None, "some steps", pause_s=0.2)
        assert follower.poll() is None, f"ended before it was disturbed:\n{self.said()}"
        return summary(self.storage)["trials"][list(steps_of(self.storage))[-1][0]]

    def said(self) -> str:
        return self.screen.read_text()[-3000:]


def arguments(trials: int) -> tuple[str, ...]:
    settings = (f"steps={STEPS}", f"evaluate_every={STEPS // 2}", f"checkpoint_every={STEPS // 6}")
    return "--trials", str(trials), *GANG, *(word for setting in settings for word in ("--set", setting))


def undisturbed(storage: Path, trials: int) -> None:
    began = time.monotonic()
    own = ("--resources", "cpus_per_worker=0.5")
    with launches.Launch(storage, *arguments(trials), *own) as launch:
        launch.wait(0, patience_s=900)
    say(f"undisturbed: {time.monotonic() - began:.0f} s")


def disturbed(cluster: Cluster, storage: Path, trials: int) -> None:
    """Submit the study, and see to it that every way of losing a node, and the head, comes in the middle of a trial."""
    head = cluster.head(cpus=0)
    first, _ = joined(cluster)
    second, second_id = joined(cluster)
    study = Study(cluster, storage, trials)
    follower = study.follow()

    study.trained(follower)
    say(f"  SIGKILL of a node, {cluster.kill(first)} processes: {progress(storage)}")
    joined(cluster)
    trial = study.trained(follower)
    assert (trial["number"], trial["attempts"]) == (0, 2), trial
    say(f"  another node came: {progress(storage)}")

    joined(cluster)
    before, step = study.trained(follower), list(steps_of(storage))[-1][2]
    cluster.drain(second_id, deadline_s=120)
    until(lambda: attempts(storage, before) > before["attempts"], "the trial to go on elsewhere")
    resumed = resumed_from(storage, before["number"])
    assert resumed >= step, (resumed, step)
    cluster.kill(second)
    study.trained(follower)
    assert attempts(storage, before) == before["attempts"] + 1, progress(storage)
    say(f"  a node that was announced to leave is gone, no step was lost: {progress(storage)}")

    say(f"  SIGKILL of the head, {cluster.kill(head)} processes: {progress(storage)}")
    code = follower.wait(300)
    assert code == 1, (code, study.said())
    assert "The same command carries the study on" in study.said(), study.said()
    began = time.monotonic()
    until(lambda: not raylets(cluster), "the nodes of the lost head to end", pause_s=0.5)
    say(f"  who followed was told; the nodes had ended {time.monotonic() - began:.0f} s later")
    cluster.head(cpus=0)
    for _ in range(2):
        joined(cluster)
    follower = study.follow()
    study.trained(follower)
    say(f"  a new cluster carries on: {progress(storage)}")

    submission = re.findall(r"^(\S+) submitted$", study.said(), re.MULTILINE)[-1]
    stopped = cluster.submit("--stop", submission)
    assert stopped.returncode == 0, stopped.stderr
    assert follower.wait(60) == 130, study.said()
    assert summary(storage)["status"] == "interrupted"
    say(f"  stopped: {progress(storage)}")
    follower = study.follow()
    assert follower.wait(900) == 0, study.said()
    assert f"{submission.removesuffix('-1')}-2 carries the study on" in study.said(), study.said()
    say(f"  submitted again and followed to the end: {progress(storage)}")


def joined(cluster: Cluster) -> tuple[subprocess.Popen, str]:
    """A new node of one CPU, and its id."""
    before = cluster.node_ids()
    node = cluster.node(cpus=1)
    # More than one where Ray needed a second try.
    return node, (cluster.node_ids() - before).pop()


def attempts(storage: Path, trial: dict[str, Any]) -> int:
    return summary(storage)["trials"][trial["number"]]["attempts"]


def resumed_from(storage: Path, trial: int) -> int:
    """The step that the newest attempt of a trial began with."""
    log = storage / "logs" / f"trial-{trial:04d}.log"
    return int(until(lambda: re.findall(r"rank 0 .* carrying on from step (\d+)", log.read_text()), "a resume")[-1])


def raylets(cluster: Cluster) -> list[str]:
    return [name for name in launches.named(cluster.alive()) if "raylet/raylet" in name]


def progress(storage: Path) -> str:
    told = ", ".join(f"{t['number']} {t['state']} (attempt {t['attempts']})" for t in summary(storage)["trials"])
    return f"{len(steps_of(storage))} steps on record, trials {told}"


def check(folder: Path, trials: int) -> None:
    undisturbed(folder / "undisturbed", trials)
    with Cluster(secrets.token_hex(32)) as cluster:
        began = time.monotonic()
        disturbed(cluster, folder / "disturbed", trials)
        say(f"ended after {time.monotonic() - began:.0f} s")
    kills.compare(folder / "disturbed", folder / "undisturbed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=4, metavar="N", help="trials of the study")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="nodes-"))
    check(folder, options.trials)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
