"""What the input check is asked to try: every choice of the space, every point and every control; and what it says."""

import subprocess
import threading
import time

import pytest

from study.engine.input_check import InputCheck
from study.ledger.variants import variants
from study.spec import Budget, Objective, Study
from trainables.check import distinct
from trainables.splade.config import Config


def study(space, **more) -> Study:
    return Study(
        question="?", trainer="splade", config=Config(), space=space, parameter="k",
        objectives=(Objective(name="ndcg_at_10"),), budget=Budget(trials=4), **more,
    )  # fmt: skip


def space(trial) -> None:
    backbone = trial.suggest_categorical("backbone", [f"model-{n}" for n in range(30)])
    trial.suggest_float("k", 0.5, 64, log=True)
    if backbone == "model-7":
        trial.suggest_categorical("rescale", ["tied", "untied"])
    trial.suggest_int("document_length", 16, 512)


def test_every_choice_point_and_control_is_among_them() -> None:
    made = study(
        space, controls=({"backbone": "control"},),
        points=({"backbone": "model-3", "k": 2.0, "document_length": 100},),
    )  # fmt: skip
    found = variants(made)
    assert found[:2] == [{"backbone": "control"}, {"backbone": "model-3", "k": 2.0, "document_length": 100}]
    assert {change["backbone"] for change in found} == {"control", *(f"model-{n}" for n in range(30))}
    assert {16, 512} <= {change.get("document_length") for change in found}
    kinds = distinct(made.config, found)
    backbones = [change["backbone"] for change in kinds]
    assert sorted(backbones, key=backbones.index) == backbones, "those of one backbone come together"


def test_a_space_of_real_numbers_needs_one_step() -> None:
    made = study(lambda trial: trial.suggest_float("k", 0.5, 64), points=({"k": 1.0}, {"k": 2.0}))
    assert len(distinct(made.config, variants(made))) == 1


def test_a_choice_that_the_config_never_takes_is_left_to_its_trial() -> None:
    made = study(lambda trial: trial.suggest_categorical("contrastive_weight", [1.0, 0.5]))
    odd = made.model_copy(update={"space": lambda trial: trial.suggest_categorical("query_length", [24, 24])})
    assert variants(odd) == [{"query_length": 24}]


class Printing(InputCheck):
    """The check's process is a shell script."""

    def __init__(self, script: str) -> None:
        self.log, self.began, self.doing, self.found = "check.log", time.monotonic(), "", ""
        self.process = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()


def test_a_long_check_says_what_it_does(monkeypatch) -> None:
    monkeypatch.setattr("study.engine.input_check.PATIENCE_S", 0.5)
    said: list[str] = []
    result = """{"facts": {}, "baselines": {}, "notes": []}"""
    script = f"echo doing: reading; sleep 1.2; echo doing: one step; sleep 0.6; echo '{result}'; sleep 0.6"
    assert Printing(script).result(said.append) == {"facts": {}, "baselines": {}, "notes": []}
    assert said == ["checking the inputs: reading", "checking the inputs: one step"]


def test_a_short_check_says_nothing_but_its_result() -> None:
    said: list[str] = []
    with pytest.raises(ValueError, match=r"^backbone 'x' does not open$"):
        Printing("echo doing: reading; echo \"backbone 'x' does not open\"; exit 2").result(said.append)
    with pytest.raises(RuntimeError, match=r"could not be checked, see check\.log"):
        Printing("echo doing: reading; exit 1").result(said.append)
    assert said == []
