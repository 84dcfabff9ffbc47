"""The seven backbones of the published SPLADE study as local folders: random weights, two layers of 64, and a tokenizer
of the kind that each has, trained on the texts at hand. `config.json` has the keys that the hub's file has."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

BACKBONES = ("bert", "distilbert", "albert", "gte", "roberta", "modernbert", "ettin")
SHAPE = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
POSITIONS = 128
TERMS = 400
BERT = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
SPECIAL: dict[str, dict[str, str]] = {
    "albert": {"pad": "<pad>", "unk": "<unk>", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"},
    "roberta": {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"},
}
"""Special tokens in the order of their ids; those of BERT elsewhere."""


def write(name: str, folder: Path, texts: Iterable[str]) -> None:
    """Write the checkpoint of a backbone of `BACKBONES`, with a `tokenizer` made of `texts`."""
    made = tokenizer(name, texts)
    made.save_pretrained(folder)
    torch.manual_seed(0)
    _MODELS[name](made, folder)


def write_new(folder: Path, tokens: Mapping[str, int], kind: torch.dtype = torch.float32, **config: Any) -> Any:
    """Write a checkpoint as Alibaba-NLP's are: its keys and names of weights are those of `new-impl`, whose code is not
    there. `config` are other values for keys of its `config.json`. Returns the model as transformers' own `gte` has it.
    """
    from transformers import GteConfig, GteForMaskedLM

    sizes: dict[str, Any] = {**SHAPE, **tokens, "max_position_embeddings": POSITIONS, "hidden_dropout_prob": 0.1}
    sizes["type_vocab_size"] = config.get("type_vocab_size", 2)
    model = GteForMaskedLM(GteConfig(**sizes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.1)
            parameter.copy_(parameter.to(kind))
    theirs = {
        "architectures": ["NewForMaskedLM"],
        "auto_map": {
            kind: f"Alibaba-NLP/new-impl--{place}"
            for kind, place in (
                ("AutoConfig", "configuration.NewConfig"),
                ("AutoModel", "modeling.NewModel"),
                ("AutoModelForMaskedLM", "modeling.NewForMaskedLM"),
            )
        },
        "attention_probs_dropout_prob": 0.0, "classifier_dropout": None, "hidden_act": "gelu",
        "initializer_range": 0.02, "layer_norm_eps": 1e-12, "layer_norm_type": "layer_norm",
        "logn_attention_clip1": False, "logn_attention_scale": False, "model_type": "new", "pack_qkv": True,
        "position_embedding_type": "rope", "rope_scaling": None, "rope_theta": 160_000, "torch_dtype": "float32",
        "unpad_inputs": False, "use_memory_efficient_attention": False,
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(theirs | sizes | config))
    weights = {name: value.to(kind) for name, value in new_names(model.state_dict()).items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return model


def new_names(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights of a `GteForMaskedLM` under the names of `NewForMaskedLM`, packed as there; the head's matrix, which
    is the input embeddings', is not among them."""
    renamed = (
        ("gte.layers.", "new.encoder.layer."), ("gte.", "new."), ("self_attn.o_proj", "attention.o_proj"),
        ("post_attention_layernorm", "attn_ln"), ("post_mlp_layernorm", "mlp_ln"), ("head.layer_norm", "head.norm"),
    )  # fmt: skip
    packed = (
        ("self_attn.q_proj", ("self_attn.k_proj", "self_attn.v_proj"), "attention.qkv_proj"),
        ("mlp.up_proj", ("mlp.gate_proj",), "mlp.up_gate_proj"),
    )
    parts = {other for _, others, _ in packed for other in others}
    found = {}
    for key, value in state.items():
        if key == "lm_head.decoder.weight" or any(part in key for part in parts):
            continue
        for first, others, together in packed:
            if first in key:
                value = torch.cat([value, *(state[key.replace(first, other)] for other in others)])
                key = key.replace(first, together)
        for ours, theirs in renamed:
            key = key.replace(ours, theirs)
        found[key] = value.clone()
    return found


