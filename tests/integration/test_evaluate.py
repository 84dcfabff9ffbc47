"""`python -m study.evaluate`: results on the real command line, and every request that it refuses."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import evaluation
import pytest
import torch
from mlflow.tracking import MlflowClient

from study import evaluate
from study.ledger.lock import Lock
from study.protocol.measured import Measured
from study.protocol.summary import StudySummary, read
from trainables import encoders
from trainables.data.config import EvaluationData
from trainables.evaluation.metrics import METRICS
from trainables.evaluation.retrieval import Retrieval
from trainables.splade.config import Config
from trainables.splade.model import rescale_head
from trainables.splade.recipe import Encoder

ROOT = Path(__file__).resolve().parents[2]
STUDY = """
from study.spec import Budget, Objective, Study
from trainables.splade.config import Config

def space(trial):
    trial.suggest_float("k", 1, 8, log=True)

STUDY = {"embedded": Study(question="?", trainer="splade", parameter="k", space=space, config=Config(),
    objectives=(Objective(name="ndcg_at_10"),), budget=Budget(trials=4))}
"""
CONFIG = Config(query_length=16, document_length=24)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder with a study of four trials, the first of them with two replicates, and a suite of two folders."""
    folder = tmp_path_factory.mktemp("made")
    for seed, name in enumerate(("one", "two")):
        evaluation.generate(folder / "suite" / name, passages=60 + 20 * seed, queries=12)
    storage = folder / "storage"
    trials = [({"k": k}, CONFIG.model_copy(update={"k": k}), "complete") for k in (1.0, 8.0, 2.0)]
    for number, replicate, k in ((0, 0, 1.0), (0, 1, 2.0), (1, 0, 8.0)):
        mlm, tokenizer = encoders.load_masked_lm("embedded")
        rescale_head(mlm, k, "tied", False)
        model = storage / "trials" / f"{number:04d}" / f"replicate-{replicate}" / "model"
        model.mkdir(parents=True)
        encoders.export(mlm, tokenizer, model)
    evaluation.record(storage, "k", [*trials, ({"k": 4.0}, CONFIG, "pruned")])
    (folder / "made.py").write_text(STUDY)
    return folder


def arguments(made: Path, *more: str, suite: str = "suite", trials: str = "0,1") -> list[str]:
    return [str(made / "made.py"), "--storage", str(made / "storage"), "--suite", str(made / suite), "--trials", trials,
            *more]  # fmt: skip


