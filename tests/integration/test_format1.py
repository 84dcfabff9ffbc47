"""A folder that version 0.1.0 left, with the journal's format 1, is carried on. See tests/assets/format1/README.md."""

from __future__ import annotations

import json
import math
import shutil
import sqlite3
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from study.engine import trial
from study.ledger.journal import Journal
from study.ledger.ledger import Ledger
from study.protocol.folder import StudyFolder
from study.reporting.results import Findings
from study.spec import Budget, Objective, Pruner, Resources, Study
from study.tracking.pages import Subject, figure, metric_key
from study.tracking.tracker import Tracker
from tests.ledgers import open_ledger
from trainables.config import TrainerConfig
from trainables.evaluation.types import Evaluation
from trainables.report import Metric

ASSETS = Path(__file__).parents[1] / "assets" / "format1"
STEPS = 6


class Line:
    """A recipe that fits one weight to 1."""

    rules = ()
    description: dict = {"data.train": "6 numbers"}  # noqa: RUF012

    def __init__(self) -> None:
        self.model = torch.nn.Linear(1, 1, bias=False)

    def parameter_groups(self, weight_decay):
        return [{"params": list(self.model.parameters()), "weight_decay": weight_decay}]

    def batch(self, step):
        return torch.full((2, 1), float(step))

    def loss(self, batch, step):
        return (self.model(batch) - 1).square().mean(), {"spread": math.nan}

    def initial(self):
        return {}

    def evaluate(self, splits):
        value = self.model.weight.item()
        return {split: Evaluation({"ndcg_at_10": value}, {"ndcg_at_10": {"a": value, "b": value}}) for split in splits}

    def export(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "weight.json").write_text(json.dumps(self.model.weight.item()))


