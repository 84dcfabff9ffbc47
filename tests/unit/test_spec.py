"""Study files: found by name or path, loaded with overrides, refused with one sentence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from study import spec

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
        (GOOD.replace('trainer="splade"', 'trainer="spade"'), None, "trainer 'spade': there is no package"),
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
