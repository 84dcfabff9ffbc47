"""Kills, interruptions and early stops on the real command line: the short forms of the scripts in `tests/chaos/`.

`make chaos` runs them, `make test` does not: they spend minutes starting and killing clusters of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import faults
import kills
import no_shared_folder
import nodes
import pytest

pytestmark = pytest.mark.chaos

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(1500)
def test_a_study_that_is_killed_and_interrupted_ends_as_an_undisturbed_one(tmp_path) -> None:
    """One story, because every start of Ray costs seconds: whatever comes, the same command carries on."""
    arguments = ("--trials", "3")
    disturbances = ["worker", "everything", "second", "sigterm-to-all", "ctrl-c-twice"]
    start_s = kills.undisturbed(tmp_path / "undisturbed", arguments)
    # This seed kills in the middle of the second trial.
    kills.disturbed(tmp_path / "disturbed", arguments, disturbances, seed=16, start_s=start_s)
    kills.compare(tmp_path / "disturbed", tmp_path / "undisturbed")


@pytest.mark.timeout(900)
def test_a_study_whose_machines_fail_ends_as_an_undisturbed_one(tmp_path) -> None:
    """The script does it for more faults."""
    faults.check(tmp_path, faults.SHORT, trials=4)


@pytest.mark.timeout(900)
def test_trials_that_stop_early_leave_nothing_behind(tmp_path) -> None:
    """In a process of its own: it is the engine's driver."""
    script = ROOT / "tests" / "chaos" / "early_stops.py"
    done = subprocess.run(
        [sys.executable, str(script), "--trials", "5"], cwd=ROOT, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert "5 trials stopped early" in done.stdout


@pytest.mark.timeout(900)
def test_a_gang_on_two_nodes_trains_as_one_worker() -> None:
    """The script without arguments does it for every recipe."""
    script = ROOT / "tests" / "chaos" / "gangs.py"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(script), "splade"], cwd=ROOT, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "splade: four workers on two nodes" in done.stdout


@pytest.mark.timeout(1500)
def test_a_study_whose_nodes_and_head_are_lost_ends_as_an_undisturbed_one(tmp_path) -> None:
    nodes.check(tmp_path, trials=2)


@pytest.mark.timeout(1200)
def test_a_study_on_nodes_without_a_shared_folder_ends_as_on_one_machine(tmp_path) -> None:
    no_shared_folder.check(tmp_path)