def study() -> Study:
    return Study(
        question="Which lr?", trainer="line", parameter="optimiser.lr", replicates=2,
        config=TrainerConfig(steps=STEPS, evaluate_every=3, checkpoint_every=2, batch_size=2),
        space=lambda trial: trial.suggest_float("optimiser.lr", 0.001, 0.5),
        points=({"optimiser.lr": 0.1}, {"optimiser.lr": 0.001}, {"optimiser.lr": 0.2}),
        objectives=(Objective(name="ndcg_at_10"),), pruner=Pruner(kind="median", startup_trials=1),
        budget=Budget(trials=3), resources=Resources(concurrency=1),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def line_trainer(monkeypatch):
    config = types.ModuleType("trainables.line.config")
    config.metrics, config.Config = lambda config: {"ndcg_at_10": Metric(label="gain", meaning="?")}, TrainerConfig
    recipe = types.ModuleType("trainables.line.recipe")
    recipe.build = lambda config, context: Line()
    package = types.ModuleType("trainables.line")
    package.config, package.recipe = config, recipe
    for module in (package, config, recipe):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr("ray.get", lambda answer: answer)
    monkeypatch.setattr("study.engine.gang.taken_away", lambda: None)


@pytest.fixture
def storage(tmp_path) -> Path:
    """The folder, as its user has it: with the database that the dump is of."""
    place = tmp_path / "line"
    shutil.copytree(ASSETS / "line", place)
    dump = place / "ledger.sql"
    with sqlite3.connect(place / "ledger.db") as database:
        database.executescript(dump.read_text())
    dump.unlink()
    return place


@pytest.fixture
def uri(tmp_path, empty_tracking) -> str:
    """A tracking store with nothing in it."""
    return f"sqlite:///{shutil.copy(empty_tracking, tmp_path / 'mlflow.db')}"


def held(uri: str) -> dict[str, dict]:
    """What MLflow holds of the study, as `mlflow.json` shows it."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(uri)
    runs = client.search_runs([client.get_experiment_by_name("line").experiment_id])
    return {
        run.info.run_name: {
            "status": run.info.status,
            "params": run.data.params,
            "tags": {key: value for key, value in run.data.tags.items() if key != "mlflow.parentRunId"},
            "metrics": {
                name: [[p.step, p.timestamp, repr(p.value)] for p in client.get_metric_history(run.info.run_id, name)]
                for name in run.data.metrics
            },
            "artifacts": [file.path for file in client.list_artifacts(run.info.run_id)],
        }
        for run in runs
    }


def named_now(run: dict[str, Any], *, study: bool, ended: bool) -> dict[str, Any]:
    """A run of `mlflow.json` as the same lines make it now: curves in sections, and tags for what is measured once,
    which are known when a run has ended."""
    curves, once = {}, {}
    for name, points in run["metrics"].items():
        if study:
            key = "objective/ndcg_at_10" if name == "best.ndcg_at_10" else None
        else:
            key = metric_key(name, {"ndcg_at_10": "maximize"})
        if key is not None:
            curves[key] = points
        elif ended or study:
            once[name] = figure(float(points[-1][2]))
    note = {"mlflow.note.content": "**Which lr?**"} if study else {}
    return run | {"metrics": curves, "tags": run["tags"] | once | note}


class Actor:
    """A ledger whose calls are made as those of an actor are."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def __getattr__(self, name):
        return types.SimpleNamespace(remote=getattr(self.ledger, name))


def run_next(ledger: Ledger) -> str:
    """What a gang of one does with the next trial."""
    handed = ledger.hand_out()
    number = handed.number
    begun = ledger.begin(number, handed.ticket)
    outcome = trial._train(begun, number, Resources(), 0, 1, Actor(ledger))
    return ledger.finish(number, begun.attempt, outcome)


def test_its_interrupted_trial_is_carried_on(storage) -> None:
    before = json.loads((storage / "summary.json").read_text())
    lines = (storage / "journal.jsonl").read_text()
    ledger = open_ledger("line", study(), storage)
    shown = ledger.summary().model_dump(mode="json")
    assert shown["id"] == before["id"]
    same = ("state", "reason", "params", "values", "replicates", "steps", "planned_steps", "attempts", "checkpoint")
    assert [[t[key] for key in same] for t in shown["trials"]] == [[t[key] for key in same] for t in before["trials"]]
    assert [t["state"] for t in shown["trials"]] == ["complete", "pruned", "interrupted"]

    assert run_next(ledger) == "complete"
    assert ledger.hand_out() is None
    after = ledger.conclude().model_dump(mode="json")
    ledger.close([], 0)
    assert (after["status"], after["best"]) == ("finished", [0])
    done = after["trials"][2]
    assert (done["state"], done["steps"], done["attempts"]) == ("complete", 2 * STEPS, 2)
    assert done["replicates"][0] == before["trials"][2]["replicates"][0]
    assert after["trials"][:2] == shown["trials"][:2]
    now = (storage / "journal.jsonl").read_text()
    assert now.startswith(lines), "old lines stay as they are: offsets into the journal are kept in tracking.json"
    records = [json.loads(line) for line in now.splitlines() if '"metrics"' in line[:16]]
    steps = [r["step"] for e in records if (e["trial"], e["replicate"]) == (2, 1) for r in e["records"]]
    assert steps == list(range(STEPS + 1))


def sent(storage: Path, uri: str) -> dict[str, Any]:
    """Replay the folder's journal; the tracker's state."""
    journal = Journal(storage / "journal.jsonl")
    state = storage / "tracking.json"
    about = Subject("Which lr?", "optimiser.lr", {"ndcg_at_10": "maximize"})
    tracker = Tracker(journal, state, uri, "line", json.loads((storage / "study.json").read_text())["id"], about)
    tracker.start()
    assert tracker.close(60), tracker.snapshot()
    journal.close()
    return json.loads(state.read_text())


def test_its_tracking_goes_on_where_it_was(storage, uri) -> None:
    """What MLflow was told by version 0.1.0 it is told from the same lines now, under the names of now, from the
    beginning; from then on what is there is not sent again."""
    before = json.loads((storage / "tracking.json").read_text())
    after = sent(storage, uri)
    recorded = json.loads((ASSETS / "mlflow.json").read_text())
    found = held(uri)
    for name, run in recorded.items():
        ended = "steps" in run["metrics"] or (run["status"] != "RUNNING" and "replicate" in name)
        assert found[name] == named_now(run, study=name == "line (embedded)", ended=ended), name
    same = ("experiment", "study_id", "offset", "rejected", "replicates", "tags")
    assert [after[key] for key in same] == [before[key] for key in same]
    assert after["runs"].keys() == before["runs"].keys()

    # As it was left, but for where MLflow is and what it called its runs.
    (storage / "tracking.json").write_text(json.dumps(before | {key: after[key] for key in ("uri", "runs", "names")}))
    ledger = open_ledger("line", study(), storage, tracking=uri, tags={"git.commit": "later"})
    ledger.prepared({"data.train": "6 numbers"}, {"bm25": {"ndcg_at_10": 0.25}}, {})
    assert run_next(ledger) == "complete"
    assert ledger.hand_out() is None
    ledger.conclude()
    assert ledger.close([("study.json", "report")], 60)
    assert json.loads((storage / "tracking.json").read_text())["runs"] == after["runs"]
    now = held(uri)
    assert len(now) == len(found)
    ended = [name for name in now if name.startswith(("trial 0", "trial 1"))]
    assert {name: now[name] for name in ended} == {name: found[name] for name in ended}
    assert {run["status"] for name, run in now.items() if name not in ended} == {"FINISHED"}
    (whole,) = (run for name, run in now.items() if not name.startswith("trial"))
    last = now["trial 2 · replicate 1"]
    assert (whole["tags"]["state"], whole["tags"]["mlflow.source.git.commit"]) == ("complete", "later")
    assert "stop.reason" not in whole["tags"]
    assert whole["tags"]["bm25.ndcg_at_10"] == found["line (embedded)"]["tags"]["bm25.ndcg_at_10"]
    assert [step for step, _, _ in last["metrics"]["train/loss"]] == list(range(1, STEPS + 1))
    assert last["metrics"]["train/loss"][:3] == found["trial 2 · replicate 1"]["metrics"]["train/loss"]


def test_its_report_has_the_curves(storage) -> None:
    found = Findings(StudyFolder(storage))
    recorded = json.loads((ASSETS / "mlflow.json").read_text())
    for number in range(3):
        points = recorded[f"trial {number} · replicate 0"]["metrics"]["train.loss"]
        assert found.curves[number].signals["loss"] == [(step, float(value)) for step, _, value in points]
