"""What the SPLADE recipe refuses, and that a batch is a function of seed and step."""

import json
from types import SimpleNamespace

import pytest
import torch
from pydantic import ValidationError

from trainables import encoders
from trainables.context import Context
from trainables.contrastive import BatchSampler
from trainables.data.types import Example, TrainingSet
from trainables.splade.config import Config
from trainables.splade.model import SpladeEncoder, rescale_head
from trainables.splade.recipe import Encoder, SpladeRecipe, build

EXAMPLES = [
    Example(f"query {i}", f"positive {i % 5}", tuple(f"negative {i} {n}" for n in range(4)), (9.0, 1.0, 2.0, 3.0, 4.0))
    for i in range(12)
]


@pytest.fixture(scope="module")
def encoder():
    model, tokenizer = encoders.load_masked_lm("embedded")
    return SpladeEncoder(model), tokenizer


def recipe(encoder, tmp_path, seed=0, examples=EXAMPLES, **config):
    context = Context(seed=seed, folder=tmp_path, device=torch.device("cpu"))
    made = Config(batch_size=6, **config)
    sampler = BatchSampler(TrainingSet("some data", "0", examples), made.batch_size, made.hard_negatives, context)
    return SpladeRecipe(
        made, context, Encoder(*encoder, made, context.device), sampler, SimpleNamespace(description={})
    )


def equal(a, b):
    return a.documents.ids.shape == b.documents.ids.shape and torch.equal(a.documents.ids, b.documents.ids)


def test_batch_is_a_function_of_seed_and_step(encoder, tmp_path):
    first = recipe(encoder, tmp_path, hard_negatives=2)
    assert equal(first.batch(3), recipe(encoder, tmp_path, hard_negatives=2).batch(3))
    assert not equal(first.batch(3), first.batch(5)), "another epoch draws other negatives"
    assert not equal(first.batch(3), recipe(encoder, tmp_path, seed=1, hard_negatives=2).batch(3))


@pytest.mark.parametrize("rescale", ["tied", "untied"])
def test_the_head_is_measured_before_and_after_it_is_rescaled(tmp_path, rescale):
    model, tokenizer = encoders.load_masked_lm("embedded")
    opened = SpladeEncoder(model, tokenizer)
    weight = opened.decoder.weight.detach().double()
    before = {
        "frobenius": float(torch.linalg.matrix_norm(weight)),
        "row": float(weight[weight.norm(dim=1) > 0].square().sum(1).mean().sqrt()),
        "spectral": float(torch.linalg.matrix_norm(weight, 2)),
    }
    rescale_head(model, 8, rescale, rescale_bias=False)
    made = recipe((opened.eval(), tokenizer), tmp_path, hard_negatives=1, k=8, rescale=rescale)
    with torch.inference_mode():
        found = made.initial()
        batch = made.batch(0)
        scores = opened(batch.queries) @ opened(batch.documents).T
    assert {name: found[f"backbone_head_{name}"] for name in before} == pytest.approx(before, rel=1e-5)
    assert {name: 8 * found[f"head_{name}"] for name in before} == pytest.approx(before, rel=1e-5)
    assert scores.shape == (6, 12)
    assert found["score_spread"] == pytest.approx(float(scores.flatten().var(unbiased=False).sqrt()))
    assert found["score_spread"] > 0


def test_a_negative_keeps_its_score(encoder, tmp_path):
    made = recipe(encoder, tmp_path, hard_negatives=2, distillation="kl")
    for step in range(4):
        batch = made.batch(step)
        texts = made.tokenizer.batch_decode(batch.documents.ids, skip_special_tokens=True)
        for row, scores in enumerate(batch.teacher.tolist()):
            assert scores[0] == 9
            for text, score in zip(texts[3 * row + 1 : 3 * row + 3], scores[1:], strict=True):
                assert int(text.split()[-1]) + 1 == score


def test_another_query_with_the_same_positive_is_no_negative(encoder, tmp_path):
    batch = recipe(encoder, tmp_path).batch(0)
    positives = [EXAMPLES[row].positive for row in _rows(0)]
    for i, own in enumerate(positives):
        assert batch.sampled.excluded[i].tolist() == [j != i and other == own for j, other in enumerate(positives)]
    assert batch.sampled.excluded.any()
    assert batch.sampled.candidates == pytest.approx(6 - batch.sampled.excluded.sum().item() / 6)


def _rows(step):
    from trainables.data.order import indices

    return indices(step, 6, len(EXAMPLES), seed=0)


@pytest.mark.parametrize(("config", "message"), [
    ({"distillation": "kl"}, "hard_negatives must be at least 1"),
    ({"contrastive_weight": 0}, "nothing is left to learn from"),
    ({"k": 0}, "greater than 0"),
    ({"k": float("inf")}, "finite"),
    ({"lambda_documents": 1}, "Extra inputs"),
])  # fmt: skip
def test_config_that_cannot_be_honoured(config, message):
    with pytest.raises(ValidationError, match=message):
        Config(**config)


@pytest.mark.parametrize(("config", "message"), [
    ({"hard_negatives": 2}, "hard_negatives is 2, but 2 of 2 examples"),
    ({"hard_negatives": 1, "distillation": "margin_mse"}, "without scores"),
    ({"document_length": 10_000}, "document_length is 10000, but backbone 'embedded' takes at most 512"),
])  # fmt: skip
def test_data_or_backbone_that_cannot_be_used(config, message, tmp_path):
    rows = ({"query": query, "positive": f"on {query}", "negatives": ["c"]} for query in "ab")
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    context = Context(seed=0, folder=tmp_path, device=torch.device("cpu"))
    with pytest.raises(ValueError, match=message):
        build(Config(train={"source": str(tmp_path / "pairs.jsonl")}, **config), context)


@pytest.mark.parametrize(("rows", "config", "message"), [
    ([{"positive": "p"}] * 3, {}, "all 3 positives are the same text, so that no query has another document"),
    ([{"positive": "p", "scores": [2, 2]}, {"positive": "q", "scores": [1.0, 1.0]}],
     {"hard_negatives": 1, "distillation": "kl"}, "has the same score for its positive and its negatives"),
])  # fmt: skip
def test_a_term_that_has_nothing_to_work_on_is_refused(rows, config, message, tmp_path):
    rows = ({"query": f"q{n}", "negatives": ["c"]} | row for n, row in enumerate(rows))
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    context = Context(seed=0, folder=tmp_path, device=torch.device("cpu"))
    with pytest.raises(ValueError, match=message):
        build(Config(train={"source": str(tmp_path / "pairs.jsonl")}, **config), context)


def test_export_opens_again_with_the_rescaled_head(tmp_path):
    model, tokenizer = encoders.load_masked_lm("embedded")
    before = model.get_output_embeddings().weight.detach().clone()
    rescale_head(model, 4.0, "untied", rescale_bias=False)
    recipe((SpladeEncoder(model), tokenizer), tmp_path).export(tmp_path / "model")
    again, _ = encoders.load_masked_lm(str(tmp_path / "model"))
    assert torch.equal(again.get_output_embeddings().weight, before / 4)
    assert torch.equal(again.get_input_embeddings().weight, before)
