"""A study on nodes that share no folder, with its checkpoints on an object store, ends as one on a single machine.

    python tests/chaos/no_shared_folder.py

The head has the storage folder; on every other node the path of its parent is an empty file system of that node's
own. Trials are gangs of two workers. In the middle of the first trial its node is killed, and another one carries on
from the checkpoint on the object store. Then both studies must have the same trials, values and, to the last bit,
losses, and the best model is evaluated on a whole collection.
"""

from __future__ import annotations

import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import evaluation
import launches
from cluster import Cluster
from launches import ROOT, TINY, Launch, database, say, steps_of, summary, until
from object_store import BUCKET, S3

SETTINGS = (
    "--trials", "2", "--set", "steps=200", "--set", "evaluate_every=100", "--set", "checkpoint_every=20",
    "--workers-per-trial", "2", "--resources", "cpus_per_worker=0.5",
)  # fmt: skip
URI = f"s3://{BUCKET}/all"


def study(cluster: Cluster, storage: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "study.run", str(TINY), "--profile", "kills", "--storage", str(storage),
         "--tracking-uri", database(storage), "--address", f"127.0.0.1:{cluster.port}", "--checkpoints", URI,
         *SETTINGS],
        env=cluster.with_token(PYTHONPATH=str(ROOT), **cluster.variables), cwd=cluster.folder,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def disturbed(cluster: Cluster, storage: Path) -> None:
    storage.parent.mkdir()
    cluster.head(cpus=0)
    node = cluster.node(cpus=1, alone_with=storage.parent)
    running = study(cluster, storage)
    until(lambda: len(steps_of(storage)) > 60 or running.poll() is not None, "the first steps")
    assert running.poll() is None, running.communicate()[0][-3000:]
    say(f"  SIGKILL of the node, {cluster.kill(node)} processes after {len(steps_of(storage))} steps")
    cluster.node(cpus=1, alone_with=storage.parent)
    said, _ = running.communicate(timeout=900)
    assert running.returncode == 0, said[-3000:]
    assert summary(storage)["trials"][0]["attempts"] == 2, said
    left = [path for path in (storage / "trials").rglob("*") if path.is_file() and path.name != "result.json"]
    assert left == [], left
    say(f"  carried on elsewhere from s3://, and ended: {said.splitlines()[-4]}")


def evaluated(storage: Path, environment: dict[str, str]) -> None:
    """The best model is fetched from the object store for a full evaluation, and went to MLflow with the report."""
    from mlflow.tracking import MlflowClient

    evaluation.generate(storage.parent / "made", passages=60, queries=12)
    done = subprocess.run(
        [sys.executable, "-m", "study.evaluate", str(TINY), "--storage", str(storage), "--trials", "best", "--suite",
         str(storage.parent / "made")],
        env=environment, cwd=storage.parent, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "nDCG@10" in done.stdout
    told = summary(storage)["tracking"]
    client = MlflowClient(told["uri"])
    (output,) = client.get_run(told["run_id"]).outputs.model_outputs
    best = [file.path for file in client.list_logged_model_artifacts(output.model_id, "artifacts/model")]
    assert "artifacts/model/model.safetensors" in best, best
    say("  the best model is in MLflow, and was evaluated")


def check(folder: Path) -> None:
    with Launch(folder / "undisturbed", *SETTINGS) as launch:
        launch.wait(0)
    storage = folder / "here" / "study"
    with S3() as server, Cluster(secrets.token_hex(32), **server.environment) as cluster:
        disturbed(cluster, storage)
        steps = launches.same_study(storage, folder / "undisturbed")
        points = launches.same_in_mlflow(storage, database(storage))
        say(f"  {steps} steps equal to the last bit, {points} points in MLflow, each once")
        evaluated(storage, cluster.environment(PYTHONPATH=str(ROOT), **server.environment))


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="apart-"))
    check(folder)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
