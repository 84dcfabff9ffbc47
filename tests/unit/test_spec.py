"""Study files: found by name or path, loaded with overrides, refused with one sentence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from study import spec
from study.run import main

GOOD = """
from study.spec import Budget, Objective, Study
from trainables.splade.config import Config

def space(trial):
    trial.suggest_float("k", 1, 8, log=True)

STUDY = {"small": Study(question="?", trainer="splade", parameter="k", config=Config(), space=space,
                        objectives=(Objective(name="ndcg_at_10"),), budget=Budget(trials=2))}
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", sorted(spec.available()))
def test_every_study_loads_in_every_profile(name: str) -> None:
    found = spec.profiles(spec.available()[name])
    assert next(iter(found)) == "embedded"
    for profile in found:
        assert spec.load(spec.available()[name], profile, {}, {})[0] == profile


def test_a_file_of_the_user_loads_with_overrides(tmp_path) -> None:
    path = written(tmp_path, GOOD)
    assert spec.find(str(path)) == ("mine", path)
    changes = {"budget.trials": 7, "seed": 3, "resources.workers": 2}
    profile, study = spec.load(path, None, {"optimiser.lr": 0.1}, changes)
    assert profile == "small"
    assert (study.config.optimiser.lr, study.budget.trials, study.seed, study.resources.workers) == (0.1, 7, 3, 2)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("splade_k_serach", "unknown study 'splade_k_serach'; did you mean 'splade_k_search'?"),
        ("zzz", "unknown study 'zzz'; there are: "),
        ("nowhere/mine.py", "study file 'nowhere/mine.py' does not exist"),
    ],
)
def test_unknown_names(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        spec.find(name)


@pytest.mark.parametrize(
    ("text", "profile", "message"),
    [
        ("1 / 0", None, "raises ZeroDivisionError: division by zero"),
        ("STUDY = {}", None, "must define STUDY, a mapping from profile name"),
        ("x = 1", None, "must define STUDY"),
        (GOOD, "smal", "profile 'smal' of mine does not exist; did you mean 'small'? it has small"),
        (GOOD.replace('"k", parameter', '"k"').replace('parameter="k"', 'parameter="kk"'), None, "unknown key 'kk'"),
        (GOOD.replace("ndcg_at_10", "accuracy"), None, "objective 'accuracy': splade never reports it; it reports"),
        (
            GOOD.replace('trainer="splade"', 'trainer="spade"'),
            None,
            "trainer 'spade': there is no module trainables.spade.config; did you mean 'splade'?",
        ),
        (GOOD.replace("Budget(trials=2)", "Budget(trials=0)"), None, "trials"),
        (GOOD.replace("budget=", "seeds=3, budget="), None, "seeds"),
    ],
)
def test_refused_files(tmp_path, text: str, profile: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as refusal:
        spec.load(written(tmp_path, text), profile, {}, {})
    assert "\n" not in str(refusal.value).strip() or "validation error" in str(refusal.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"budget.trials": 0}, "budget.trials=0: input should be greater than 0"),
        ({"resources.workers": 3}, "batch_size=32 cannot be shared by resources.workers=3"),
        ({"seed": -1}, "seed=-1: input should be greater than or equal to 0"),
    ],
)
def test_refused_options(tmp_path, changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        spec.load(written(tmp_path, GOOD), None, {}, changes)


ANGLE = """
import numpy as np
from study.spec import Budget, Objective, Study
from trainables.angle.config import Config

def space(trial):
    trial.suggest_float("scale", 1, 8, log=True)
    {space}

STUDY = {{"small": Study(question="?", trainer="angle", parameter="scale", config=Config({config}), space=space,
                         objectives=({objectives},), budget=Budget(trials=2), {more})}}
"""


def planned(folder: Path, monkeypatch, capsys, objective="spearman_256", **parts: str) -> tuple[int, str]:
    """Exit code and output of a dry run of a study over AnglE."""
    settings = {"config": "dims=(32, 64, 128, 256)", "space": "", "more": ""} | parts
    objectives = settings.pop("objectives", f'Objective(name="{objective}")')
    path = written(folder, ANGLE.format(objectives=objectives, **settings))
    monkeypatch.chdir(folder)
    code = main([str(path), "--dry-run"])
    out, err = capsys.readouterr()
    assert list(folder.iterdir()) == [path]
    return code, out if code == 0 else err


def test_objectives_are_those_that_the_config_reports(tmp_path, monkeypatch, capsys) -> None:
    assert planned(tmp_path, monkeypatch, capsys)[0] == 0
    assert planned(tmp_path, monkeypatch, capsys, more='controls=({"dims": (16, 256)},)')[0] == 0
    searched = 'dims=(32,), retrieval={"source": "embedded"}'
    assert planned(tmp_path, monkeypatch, capsys, "ndcg_at_10_32", config=searched)[0] == 0


NEVER = "objective '{0}': angle never reports it; it reports spearman, spearman_{1}"


@pytest.mark.parametrize(
    ("objective", "parts", "message"),
    [
        ("spearman_8", {}, NEVER.format("spearman_8", 32)),
        ("ndcg_at_10_32", {}, NEVER.format("ndcg_at_10_32", 32)),
        ("spearman_256", {"config": ""}, NEVER.format("spearman_256", 8)),
        (
            "spearman_256", {"more": 'points=({}, {"dims": (16, 32)})'},
            "point {'dims': [16, 32]}: " + NEVER.format("spearman_256", 16),
        ),
        (
            "spearman_256", {"more": 'controls=({"dims": (16, 32)},)'},
            "control {'dims': [16, 32]}: " + NEVER.format("spearman_256", 16),
        ),
        (
            "spearman_256", {"space": 'trial.suggest_categorical("dims", [(32, 256), (16, 32)])'},
            "dims=[16, 32], which cannot be run: " + NEVER.format("spearman_256", 16),
        ),
        (
            "", {"objectives": 'Objective(name="spearman"), Objective(name="pearson_8")'},
            NEVER.format("pearson_8", 32),
        ),
        (
            "", {"objectives": 'Objective(name="spearman", direction="minimize")'},
            "objective 'spearman' has direction='minimize', but angle is better the more it has of it",
        ),
    ],
)  # fmt: skip
def test_objectives_that_will_not_be_reported(tmp_path, monkeypatch, capsys, objective, parts, message) -> None:
    code, text = planned(tmp_path, monkeypatch, capsys, objective, **parts)
    assert code == 2
    assert message in text
    assert text.startswith("error: ")
    assert text.count("\n") == 1


@pytest.mark.parametrize(
    ("space", "shown"),
    [
        ('trial.suggest_categorical("dims", [(32, 256), (16, 256)])', "dims in {[32, 256], [16, 256]}"),
        ('trial.suggest_categorical("length", list(2 ** np.arange(4, 7)))', "length in {16, 32, 64}"),
        ('trial.suggest_int("length", np.int64(8), np.int32(64), log=True)', "length in [8, 64] log"),
        ('trial.suggest_float("optimiser.lr", np.float32(0.5), np.float64(1))', "optimiser.lr in [0.5, 1]"),
    ],
)
def test_values_of_numpy_and_tuples_are_planned(tmp_path, monkeypatch, capsys, space, shown) -> None:
    code, text = planned(tmp_path, monkeypatch, capsys, space=space)
    assert (code, shown in text) == (0, True), text


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"space": 'trial.suggest_categorical("dims", [{32, 256}])'}, "a choice of dims={32, 256}: a set does not"),
        ({"space": 'trial.suggest_categorical("length", [16, 16.0])'}, "choices of length: 16 and 16.0 are equal"),
        ({"space": 'trial.suggest_float("optimiser.lr", 1e-3, np.inf)'}, "a bound of optimiser.lr=inf: use a finite"),
        ({"more": 'points=({"dims": {32, 256}},)'}, "dims={32, 256}: a set does not come back from storage"),
        ({"more": 'controls=({"prefix": b"a"},)'}, "prefix=b'a': a bytes does not come back from storage"),
        ({"space": 'trial.suggest_categorical("split", ["chunked", "interleaved"])', "more": 'sampler="qmc"'},
         "sampler='qmc': split has categories"),
        ({"space": 'trial.suggest_int("length", 2, 6)'}, "which cannot be run: length=2: input should be greater"),
    ],
)  # fmt: skip
def test_spaces_that_are_refused_before_anything_starts(tmp_path, monkeypatch, capsys, parts, message) -> None:
    code, text = planned(tmp_path, monkeypatch, capsys, **parts)
    assert code == 2
    assert message in text
    assert text.startswith("error: ")
    assert text.count("\n") == 1
