"""What the RetroMAE recipe refuses, how its stages and arms hang together, its collapse rules and its export."""

import json
import math

import pytest
import torch
from pydantic import ValidationError
from tokenizers.processors import TemplateProcessing

from trainables import encoders, overrides
from trainables.collapse import judge
from trainables.config import Optimiser
from trainables.context import Context
from trainables.history import History
from trainables.retromae.config import CollapseLimits, Config, Pretraining, prepare
from trainables.retromae.recipe import build
from trainables.retromae.rules import rules

WORDS = ["sort", "list", "open", "file", "read", "line", "parse", "json", "send", "make", "plot", "count"]
TEXTS = [" ".join((WORDS * 3)[i : i + 5 + i % 7]) for i in range(30)]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Overrides that name small files."""
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "text.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    (folder / "pairs.jsonl").write_text(
        "".join(json.dumps({"query": t, "positive": t[::-1], "negatives": ["no"]}) + "\n" for t in TEXTS)
    )
    (folder / "beir" / "qrels").mkdir(parents=True)
    for name in ("corpus", "queries"):
        rows = [json.dumps({"_id": str(i), "title": "", "text": text}) for i, text in enumerate(TEXTS)]
        (folder / "beir" / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
    judged = "".join(f"{i}\t{i}\t1\n" for i in range(len(TEXTS)))
    (folder / "beir" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    return {
        "pretraining.text.source": str(folder / "text.jsonl"), "train.source": str(folder / "pairs.jsonl"),
        "evaluation.source": str(folder / "beir"), "evaluation.bm25": False,
        "steps": 10, "batch_size": 6, "pretraining.batch_size": 4,
    }  # fmt: skip


@pytest.fixture
def recipe(inputs, tmp_path):
    def make(seed=0, **values):
        context = Context(seed=seed, folder=tmp_path, device=torch.device("cpu"))
        torch.manual_seed(seed)
        return build(overrides.apply(Config(), inputs | {k.replace("__", "."): v for k, v in values.items()}), context)

    return make


# What is refused.


@pytest.mark.parametrize(("values", "message"), [
    ({"encoder_mask_ratio": 0}, "encoder_mask_ratio=0: input should be greater than 0"),
    ({"encoder_mask_ratio": 1.0}, "encoder_mask_ratio=1.0: input should be less than 1"),
    ({"decoder_mask_ratio": 1.5}, "decoder_mask_ratio=1.5: input should be less than 1"),
    ({"decoder_layers": 2}, "decoder_layers is 2 and decoding is 'enhanced'.*must be 1, or decoding 'basic'"),
    ({"decoder_layers": 0, "decoding": "basic"}, "decoder_layers=0: input should be greater than 0"),
    ({"decoding": "advanced"}, "decoding='advanced': input should be 'enhanced' or 'basic'"),
    ({"pretraining.share": 1.0}, "pretraining.share=1.0: input should be less than 1"),
    (
        {f"pretraining.{name}_text.{key}": value for name in ("second", "third")
         for key, value in (("source", "embedded"), ("share", 0.5))},
        "second_text.share and third_text.share add up to 1, which leaves text.source nothing",
    ),
    ({"pretraining.second_text.share": 1.0}, "pretraining.second_text.share=1.0: input should be less than 1"),
    ({"steps": 1}, "steps is 1 and pretraining.objective 'retromae'.*at least 2"),
    ({"pretraining.max_lenght": 9}, "did you mean 'pretraining.max_length'"),
])  # fmt: skip
def test_config_that_cannot_be_honoured(values, message):
    with pytest.raises(ValueError, match=message):
        overrides.apply(Config(), values)


@pytest.mark.parametrize(("values", "message"), [
    ({"pretraining__max_length": 600}, "pretraining.max_length is 600, but backbone 'embedded' takes at most 512"),
    ({"document_length": 513}, "document_length is 513, but backbone 'embedded' takes at most 512"),
    ({"hard_negatives": 3}, "hard_negatives is 3, but 30 of 30 examples"),
])  # fmt: skip
def test_inputs_that_do_not_fit(recipe, values, message):
    with pytest.raises(ValueError, match=message):
        recipe(**values)


def test_batches_that_the_gang_cannot_share(inputs, tmp_path):
    context = Context(seed=0, folder=tmp_path, device=torch.device("cpu"), world_size=3)
    with pytest.raises(ValueError, match=r"pretraining.batch_size is 4, which 3 workers cannot share"):
        build(overrides.apply(Config(), inputs), context)


def test_a_tokenizer_whose_first_token_is_not_its_special_one(recipe, tmp_path):
    mlm, tokenizer = encoders.load_masked_lm("embedded")
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="$A [SEP]", special_tokens=[("[SEP]", 3)])
    encoders.export(mlm, tokenizer, tmp_path / "bare")
    with pytest.raises(ValueError, match="does not begin its texts with a special token"):
        recipe(backbone=str(tmp_path / "bare"))


@pytest.mark.parametrize("content", [b"", b'{"text": "caf\xe9"}\n'])
def test_text_that_is_empty_or_no_utf8_is_told_before_any_trial(inputs, tmp_path, content):
    (tmp_path / "bad.jsonl").write_bytes(content)
    config = overrides.apply(Config(), inputs | {"pretraining.text.source": str(tmp_path / "bad.jsonl")})
    with pytest.raises(ValueError, match=r"bad\.jsonl"):
        prepare(config)
    assert prepare(overrides.apply(config, {"pretraining.objective": "none"})), "nothing reads it then"


# Stages and arms.


def test_stages():
    assert [(s.name, s.steps, s.evaluated) for s in Config(steps=10).stages] == [
        ("pretrain", 4, False), ("finetune", 6, True),
    ]  # fmt: skip
    assert [s.steps for s in Config(steps=2, pretraining=Pretraining(share=0.99)).stages] == [1, 1]
    assert [s.steps for s in Config(steps=2, pretraining=Pretraining(share=0.01)).stages] == [1, 1]
    none = Config(steps=10, pretraining=Pretraining(objective="none"))
    assert [(s.name, s.steps) for s in none.stages] == [("finetune", 6)]


def same(one, other):
    return repr(one) == repr(other)


def test_arms_are_fine_tuned_on_the_same_batches_from_the_same_encoder(recipe):
    pretrained, mlm, plain = (recipe(pretraining__objective=objective) for objective in ("retromae", "mlm", "none"))
    assert same(pretrained.batch(4), plain.batch(0))
    assert same(pretrained.batch(9), plain.batch(5))
    assert same(pretrained.batch(2), mlm.batch(2))
    assert not same(pretrained.batch(2), recipe(seed=1).batch(2))
    assert mlm.model.decoder is None
    for (name, ours), theirs in zip(pretrained.model.mlm.named_parameters(), mlm.model.mlm.parameters(), strict=True):
        assert torch.equal(ours, theirs), name


def texts_of(recipe, step):
    tokens = recipe.batch(step).tokens
    return [recipe.tokenizer.decode(row, skip_special_tokens=True) for row in tokens.ids]


def test_pre_training_on_texts_of_three_sources(recipe, inputs, tmp_path):
    """A batch has each source's share, the same ones for a run that begins at any step."""
    mixed = {}
    for name in ("second", "third"):
        path = tmp_path / f"{name}.txt"
        path.write_text("\n\n".join(f"{name} {word}" for word in WORDS))
        mixed |= {f"pretraining.{name}_text.source": str(path), f"pretraining.{name}_text.share": 0.25}
    found = recipe(**mixed)
    steps = [texts_of(found, step) for step in range(4)]
    for texts in steps:
        assert sorted(text.split()[0] for text in texts if text.split()[0] in ("second", "third")) == [
            "second",
            "third",
        ]
        assert sum(text.split()[0] in WORDS for text in texts) == 2
    assert [texts_of(recipe(**mixed), step) for step in (3, 1)] == [steps[3], steps[1]]
    facts = prepare(overrides.apply(Config(), inputs | mixed)).facts
    assert facts["data.text"] == "text.jsonl (0.5) + second.txt (0.25) + third.txt (0.25)"
    assert facts["data.text.identity"] == found.description["text.identity"]
    assert found.description["text.size"] == 30 + 2 * len(WORDS)


