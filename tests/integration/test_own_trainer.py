"""A trainer of another kind, which no line of the platform names: from its study file to suites and the report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import evaluation
import pytest
import torch

from tests.fixtures.late_interaction.config import Config
from tests.fixtures.late_interaction.recipe import Encoder
from trainables.data.config import EvaluationData
from trainables.evaluation.retrieval import Retrieval

pytestmark = pytest.mark.chaos

ROOT = Path(__file__).resolve().parents[2]
STUDY = ROOT / "tests" / "fixtures" / "late_interaction" / "study.py"
SMALL = {
    "steps": 6, "batch_size": 8, "evaluate_every": 3, "checkpoint_every": 3, "threads": 1, "train.limit": 64,
    "evaluation.max_documents": 60, "query_length": 12, "document_length": 24,
}  # fmt: skip


def run(folder: Path, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k != "MLFLOW_TRACKING_URI"} | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", module, str(STUDY), "--storage", "late", *arguments]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done


@pytest.fixture(scope="module")
def finished(tmp_path_factory, prepared) -> Path:
    """A study of two trials, and a collection of two shards on which its best one was measured."""
    folder = tmp_path_factory.mktemp("own")
    prepared(folder / "late", folder / "studies" / "mlflow.db")
    settings = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]
    done = run(folder, "study.run", *settings)
    assert "2 complete" in done.stdout
    evaluation.generate(folder / "suite", passages=1100, queries=12)
    run(folder, "study.evaluate", "--suite", "suite", "--trials", "0,1")
    return folder


def test_its_own_metrics_are_in_the_report_under_their_names(finished: Path) -> None:
    page = (finished / "late" / "report.html").read_text()
    assert ">numbers a document</th>" in page
    assert "nDCG@10 against numbers a document" in page
    assert "nDCG@10 at matched numbers a document" in page
    assert "FLOPS" not in page
    table = (finished / "late" / "evaluation" / "suite.md").read_text()
    assert "| numbers a document | trial 0, size = 4 | trial 1, size = 64 |" in table


def test_shards_give_what_the_evaluation_in_memory_gives(finished: Path) -> None:
    content = json.loads((finished / "late" / "evaluation" / "suite.json").read_text())
    source = str(finished / "suite")
    torch.set_num_threads(1)
    for trial, size in zip(content["trials"], (4, 64), strict=True):
        config = Config(size=size, query_length=12, document_length=24)
        model = finished / "late" / "trials" / f"{trial['number']:04d}" / "replicate-0" / "model"
        encoder = Encoder.open(model, config, torch.device("cpu"))
        retrieval = Retrieval(EvaluationData(source=source, test_source=source))
        found = retrieval.evaluate(("test",), encoder.queries, encoder.documents, encoder.statistics, encoder.scorer)
        assert trial["datasets"]["suite"] == pytest.approx(found["test"].values, abs=0.02)
        assert trial["datasets"]["suite"]["numbers_document"] == found["test"].values["numbers_document"]
