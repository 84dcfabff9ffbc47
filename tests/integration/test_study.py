"""The command line from end to end: a real Ray, real training, a real SQLite MLflow."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from study import export
from study.uris import sqlite_uri
from trainables import cli

ROOT = Path(__file__).resolve().parents[2]


STUDY = """
from study.spec import Budget, Objective, Study
from trainables.config import Optimiser
from trainables.data.config import EvaluationData, TrainData
from trainables.splade.config import Config

def space(trial):
    trial.suggest_float("k", 0.5, 8, log=True)
    trial.suggest_float("optimiser.lr", 1e-4, 1e30, log=True)

STUDY = {"embedded": Study(
    question="Does the platform work?", trainer="splade", parameter="k",
    config=Config(steps=6, batch_size=8, evaluate_every=3, checkpoint_every=2, threads=1,
                  train=TrainData(limit=64), evaluation=EvaluationData(max_documents=60)),
    space=space,
    points=({"k": 1, "optimiser.lr": 1e-3}, {"k": 4, "optimiser.lr": 1e30}, {"k": 2, "optimiser.lr": 1e-3}),
    objectives=(Objective(name="ndcg_at_10"),), budget=Budget(trials=2), seed=3)}
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k != "MLFLOW_TRACKING_URI"} | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "study.run", "tiny.py", *arguments],
        cwd=folder, env=env, capture_output=True, text=True, timeout=400,
    )  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory, prepared):
    """One study of two trials, the second of which collapses: (folder, its first run)."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "tiny.py").write_text(STUDY)
    prepared(folder / "studies" / "tiny", folder / "studies" / "mlflow.db")
    done = run(folder, "--json")
    assert done.returncode == 0, done.stderr[-3000:]
    return folder, done


def test_summary_and_screen(finished) -> None:
    folder, done = finished
    summary = json.loads(done.stdout)
    storage = folder / "studies" / "tiny"
    assert summary == json.loads((storage / "summary.json").read_text())
    assert summary["status"] == "finished"
    assert summary["best"] == [0]
    good, collapsed = summary["trials"]
    assert (good["state"], good["steps"], good["planned_steps"], good["attempts"]) == ("complete", 6, 6, 1)
    assert {"ndcg_at_10", "test.ndcg_at_10", "untrained.test.ndcg_at_10", "test.flops"} <= good["values"].keys()
    assert collapsed["state"] == "collapsed"
    assert "is nan at step" in collapsed["reason"] or "is inf at step" in collapsed["reason"]
    assert collapsed["steps"] < 6
    assert 0 < summary["worker_seconds"]["overhead"] < summary["worker_seconds"]["used"]
    assert summary["worker_seconds"]["saved"] > 0
    assert "bm25" in summary["baselines"]
    assert good["checkpoint"] == "trials/0000/replicate-0/model"
    assert (storage / good["checkpoint"] / "model.safetensors").exists()
    assert (storage / "report.html").stat().st_size > 10_000
    for noise in ("WARNING", "(pid=", "INFO mlflow", "Traceback"):
        assert noise not in done.stderr
    assert done.stderr.count("collapsed at step") == 1
    assert good["checkpoint"] == "trials/0000/replicate-0/model"
    assert re.search(rf"best model: \S*{good['checkpoint']}\n", done.stderr)
    assert "Error" not in (storage / "logs" / "driver.log").read_text()
    assert not (storage / "ray").exists()


def test_mlflow_has_every_step_once(finished) -> None:
    from mlflow.tracking import MlflowClient

    folder, done = finished
    summary = json.loads(done.stdout)
    client = MlflowClient(f"sqlite:///{folder / 'studies' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("tiny")
    runs = client.search_runs([experiment.experiment_id])
    parent = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    children = {run.info.run_id: run for run in runs if "mlflow.parentRunId" in run.data.tags}
    assert [run.info.run_id for run in parent] == [summary["tracking"]["run_id"]]
    assert sorted(children) == sorted(trial["run_id"] for trial in summary["trials"])
    assert {run.data.tags["mlflow.parentRunId"] for run in children.values()} == {parent[0].info.run_id}
    for trial in summary["trials"]:
        child = children[trial["run_id"]]
        assert child.info.status == {"complete": "FINISHED", "collapsed": "KILLED"}[trial["state"]]
        assert child.data.params["k"] == str(float(trial["params"]["k"]))
        assert child.data.params["document_length"] == "48"
        assert child.data.tags.get("stop.reason") == trial["reason"]
        assert {
            "version.retrieval-study",
            "version.torch",
            "data.train.identity",
            "mlflow.source.git.commit",
        } <= child.data.tags.keys()
        steps = [m.step for m in client.get_metric_history(child.info.run_id, "train/loss")]
        assert steps == list(range(1, trial["steps"] + 1))
    assert parent[0].info.status == "FINISHED"
    _has_report_and_model(client, parent[0])


def _has_report_and_model(client, run) -> None:
    """The study's run has its report, what it found as a description, its data, and a model that is ready."""
    assert "report" in {item.path for item in client.list_artifacts(run.info.run_id)}
    note = run.data.tags["mlflow.note.content"]
    assert "Best k = " in note
    assert f"/runs/{run.info.run_id}/artifacts/report/report.html" in note
    assert {entry.dataset.name for entry in run.inputs.dataset_inputs}
    newest = run.outputs.model_outputs[-1].model_id
    assert client.get_logged_model(newest).status == "READY"


def test_finished_study_answers_at_once(finished) -> None:
    folder, _ = finished
    started = time.monotonic()
    done = run(folder)
    assert done.returncode == 0
    assert "Best k = 1" in done.stdout
    assert time.monotonic() - started < 30
    plan = run(folder, "--dry-run", "--trials", "3").stdout
    assert "1 collapsed, 1 complete; to do: 1 new" in plan


