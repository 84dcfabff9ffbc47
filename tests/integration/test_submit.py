"""Studies as Ray jobs on a real cluster with token authentication, and the Slurm script on one of two nodes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster, submit
from launches import ROOT, TINY, named, steps_of, summary, until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1200)]

SECRET = "hunter2-hunter2"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # Started from an environment that is not active: PATH has another Python, or none.
    with Cluster(token="t" * 32, PATH=os.defpath) as started:
        # As docs/cluster.md has it: the study on the head, training elsewhere.
        started.head(cpus=0)
        started.node(cpus=2)
        yield started


def refused(done: subprocess.CompletedProcess[str], message: str) -> None:
    assert done.returncode == 2, done.stderr[-3000:]
    assert re.search(message, done.stderr), done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("error:") == 1


STEPS = 200
"""Long enough for a stop to come in the middle, however slow the machine: the trial is slowed down with it."""


def tiny(storage: Path) -> list[str]:
    """A study of one trial."""
    settings = (f"steps={STEPS}", f"evaluate_every={STEPS}", f"checkpoint_every={STEPS // 4}")
    arguments = [str(TINY), "--profile", "kills", "--trials", "1", "--storage", str(storage)]
    return [*arguments, *(word for setting in settings for word in ("--set", setting))]


def submitted(done: subprocess.CompletedProcess[str]) -> str:
    """The id that a submission names."""
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr.split()[0]


def ended_whole(storage: Path) -> None:
    """The trial is there once with each of its steps once; `steps_of` fails for a step that is there twice."""
    told = summary(storage)
    assert told["status"] == "finished"
    assert [(t["number"], t["state"], t["steps"]) for t in told["trials"]] == [(0, "complete", STEPS)]
    assert steps_of(storage).keys() == {(0, 0, step) for step in range(STEPS + 1)}


TOKENS = [
    ({}, "wants a token"),
    ({"RAY_AUTH_MODE": "token"}, "couldn't find an authentication token; give the token as RAY_AUTH_TOKEN"),
    ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": "/nowhere"}, "empty: /nowhere; give the token as"),
    ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "w" * 32}, "another token than ours"),
]


@pytest.mark.parametrize(("variables", "message"), TOKENS, ids=["none", "no token", "no file", "wrong"])
def test_who_has_not_the_token_is_refused(cluster, tmp_path, variables, message) -> None:
    arguments = (*tiny(tmp_path / "s"), "--address", cluster.address)
    refused(submit(*arguments, env=cluster.environment(**variables), cwd=tmp_path), message)


@pytest.mark.parametrize("question", ["--status", "--logs", "--stop"])
def test_unknown_job(cluster, question) -> None:
    refused(cluster.submit(question, "nothing-1"), "Job nothing-1 does not exist on the cluster at http")


def test_request_that_is_found_wrong_on_the_cluster(cluster, tmp_path) -> None:
    """The inputs are read there; --follow brings the message and the exit code back."""
    done = cluster.submit(*tiny(tmp_path / "s"), "--set", "train.source=/nowhere.jsonl", "--follow")
    assert done.returncode == 2, done.stderr[-3000:]
    assert "error: train.source '/nowhere.jsonl': nothing there" in done.stdout


def test_a_submitted_study_is_followed_stopped_and_carried_on(cluster, tmp_path) -> None:
    storage = tmp_path / "study"
    command = (*tiny(storage), "--env", "SECRET")

    first = submitted(cluster.submit(*command, SECRET=SECRET))
    assert first.endswith("-1")
    again = cluster.submit(*command, SECRET=SECRET)
    assert submitted(again) == first
    assert "already running" in again.stderr
    assert f"{first}  RUNNING" in cluster.submit("--status", first).stdout

    until(lambda: len(steps_of(storage)) >= 2 or cluster.state(first) in ("FAILED", "SUCCEEDED"), "the first steps")
    stopped = cluster.submit("--stop", first)
    assert (stopped.returncode, f"{first} STOPPED" in stopped.stderr) == (0, True), stopped.stderr
    told = summary(storage)
    assert (told["status"], [t["state"] for t in told["trials"]]) == ("interrupted", ["interrupted"])
    assert 0 < told["trials"][0]["steps"] < STEPS
    assert "trial 0 (k = 4) interrupted at step" in cluster.submit("--logs", first).stdout
    status = cluster.submit("--status", first).stdout
    assert re.search(r"STOPPED\n(.*\n)*  exit code   130", status), status
    assert "is not running: STOPPED" in cluster.submit("--stop", first).stderr

    carried_on = cluster.submit(*command, "--follow", SECRET=SECRET)
    assert carried_on.returncode == 0, carried_on.stderr + carried_on.stdout
    second = f"{first.removesuffix('-1')}-2"
    assert f"{second} carries the study on" in carried_on.stderr
    assert f"{second} SUCCEEDED" in carried_on.stderr
    assert "trial 0 (k = 4) carried on, attempt 2" in carried_on.stdout
    assert "[1/1]" in carried_on.stdout
    ended_whole(storage)
    recorded_with_its_commit(storage)
    said = "".join(done.stdout + done.stderr for done in (again, stopped, carried_on)) + status
    assert SECRET not in said + cluster.submit("--logs", second).stdout
    assert not [path for path in storage.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


def recorded_with_its_commit(storage: Path) -> None:
    """The code ran where there is no `.git`: the commit is that of the submission."""
    from mlflow.tracking import MlflowClient

    told = summary(storage)
    run = MlflowClient(f"sqlite:///{storage.parent / 'mlflow.db'}").get_run(told["tracking"]["run_id"])
    asked = ["git", "rev-parse", "HEAD"]
    commit = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    assert run.data.tags["mlflow.source.git.commit"] == commit
    assert run.data.tags["command"].split()[:5] == [
        "python", "-m", "study.run", "submitted/tiny_study.py", "--address",
    ]  # fmt: skip


# --- Slurm -------------------------------------------------------------------------------------------

# Two "nodes" that are this machine: `srun` runs what Slurm would run there.
BINARIES = {
    "scontrol": 'printf "node-1\\nnode-2\\n"',
    "hostname": "echo 127.0.0.1",
    "srun": 'echo "$*" >> "$SRUN_LOG"; while [[ $1 == --* ]]; do shift; done; exec "$@"',
}


def test_slurm_script_runs_a_study_on_two_nodes_stops_it_and_carries_it_on(tmp_path) -> None:
    storage = tmp_path / "study"
    binaries = tmp_path / "bin"
    binaries.mkdir()
    for name, body in BINARIES.items():
        (binaries / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (binaries / name).chmod(0o755)
    with Cluster(token="") as own:
        path = f"{binaries}:{own.environment()['PATH']}"
        environment = own.environment(
            PATH=path, STUDY_VENV=str(venv(tmp_path)), PYTHONPATH=str(ROOT), SRUN_LOG=str(tmp_path / "srun.log"),
            SLURM_JOB_ID=str(own.port), SLURM_JOB_NODELIST="node-[1-2]", SLURM_JOB_NUM_NODES="2",
            SLURM_CPUS_PER_TASK="1",
        )  # fmt: skip

        def batch() -> subprocess.Popen[str]:
            log = (tmp_path / "batch.log").open("a")
            return subprocess.Popen(
                ["bash", ROOT / "deploy" / "study.sbatch", *tiny(storage)], env=environment, cwd=tmp_path,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, text=True, start_new_session=True,
            )  # fmt: skip

        job = batch()
        said = (tmp_path / "batch.log").read_text
        until(lambda: len(steps_of(storage)) >= 2 or job.poll() is not None, "the first steps")
        assert job.poll() is None, said()[-3000:]
        # Slurm's --signal=B:TERM@600 reaches the script alone.
        job.send_signal(signal.SIGTERM)
        assert job.wait(300) == 130, said()[-3000:]
        assert summary(storage)["status"] == "interrupted"
        assert nothing_left(own), named(own.alive())
        job = batch()
        assert job.wait(600) == 0, said()[-3000:]
        ended_whole(storage)
        assert nothing_left(own), named(own.alive())
    asked = (tmp_path / "srun.log").read_text()
    assert re.search("--nodes=1 --ntasks=1 --nodelist=node-1 .*ray start .*--head ", asked)
    assert re.search("--nodes=1 --ntasks=1 --exclude=node-1 .*ray start .*--address=127.0.0.1:", asked)


def venv(folder: Path) -> Path:
    """A folder whose `bin/activate` changes nothing: the environment of the tests is active already."""
    (folder / "venv" / "bin").mkdir(parents=True)
    (folder / "venv" / "bin" / "activate").touch()
    return folder / "venv"


def nothing_left(own: Cluster) -> bool:
    """Whether every process of the batch job is gone within some seconds, dying workers included."""
    deadline = time.monotonic() + 60
    while own.alive() and time.monotonic() < deadline:
        time.sleep(0.2)
    return not own.alive()