def tokenizer(name: str, texts: Iterable[str]) -> Any:
    """A tokenizer of the kind that a backbone of `BACKBONES` has, with up to `TERMS` pieces of `texts`."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    named = SPECIAL.get(name, BERT)
    special = list(named.values())
    made: Any
    trainer: Any
    if name in ("roberta", "modernbert", "ettin"):
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        letters = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=TERMS, special_tokens=special, initial_alphabet=letters, show_progress=False
        )
    elif name == "albert":
        made = Tokenizer(models.Unigram())
        made.normalizer = normalizers.Lowercase()
        made.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=TERMS, special_tokens=special, unk_token=named["unk"], show_progress=False
        )
    else:
        made = Tokenizer(models.WordPiece(unk_token=named["unk"]))
        made.normalizer = normalizers.BertNormalizer()
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=TERMS, special_tokens=special, show_progress=False)
    made.train_from_iterator(list(texts), trainer)
    ends = [(token, made.token_to_id(token)) for token in (named["cls"], named["sep"])]
    made.post_processor = processors.TemplateProcessing(single=f"{named['cls']} $A {named['sep']}", special_tokens=ends)
    tokens = {f"{role}_token": token for role, token in named.items()}
    return PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=POSITIONS, **tokens)


def _bert(made: Any, folder: Path) -> None:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(**SHAPE, vocab_size=len(made), max_position_embeddings=POSITIONS)
    BertForMaskedLM(config).save_pretrained(folder)


def _distilbert(made: Any, folder: Path) -> None:
    from transformers import DistilBertConfig, DistilBertForMaskedLM

    config = DistilBertConfig(
        vocab_size=len(made), max_position_embeddings=POSITIONS, dim=64, n_heads=4, n_layers=2, hidden_dim=96
    )
    DistilBertForMaskedLM(config).save_pretrained(folder)


def _albert(made: Any, folder: Path) -> None:
    from transformers import AlbertConfig, AlbertForMaskedLM

    config = AlbertConfig(
        **SHAPE, vocab_size=len(made), max_position_embeddings=POSITIONS, embedding_size=32,
        pad_token_id=made.pad_token_id, bos_token_id=made.cls_token_id, eos_token_id=made.sep_token_id,
    )  # fmt: skip
    AlbertForMaskedLM(config).save_pretrained(folder)


def _gte(made: Any, folder: Path) -> None:
    write_new(folder, {"vocab_size": len(made) + 6, "pad_token_id": made.pad_token_id})


def _roberta(made: Any, folder: Path) -> None:
    from transformers import RobertaConfig, RobertaForMaskedLM

    config = RobertaConfig(
        **SHAPE, vocab_size=len(made), max_position_embeddings=POSITIONS + 2, type_vocab_size=1,
        pad_token_id=made.pad_token_id, bos_token_id=made.cls_token_id, eos_token_id=made.sep_token_id,
    )  # fmt: skip
    RobertaForMaskedLM(config).save_pretrained(folder)


def _modernbert(made: Any, folder: Path, **more: Any) -> None:
    from transformers import ModernBertConfig, ModernBertForMaskedLM

    # The hub's vocabularies are padded: 50,280 and 50,254 tokens have 50,368 rows.
    config = ModernBertConfig(
        **SHAPE, vocab_size=len(made) + 8, max_position_embeddings=POSITIONS, pad_token_id=made.pad_token_id,
        bos_token_id=made.cls_token_id, eos_token_id=made.sep_token_id,
        cls_token_id=made.cls_token_id, sep_token_id=made.sep_token_id, **more,
    )  # fmt: skip
    ModernBertForMaskedLM(config).save_pretrained(folder)


def _ettin(made: Any, folder: Path) -> None:
    """ModernBERT with keys that Ettin's training left in its file."""
    _modernbert(made, folder)
    path = folder / "config.json"
    kept = {"causal_mask": False, "is_causal": False, "position_embedding_type": "sans_pos"}
    path.write_text(json.dumps(json.loads(path.read_text()) | kept))


_MODELS: dict[str, Callable[[Any, Path], None]] = {
    "bert": _bert, "distilbert": _distilbert, "albert": _albert, "gte": _gte, "roberta": _roberta,
    "modernbert": _modernbert, "ettin": _ettin,
}  # fmt: skip
