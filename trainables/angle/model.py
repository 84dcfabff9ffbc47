"""The sentence encoder: a backbone whose token states are pooled into one vector, and its export."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from trainables import encoders
from trainables.encoders import Prefixes, Tokens

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Pooling = Literal["mean", "cls"]


class SentenceEncoder(nn.Module):
    """Texts as vectors: the mean over unmasked tokens of the last layer, or its first token."""

    def __init__(self, backbone: PreTrainedModel, pooling: Pooling) -> None:
        """ValueError where the backbone does not say how wide its states are."""
        super().__init__()
        self.backbone, self.pooling = backbone, pooling
        if not hasattr(backbone.config.get_text_config(), "hidden_size"):
            raise ValueError(
                f"{type(backbone).__name__} has no hidden_size, so it does not give one state for each token; AnglE "
                "needs an encoder that does"
            )
        for name, parameter in backbone.named_parameters():
            # BERT-like models have a pooler behind the last layer, which nothing here uses.
            parameter.requires_grad_(not name.startswith("pooler."))

    @property
    def size(self) -> int:
        """Coordinates of an embedding."""
        return int(self.backbone.config.get_text_config().hidden_size)

    def forward(self, tokens: Tokens) -> torch.Tensor:
        """Embeddings (texts, size) of tokens (texts, L), in the parameters' precision whatever autocast does inside."""
        hidden = self.backbone(input_ids=tokens.ids, attention_mask=tokens.mask).last_hidden_state
        hidden = hidden.to(next(self.backbone.parameters()).dtype)
        if self.pooling == "cls":
            return hidden[:, 0]
        mask = tokens.mask.unsqueeze(2).to(hidden.dtype)
        return (hidden * mask).sum(1) / mask.sum(1)


def export(
    model: SentenceEncoder, tokenizer: Any, folder: Path, length: int, prefixes: Prefixes, dims: Sequence[int]
) -> None:
    """Write a folder that `AutoModel` and `SentenceTransformer(folder, truncate_dim=d)` open.

    sentence-transformers puts `prefixes` before texts as they were in training and in retrieval, and gives the longest
    of `dims`, unless its caller says otherwise.
    """
    tokenizer.model_max_length = length
    encoders.export(model.backbone, tokenizer, folder)
    encoders.export_pooling(
        folder,
        size=model.size,
        lengths={"max_seq_length": length},
        pooling=model.pooling,
        similarity="cosine",
        prefixes=prefixes,
        dims=dims,
    )