def test_a_basic_decoder_as_deep_as_the_encoder_or_deeper(recipe):
    layers = recipe().model.mlm.config.num_hidden_layers
    for count in (layers, layers + 2):
        found = recipe(decoding="basic", decoder_layers=count)
        loss, signals = found.loss(found.batch(0), 0)
        loss.backward()
        assert math.isfinite(signals["decoder_loss"])
        assert len(found.model.decoder.layers) == count
        assert all(layer.query.weight.grad.abs().sum() > 0 for layer in found.model.decoder.layers)


def test_ratios_do_not_change_what_a_batch_holds(recipe):
    """So that arms of a comparison have equal data."""
    assert same(recipe(encoder_mask_ratio=0.1).batch(1), recipe(encoder_mask_ratio=0.5).batch(1))


def test_packed_texts_are_as_long_as_they_may_be(recipe):
    made = recipe(pretraining__text__packed=True, pretraining__max_length=24)
    mask = made.batch(0).tokens.mask
    assert mask.shape[1] == 24
    assert mask.double().mean() > 0.85
    assert made.loss(made.batch(0), 0)[0].isfinite()


def test_loss_is_a_function_of_seed_and_step(recipe):
    one, other = recipe(), recipe()
    for step in (0, 3):
        torch.manual_seed(step)  # nothing but dropout may draw from it, and this backbone has none
        assert one.loss(one.batch(step), step)[0] == other.loss(other.batch(step), step)[0]
    text = one.batch(0)
    assert one.loss(text, 0)[0] == one.loss(text, 0)[0]


