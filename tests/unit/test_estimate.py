"""What a plan says a study costs, and that everything a published profile names can be had by that name."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from study import spec
from study.planning.estimate import estimate
from study.planning.plan import plan
from study.protocol.destinations import Destinations
from study.protocol.folder import StudyFolder
from trainables.config import StepCost
from trainables.shapes import KNOWN, shape_of

PUBLISHED_MILLIONS = {
    "google-bert/bert-base-uncased": 110, "distilbert/distilbert-base-uncased": 66, "albert/albert-base-v2": 11,
    "FacebookAI/roberta-base": 125, "Alibaba-NLP/gte-en-mlm-base": 137, "answerdotai/ModernBERT-base": 149,
    "jhu-clsp/ettin-encoder-150m": 149, "cl-nagoya/ruri-v3-130m": 132, "cl-nagoya/ruri-v3-30m": 37,
}  # fmt: skip


def study_of(name: str, profile: str, **settings) -> spec.Study:
    return spec.load(spec.available()[name], profile, settings, {})[1]


@pytest.mark.parametrize("backbone", KNOWN)
def test_parameters_are_those_that_the_models_are_known_by(backbone) -> None:
    assert KNOWN[backbone].parameters / 1e6 == pytest.approx(PUBLISHED_MILLIONS[backbone], rel=0.02)


def test_operations_of_bert_base() -> None:
    """85 M weights in the layers: 2 operations a weight and token, and 3 times that with the backward pass."""
    shape = KNOWN["google-bert/bert-base-uncased"]
    assert shape.forward(1, 0) == pytest.approx(2 * 85e6, rel=0.01)
    assert shape.forward(0, 1) == 2 * 768 * 30_522
    assert shape.forward(1, 0, more_layers=12) == 2 * shape.forward(1, 0)


def test_a_folder_tells_its_shape(tmp_path) -> None:
    sizes = {"num_hidden_layers": 2, "hidden_size": 8, "intermediate_size": 16, "vocab_size": 100}
    (tmp_path / "config.json").write_text(json.dumps(sizes | {"model_type": "bert"}))
    found = shape_of(str(tmp_path))
    assert found is not None
    assert found.parameters == 2 * (4 * 64 + 2 * 8 * 16) + 800
    assert shape_of("nobody/unknown") is None


def test_step_costs_follow_the_stages() -> None:
    config = study_of("retromae_mask_search", "paper").config
    assert config.step_costs == (
        StepCost(300_000, 256 * 512, projected=round(1.3 * 256 * 512), layers=1),
        StepCost(4_912, 1_024 * (32 + 144 * 2)),
    )


def test_hours_of_a_known_case() -> None:
    """150,000 steps of 128 x (64 + 512) tokens of ModernBERT-base through layers and head: 9.9e18 operations."""
    lines = "\n".join(estimate(study_of("splade_k_search", "paper", backbone="answerdotai/ModernBERT-base")))
    hours = re.search(
        r"GPU-hours   ([\d.]+) per trial, ([\d,.]+) in all, ([\d,.]+) more to confirm, on A100 at 35% of 312", lines
    )
    assert hours is not None, lines
    assert 15 < float(hours[1]) < 25
    # Four trials of each group with five seeds, beside seven with one.
    searched, confirming = (float(hours[n].replace(",", "")) for n in (2, 3))
    assert confirming == pytest.approx(searched * 20 / 7, rel=1e-3)
    assert "not estimated: no config.json of backbone a/b" in estimate(
        study_of("angle_split_search", "paper", backbone="a/b")
    )[0]  # fmt: skip


@pytest.mark.parametrize("name", spec.available())
def test_collections_of_every_profile_resolve(name) -> None:
    from ir_datasets import registry

    for study in spec.profiles(spec.available()[name]).values():
        for found in re.findall(r'"ir_datasets:([^"]+)"', study.config.model_dump_json()):
            assert registry[found].metadata()["docs"]["count"] > 0, found


def test_what_the_head_needs_follows_the_trials_at_a_time() -> None:
    _, study = spec.load(spec.available()["splade_k_search"], None, {}, {})
    few = study.model_copy(update={"resources": study.resources.model_copy(update={"concurrency": 2})})
    for asked, memory in (
        (study, "4.2 GiB for 9 trial(s) at a time, if there is room for all:"),
        (few, "1.7 GiB for 2 trial(s) at a time:"),
    ):
        told = plan("splade_k_search", "embedded", asked, Destinations(StudyFolder(Path("studies/k"))), None)
        assert f"head        about {memory} 3 small processes each" in told
