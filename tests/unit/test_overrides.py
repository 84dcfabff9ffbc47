"""Every refusal of a config value names the key, the value and what would be accepted."""

from __future__ import annotations

import re

import pytest

from trainables import overrides
from trainables.config import TrainerConfig


def test_values_are_read_as_json_where_they_are_json() -> None:
    assert overrides.parse(["steps=4", "backbone=bert", "cache=null", "collapse=false", "a=x=y"]) == {
        "steps": 4, "backbone": "bert", "cache": None, "collapse": False, "a": "x=y",
    }  # fmt: skip


def test_dotted_keys_reach_sections_and_leave_the_original_alone() -> None:
    base = TrainerConfig()
    changed = overrides.apply(base, {"optimiser.lr": 0.5, "steps": 7})
    assert (changed.optimiser.lr, changed.steps) == (0.5, 7)
    assert base.optimiser.lr != 0.5


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("stesp=4", "unknown key 'stesp'; did you mean 'steps'?"),
        ("lr=4", "unknown key 'lr'; did you mean 'optimiser.lr'?"),
        ("optimiser=4", "unknown key 'optimiser'"),
        ("steps=0", "steps=0: input should be greater than 0"),
        ("steps=many", "steps='many': input should be a valid integer"),
        ("batch_size=0", "batch_size=0: input should be greater than or equal to 2"),
        ("optimiser.lr=NaN", "optimiser.lr=nan: input should be"),
        ("optimiser.lr=-1", "optimiser.lr=-1: input should be greater than 0"),
        ("precision=fp8", "precision='fp8': input should be 'auto', 'float32' or 'bf16'"),
        ("steps", "--set takes KEY=VALUE, not 'steps'"),
    ],
)
def test_refusals(assignment: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as refusal:
        overrides.apply(TrainerConfig(), overrides.parse([assignment]))
    assert "\n" not in str(refusal.value)
