"""Checkpoints of the architecture `new` (Alibaba-NLP/new-impl) as transformers' own `gte`, without running their code.

`new` is code on the hub that checkpoints such as Alibaba-NLP/gte-en-mlm-base point to by `auto_map`. transformers has
the same architecture as `gte`, and reads the names of the weights; here the keys of `config.json` are translated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import GteConfig

_SAME = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act",
    "hidden_dropout_prob", "attention_probs_dropout_prob", "max_position_embeddings", "type_vocab_size",
    "initializer_range", "layer_norm_eps", "pad_token_id", "classifier_dropout", "tie_word_embeddings",
)  # fmt: skip
"""Keys that mean the same in both."""
_ONLY = {"position_embedding_type": "rope", "layer_norm_type": "layer_norm", "hidden_act": "gelu", "pack_qkv": True,
         "logn_attention_scale": False}  # fmt: skip
"""Keys that `gte` has no choice for, with its only value."""


def is_new(config: Mapping[str, Any]) -> bool:
    """Whether a `config.json` is of the architecture `new`, whose code lies on the hub."""
    return config.get("model_type") == "new" and "auto_map" in config


def translated(config: Mapping[str, Any]) -> GteConfig:
    """The config of transformers' `gte` that computes what `new` does with `config`, the content of a `config.json`.

    ValueError where `gte` cannot, with the key.
    """
    from transformers import GteConfig

    for key, only in _ONLY.items():
        if config.get(key, only) != only:
            raise ValueError(
                f"its config has {key}={config[key]!r}, and transformers' own gte knows {only!r} alone; "
                "trust_remote_code=true runs the code that the checkpoint names"
            )
    return GteConfig(**{key: config[key] for key in _SAME if key in config}, rope_parameters=_rope(config))


def _rope(config: Mapping[str, Any]) -> dict[str, Any]:
    """`rope_parameters` for `rope_theta` and `rope_scaling`, which is null or NTK-aware scaling by a fixed factor f.

    The latter has the frequencies (theta f)^(-2i/d) / f^(2/d) for heads of d coordinates: those of the base theta f,
    divided by a constant, which transformers calls linear.
    """
    theta, scaling = config.get("rope_theta", 10_000.0), config.get("rope_scaling")
    if scaling is None:
        return {"rope_type": "default", "rope_theta": theta}
    if scaling.get("type") != "ntk" or scaling.get("mixed_b") is not None:
        raise ValueError(
            f"its config has rope_scaling={scaling}, and known are null and {{'type': 'ntk', 'factor': F}}; "
            "trust_remote_code=true runs the code that the checkpoint names"
        )
    factor, size = scaling["factor"], config["hidden_size"] // config["num_attention_heads"]
    return {"rope_type": "linear", "rope_theta": theta * factor, "factor": factor ** (2 / size)}
