"""`study.open`: what a notebook gets of a study, and what it is told where there is none."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import study
from study.protocol.summary import ReplicateSummary

_spec = importlib.util.spec_from_file_location("synthetic_study", Path(__file__).with_name("synthetic_study.py"))
assert _spec is not None and _spec.loader is not None  # noqa: PT018
synthetic = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(synthetic)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two studies in `studies/`."""
    path = tmp_path_factory.mktemp("made") / "home"
    synthetic.write_study(path / "studies" / "splade_k_search", synthetic.K_STUDY)
    synthetic.write_study(path / "studies" / "nothing_yet", {}, status="running")
    return path


@pytest.fixture(autouse=True)
def inside(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    monkeypatch.setenv("HOME", str(home))


def test_importing_is_light() -> None:
    heavy = ("numpy", "pandas", "pyarrow", "torch", "ray", "pydantic")
    script = f"import sys, study; study.open; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_a_study_needs_neither_torch_nor_ray(home: Path) -> None:
    script = (
        "import sys, study; s = study.open('studies/splade_k_search'); s, s.trials, s.curves, s.per_query, s.best;"
        "print([name for name in ('torch', 'ray', 'optuna', 'mlflow', 'sentence_transformers') if name in sys.modules])"
    )
    env = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    found = subprocess.run(
        [sys.executable, "-c", script], cwd=home, env=env, capture_output=True, text=True, check=True
    )
    assert found.stdout == "[]\n"


@pytest.mark.parametrize(
    "place", ["studies/splade_k_search", "~/studies/splade_k_search", Path("studies/splade_k_search/")]
)
def test_a_folder_is_named_in_any_way(place: str | Path, home: Path) -> None:
    found = study.open(place)
    assert found.folder == home / "studies" / "splade_k_search"
    assert found.summary.study == "splade_k_search"
    assert found.answer.startswith("Best k = 2: test nDCG@10 0.431 (95% CI ")
    assert repr(found).startswith("splade_k_search: Best k = 2: ")
    assert repr(found).endswith("95 saved by stopping early.")


def test_tables_are_made_once() -> None:
    found = study.open("studies/splade_k_search")
    assert found.trials is found.trials
    assert (len(found.trials), len(found.replicates)) == (9, 9)
    assert found.curves.query("metric == 'train.loss'").groupby("trial").step.max()[3] == 200
    means = found.per_query.query("split == 'test'").groupby("trial").value.mean()
    assert means[3] == pytest.approx(found.best.metrics["test.ndcg_at_10"])


def test_trials_are_asked_for_by_number() -> None:
    found = study.open("studies/splade_k_search")
    assert repr(found.best) == "trial 3 (k = 2): complete"
    assert repr(found.trial(3)) == repr(found.best)
    assert found.trial(0).params == {"k": 0.25}
    assert found.trial(0).summary.reason == "loss is nan at step 24"
    with pytest.raises(ValueError, match="no trial 9; there are 0 to 8"):
        found.trial(9)
    with pytest.raises(ValueError, match="trial 0 is collapsed: only a complete trial has a model"):
        found.trial(0).model()
    with pytest.raises(ValueError, match=r"replicate-0/model does not exist: the model of trial 3 was removed"):
        found.best.model()
    with pytest.raises(ValueError, match="replicate 1: trial 3 has 1 replicate"):
        found.best.model_folder(1)


def test_figures_are_those_of_the_report() -> None:
    found = study.open("studies/splade_k_search")
    assert type(found.figure("curve")).__name__ == "LayerChart"
    with pytest.raises(ValueError, match=r"no figure 'curves'; there are curve, matched_cost, pareto, "):
        found.figure("curves")
    with pytest.raises(ValueError, match="there is none yet"):
        study.open("studies/nothing_yet").figure("curve")


def test_a_study_without_a_best_trial_says_why() -> None:
    found = study.open("studies/nothing_yet")
    assert repr(found).startswith("splade_k_search: Still running. No result yet: no trial has ended.")
    with pytest.raises(ValueError, match=r"has no best trial. No result yet: no trial has ended."):
        _ = found.best
    with pytest.raises(ValueError, match="no trial 0; there is none yet"):
        found.trial(0)


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("studies/splade_k_serch", "does not exist; nearest: {}/studies/splade_k_search"),
        ("studies", "is no study's folder: it has no summary.json; nearest: {}/studies/nothing_yet, "),
        ("splade_k_search", "does not exist; nearest: {}/studies/splade_k_search"),
        (
            "studies/splade_k_search/summary.json",
            "is a file; a study's folder is needed, such as {}/studies/splade_k_search",
        ),
        (".", "is no study's folder: it has no summary.json; nearest: {}/studies/nothing_yet, "),
    ],
)
def test_a_folder_that_is_no_study_names_the_nearest(place: str, told: str, home: Path) -> None:
    with pytest.raises(ValueError, match="stud") as error:
        study.open(place)
    assert told.format(home) in str(error.value)


def test_nothing_near_is_said_plainly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"nowhere does not exist$"):
        study.open("nowhere")


def test_a_model_without_modules_is_for_its_own_encoder(tmp_path: Path) -> None:
    grid = {1.0: {"test": 0.4, "untrained": 0.2}}
    synthetic.write_study(tmp_path, grid)
    (tmp_path / "trials" / "0000" / "replicate-0" / "model").mkdir()
    best = study.open(tmp_path).best
    assert isinstance(best.summary.replicates[0], ReplicateSummary)
    with pytest.raises(ValueError, match=r"no modules of sentence-transformers; encoder\(\) opens it"):
        best.model()
    with pytest.raises(ValueError, match=r"has no training\.json"):
        best.encoder()
