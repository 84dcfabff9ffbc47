"""The seven backbones of the published SPLADE study: opened, looked at, trained, evaluated, exported, opened again."""

from __future__ import annotations

import json
import math

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from benchmarks import architectures
from tests import paper_backbones
from trainables import encoders, overrides
from trainables.data.corpora import open_corpus
from trainables.evaluation.measurement import Counting, Measurement, model_identity
from trainables.evaluation.merge_hits import merge_hits
from trainables.evaluation.shards import ShardSearch
from trainables.evaluation.suites import SUITES
from trainables.splade.config import Config
from trainables.splade.recipe import Encoder

TEXTS = [*architectures.TEXTS, architectures.LONG]
GTE = {"vocab_size": 500, "pad_token_id": 0}


@pytest.mark.parametrize("name", paper_backbones.BACKBONES)
def test_a_backbone_goes_through_the_recipe(name, tmp_path) -> None:
    torch.set_num_threads(1)
    paper_backbones.write(name, tmp_path / name, TEXTS)
    asked = architectures.settings(Config, tmp_path) | {"backbone": str(tmp_path / name)}
    assert architectures.attempt("splade", asked, tmp_path / "run") is None
    config = overrides.apply(Config(), asked)
    model = tmp_path / "run" / "model"
    corpus, topics = open_corpus(str(tmp_path / "beir"), tmp_path / "cache")
    for suite in (SUITES["beir18"], SUITES["nanobeir-st"]):
        dataset = suite.datasets[0]
        one = Measurement(
            "splade", config.model_dump(mode="json"), model, model_identity(model), corpus, topics,
            Counting(suite.metrics, dataset.own_id, dataset.relevant), "float32", tmp_path / "cache",
        )  # fmt: skip
        search = ShardSearch(one, Encoder.open(model, config, torch.device("cpu")), torch.device("cpu"))
        assert [search.search(shard) for shard in range(one.shards)] == [suite.name == "beir18"]
        found = merge_hits(one, search.folder).values
        # The queries are the documents, with their ids: one convention lets each find itself.
        assert (found["ndcg_at_10"] > 0) == dataset.own_id
        assert found["active_document"] > 0


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_gte_opens_from_the_keys_and_names_of_the_hub(kind, tmp_path) -> None:
    paper_backbones.tokenizer("gte", TEXTS).save_pretrained(tmp_path)
    model = paper_backbones.write_new(tmp_path, GTE, kind=kind)
    names = load_file(tmp_path / "model.safetensors").keys()
    assert {"new.embeddings.word_embeddings.weight", "new.encoder.layer.1.attention.qkv_proj.weight"} < names
    opened, _ = encoders.load_masked_lm(str(tmp_path))
    assert type(opened) is type(model)
    for (name, ours), theirs in zip(opened.state_dict().items(), model.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs), name
    encoder, _ = encoders.load_encoder(str(tmp_path))
    assert torch.equal(encoder.embeddings.word_embeddings.weight, model.gte.embeddings.word_embeddings.weight)


@pytest.mark.parametrize("scaling", [None, {"type": "ntk", "factor": 2.0}])
@pytest.mark.parametrize("types", [0, 2])
def test_gte_computes_what_new_is_said_to_compute(scaling, types, tmp_path) -> None:
    paper_backbones.tokenizer("gte", TEXTS).save_pretrained(tmp_path)
    config = {"type_vocab_size": types, "rope_scaling": scaling, "rope_theta": 20_000}
    paper_backbones.write_new(tmp_path, GTE, **config)
    opened, _ = encoders.load_masked_lm(str(tmp_path))
    ids = torch.arange(5, 33).view(2, 14)
    mask = torch.ones_like(ids)
    mask[1, 9:] = 0
    with torch.no_grad():
        found = opened.double().eval()(ids, attention_mask=mask).logits
    expected = _new(tmp_path, ids, mask)
    torch.testing.assert_close(found[mask.bool()], expected[mask.bool()], atol=1e-5, rtol=1e-5)


def _new(folder, ids, mask):
    """Logits (texts, L, V) in float64 of a checkpoint of `new`, by its own names, written from its definition."""
    config = json.loads((folder / "config.json").read_text())
    state = {name: value.double() for name, value in load_file(folder / "model.safetensors").items()}
    heads, width = config["num_attention_heads"], config["hidden_size"]
    size = width // heads

    def linear(x, name):
        return F.linear(x, state[f"{name}.weight"], state.get(f"{name}.bias"))

    def norm(x, name):
        return F.layer_norm(x, (width,), state[f"{name}.weight"], state[f"{name}.bias"], 1e-12)

    place, frequency = torch.arange(ids.shape[1]).double(), torch.arange(0, size, 2).double() / size
    base, by = config["rope_theta"], 1.0
    if config["rope_scaling"] is not None:
        factor = config["rope_scaling"]["factor"]
        base, by = base * factor, factor ** (2 / size)
    angles = torch.outer(place, base**-frequency / by).repeat(1, 2)

    def turned(x):
        left, right = x.chunk(2, dim=-1)
        return x * angles.cos() + torch.cat([-right, left], dim=-1) * angles.sin()

    x = state["new.embeddings.word_embeddings.weight"][ids]
    if config["type_vocab_size"]:
        x = x + state["new.embeddings.token_type_embeddings.weight"][0]
    x = norm(x, "new.embeddings.LayerNorm")
    for number in range(config["num_hidden_layers"]):
        at = f"new.encoder.layer.{number}"
        split = linear(x, f"{at}.attention.qkv_proj").chunk(3, dim=-1)
        q, k, v = (part.unflatten(2, (heads, size)).transpose(1, 2) for part in split)
        scores = turned(q) @ turned(k).transpose(2, 3) / math.sqrt(size)
        weights = scores.masked_fill(mask[:, None, None] == 0, float("-inf")).softmax(3)
        x = norm(x + linear((weights @ v).transpose(1, 2).flatten(2), f"{at}.attention.o_proj"), f"{at}.attn_ln")
        up, gate = linear(x, f"{at}.mlp.up_gate_proj").chunk(2, dim=-1)
        x = norm(x + linear(F.gelu(gate) * up, f"{at}.mlp.down_proj"), f"{at}.mlp_ln")
    x = norm(F.gelu(linear(x, "lm_head.dense")), "lm_head.norm")
    return x @ state["new.embeddings.word_embeddings.weight"].T + state["lm_head.decoder.bias"]


@pytest.mark.parametrize(("config", "said"), [
    ({"layer_norm_type": "rms_norm"}, "layer_norm_type='rms_norm', and transformers' own gte knows 'layer_norm' alone"),
    ({"logn_attention_scale": True}, "logn_attention_scale=True"),
    ({"rope_scaling": {"type": "ntk", "factor": 8.0, "mixed_b": 0.6}}, "rope_scaling=.*; trust_remote_code=true runs"),
])  # fmt: skip
def test_what_gte_cannot_do_is_refused_with_the_key(config, said, tmp_path) -> None:
    paper_backbones.tokenizer("gte", TEXTS).save_pretrained(tmp_path)
    paper_backbones.write_new(tmp_path, GTE, **config)
    with pytest.raises(ValueError, match=f"{tmp_path.name}' does not open: its config has {said}"):
        encoders.load_masked_lm(str(tmp_path))
