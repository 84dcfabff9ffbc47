"""A study that is killed and interrupted again and again ends as one that is not.

    python tests/chaos/kills.py --kills 5 --seed 1
    python tests/chaos/kills.py --kills 5 --only-driver
    python tests/chaos/kills.py --do ctrl-c-early worker second ctrl-c ctrl-c-twice sigterm-to-all

Runs a small study undisturbed in one folder. In another one it disturbs it, each time running the same
command again, to the end. Then both must have the same trials, values and losses to the last bit, no
finished trial may have changed, and MLflow must have one run per trial and each metric of each step once.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import launches
from launches import Launch, say, until

from study import run

STEPS = 16
PHASES = ("start-up", "training", "between trials")


@dataclass
class Disturbed:
    """A study under attack."""

    storage: Path
    arguments: tuple[str, ...]
    random: random.Random
    start_s: float
    """How long the undisturbed launch took to its first step."""
    phases: list[str]
    """What the next kills hit."""
    started: ExitStack
    """Ends whatever is still alive when a check fails."""
    launches: list[Launch] = field(default_factory=list)

    def launch(self) -> Launch:
        launch = self.started.enter_context(Launch(self.storage, *self.arguments))
        self.launches.append(launch)
        return launch

    def moment(self, launch: Launch) -> str:
        """Wait for the moment of the next kill; returns it in words."""
        phase = self.phases.pop(0)
        if phase == "start-up":
            pause = self.random.uniform(0.3, self.start_s)
            time.sleep(pause)
            return f"{pause:.1f} s after the start"
        pause = self.random.uniform(0, 0.5 if phase == "training" else self.start_s / 2)
        if phase == "training":
            steps = self.random.randrange(1, STEPS)
            launch.trained(steps)
            what = f"{steps} new steps"
        else:
            launch.trained(0, ended=1)
            what = "the end of a trial"
        time.sleep(pause)
        return f"{pause:.2f} s after {what}"


def everything(study: Disturbed, launch: Launch) -> None:
    """SIGKILL of the study and all that it started."""
    moment = study.moment(launch)
    assert launch.alive(), f"ended before it was killed:\n{launch.said()[-3000:]}"
    say(f"  SIGKILL of everything {moment}: {launch.kill_all()} processes, {_progress(study.storage)}")


def driver(study: Disturbed, launch: Launch) -> None:
    """SIGKILL of the study's process alone. What it started has to find its own end, while the next launch begins."""
    moment = study.moment(launch)
    assert launch.alive(), f"ended before it was killed:\n{launch.said()[-3000:]}"
    launch.process.kill()
    launch.process.wait()
    say(f"  SIGKILL of the driver {moment}: {_progress(study.storage)}")


def worker(study: Disturbed, launch: Launch) -> None:
    """SIGKILL of the process that trains: Ray Train starts another one, which carries on."""
    launch.trained(5)
    trial = max(step[0] for step in launches.steps_of(study.storage))
    (training,) = [p for p in launches.marked(launch.mark) if p.cmdline() and "RayTrainWorker" in p.cmdline()[0]]
    before = launches.summary(study.storage)["trials"][trial]["attempts"]
    training.kill()
    row = until(lambda: launches.completed(study.storage).get(trial), f"the end of trial {trial}")
    assert launch.alive()
    assert (row["state"], row["attempts"]) == ("complete", before + 1), row
    say(f"  SIGKILL of the worker of trial {trial}: complete at attempt {row['attempts']}")


def second(study: Disturbed, launch: Launch) -> None:
    """A second process on the same storage is refused by name of the first."""
    lock = study.storage / "lock"
    until(lambda: lock.exists() and f'"pid": {launch.process.pid},' in lock.read_text(), "the first process")
    other = study.launch()
    took = other.wait(2)
    assert f"in use by process {launch.process.pid} on" in other.said(), other.said()
    other.gone(5)
    assert launch.alive()
    say(f"  second process: refused after {took:.1f} s, {re.findall('in use by process .*', other.said())[0]}")


def ctrl_c(study: Disturbed, launch: Launch) -> None:
    _stop_once(study, launch, launch.interrupt, "Ctrl-C")


def sigterm(study: Disturbed, launch: Launch) -> None:
    _stop_once(study, launch, lambda: os.kill(launch.process.pid, signal.SIGTERM), "SIGTERM")


def sigterm_to_all(study: Disturbed, launch: Launch) -> None:
    """SIGTERM to the study and to every process that it has started, as Slurm sends it to all of a step."""

    def stop() -> None:
        for process in launches.marked(launch.mark):
            process.send_signal(signal.SIGTERM)

    _stop_once(study, launch, stop, "SIGTERM to all processes")


def _stop_once(study: Disturbed, launch: Launch, stop: Callable[[], None], how: str) -> None:
    launch.trained(2)
    trial = max(step[0] for step in launches.steps_of(study.storage))
    when = time.time() * 1000
    stop()
    took = launch.wait(130)
    launch.gone(5)
    steps = [(step[2], record["time"]) for step, record in launches.steps_of(study.storage).items() if step[0] == trial]
    after = sum(made > when for _, made in steps)
    row = launches.summary(study.storage)["trials"][trial]
    if row["state"] == "interrupted":
        checkpoint = launches.newest_checkpoint(study.storage, trial)
        assert checkpoint == max(step for step, _ in steps), (checkpoint, steps)
        where = f"trial {trial} has its checkpoint at step {checkpoint}"
    else:
        # The trial was at its last step when the signal came.
        assert row["state"] == "complete", row
        where = f"trial {trial} was at its end"
    assert len(launches.summary(study.storage)["trials"]) == trial + 1, "a trial was begun after the signal"
    assert launch.leftovers() == [], launch.leftovers()
    say(f"  {how} once: exit 130 after {took:.1f} s and {after} more steps; {where}")