@pytest.mark.parametrize("decoding", ["enhanced", "basic"])
def test_both_ratios_act(recipe, decoding):
    def measured(**ratios):
        made = recipe(decoding=decoding, **ratios)
        return made.loss(made.batch(1), 1)[1]

    usual, encoder, decoder = measured(), measured(encoder_mask_ratio=0.6), measured(decoder_mask_ratio=0.9)
    assert usual["encoder_loss"] != encoder["encoder_loss"]
    assert usual["encoder_loss"] == decoder["encoder_loss"]
    assert usual["decoder_loss"] != decoder["decoder_loss"]


def test_the_embedding_is_measured_every_so_often(recipe):
    made = recipe(steps=20, pretraining__probe_every=3)
    assert [
        "embedding_gain" in made.loss(made.batch(step), step)[1] for step in range(made.config.pretraining_steps)
    ] == [step % 3 == 0 for step in range(8)]


def test_fine_tuning_leaves_head_and_decoder_alone(recipe):
    made = recipe()
    for step, trained in ((0, True), (4, False)):
        made.model.zero_grad(set_to_none=True)
        made.loss(made.batch(step), step)[0].backward()
        unused = made.model.unused_in_finetuning()
        assert {parameter.grad is not None for parameter in unused} == {trained}
    embeddings = made.model.mlm.get_input_embeddings().weight
    assert embeddings.grad is not None, "shared with the head, but the encoder's own"


@pytest.mark.parametrize("decoding", ["enhanced", "basic"])
def test_a_step_lowers_the_loss_of_its_batch(recipe, decoding):
    made = recipe(decoding=decoding)
    optimiser = torch.optim.AdamW(made.parameter_groups(0.0), lr=1e-3)
    batch, losses = made.batch(0), []
    for _ in range(8):
        loss, signals = made.loss(batch, 0)
        losses.append([signals[name].item() for name in ("encoder_loss", "decoder_loss")])
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    assert losses[-1][0] < losses[0][0]
    assert losses[-1][1] < losses[0][1] - 0.5


