"""What the shipped encoder promises to every recipe that opens it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

FOLDER = Path(__file__).parents[2] / "trainables" / "embedded_encoder"
MAX_BYTES = 12 * 1024 * 1024


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return AutoModelForMaskedLM.from_pretrained(FOLDER, local_files_only=True).eval()


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(FOLDER, local_files_only=True)


def test_it_is_small_enough_for_git() -> None:
    assert sum(file.stat().st_size for file in FOLDER.iterdir() if file.is_file()) <= MAX_BYTES


def test_it_says_what_it_is() -> None:
    assert json.loads((FOLDER / "config.json").read_text())["model_type"] == "modernbert"
    assert (FOLDER / "README.md").is_file()


def test_its_head_is_complete_and_tied() -> None:
    model, info = AutoModelForMaskedLM.from_pretrained(FOLDER, output_loading_info=True)
    assert not set(info["missing_keys"]) - set(model.all_tied_weights_keys)
    assert not info["unexpected_keys"]
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


def test_it_takes_texts_of_256_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    inputs = tokenizer("return the value " * 200, truncation=True, max_length=256, return_tensors="pt")
    with torch.no_grad():
        logits = model(**inputs).logits
    assert logits.shape == (1, 256, len(tokenizer))
    assert logits.isfinite().all()


def test_words_of_prose_and_of_code_are_the_same_terms(tokenizer: PreTrainedTokenizerBase) -> None:
    prose = tokenizer.tokenize("Get the HTTP response name")
    assert tokenizer.tokenize("get_theHTTPResponse.name") == prose
    ids = tokenizer("Get the HTTP response name").input_ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == "get the http response name"
    assert (ids[0], ids[-1]) == (tokenizer.cls_token_id, tokenizer.sep_token_id)
    assert tokenizer.unk_token_id not in ids


def test_its_head_names_the_terms_of_a_text(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    inputs = tokenizer("Open the file and return a list of its lines", return_tensors="pt")
    with torch.no_grad():
        pooled = model(**inputs).logits.amax(1)[0]
    words = [id for id in inputs.input_ids[0].tolist() if id not in tokenizer.all_special_ids]
    absent = torch.ones_like(pooled, dtype=torch.bool)
    absent[[*words, *tokenizer.all_special_ids]] = False
    assert pooled[words].mean() > 0 > pooled[absent].mean()