@pytest.mark.chaos
def test_results_are_those_of_the_evaluation_in_memory(made: Path, capsys) -> None:
    command = [sys.executable, "-m", "study.evaluate", *arguments(made)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=made, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "| nDCG@10 | trial 0, k = 1 | trial 1, k = 8 |" in done.stdout
    assert "6 measurement(s), 420 documents in 6 shard(s)" in done.stderr
    content = json.loads((made / "storage" / "evaluation" / "suite.json").read_text())
    assert [trial["number"] for trial in content["trials"]] == [0, 1]
    torch.set_num_threads(1)
    for trial in content["trials"]:
        for found in trial["replicates"]:
            expected = in_memory(made, trial["number"], found["replicate"], found["dataset"])
            assert found["values"] == pytest.approx(expected, rel=1e-9)
        for name, values in trial["datasets"].items():
            parts = [found["values"] for found in trial["replicates"] if found["dataset"] == name]
            assert values["flops"] == pytest.approx(sum(part["flops"] for part in parts) / len(parts))
        assert trial["mean"]["ndcg_at_10"] == pytest.approx(
            sum(values["ndcg_at_10"] for values in trial["datasets"].values()) / 2
        )
    (compared,) = content["comparisons"]
    assert compared["reference"] != compared["other"]
    assert list(compared["collections"]) == ["one", "two"]
    # Once more: everything is there, nothing is started.
    capsys.readouterr()
    assert evaluate.main(arguments(made)) == 0
    again = capsys.readouterr()
    assert again.out == done.stdout
    assert "starting Ray" not in again.err
    recorded(made, content)


def recorded(made: Path, content: dict[str, Any]) -> None:
    """MLflow has every mean over replicates, and the tables."""
    summary = read(made / "storage" / "summary.json")
    client = MlflowClient(summary.tracking.uri)
    for trial in content["trials"]:
        run_id = summary.trials[trial["number"]].run_id
        wanted = {
            f"suite.{collection}.{metric}": pytest.approx(value, rel=1e-5)
            for collection, values in trial["datasets"].items()
            for metric, value in values.items()
        }
        found = {name: text for name, text in client.get_run(run_id).data.tags.items() if name.startswith("suite.")}
        assert {name: float(text) for name, text in found.items()} == wanted
    tables = client.list_artifacts(summary.tracking.run_id, "evaluation")
    assert [file.path for file in tables] == ["evaluation/suite.json", "evaluation/suite.md"]


def test_a_tracking_store_that_is_away_loses_nothing(tmp_path: Path, made: Path, capsys) -> None:
    """What was measured stays in the storage; the same command records it later."""
    storage = tmp_path / "storage"
    shutil.copytree(made / "storage", storage)
    results = [Measured(0, 0, "one", {"ndcg_at_10": 0.5}, {"ndcg_at_10": {"q": 0.5}}, time=1)]
    summary = recorded_at("http://ada:***@127.0.0.1:9", read(storage / "summary.json"))
    uri = evaluate.tracking_uri("http://ada:secret@127.0.0.1:9", summary)
    page = storage / "page.md"
    page.touch()
    evaluate._record(uri, summary, summary.trials[:1], "s", results, page, evaluate.Screen())
    said = capsys.readouterr().err
    assert "not recorded in MLflow: no server answers at tracking URI" in said
    assert "the same command tries again" in said
    assert "secret" not in said


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_an_evaluation_that_is_killed_is_carried_on(tmp_path: Path) -> None:
    """The short form of `tests/chaos/evaluation.py`, too short to say anything about memory."""
    evaluation.story(tmp_path, passages=6_000, queries=40, workers=2, sample=5)


def recorded_at(uri: str, summary: StudySummary) -> StudySummary:
    return summary.model_copy(update={"tracking": summary.tracking.model_copy(update={"uri": uri})})


def in_memory(made: Path, trial: int, replicate: int, dataset: str) -> dict[str, float]:
    model = made / "storage" / "trials" / f"{trial:04d}" / f"replicate-{replicate}" / "model"
    encoder = Encoder.open(model, CONFIG, torch.device("cpu"))
    source = str(made / "suite" / dataset)
    retrieval = Retrieval(EvaluationData(source=source, test_source=source))
    found = retrieval.evaluate(("test",), encoder.queries, encoder.documents, encoder.statistics, encoder.scorer)
    return found["test"].values


def test_runs_are_looked_for_where_the_study_has_them(made: Path, monkeypatch) -> None:
    """A variable that names another server, or a password that is not on record, leads to no other place."""
    summary = read(made / "storage" / "summary.json")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://elsewhere:5000")
    assert evaluate.tracking_uri(None, summary) == summary.tracking.uri
    summary = recorded_at("postgresql+psycopg2://me:***@host/runs", summary)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://me:secret@host/runs")
    assert evaluate.tracking_uri(None, summary) == "postgresql+psycopg2://me:secret@host/runs"
    with pytest.raises(ValueError, match=r"^--tracking-uri http://other: the runs of made are at postgresql"):
        evaluate.tracking_uri("http://other", summary)


REFUSED = [
    (
        {"suite": "nowhere"},
        "unknown suite '.*nowhere'; There are beir13, beir18, nanobeir, nanobeir-st, msmarco-dev, trec-dl-2019",
    ),
    ({"suite": "storage"}, "neither it nor a folder in it has a corpus.jsonl"),
    ({"trials": "7"}, "--trials 7: made has no trial 7; finished are 0, 1, 2"),
    ({"trials": "3"}, "--trials 3: trial 3 is pruned; finished are 0, 1, 2"),
    ({"trials": "0,3"}, "--trials 0,3: trial 3 is pruned"),
    ({"trials": "2"}, "trial 2 of .* has no exported model"),
    ({"trials": "first"}, "--trials first: give 'best', or numbers of trials such as 0,3"),
]


@pytest.mark.parametrize(("changed", "message"), REFUSED)
def test_refused(made: Path, capsys, changed: dict[str, str], message: str) -> None:
    assert_refused(arguments(made, **changed), message, capsys)


def test_more_refusals(made: Path, capsys, tmp_path: Path) -> None:
    assert_refused(arguments(made, "--workers", "0"), "--workers 0: at least 1", capsys)
    assert_refused(arguments(made, "--storage", str(tmp_path)), "summary.json does not exist", capsys)
    assert_refused(["nowhere.py", *arguments(made)[1:]], "study file 'nowhere.py' does not exist", capsys)
    assert_refused(["splade_k_serach", *arguments(made)[1:]], "did you mean 'splade_k_search'", capsys)
    assert_refused([*arguments(made)[:3], "--suite", "bier13", "--trials", "0"], "did you mean 'beir13'", capsys)
    (tmp_path / "corpus.jsonl").write_text('{"_id": "d", "text": "t"}')
    assert_refused(arguments(made, "--suite", str(tmp_path)), "has no queries.jsonl", capsys)
    lock = Lock(made / "storage" / "evaluation" / "lock")
    assert_refused(arguments(made), "evaluation is in use by process", capsys)
    lock.release()


def assert_refused(command: list[str], message: str, capsys) -> None:
    assert evaluate.main(command) == 2
    said = capsys.readouterr().err
    assert said.count("error:") == 1
    assert "Traceback" not in said
    assert re.search(message, said), said


def test_every_metric_of_a_suite_is_measured_in_memory_too() -> None:
    from trainables.evaluation.suites import SUITES

    assert SUITES["beir13"].metrics == METRICS