# The export.


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_export_opens_as_backbone_and_in_sentence_transformers(recipe, tmp_path, similarity):
    from sentence_transformers import SentenceTransformer

    made = recipe(similarity=similarity)
    (tmp_path / "model").mkdir()
    made.export(tmp_path / "model")
    again, tokenizer = encoders.load_masked_lm(str(tmp_path / "model"))
    assert encoders.longest_input(again, tokenizer) == 512, "fine-tuning lengths are no limit of the backbone"
    for (name, ours), theirs in zip(made.model.mlm.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(ours, theirs), name
    texts = [*TEXTS[:3], "a longer text " * 40]
    theirs = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    assert theirs.similarity_fn_name == similarity
    made.model.eval()
    with torch.inference_mode():
        ours = made.encoder.documents(texts)
    torch.testing.assert_close(theirs.encode(texts, convert_to_tensor=True), ours, rtol=1e-4, atol=1e-5)


# Collapse.

STEPS, PRETRAINING, ENTROPY = 200, 80, 6.5
CHANCE = math.log(32)


def history(steps=STEPS, pretrained=PRETRAINING, **signals):
    """`steps` entries of a healthy run, with some signals replaced by functions of the step (from 0)."""
    pretraining = {
        "encoder_loss": lambda t: 3.0,
        "decoder_loss": lambda t: 4.0 + 5 * math.exp(-t / 6),
        "embedding_gain": lambda t: 0.02,
    }
    finetuning = {"contrastive": lambda t: 2.0, "candidates": lambda t: 32.0, "accuracy": lambda t: 0.4}
    entries = []
    for t in range(steps):
        stage = pretraining if t < pretrained else finetuning
        names = {"spread": lambda t: 0.3} | stage
        entry = {name: signals.get(name, signal)(t) for name, signal in names.items()}
        if t % 10 or t >= pretrained:
            entry.pop("embedding_gain", None)
        entry["loss"] = entry.get("contrastive", entry.get("encoder_loss", 0) + entry.get("decoder_loss", 0))
        entries.append(entry | {"grad_norm": 1.0})
    return entries


def verdict(entries, entropy=ENTROPY, limits=None, steps=STEPS, **config):
    """Step of the run and reason of its end, or None."""
    limits = CollapseLimits(**{"decoder_grace": 1} | (limits or {}))
    asked = Config(steps=steps, collapse_limits=limits, **config)
    applied, past = rules(asked, entropy), None
    for step, signals in enumerate(entries, start=1):
        stage, place = asked.stage_of(step - 1)
        if place == 0:
            past = History(stage.name, stage.steps) if past is None else past.then(stage.name, stage.steps)
        past.add(signals)
        reason = judge(past, applied)
        if reason is not None:
            return step, reason
    return None


def test_a_healthy_run_is_left_alone():
    assert verdict(history()) is None


def test_a_decoder_that_stays_at_the_unigram_entropy_stops_after_the_grace():
    step, reason = verdict(history(decoder_loss=lambda t: 6.6))
    assert step == 20
    assert "decoder loss 6.6 against 6.5 of a model that knows only how frequent each token is" in reason
    assert verdict(history(decoder_loss=lambda t: 6.6), limits={"grace": 0.5})[0] == 40
    assert verdict(history(decoder_loss=lambda t: 6.6), limits={"decoder_grace": 70})[0] == 70


def test_a_decoder_that_falls_slowly_has_until_the_deadline():
    step, reason = verdict(history(decoder_loss=lambda t: 30 * 0.99**t))
    assert step == 40
    assert "after 40 of 80 steps, and falling too slowly" in reason
    assert verdict(history(decoder_loss=lambda t: 30 * 0.97**t)) is None, "it reaches the entropy by the end"


def test_a_decoder_that_has_beaten_the_entropy_by_little_is_left_alone():
    """A basic decoder takes hundreds of steps for a few hundredths: seen at 6.475 against 6.591 after 539 steps."""
    assert verdict(history(decoder_loss=lambda t: 6.475), entropy=6.591) is None


def test_mlm_is_judged_by_its_encoder():
    entries = history(encoder_loss=lambda t: 6.6)
    mlm = Pretraining(objective="mlm")
    assert "encoder loss 6.6" in verdict(entries, pretraining=mlm)[1]
    assert verdict(entries) is None, "with a decoder it is the decoder that begins at chance"


def test_a_decoder_that_ignores_the_embedding():
    step, reason = verdict(history(embedding_gain=lambda t: 0.0002))
    assert step == 50, "five measurements, one in ten steps"
    assert "ignores the embedding" in reason
    assert verdict(history(embedding_gain=lambda t: 0.0002 if t < 30 else 0.02)) is None
    assert verdict(history(embedding_gain=lambda t: 0.0002), limits={"decoder_grace": 70})[0] == 70


def test_a_span_without_a_measurement_of_the_embedding_is_no_reason():
    """A probe may be rarer than the blocks that a long run is judged by."""
    gaps = [entry if n % 1_000 == 0 else {k: v for k, v in entry.items() if k != "embedding_gain"}
            for n, entry in enumerate(history(steps=3_100, pretrained=3_100))]  # fmt: skip
    asked = {"probe_every": 1_000, "objective": "retromae"}
    assert verdict(gaps, limits={"probes": 1}, steps=12_345, pretraining=asked) is None


def test_a_loss_that_jumps_and_stays():
    step, reason = verdict(history(decoder_loss=lambda t: 2.0 if t < 50 else 6.0, encoder_loss=lambda t: 2.0))
    assert 55 <= step <= 60
    assert "jumped from 4 to 6" in reason
    assert verdict(history(decoder_loss=lambda t: 40.0 if t in (50, 51, 60) else 4.0)) is None


def test_the_first_fine_tuning_steps_are_not_compared_with_pretraining():
    assert verdict(history(contrastive=lambda t: 40.0 if t < PRETRAINING + 5 else 2.0)) is None


def test_embeddings_that_become_one_point_in_either_stage():
    for start, window in ((20, 10), (120, 12)):
        step, reason = verdict(history(spread=lambda t, start=start: 0.3 if t < start else 1e-7))
        assert step == start + window
        assert "one direction" in reason


def test_fine_tuning_at_chance():
    guessing = {"contrastive": lambda t: CHANCE, "accuracy": lambda t: 1 / 32}
    step, reason = verdict(history(**guessing))
    assert step == PRETRAINING + 24
    assert "contrastive loss 3.466 against 3.466 of a model that guesses" in reason
    warm = verdict(history(**guessing), optimiser=Optimiser(warmup=0.5))
    assert warm[0] == PRETRAINING + 60 + 12, "a window behind the warm-up"
    none = Pretraining(objective="none")
    entries = history(**guessing)[PRETRAINING:]
    assert verdict(entries, entropy=None, pretraining=none)[0] == 24


@pytest.mark.parametrize("steps", [250, 2_500, 50_000])
def test_both_stages_are_judged_by_shares_of_their_steps(steps):
    """Losses that fall all along, by little in ten steps of a long run, and ones that do not."""
    first = round(0.4 * steps)

    def course(before, after):
        entries = history(steps, first, **{
            "decoder_loss": lambda t: before(t / first), "contrastive": lambda t: after((t - first) / (steps - first)),
            "accuracy": lambda t: 1 / 32 if t < first + 0.25 * (steps - first) else 0.5,
        })  # fmt: skip
        return verdict(entries, steps=steps)

    def falls(x):
        return 60 * math.exp(-6 * x)

    assert course(falls, lambda x: 60 * math.exp(-12 * x)) is None
    step, reason = course(lambda x: 6.6, falls)
    assert step == pytest.approx(0.2 * first, rel=0.02)
    assert "decoder loss" in reason
    step, reason = course(falls, lambda x: CHANCE)
    assert step == pytest.approx(first + 0.2 * (steps - first), rel=0.02)
    assert "contrastive loss" in reason


def test_non_finite_loss():
    entries = history(30)
    entries[4]["loss"] = math.nan
    assert verdict(entries) == (5, "loss is nan at step 5")


def test_an_unknown_key_is_refused():
    with pytest.raises(ValidationError, match="Extra inputs"):
        Config(mask_ratio=0.3)
