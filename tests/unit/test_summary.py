"""summary.json: what is written is what is read, in words of format 2; format 1 is read too."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
from pydantic import BaseModel

from study import evaluate, run
from study.protocol import summary, summary_page
from study.protocol.folder import StudyFolder
from study.protocol.states import StudyStatus, TrialState
from study.protocol.summary import (
    FORMAT,
    ObjectiveSummary,
    ReplicateSummary,
    StudySummary,
    Tracking,
    TrialSummary,
    WorkerSeconds,
    read,
)
from study.reporting.page import write as write_report
from study.reporting.screen import final_text
from study.selection import finished_trials

RECORDED = Path(__file__).resolve().parents[1] / "assets" / "format1" / "line"
PARTS = [part for part in vars(summary).values() if isinstance(part, type) and issubclass(part, BaseModel)]


@pytest.fixture
def format_1(tmp_path: Path) -> Path:
    """A folder that the version before format 2 left."""
    return Path(shutil.copytree(RECORDED, tmp_path / "line"))


def test_the_page_is_made_of_the_types() -> None:
    assert summary_page.PAGE.read_text(encoding="utf-8") == summary_page.page(), (
        "make it again: python -m study.protocol.summary_page"
    )


def test_every_field_is_described() -> None:
    assert len(PARTS) > 7
    for part in PARTS:
        assert [name for name, field in part.model_fields.items() if not field.description] == []


def test_what_is_written_is_read_and_what_is_not_finite_is_null(tmp_path: Path) -> None:
    values = {"ndcg_at_10": 0.5, "loss": math.nan, "test.loss": -math.inf}
    trial = TrialSummary(
        number=0, state=TrialState.COMPLETE, params={"k": 2.0, "dims": [8, 16]}, values=values, planned_steps=3,
        replicates=(ReplicateSummary(seed=1, values=values),), latest={"train.loss": math.inf},
    )  # fmt: skip
    written = StudySummary(
        study="a", id="a-1", profile="embedded", status=StudyStatus.RUNNING, question="Ünï?", parameter="k",
        objectives=(ObjectiveSummary(name="ndcg_at_10", direction="maximize"),), planned_trials=1, trials=(trial,),
        worker_seconds=WorkerSeconds(), updated="2026-01-05T10:06:12+00:00", baselines={"bm25": {"loss": math.nan}},
    )  # fmt: skip
    path = tmp_path / "summary.json"
    path.write_text(written.text())
    assert read(path) == written
    tree = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert tree["format"] == FORMAT
    assert tree["trials"][0]["values"] == {"ndcg_at_10": 0.5, "loss": None, "test.loss": None}
    assert tree["trials"][0]["latest"] == {"train.loss": None}
    assert tree["baselines"] == {"bm25": {"loss": None}}


def test_format_1_is_read_in_the_words_of_format_2(format_1: Path) -> None:
    before = json.loads((format_1 / "summary.json").read_text())
    now = read(format_1 / "summary.json")
    assert "format" not in before
    assert now.format == FORMAT
    assert now.tracking == Tracking(
        uri=before["mlflow"]["tracking_uri"], experiment="line", run_id=before["mlflow"]["parent_run_id"],
        pending=before["mlflow"]["pending"], error=before["mlflow"]["error"],
    )  # fmt: skip
    assert [t.run_id for t in now.trials] == [t["mlflow_run_id"] for t in before["trials"]]
    assert [(t.state, t.values, t.steps) for t in now.trials] == [
        (t["state"], t["values"], t["steps"]) for t in before["trials"]
    ]
    assert "mlflow" not in now.model_copy(update={"tracking": Tracking()}).text()


def test_a_folder_of_format_1_has_its_report_and_its_answer(format_1: Path) -> None:
    now = read(format_1 / "summary.json")
    storage = StudyFolder(format_1)
    page = write_report(storage)
    told = final_text(now, storage)
    assert told.startswith("Best ")
    assert f"best model: {format_1}/trials/0000/" in told
    assert "Interrupted before its end. Best so far: " in page.read_text()
    assert run._summary(storage) == now
    (best,) = finished_trials(now, "--trials", "best", several=True)
    assert best.state == TrialState.COMPLETE
    assert evaluate.tracking_uri(None, now) == now.tracking.uri


def test_what_is_no_field_is_refused(tmp_path: Path) -> None:
    tree = json.loads((RECORDED / "summary.json").read_text())
    path = tmp_path / "summary.json"
    path.write_text(json.dumps(tree | {"parameters_log": True}))
    with pytest.raises(ValueError, match=r"summary\.json is not a study's summary: parameters_log: Extra inputs"):
        read(path)
