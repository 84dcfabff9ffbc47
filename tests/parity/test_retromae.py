"""RetroMAE's masks, decoders and losses against plain computations, and what may not leak through them."""

import json
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import (
    AlbertConfig,
    AutoModelForMaskedLM,
    BertConfig,
    DistilBertConfig,
    ModernBertConfig,
    PreTrainedConfig,
    RobertaConfig,
)

from tests.gang import run_gang
from trainables.retromae import decoder as decoders
from trainables.retromae.decoder import Decoder
from trainables.retromae.losses import cross_entropy_sum
from trainables.retromae.masking import visible_sets
from trainables.retromae.model import RetroMAE

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-9}
SHAPE = {"vocab_size": 60, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 24}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}


def _gte():
    from transformers import GteConfig

    return GteConfig(**SHAPE, max_position_embeddings=20)


def _eurobert():
    from transformers import EuroBertConfig

    return EuroBertConfig(**SHAPE, num_key_value_heads=2, head_dim=8, max_position_embeddings=20, pad_token_id=0)


def _roformer():
    from transformers import RoFormerConfig

    return RoFormerConfig(**SHAPE, embedding_size=16, max_position_embeddings=20)


CONFIGS = {
    "bert": lambda: BertConfig(**SHAPE, max_position_embeddings=20),
    "distilbert": lambda: DistilBertConfig(
        vocab_size=60, max_position_embeddings=20, dim=16, n_heads=2, n_layers=2, hidden_dim=24
    ),
    "roberta": lambda: RobertaConfig(**SHAPE, max_position_embeddings=20, pad_token_id=1),
    "eurobert": _eurobert,
    "roformer": _roformer,
    "modernbert": lambda: ModernBertConfig(**SHAPE, **SPECIAL, max_position_embeddings=20, decoder_bias=True),
    "gte": _gte,
}


