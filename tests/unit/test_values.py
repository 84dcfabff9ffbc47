"""Values that a study names: plain before they are stored, or refused."""

from __future__ import annotations

import enum
import fractions
import json
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

from study.ledger.space import PlainTrial
from study.values import plain


class Split(enum.StrEnum):
    CHUNKED = "chunked"


class Size(enum.IntEnum):
    SMALL = 8


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (None, None), (True, True), (3, 3), (0.5, 0.5), ("a", "a"),
        (np.int64(3), 3), (np.uint8(3), 3), (np.float32(0.5), 0.5), (np.float64(0.5), 0.5), (np.bool_(False), False),
        (np.str_("a"), "a"), (np.array(3), 3), (np.array([[1, 2]]), [[1, 2]]),
        ((8, 16), [8, 16]), (((8, np.int8(16)), "a"), [[8, 16], "a"]), (range(3), [0, 1, 2]),
        ({"a": (1, np.int64(2))}, {"a": [1, 2]}),
        (Split.CHUNKED, "chunked"), (Size.SMALL, 8), (Path("data") / "a", "data/a"), (fractions.Fraction(1, 4), 0.25),
    ],
)  # fmt: skip
def test_plain_values_come_back_as_they_are(given: Any, kept: Any) -> None:
    def types(value: Any) -> Any:
        return [types(item) for item in value] if isinstance(value, list) else type(value)

    found = plain(given, "key")
    assert (found, types(found)) == (kept, types(kept))
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({1, 2}, r"dims=\{1, 2\}: a set does not come back from storage as it went in; accepted are numbers"),
        (b"a", "dims=b'a': a bytes does not"),
        ({1: 2}, "a dict does not"),
        (object, "a type does not"),
        (1j, "a complex does not"),
        (float("inf"), "dims=inf: use a finite number"),
        ([1, np.float32("nan")], "dims=nan: use a finite number"),
    ],
)
def test_other_values_are_refused(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plain(given, "dims")


def asked() -> PlainTrial:
    return PlainTrial(optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0)).ask())


@pytest.mark.parametrize("choices", [[1, True], [0.5, np.float32(0.5), 1.0, 1], [(1, 2), [1.0, 2]]])
def test_choices_that_storage_could_not_tell_apart_are_refused(choices: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"choices of key: .* and .* are equal"):
        asked().suggest_categorical("key", choices)


def test_a_space_gets_back_the_choices_that_it_named() -> None:
    choices = [(8, 16), (16, 32)]
    trial = asked()
    assert trial.suggest_categorical("dims", choices) in choices
    assert trial.params["dims"] in [[8, 16], [16, 32]]
    assert trial.suggest_categorical("name", ["a", "a"]) == "a"
    assert trial.number == 0


def test_every_kind_of_bound_is_plain() -> None:
    trial = asked()
    trial.suggest_float("a", np.float32(0), np.float64(1), step=np.float32(0.5))
    trial.suggest_float("b", low=np.float32(1), high=np.int64(2), log=np.bool_(True))
    trial.suggest_int("c", np.int64(1), np.uint8(9), step=np.int8(2))
    trial.suggest_uniform("d", np.float32(1), np.float32(2))
    for found in trial.distributions.values():
        optuna.distributions.distribution_to_json(found)
    assert {type(value) for value in trial.params.values()} == {float, int}
