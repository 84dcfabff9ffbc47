"""The card of a model: what its header says of hub names, and what is known of the licences of its inputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from search_spaces import splade_k_search
from trainables import card, licences
from trainables.places import COLLECTION, EXAMPLES, MODEL
from trainables.retromae.config import Config as RetroMAE
from trainables.splade.config import Config
from trainables.training_record import TrainingRecord, trainer_of


def record(config, **changes) -> TrainingRecord:
    found = {
        "trainer": trainer_of(config), "config": config.model_dump(mode="json"), "seed": 3, "stage": None, "step": 100,
        "workers": 2, "threads": 1, "device": "H200", "precision": "bf16", "versions": {"torch": "2.13.0"},
        "facts": {"train.data": "pairs", "train.identity": "0123", "train.examples": 1200, "hash.initialisation": "a"},
        "values": {"ndcg_at_10": 0.4, "untrained.ndcg_at_10": 0.1}, "study": None,
    }  # fmt: skip
    return TrainingRecord(**found | changes)


def written(folder: Path, config, **changes) -> ModelCard:
    card.write(folder, config, record(config, **changes))
    return ModelCard.load(folder / "README.md")


def test_hub_names_stand_in_the_header_and_paths_do_not(tmp_path) -> None:
    config = Config(
        backbone="answerdotai/ModernBERT-base",
        train={"source": "datasets:sentence-transformers/msmarco:triplet"},
        evaluation={"source": "ir_datasets:beir/scifact/test"},
    )
    data = written(tmp_path, config).data
    assert data.base_model == "answerdotai/ModernBERT-base"
    assert data.datasets == ["sentence-transformers/msmarco"]
    local = config.model_copy(update={"backbone": str(tmp_path)})
    data = written(tmp_path, local).data
    assert data.base_model is None
    assert data.get("datasets") == ["sentence-transformers/msmarco"]


def test_a_section_that_may_be_absent_is_a_setting_like_any_other(tmp_path) -> None:
    paper = splade_k_search.STUDY["paper"].config
    text = written(tmp_path, paper).text
    assert '| `evaluation.pool` | `{"queries": 1000, "documents": 100000, "hard": 50, "seed": 0}` |' in text


def test_without_test_queries_the_figures_are_those_of_validation(tmp_path) -> None:
    found = written(tmp_path, Config())
    (result,) = found.data.eval_results
    assert (result.metric_value, result.dataset_split, result.metric_name) == (0.4, "validation", "nDCG@10")
    assert "| nDCG@10 |  | 0.4 | 0.1 |" in found.text
    assert "100 steps by 2 workers (H200), computed in bf16; torch 2.13.0." in found.text
    assert "| train | pairs | 1,200 examples | `0123` |" in found.text


def test_a_model_of_an_earlier_stage_has_no_figures_and_says_which_it_is(tmp_path) -> None:
    found = written(tmp_path, RetroMAE(), stage="pretrain", values={"untrained.ndcg_at_10": 0.1})
    assert "It is the model at the end of the stage `pretrain`." in found.text
    assert "Nothing was measured at the end of this stage." in found.text
    assert found.data.eval_results is None


@pytest.mark.parametrize("sparse", [True, False])
def test_how_it_is_opened_is_read_off_its_files(tmp_path, sparse) -> None:
    (tmp_path / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 48, "query_length": 24}))
    about = {"model_type": "SparseEncoder"} if sparse else {"matryoshka_dims": [8, 16]}
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(about))
    found = written(tmp_path, Config())
    kind = "SparseEncoder" if sparse else "SentenceTransformer"
    assert f'model = {kind}("FOLDER")' in found.text
    assert "# cut to 24 tokens, as in training" in found.text
    assert ("truncate_dim=8" in found.text) != sparse
    assert ("sparse-encoder" in found.data.tags) == sparse
    assert found.data.pipeline_tag == ("feature-extraction" if sparse else "sentence-similarity")


def test_licences_are_what_inputs_say(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "stated").mkdir()
    (tmp_path / "stated" / "README.md").write_text("---\nlicense: mit\n---\n# A model\n")
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / "LICENSE.txt").write_text("Permission is granted")
    (tmp_path / "bare.jsonl").write_text("{}")
    for place, value, told in (
        (MODEL, "embedded", "Apache-2.0, made by the project that trained this model"),
        (EXAMPLES, "embedded", "unknown as a whole: sources of installed Python packages, each with its own licence"),
        (MODEL, str(tmp_path / "stated"), "mit, says the README.md beside it"),
        (COLLECTION, str(tmp_path / "file"), "that in its LICENSE.txt"),
        (EXAMPLES, str(tmp_path / "bare.jsonl"), "unknown"),
        (EXAMPLES, "datasets:json:https://example.org/a.json", "unknown"),
        (COLLECTION, "ir_datasets:beir/scifact/test", "unknown; https://ir-datasets.com has its documentation"),
        (MODEL, "nobody/has-this", "unknown here; https://huggingface.co/nobody/has-this may say it"),
        (EXAMPLES, "datasets:no/such:en", "unknown here; https://huggingface.co/datasets/no/such may say it"),
    ):  # fmt: skip
        assert licences.of(place, value) == told