def random_model(name, layers=1):
    """RetroMAE in float64 with random weights everywhere, without dropout."""
    torch.manual_seed(0)
    mlm = AutoModelForMaskedLM.from_config(CONFIGS[name]())
    model = RetroMAE(mlm, Decoder(mlm.base_model, layers)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    return model


@pytest.fixture(params=CONFIGS)
def model(request):
    return random_model(request.param)


IDS = torch.tensor([[2, 11, 12, 13, 14, 3], [2, 21, 22, 3, 0, 0]])
MASK = (IDS != 0).long()
SEEDS = torch.tensor([5, 6])


def close(actual, expected):
    tolerance = TOLERANCE[expected.dtype]
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


# The visible sets.

BATCHES = st.lists(st.integers(1, 24), min_size=1, max_size=5)
RATIOS = st.floats(0.05, 0.95)
SEED = st.integers(-(2**63), 2**63 - 1)


def lengths_mask(lengths, length=24):
    return (torch.arange(length) < torch.tensor(lengths).unsqueeze(1)).long()


def seeds_of(seed, texts):
    return torch.tensor([seed ^ (i * 7919) for i in range(texts)])


@settings(max_examples=60, deadline=None)
@given(BATCHES, RATIOS, SEED)
def test_what_every_visible_set_holds(lengths, ratio, seed):
    mask = lengths_mask(lengths)
    visible = visible_sets(mask, ratio, seeds_of(seed, len(lengths)))
    assert visible.dtype == torch.bool
    assert not visible.diagonal(dim1=1, dim2=2).any(), "a position sees itself"
    assert visible[:, 1:, 0].all(), "a position does not see the embedding"
    assert not (visible & ~mask.bool().unsqueeze(1))[:, :, 1:].any(), "padding is seen"
    padding = visible[~mask.bool()]
    assert padding[:, 0].all()
    assert not padding[:, 1:].any(), "padding sees a token"


@settings(max_examples=40, deadline=None)
@given(BATCHES, RATIOS, SEED)
def test_a_text_has_its_own_stream(lengths, ratio, seed):
    mask, seeds = lengths_mask(lengths), seeds_of(seed, len(lengths))
    together = visible_sets(mask, ratio, seeds)
    assert torch.equal(together, visible_sets(mask, ratio, seeds))
    for text, tokens in enumerate(lengths):
        alone = visible_sets(mask[text : text + 1, :tokens], ratio, seeds[text : text + 1])[0]
        assert torch.equal(together[text, :tokens, :tokens], alone)


@settings(max_examples=20, deadline=None)
@given(RATIOS, SEED)
def test_the_rate_is_what_it_says(ratio, seed):
    length = 96
    visible = visible_sets(torch.ones(4, length).long(), ratio, seeds_of(seed, 4))
    free = ~torch.eye(length, dtype=torch.bool)
    free[1:, 0] = False
    drawn = visible[:, free].double()
    # Six deviations of a mean of independent draws: rows and columns of every set as well as all of them.
    for part in (drawn.flatten(), visible[:, 5, 6:].double().flatten(), visible[:, 6:, 5].double().flatten()):
        assert abs(part.mean().item() - (1 - ratio)) < 6 * math.sqrt(ratio * (1 - ratio) / part.numel())


@pytest.mark.parametrize("ratio", [1e-9, 1 - 1e-9])
def test_the_rate_of_extreme_ratios(ratio):
    visible = visible_sets(torch.ones(1, 64).long(), ratio, torch.tensor([1]))[0, 1:, 1:]
    assert abs(visible.sum().item() - (1 - ratio) * 63 * 62) < 10


def test_every_row_and_every_text_has_a_sample_of_its_own():
    visible = visible_sets(torch.ones(2, 64).long(), 0.5, torch.tensor([1, 2]))
    rows = {tuple(row) for row in visible[0, 1:].tolist()}
    assert len(rows) == 63
    assert not torch.equal(visible[0], visible[1])


# The enhanced decoder.


class Plain(nn.Module):
    """A backbone that is nothing but embeddings, with absolute positions."""

    def __init__(self, tokens, positions):
        super().__init__()
        self.config = PreTrainedConfig(hidden_size=tokens.shape[1], num_attention_heads=2, initializer_range=0.5)
        self.words = nn.Embedding.from_pretrained(tokens, freeze=False)
        self.position_embeddings = nn.Embedding.from_pretrained(positions, freeze=False)

    def get_input_embeddings(self):
        return self.words

    def embeddings(self, input_ids):
        return self.words(input_ids) + self.position_embeddings.weight[: input_ids.shape[1]]


def by_hand(embedding, tokens, positions, layer, visible):
    """Loss of one text of token ids 0..3, position by position and number by number, in plain Python.

    Everything is nested lists of floats; `layer` maps names of the decoder's parameters to theirs. Logits are
    dot products with the tokens' own embeddings.
    """

    def affine(name, x):
        return [
            sum(w * v for w, v in zip(row, x, strict=True)) + b
            for row, b in zip(layer[f"{name}.weight"], layer[f"{name}.bias"], strict=True)
        ]

    def norm(name, x):
        mean = sum(x) / len(x)
        deviation = math.sqrt(sum((v - mean) ** 2 for v in x) / len(x) + 1e-5)
        gains = zip(x, layer[f"{name}.weight"], layer[f"{name}.bias"], strict=True)
        return [(v - mean) / deviation * w + b for v, w, b in gains]

    def add(x, y):
        return [a + b for a, b in zip(x, y, strict=True)]

    size = len(embedding) // 2
    context = [embedding] + [add(tokens[j], positions[j]) for j in range(1, 4)]
    loss = 0.0
    for i in range(1, 4):
        query = add(embedding, positions[i])
        q = affine("query", query)
        seen = [j for j in range(4) if visible[i][j]]
        attended = []
        for head in range(2):
            part = slice(head * size, (head + 1) * size)
            keys = [affine("key", context[j])[part] for j in seen]
            scores = [math.exp(sum(a * b for a, b in zip(q[part], k, strict=True)) / math.sqrt(size)) for k in keys]
            values = [affine("value", context[j])[part] for j in seen]
            attended += [sum(s * v[d] for s, v in zip(scores, values, strict=True)) / sum(scores) for d in range(size)]
        state = norm("attention_norm", add(query, affine("output", attended)))
        inner = [v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in affine("up", state)]
        state = norm("output_norm", add(state, affine("down", inner)))
        logits = [sum(a * b for a, b in zip(state, word, strict=True)) for word in tokens]
        loss += math.log(sum(map(math.exp, logits))) - logits[i]
    return loss


def test_enhanced_decoding_by_hand():
    """Four tokens: the value, and its gradient by the embedding and by the token embeddings, from differences."""
    torch.manual_seed(3)
    tokens, positions, embedding = (torch.randn(n, 4, dtype=torch.float64) for n in (4, 4, 1))
    backbone = Plain(tokens.clone(), positions)
    decoder = Decoder(backbone, 1).double()
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.5)
    visible = torch.tensor([[[0, 1, 0, 1], [1, 0, 1, 0], [1, 1, 0, 1], [1, 0, 0, 0]]]).bool()
    ids = torch.arange(4).unsqueeze(0)
    embedding.requires_grad_()
    states = decoder.enhanced(backbone, embedding, ids, visible)
    loss = cross_entropy_sum(states[0], backbone.words.weight, None, ids[0, 1:], chunk=2)
    loss.backward()

    layer = {name: value.tolist() for name, value in decoder.layers[0].named_parameters()}

    def value(h, e):
        return by_hand(h.tolist(), e.tolist(), positions.tolist(), layer, visible[0].tolist())

    h = embedding.detach()[0]
    assert loss.item() == pytest.approx(value(h, tokens), rel=1e-12)

    def slope(table, move):
        moved = torch.zeros_like(table)
        for place in range(table.numel()):
            step = torch.zeros_like(table).view(-1)
            step[place] = 1e-5
            step = step.view_as(table)
            moved.view(-1)[place] = (move(table + step) - move(table - step)) / 2e-5
        return moved

    torch.testing.assert_close(embedding.grad[0], slope(h, lambda x: value(x, tokens)), rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(backbone.words.weight.grad, slope(tokens, lambda x: value(h, x)), rtol=1e-6, atol=1e-8)


def logits_of(model, embedding, ids, visible):
    states = model.decoder.enhanced(model.backbone, embedding, ids, visible)
    return model.mlm.get_output_embeddings().weight @ states.transpose(1, 2)


@torch.no_grad()
def test_a_token_reaches_its_own_logits_only_through_the_embedding(model):
    """With the embedding held fixed, changing token j moves the positions that see j and no others."""
    visible = visible_sets(MASK, 0.4, SEEDS)
    embedding = torch.randn(2, 16, dtype=torch.float64)
    before = logits_of(model, embedding, IDS, visible)
    for j in range(1, 6):
        changed = IDS.clone()
        changed[:, j] = 40
        moved = (logits_of(model, embedding, changed, visible) != before).any(1)
        assert torch.equal(moved, visible[:, 1:, j])
    assert not torch.equal(logits_of(model, embedding + 0.1, IDS, visible), before)


def test_padding_and_short_texts_give_no_nan(model):
    """Texts down to a lone first token, hardly anything visible: values and gradients stay finite."""
    ids = torch.tensor([[2, 11, 3, 0], [2, 0, 0, 0], [2, 3, 0, 0]])
    mask = (ids != 0).long()
    embedding = torch.randn(3, 16, dtype=torch.float64, requires_grad=True)
    visible = visible_sets(mask, 0.99, torch.tensor([1, 2, 3]))
    for states in (
        model.decoder.enhanced(model.backbone, embedding, ids, visible),
        model.decoder.basic(model.backbone, embedding, ids, mask),
    ):
        assert states.isfinite().all()
        states.square().sum().backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        assert all(gradient.isfinite().all() for gradient in [*gradients, embedding.grad])


@torch.no_grad()
def test_a_position_is_recoverable_where_only_the_embedding_is_seen(model, monkeypatch):
    """Then distances to tokens say nothing: what tells two positions apart is what the query adds to the embedding."""
    ids = IDS[:1]
    embedding = torch.randn(1, 16, dtype=torch.float64)
    alone = torch.zeros(1, 6, 6, dtype=torch.bool)
    alone[:, 1:, 0] = True
    states = model.decoder.enhanced(model.backbone, embedding, ids, alone)[0]
    assert torch.pdist(states).min() > 1e-3
    real = decoders._positions
    monkeypatch.setattr(decoders, "_positions", lambda *given: (torch.zeros(6, 16), real(*given)[1]))
    without = model.decoder.enhanced(model.backbone, embedding, ids, alone)[0]
    torch.testing.assert_close(without, without[:1].expand_as(without))


@pytest.mark.parametrize("heads", [2, 12])
def test_no_two_positions_of_a_rope_backbone_are_alike(heads):
    """All of ModernBERT's 8,192 positions with heads of its size, and in heads as small as 16."""
    config = ModernBertConfig(**SHAPE | {"hidden_size": 16 * heads, "num_attention_heads": heads}, **SPECIAL)
    backbone = AutoModelForMaskedLM.from_config(config).base_model
    p, _ = decoders._positions(backbone, torch.zeros(1, 8192, 16 * heads))
    # A distance depends on how far two positions are apart only, so those from the first one are all there are.
    assert torch.cdist(p[:1], p)[0, 1:].min() > 0.3 * decoders.AMPLITUDE


def test_rope_scores_depend_on_the_distance_alone():
    """Turning is the backbone's own: equal to transformers' function, and only relative positions count."""
    from transformers.models.modernbert.modeling_modernbert import apply_rotary_pos_emb

    model = random_model("modernbert")
    like = torch.zeros(1, 10, 16, dtype=torch.float64)
    _, (cos, sin) = decoders._positions(model.backbone, like)
    q, k = torch.randn(2, 1, 2, 1, 8, dtype=torch.float64).expand(2, 1, 2, 10, 8)
    ours = decoders._turn(q, (cos, sin)), decoders._turn(k, (cos, sin))
    for mine, theirs in zip(ours, apply_rotary_pos_emb(q, k, cos[None], sin[None]), strict=True):
        torch.testing.assert_close(mine.float(), theirs.float())
    scores = ours[0] @ ours[1].transpose(2, 3)
    torch.testing.assert_close(scores[..., 2:, 2:], scores[..., :-2, :-2], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(decoders._turn(q[:, :, 1:], (cos, sin)), ours[0][:, :, 1:])


@torch.no_grad()
def test_basic_decoding_sees_both_sides_and_no_padding(model):
    embedding = torch.randn(2, 16, dtype=torch.float64)
    states = model.decoder.basic(model.backbone, embedding, IDS, MASK)
    changed = IDS.clone()
    changed[0, 2] = 40
    assert (model.decoder.basic(model.backbone, embedding, changed, MASK) != states)[0].any(1).all()
    if "roberta" not in type(model.mlm).__name__.lower():  # reads its mask off the ids
        changed = torch.where(MASK.bool(), IDS, 40)
        padded = model.decoder.basic(model.backbone, embedding, changed, MASK)
        close(padded[MASK.bool()], states[MASK.bool()])


def test_three_basic_layers():
    one, three = random_model("bert", 1), random_model("bert", 3)
    embedding = torch.randn(2, 16, dtype=torch.float64)
    assert len(three.decoder.layers) == 3
    assert not torch.equal(
        one.decoder.basic(one.backbone, embedding, IDS, MASK),
        three.decoder.basic(three.backbone, embedding, IDS, MASK),
    )


# The head and its loss.


@torch.no_grad()
def test_head_on_any_states_is_the_models_own(model):
    """The encoder's loss equals that of transformers' logits on the same tokens."""
    wanted = MASK.bool()
    logits = model.mlm(input_ids=IDS, attention_mask=MASK).logits
    theirs = F.cross_entropy(logits[wanted], IDS[wanted], reduction="sum")
    close(model.cross_entropy(model.states(IDS, MASK)[wanted], IDS[wanted], chunk=3), theirs)


def test_backbones_that_do_not_fit_are_refused():
    albert = AutoModelForMaskedLM.from_config(AlbertConfig(**SHAPE, embedding_size=8, max_position_embeddings=20))
    with pytest.raises(ValueError, match="token embeddings of 8 and states of 16"):
        Decoder(albert.base_model, 1)
    placeless = Plain(torch.randn(4, 4), torch.randn(4, 4))
    del placeless.position_embeddings
    with pytest.raises(ValueError, match="neither a table of absolute positions nor one rotary module"):
        Decoder(placeless, 1)


def head_inputs(kind, rows=23, width=6, vocabulary=31):
    torch.manual_seed(1)
    tensors = torch.randn(rows, width), torch.randn(vocabulary, width), torch.randn(vocabulary)
    return *(t.to(kind).requires_grad_() for t in tensors), torch.randint(vocabulary, (rows,))


@pytest.mark.parametrize("kind", TOLERANCE)
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("chunk", [1, 7, 23, 100])
def test_chunked_cross_entropy(kind, with_bias, chunk):
    hidden, weight, bias, targets = head_inputs(kind)
    if not with_bias:
        bias = None
    leaves = [hidden, weight, *([bias] if with_bias else [])]
    theirs = F.cross_entropy(F.linear(hidden, weight, bias), targets, reduction="sum")
    ours = cross_entropy_sum(hidden, weight, bias, targets, chunk)
    torch.testing.assert_close(ours, theirs, rtol=TOLERANCE[kind], atol=TOLERANCE[kind])
    for mine, other in zip(torch.autograd.grad(3 * ours, leaves), torch.autograd.grad(3 * theirs, leaves), strict=True):
        close(mine, other)


def test_chunked_cross_entropy_gradcheck():
    hidden, weight, bias, targets = head_inputs(torch.float64, rows=5, width=3, vocabulary=4)
    assert torch.autograd.gradcheck(lambda h, w, b: cross_entropy_sum(h, w, b, targets, 2), (hidden, weight, bias))


def test_chunked_cross_entropy_of_large_scores_and_of_nothing():
    hidden, weight, bias, targets = head_inputs(torch.float32)
    large = cross_entropy_sum(1e4 * hidden, weight, bias, targets, 4)
    torch.testing.assert_close(large, F.cross_entropy(F.linear(1e4 * hidden, weight, bias), targets, reduction="sum"))
    nothing = cross_entropy_sum(hidden[:0], weight, bias, targets[:0], 4)
    nothing.backward()
    assert nothing.item() == 0
    assert not weight.grad.any()
    with torch.no_grad():
        assert not cross_entropy_sum(hidden, weight, bias, targets, 4).requires_grad


def test_chunked_cross_entropy_under_bf16_autocast():
    hidden, weight, bias, targets = head_inputs(torch.float32)
    exact = cross_entropy_sum(hidden, weight, bias, targets, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = cross_entropy_sum(hidden.bfloat16(), weight, bias, targets, 4)
    assert loss.dtype == torch.float32
    assert loss != exact, "autocast must reach the product"
    torch.testing.assert_close(loss, exact, rtol=0.02, atol=0.0)
    loss.backward()
    assert weight.grad.dtype == hidden.grad.dtype == torch.float32
    expected = torch.autograd.grad(exact, weight)[0]
    torch.testing.assert_close(weight.grad, expected, rtol=0.1, atol=0.1)


# Two workers.


def measure(rank: int, folder: Path, world_size: int) -> None:
    """Losses, signals and parameter gradients of a step of each stage, summed over the gang, from each rank."""
    import torch.distributed as dist

    from trainables import distributed
    from trainables.context import Context
    from trainables.retromae.config import Config
    from trainables.retromae.recipe import build

    torch.set_num_threads(1)
    if world_size > 1:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world_size)
    context = Context(seed=3, folder=folder, device=torch.device("cpu"), rank=rank, world_size=world_size)
    tensors = {}
    for decoding in ("enhanced", "basic"):
        config = Config(**json.loads((folder / "config.json").read_text()), decoding=decoding)
        torch.manual_seed(7)
        recipe = build(config, context)
        recipe.model.double().train()
        for name, step in (("pretrain", 0), ("finetune", config.pretraining_steps)):
            loss, signals = recipe.loss(recipe.batch(step), step)
            loss.backward()
            distributed.sum_gradients(recipe.model.parameters())
            key = f"{decoding}.{name}"
            tensors[f"{key}.loss"] = loss.detach().clone()
            for signal, value in signals.items():
                tensors[f"{key}.signal.{signal}"] = torch.as_tensor(value).detach().double().clone()
            for parameter, value in recipe.model.named_parameters():
                if value.grad is not None:
                    tensors[f"{key}.gradient.{parameter}"] = value.grad.clone()
            recipe.model.zero_grad(set_to_none=True)
    save_file(tensors, folder / f"{world_size}-{rank}.safetensors")
    if world_size > 1:
        dist.destroy_process_group()


def test_two_workers_compute_what_one_does(tmp_path):
    """In float64, where only a wrong formula or a mask drawn by rank can make a difference."""
    words = ["sort", "list", "open", "file", "read", "line", "parse", "json", "send", "make", "plot", "count"]
    texts = [" ".join((words * 3)[i : i + 4 + i % 9]) for i in range(24)]
    (tmp_path / "text.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (tmp_path / "pairs.jsonl").write_text(
        "".join(json.dumps({"query": t, "positive": " ".join(t.split()[::-1])}) + "\n" for t in texts)
    )
    beir = tmp_path / "beir"
    (beir / "qrels").mkdir(parents=True)
    for name in ("corpus", "queries"):
        (beir / f"{name}.jsonl").write_text(
            "".join(json.dumps({"_id": str(i), "title": "", "text": text}) + "\n" for i, text in enumerate(texts))
        )
    (beir / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\n" + "".join(f"{i}\t{i}\t1\n" for i in range(len(texts)))
    )
    (tmp_path / "config.json").write_text(json.dumps({
        "batch_size": 8, "evaluation": {"source": str(beir)}, "train": {"source": str(tmp_path / "pairs.jsonl")},
        "pretraining": {"batch_size": 8, "text": {"source": str(tmp_path / "text.jsonl")}},
    }))  # fmt: skip
    run_gang(measure, 2, tmp_path, 2)
    measure(0, tmp_path, 1)
    alone = load_file(tmp_path / "1-0.safetensors")
    assert {"enhanced.pretrain.signal.embedding_gain", "basic.finetune.signal.contrastive"} <= alone.keys()
    assert not any(key.startswith("enhanced.finetune.gradient.decoder") for key in alone)
    for rank in (0, 1):
        gang = load_file(tmp_path / f"2-{rank}.safetensors")
        assert gang.keys() == alone.keys()
        for key, value in alone.items():
            torch.testing.assert_close(gang[key], value, rtol=1e-9, atol=1e-9)