def ctrl_c_early(study: Disturbed, launch: Launch) -> None:
    """Ctrl-C while the study starts, so with a launch of its own: no trial runs."""
    before = len(launches.steps_of(study.storage))
    time.sleep(pause := study.random.uniform(3, max(4, study.start_s / 2)))
    launch.interrupt()
    took = launch.wait(130)
    launch.gone(5)
    steps = len(launches.steps_of(study.storage)) - before
    # A trial may have been handed out just before the signal.
    assert steps <= 2, f"{steps} steps after the signal"
    assert launch.leftovers() == [], launch.leftovers()
    say(f"  Ctrl-C {pause:.1f} s after the start: exit 130 after {took:.1f} s and {steps} steps")


def ctrl_c_twice(study: Disturbed, launch: Launch) -> None:
    launch.trained(2)
    launch.interrupt()
    # A second signal right away would count as the first one again.
    time.sleep(run.SAME_SIGNAL_S + 0.2)
    launch.interrupt()
    took = launch.wait(130)
    rest = launch.gone(5)
    assert took < 5, f"took {took:.1f} s"
    assert launch.leftovers() == [], launch.leftovers()
    say(f"  Ctrl-C twice: exit 130 after {took:.2f} s, nothing alive {rest:.2f} s later; {_progress(study.storage)}")


DISTURBANCES = {
    "everything": everything,
    "driver": driver,
    "worker": worker,
    "second": second,
    "ctrl-c": ctrl_c,
    "ctrl-c-early": ctrl_c_early,
    "ctrl-c-twice": ctrl_c_twice,
    "sigterm": sigterm,
    "sigterm-to-all": sigterm_to_all,
}


def _progress(storage: Path) -> str:
    return f"{launches.ends_of(storage)} trials ended, {len(launches.steps_of(storage))} steps on record"


def phases(kills: int, chance: random.Random) -> list[str]:
    """Each phase about equally often, in an order that chance decides."""
    found: list[str] = []
    while len(found) < kills:
        found += chance.sample(PHASES, len(PHASES))
    return found[:kills]


def undisturbed(storage: Path, arguments: tuple[str, ...]) -> float:
    """Run the study in peace; returns the seconds to its first step."""
    began = time.monotonic()
    with Launch(storage, *arguments) as launch:
        launch.trained(1)
        start_s = time.monotonic() - began
        launch.wait(0)
        launch.gone(5)
        assert launch.leftovers() == [], launch.leftovers()
    say(f"undisturbed: {time.monotonic() - began:.0f} s, {start_s:.0f} s of them to the first step")
    return start_s


def disturbed(storage: Path, arguments: tuple[str, ...], disturbances: list[str], seed: int, start_s: float) -> None:
    """Disturb the study and run the same command again, to the end."""
    chance = random.Random(seed)
    kills = sum(name in ("everything", "driver") for name in disturbances)
    say(f"disturbed, seed {seed}: {', '.join(disturbances)}")
    began = time.monotonic()
    with ExitStack() as started:
        study = Disturbed(storage, arguments, chance, start_s, phases(kills, chance), started)
        launch = study.launch()
        ended: dict[int, dict] = {}
        for name in disturbances:
            if not launch.alive():
                launch = study.launch()
            DISTURBANCES[name](study, launch)
            _unchanged(ended, launches.completed(storage))
            ended = launches.completed(storage)
        if not launch.alive():
            launch = study.launch()
        launch.wait(0)
        for one in study.launches:
            one.gone(10)
        _unchanged(ended, launches.completed(storage))
        assert launch.leftovers() == [], launch.leftovers()
        assert launches.temporary_files(storage) == [], launches.temporary_files(storage)
    say(f"the same command ended it: {len(study.launches)} launches in {time.monotonic() - began:.0f} s")


def compare(storage: Path, calm: Path) -> None:
    """Trials, values, losses and MLflow of both; AssertionError says what differs."""
    steps = launches.same_study(storage, calm)
    points, expected = (launches.same_in_mlflow(folder, launches.database(folder)) for folder in (storage, calm))
    assert points == expected, (points, expected)
    attempts = [trial["attempts"] for trial in launches.summary(storage)["trials"]]
    say(
        f"{len(attempts)} trials with {attempts} attempts, {steps} steps: parameters, values and losses equal to the "
        f"last bit; MLflow: 1 + {len(attempts)} runs, {points} points, each once"
    )


def _unchanged(before: dict[int, dict], now: dict[int, dict]) -> None:
    """A finished trial stays as it was; its MLflow run may only become known."""
    for number, row in before.items():
        if row["run_id"] is None:
            row = row | {"run_id": now[number]["run_id"]}
        assert now[number] == row, f"finished trial {number} changed: {row} -> {now[number]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=5, metavar="N", help="SIGKILLs at random moments")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="seed of the moments")
    parser.add_argument("--only-driver", action="store_true", help="kill the study's process alone")
    parser.add_argument("--do", nargs="+", choices=DISTURBANCES, help="these disturbances instead")
    parser.add_argument("--trials", type=int, metavar="N", help="trials of the study (default: enough)")
    parser.add_argument("--folder", type=Path, help="keep the studies there")
    options = parser.parse_args()
    disturbances = options.do or ["driver" if options.only_driver else "everything"] * options.kills
    trials = options.trials or max(4, len(disturbances))
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="kills-"))).resolve()
    arguments = ("--trials", str(trials))
    start_s = undisturbed(folder / "undisturbed", arguments)
    disturbed(folder / "disturbed", arguments, disturbances, options.seed, start_s)
    compare(folder / "disturbed", folder / "undisturbed")
    if options.folder is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
