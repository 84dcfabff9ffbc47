"""What counts as another study: changed values do, keys that came or went at their default do not."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import Field

from study.ledger.definition import at_default, defaults, differences, flat
from trainables.config import Section


class Part(Section):
    lr: float = 1.0
    """A section of the study may have another default for it."""
    schedule: str = "linear"


class Goal(Section):
    name: str
    weight: float = 1.0


class Whole(Section):
    steps: int
    part: Part = Part(lr=2.0)
    dims: tuple[int, ...] = (8, 16)
    labels: dict[str, str] = Field(default_factory=lambda: {"a": "b"})
    goals: tuple[Goal, ...] = ()
    points: tuple[dict[str, Any], ...] = ()


def dumped(study: Whole, *without: str) -> dict[str, Any]:
    """A definition as it is stored, from a time when some keys were not there."""
    tree = study.model_dump(mode="json")
    for key in without:
        *sections, leaf = key.split(".")
        node = tree
        for section in sections:
            node = node[int(section) if isinstance(node, list) else section]
        del node[leaf]
    return flat(tree)


STUDY = Whole(steps=3, goals=(Goal(name="x"), Goal(name="y", weight=2)), points=({"part.lr": 2.0}, {}))


def found(stored: dict[str, Any], study: Whole = STUDY, were_default: list[str] | None = None) -> list[str]:
    return differences(stored, dumped(study), defaults(study), were_default or [])


@pytest.mark.parametrize(
    "key", ["part.schedule", "dims", "labels", "goals.0.weight"], ids=["nested", "list", "mapping", "in a list"]
)
def test_a_key_that_came_at_its_default_is_no_difference(key: str) -> None:
    assert found(dumped(STUDY, key)) == []


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("steps", "steps was absent, now 3"),
        ("goals.1.weight", "goals.1.weight was absent, now 2.0"),
        # The key's own class says what was before it, whatever the section is by default.
        ("part.lr", "part.lr was absent, now 2.0"),
    ],
)
def test_a_key_that_came_with_another_value_is_one(key: str, message: str) -> None:
    assert found(dumped(STUDY, key)) == [message]


@pytest.mark.parametrize(
    ("changes", "messages"),
    [
        ({"part": Part(lr=3.0)}, ["part.lr was 2.0, now 3.0"]),
        ({"dims": (8,)}, ["dims was [8, 16], now [8]"]),
        ({"labels": {"a": "c"}}, ["labels.a was 'b', now 'c'"]),
        ({"labels": {}}, ["labels.a was 'b', now absent"]),
        ({"goals": STUDY.goals[:1]}, ["goals.1.name was 'y', now absent", "goals.1.weight was 2.0, now absent"]),
        ({"points": ({"part.lr": 4.0}, {})}, ["points.0.part.lr was 2.0, now 4.0"]),
        ({"points": STUDY.points[:1]}, ["points.1 was {}, now absent"]),
        ({"points": ()}, ["points.0.part.lr was 2.0, now absent", "points.1 was {}, now absent"]),
    ],
)
def test_a_changed_value_is_named(changes: dict[str, Any], messages: list[str]) -> None:
    were_default = at_default(dumped(STUDY), defaults(STUDY))
    assert found(dumped(STUDY), STUDY.model_copy(update=changes), were_default) == messages


def test_a_changed_default_is_a_difference() -> None:
    """The study was begun with the old one, and knows it."""
    stored = dumped(STUDY) | {"part.schedule": "constant"}
    assert found(stored, were_default=["part.schedule"]) == ["part.schedule was 'constant', now 'linear'"]


def test_a_key_that_went_at_its_default_is_no_difference() -> None:
    goals = [{"name": "x", "weight": 1.0, "unit": "s"}, {"name": "y", "weight": 2.0}]
    stored = dumped(STUDY) | {"part.beta": 0.9, "goals": goals}
    gone = ["goals.0.unit was 's', now absent", "part.beta was 0.9, now absent"]
    assert found(stored) == gone
    assert found(stored, were_default=["part.beta"]) == gone[:1]
    assert found(stored, were_default=["part.beta", "goals.0.unit"]) == []


def test_keys_at_their_default_are_known() -> None:
    assert at_default(dumped(STUDY), defaults(STUDY)) == [
        "dims", "goals.0.weight", "labels.a", "part.schedule"
    ]  # fmt: skip


def test_a_default_that_nobody_asked_for_is_told_with_the_way_back() -> None:
    by_class = {"config.data.highest": None, "config.steps": 100}
    before = {"config.data.highest": 5.0, "config.steps": 10}
    assert differences(before, {"config.data.highest": None, "config.steps": 20}, by_class) == [
        "config.data.highest was 5.0, now None (the default; --set 'data.highest=5.0' keeps the old one)",
        "config.steps was 10, now 20",
    ]
