"""Rescaling the masked-LM head of each architecture, on small random weights, and refusing checkpoints without one."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import (
    AlbertConfig,
    AutoModelForMaskedLM,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    DistilBertConfig,
    ModernBertConfig,
    ModernBertModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
)

from trainables import encoders
from trainables.encoders import Tokens
from trainables.recipe import parameter_groups
from trainables.splade.model import SpladeEncoder, rescale_head

SHAPE = {"vocab_size": 60, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 24}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}


def _gte():
    from transformers import GteConfig

    return GteConfig(**SHAPE, max_position_embeddings=20)


CONFIGS = {
    "bert": lambda: BertConfig(**SHAPE, max_position_embeddings=20),
    "distilbert": lambda: DistilBertConfig(
        vocab_size=60, max_position_embeddings=20, dim=16, n_heads=2, n_layers=2, hidden_dim=24
    ),
    "albert": lambda: AlbertConfig(**SHAPE, embedding_size=8, max_position_embeddings=20),
    "roberta": lambda: RobertaConfig(**SHAPE, max_position_embeddings=20, pad_token_id=1),
    "modernbert": lambda: ModernBertConfig(**SHAPE, **SPECIAL, max_position_embeddings=20, decoder_bias=True),
    "gte": _gte,
}
IDS = torch.arange(4, 14).view(2, 5)
TOKENS = Tokens(IDS, torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]))


@pytest.fixture(params=CONFIGS)
def mlm(request):
    """Random weights everywhere, biases included, and tied as the architecture ties them."""
    torch.manual_seed(0)
    model = AutoModelForMaskedLM.from_config(CONFIGS[request.param]()).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    return model


@pytest.fixture(scope="module")
def tokenizer():
    """Of 57 tokens, so that three of the 60 outputs stand for none."""
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    words = [*special.values(), "a", "text", *(f"word{i}" for i in range(50))]
    made = Tokenizer(WordLevel({word: place for place, word in enumerate(words)}, unk_token="[UNK]"))
    made.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, **special)


def logits_of(model):
    with torch.no_grad():
        return model(IDS, attention_mask=TOKENS.mask).logits[TOKENS.mask.bool()]


@pytest.mark.parametrize("rescale", ["tied", "untied"])
@pytest.mark.parametrize("rescale_bias", [False, True])
def test_decoder_on_a_fixed_hidden_state(mlm, rescale, rescale_bias):
    decoder = mlm.get_output_embeddings()
    hidden = torch.randn(3, decoder.in_features)
    product, bias = hidden @ decoder.weight.detach().T, decoder.bias.detach().clone()
    rescale_head(mlm, 3.0, rescale, rescale_bias)
    expected = product / 3 + (bias / 3 if rescale_bias else bias)
    torch.testing.assert_close(mlm.get_output_embeddings()(hidden), expected)


@pytest.mark.parametrize("k", [0.25, 3.0, 64.0])
def test_untied_logits_divide_by_k(mlm, k):
    before = logits_of(mlm)
    inputs = mlm.get_input_embeddings().weight.detach().clone()
    rescale_head(mlm, k, "untied", rescale_bias=True)
    torch.testing.assert_close(logits_of(mlm), before / k)
    assert torch.equal(mlm.get_input_embeddings().weight, inputs)


def test_tied_shrinks_the_inputs_too(mlm):
    inputs = mlm.get_input_embeddings().weight.detach().clone()
    rescale_head(mlm, 4.0, "tied", rescale_bias=False)
    assert mlm.get_output_embeddings().weight is mlm.get_input_embeddings().weight
    assert torch.equal(mlm.get_input_embeddings().weight, inputs / 4)


@pytest.mark.parametrize("rescale", ["tied", "untied"])
def test_save_and_load_keep_the_tie_and_the_logits(mlm, rescale, tokenizer, tmp_path):
    rescale_head(mlm, 3.0, rescale, rescale_bias=False)
    encoders.export(mlm, tokenizer, tmp_path)
    loaded, again = encoders.load_masked_lm(str(tmp_path))
    loaded.eval()
    tied = loaded.get_output_embeddings().weight is loaded.get_input_embeddings().weight
    assert tied == (rescale == "tied")
    assert torch.equal(logits_of(loaded), logits_of(mlm))
    assert again("a text")["input_ids"] == tokenizer("a text")["input_ids"]


@pytest.mark.parametrize("rescale", ["tied", "untied"])
def test_optimiser_sees_each_matrix_once(mlm, rescale):
    rescale_head(mlm, 2.0, rescale, rescale_bias=False)
    seen = [p for group in parameter_groups(SpladeEncoder(mlm).named_parameters(), 0.1) for p in group["params"]]
    assert len({id(p) for p in seen}) == len(seen)
    assert {id(p) for p in mlm.parameters()} == {id(p) for p in seen}
    ends = {id(mlm.get_output_embeddings().weight), id(mlm.get_input_embeddings().weight)}
    assert sum(id(p) in ends for p in seen) == (1 if rescale == "tied" else 2)


def test_vectors_pool_the_models_own_logits(mlm):
    encoder = SpladeEncoder(mlm)
    with torch.no_grad():
        logits = mlm(IDS, attention_mask=TOKENS.mask).logits
        expected = logits.relu().log1p().masked_fill(TOKENS.mask.unsqueeze(2) == 0, 0).amax(1)
        torch.testing.assert_close(encoder(TOKENS), expected)
    assert mlm(IDS).logits.shape == (2, 5, 60), "the model itself must stay as it was"


def test_longest_input_runs_and_one_more_does_not(tokenizer):
    model = AutoModelForMaskedLM.from_config(CONFIGS["roberta"]())
    longest = encoders.longest_input(model, tokenizer)
    assert longest == 18
    model(torch.full((1, longest), 5))
    with pytest.raises((IndexError, RuntimeError)):
        model(torch.full((1, longest + 1), 5))


@pytest.mark.parametrize(("name", "base", "key"), [
    ("bert", BertModel, "cls.predictions.transform.dense.weight"),
    ("modernbert", ModernBertModel, "head.dense.weight"),
])  # fmt: skip
def test_checkpoint_without_head_is_refused(name, base, key, tokenizer, tmp_path):
    encoders.export(base(CONFIGS[name]()), tokenizer, tmp_path)
    with pytest.raises(ValueError, match=f"{tmp_path.name}.*{key}.*masked-LM head"):
        encoders.load_masked_lm(str(tmp_path))
    encoders.load_encoder(str(tmp_path))


def test_masked_lm_checkpoint_opens_without_its_head(tokenizer, tmp_path):
    encoders.export(BertForMaskedLM(CONFIGS["bert"]()), tokenizer, tmp_path)
    model, _ = encoders.load_encoder(str(tmp_path))
    assert type(model) is BertModel


def test_old_layer_norm_names_are_read(tokenizer, tmp_path):
    torch.manual_seed(0)
    model = BertForMaskedLM(CONFIGS["bert"]())
    for parameter in model.parameters():
        parameter.data = torch.randn_like(parameter)
    encoders.export(model, tokenizer, tmp_path)
    file = tmp_path / "model.safetensors"
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    state = load_file(file)
    for new_name, old_name in old.items():
        state = {key.replace(new_name, old_name): value for key, value in state.items()}
    assert sum("gamma" in key for key in state) == 6
    save_file(state, file, metadata={"format": "pt"})
    loaded, _ = encoders.load_masked_lm(str(tmp_path))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), loaded.parameters(), strict=True))


@pytest.mark.parametrize("backbone", ["./no/such/folder", "/no/such/folder", "a/b/c"])
def test_missing_folder_is_named(backbone):
    with pytest.raises(ValueError, match=f"{backbone}.*local folder or a hub name"):
        encoders.load_masked_lm(backbone)


def test_folder_without_config_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"without config\.json"):
        encoders.load_masked_lm(str(tmp_path))


def test_tied_is_refused_where_nothing_is_tied():
    model = AutoModelForMaskedLM.from_config(BertConfig(**SHAPE, tie_word_embeddings=False))
    with pytest.raises(ValueError, match="untied"):
        rescale_head(model, 2.0, "tied", rescale_bias=False)


def test_rescaling_an_absent_bias_is_refused():
    model = AutoModelForMaskedLM.from_config(ModernBertConfig(**SHAPE, **SPECIAL, decoder_bias=False))
    rescale_head(model, 2.0, "tied", rescale_bias=False)
    with pytest.raises(ValueError, match="no bias"):
        rescale_head(model, 2.0, "tied", rescale_bias=True)


def test_head_that_does_more_than_its_decoder_is_refused():
    class Doubled(BertForMaskedLM):
        def forward(self, *args, **kwargs):
            output = super().forward(*args, **kwargs)
            output.logits = output.logits * 2
            return output

    with pytest.raises(ValueError, match="Doubled does more"):
        SpladeEncoder(Doubled(CONFIGS["bert"]()))
