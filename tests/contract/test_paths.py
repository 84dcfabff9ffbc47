"""Every trainer's config, found by glob: the type of a text key says whether it may hold a path; paths are honoured."""

from __future__ import annotations

from pathlib import Path

import pytest
from every_trainer import TRAINERS

from trainables import overrides, paths, trainers
from trainables.places import COLLECTION, EXAMPLES, MODEL, PAIRS, TEXTS

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = {trainer: trainers.module(trainer, "config").Config for trainer in TRAINERS}
KEYS = [(trainer, key) for trainer, config in CONFIGS.items() for key in paths.places(config)]
GOOD = {
    EXAMPLES: ("pairs.jsonl", "datasets:json:pairs.jsonl", "datasets:sets"),
    TEXTS: ("pairs.jsonl", "datasets:json:pairs.jsonl", "datasets:sets"),
    PAIRS: ("pairs.jsonl", "stsb:pairs.jsonl", "datasets:json:pairs.jsonl", "datasets:sets"),
    COLLECTION: ("beir",),
    MODEL: ("models/mine", "./models/mine"),
}
"""Relative paths of each kind that are there."""


@pytest.fixture
def folder(tmp_path) -> Path:
    for name in ("beir/qrels", "models/mine", "sets"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("pairs.jsonl", "beir/corpus.jsonl", "beir/queries.jsonl", "beir/qrels/test.tsv"):
        (tmp_path / name).touch()
    (tmp_path / "models" / "mine" / "config.json").touch()
    return tmp_path


@pytest.mark.parametrize("trainer", CONFIGS)
def test_every_text_key_says_whether_it_may_hold_a_path(trainer) -> None:
    assert paths.untold(CONFIGS[trainer]) == [], "give these one of the types of trainables/places.py"
    assert "backbone" in paths.places(CONFIGS[trainer])
    assert any("train" in key for key in paths.places(CONFIGS[trainer]))


@pytest.mark.parametrize(("trainer", "key"), KEYS, ids=[" ".join(pair) for pair in KEYS])
def test_every_path_is_relative_to_where_it_was_typed_and_has_to_be_there(trainer, key, folder) -> None:
    place = paths.places(CONFIGS[trainer])[key]
    if place.look is None:
        config = paths.located(overrides.apply(CONFIGS[trainer](), {key: "new"}), folder)
        assert paths.value_of(config, key) == str(folder / "new")
        paths.check(config)
        return
    for written in GOOD[place]:
        config = paths.located(overrides.apply(CONFIGS[trainer](), {key: written}), folder)
        before, _, path = written.rpartition(":")
        assert paths.value_of(config, key) == f"{before}{':' if before else ''}{folder / path}"
        paths.check(config)
        assert paths.located(config, Path("/")) == config
        assert paths.digest(place, paths.value_of(config, key)) is not None
    config = paths.located(overrides.apply(CONFIGS[trainer](), {key: "./missing.jsonl"}), folder)
    with pytest.raises(ValueError, match=f"^{key} '{folder}/missing.jsonl': nothing there.*; accepted are "):
        paths.check(config)