def test_the_best_model_is_taken_away_and_trained_again_to_the_last_bit(finished, capsys) -> None:
    """Outside of Ray and without the study, from what its folder records."""
    folder, _ = finished
    assert export.main(["tiny", str(folder / "taken"), "--storage", str(folder / "studies" / "tiny")]) == 0
    assert "k = 1; README.md says" in capsys.readouterr().err
    assert cli.main("splade", ["--from", str(folder / "taken"), "--folder", str(folder / "again")]) == 0
    told = capsys.readouterr().err.splitlines()[-1]
    assert told == f"{folder}/again/model has the weights of {folder}/taken to the last bit"


def test_another_tracking_store_is_filled(finished, empty_tracking) -> None:
    """Nothing is left to train; the answer at once was all that this command gave."""
    from mlflow.tracking import MlflowClient

    folder, first = finished
    uri = f"sqlite:///{shutil.copy(empty_tracking, folder / 'other.db')}"
    done = run(folder, "--json", "--tracking-uri", uri)
    assert done.returncode == 0, done.stderr[-3000:]
    summary = json.loads(done.stdout)
    assert summary["tracking"]["pending"] == 0
    client = MlflowClient(uri)
    runs = client.search_runs([client.get_experiment_by_name("tiny").experiment_id])
    assert {run.info.run_id for run in runs} == {
        summary["tracking"]["run_id"], *(trial["run_id"] for trial in summary["trials"]),
    }  # fmt: skip
    assert [(t["values"], t["attempts"]) for t in summary["trials"]] == [
        (t["values"], t["attempts"]) for t in json.loads(first.stdout)["trials"]
    ]


def test_more_trials_of_a_moved_study_with_a_gang_of_two(finished) -> None:
    from mlflow.tracking import MlflowClient

    folder, first = finished
    moved = folder / "studies" / "moved"
    (folder / "studies" / "tiny").rename(moved)
    done = run(folder, "--storage", "studies/moved", "--trials", "3", "--workers-per-trial", "2", "--json")
    (folder / "studies" / "moved").rename(folder / "studies" / "tiny")
    assert done.returncode == 0, done.stderr[-3000:]
    summary = json.loads(done.stdout)
    before = json.loads(first.stdout)
    assert [t["values"] for t in summary["trials"][:2]] == [t["values"] for t in before["trials"]]
    added = summary["trials"][2]
    assert (added["state"], added["steps"], added["params"]["k"]) == ("complete", 6, 2)
    assert added["checkpoint"] == "trials/0002/replicate-0/model"
    client = MlflowClient(f"sqlite:///{folder / 'studies' / 'mlflow.db'}")
    parent = client.get_run(summary["tracking"]["run_id"])
    assert parent.info.run_id == before["tracking"]["run_id"]
    assert parent.data.tags["study.folder"] == str(moved)
    assert "artifact.error" not in parent.data.tags
    _has_report_and_model(client, parent)


def test_fresh_keeps_the_old_study_beside_the_new_one(finished) -> None:
    folder, _ = finished
    (folder / "empty.jsonl").touch()
    done = run(folder, "--fresh", "--set", "train.source=empty.jsonl")
    assert done.returncode == 2
    kept = [path for path in (folder / "studies").iterdir() if path.name.startswith("tiny.2")]
    assert [json.loads((path / "summary.json").read_text())["study"] for path in kept] == ["tiny"]


def test_any_names_and_places_and_a_reader_that_leaves(tmp_path, prepared) -> None:
    """Signs that mean something in a URL, a long TMPDIR, no home, a cluster in the environment, and `| head -1`."""
    from mlflow.tracking import MlflowClient

    (tmp_path / "my study (v2).py").write_text(STUDY)
    parent = tmp_path / "a?b #50%41 {ü}"
    storage, temporary = parent / "x y", tmp_path / ("t" * 80)
    temporary.mkdir()
    prepared(storage)
    env = {k: v for k, v in os.environ.items() if k != "MLFLOW_TRACKING_URI"} | {"PYTHONPATH": str(ROOT)}
    env |= {"TMPDIR": str(temporary), "HOME": "/dev/null/home", "RAY_ADDRESS": "127.0.0.1:1"}
    arguments = ["my study (v2).py", "--storage", str(storage), "--trials", "1", "--set", "steps=3"]
    tracking = ["--tracking-uri", sqlite_uri(parent / "mlflow.db")]
    piped = '"$0" -m study.run "$@" | head -1; exit ${PIPESTATUS[0]}'
    done = subprocess.run(
        ["bash", "-c", piped, sys.executable, *arguments, *tracking], cwd=tmp_path, env=env, capture_output=True,
        text=True, timeout=400,
    )  # fmt: skip
    log = (storage / "logs" / "driver.log").read_text()
    assert (done.returncode, done.stdout.count("\n"), done.stderr) == (0, 1, ""), done.stderr + log[-3000:]
    assert "Error" not in log
    summary = json.loads((storage / "summary.json").read_text())
    assert [(t["state"], t["steps"]) for t in summary["trials"]] == [("complete", 3)]
    assert summary["tracking"]["pending"] == 0
    assert sorted(path.relative_to(parent) for path in tmp_path.rglob("*.db")) == [
        Path("mlflow.db"),
        Path("x y/ledger.db"),
    ]
    client = MlflowClient(sqlite_uri(parent / "mlflow.db"))
    run = client.get_run(summary["tracking"]["run_id"])
    assert client.get_experiment(run.info.experiment_id).name == "my study (v2)"
    _has_report_and_model(client, run)
    left = {path.name for path in temporary.iterdir() if not path.name.startswith("torchinductor_")}
    assert left == {f"study-home-{os.getuid()}"}
