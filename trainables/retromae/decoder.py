"""The decoders of RetroMAE: one text from its embedding and what little else they are shown.

Both take the backbone's own token embeddings, and the states that they return go into the backbone's own
masked-LM head. Their layers are new: those of BERT, except that a layer's queries can come from another stream
than its keys and values. They have no dropout: what they are shown is random enough.

Where a position is known from depends on the backbone:

- Absolute positions (BERT, RoBERTa, DistilBERT): the table p of the backbone. Its token embeddings hold p_j
  already, or are given it here (XLM), and the query of position i is h + p_i, as in the paper.
- RoPE (ModernBERT, GTE, EuroBERT, RoFormer): queries and keys are turned by the backbone's own angles. An
  attention score then depends on the distance i - j only, and of two positions that see the first one alone, both
  get the same output: nothing would tell them apart. So p_i is added to the query here too: the cosines and
  sines of the backbone's angles at i, one after the other, repeated for each head, times `AMPLITUDE`. It has no
  parameters, is the same for every text, and differs between any two positions: the embedding stays the only content.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

AMPLITUDE = 0.2
"""Factor of p for RoPE. The coordinates of an embedding are about 1, and a p as large as that gets in its way: 50 steps
on the embedded text end at a decoder loss of 6.18 with 1 and of 6.05 with this."""

Backbone = Any
"""A `PreTrainedModel` of transformers without a head; which modules it has depends on its architecture."""

Rotary = tuple[torch.Tensor, torch.Tensor]
"""Cosines and sines of the angles of each position, both (L, head size)."""


class Decoder(nn.Module):
    """Layers over the embeddings of a backbone, which stays outside: its parameters are not the decoder's."""

    def __init__(self, backbone: Backbone, layers: int) -> None:
        """ValueError where the backbone is no encoder of texts alone, where its positions are not to be found, or
        where its token embeddings are not as wide as its states.
        """
        super().__init__()
        config = backbone.config
        name = type(backbone).__name__
        if config.is_encoder_decoder or config.get_text_config() is not config:
            kind = "an encoder and a decoder" if config.is_encoder_decoder else "a model of more than text"
            raise ValueError(f"{name} is {kind}; RetroMAE needs an encoder of texts")
        width = backbone.get_input_embeddings().weight.shape[1]
        if width != config.hidden_size:
            raise ValueError(
                f"{name} has token embeddings of {width} and states of {config.hidden_size} coordinates; the decoder "
                "of RetroMAE needs both of one size"
            )
        if position_table(backbone) is None and _rotary_module(backbone) is None:
            raise ValueError(
                f"{name} has neither a table of absolute positions nor one rotary module for all of its layers; the "
                "decoder of RetroMAE needs one of them"
            )
        deviation = getattr(config, "initializer_range", 0.02)
        heads = getattr(config, "num_attention_heads", max(1, width // 64))
        self.layers = nn.ModuleList(DecoderLayer(width, heads, deviation) for _ in range(layers))

    @torch.no_grad()
    def check(self, backbone: Backbone) -> None:
        """ValueError where the backbone's embeddings or angles are not of the kind that is read here."""
        training = backbone.training
        backbone.eval()
        ids = torch.arange(2, 6, device=backbone.device).view(1, -1)
        embedding = torch.zeros(1, backbone.config.hidden_size, device=backbone.device)
        try:
            self.basic(backbone, embedding, ids, torch.ones_like(ids))
        except (AttributeError, RuntimeError, TypeError) as error:
            raise ValueError(
                f"{type(backbone).__name__} makes its token embeddings or its positions of more than token ids "
                f"({error}); the decoder of RetroMAE cannot"
            ) from error
        finally:
            backbone.train(training)

    def enhanced(
        self, backbone: Backbone, embedding: torch.Tensor, ids: torch.Tensor, visible: torch.Tensor
    ) -> torch.Tensor:
        """States (B, L - 1, D) of all positions but the first (arXiv 2205.12035, eq. 6-8).

        embedding (B, D), ids (B, L) without any mask, visible (B, L, L) as `masking.visible_sets`. What a position
        looks with is the embedding and its place; what it looks at are the tokens visible to it. The first
        position is the embedding's own and has nothing to predict.
        """
        context = _context(backbone, embedding, ids)
        positions, rotary = _positions(backbone, context)
        query = (embedding.unsqueeze(1) + positions)[:, 1:]
        (layer,) = self.layers
        return layer(query, context, visible[:, 1:], rotary)

    def basic(self, backbone: Backbone, embedding: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """States (B, L, D): the masked text with the embedding in first place, every token in sight of all others.

        embedding (B, D), ids (B, L) with what is to be predicted masked, mask (B, L) 1 on tokens.
        """
        states = _context(backbone, embedding, ids)
        _, rotary = _positions(backbone, states)
        visible = mask.bool().unsqueeze(1)
        for layer in self.layers:
            states = layer(states, states, visible, rotary)
        return states


class DecoderLayer(nn.Module):
    """Attention and feed-forward, each followed by residual and norm, as in BERT."""

    def __init__(self, width: int, heads: int, deviation: float) -> None:
        """Weights are normal with `deviation`, biases zero."""
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.attention_norm, self.output_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=deviation)
                nn.init.zeros_(module.bias)

    def forward(
        self, query: torch.Tensor, context: torch.Tensor, visible: torch.Tensor, rotary: Rotary | None
    ) -> torch.Tensor:
        """(B, Q, D) of query (B, Q, D), the last Q of L positions, context (B, L, D), visible (B, Q or 1, L) bool.

        A row that sees nothing has no meaning and must not occur.
        """
        q, k, v = self._split(self.query(query)), self._split(self.key(context)), self._split(self.value(context))
        if rotary is not None:
            q, k = _turn(q, rotary), _turn(k, rotary)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=visible.unsqueeze(1))
        states = self.attention_norm(query + self.output(attended.transpose(1, 2).flatten(2)))
        return self.output_norm(states + self.down(F.gelu(self.up(states))))

    def _split(self, states: torch.Tensor) -> torch.Tensor:
        """Split states into heads: (B, L, D) -> (B, heads, L, D / heads)."""
        return states.unflatten(2, (self.heads, -1)).transpose(1, 2)


def position_table(backbone: nn.Module) -> Any:
    """The embeddings of absolute positions, `weight` (positions, D), if the backbone has some."""
    found = (module for name, module in backbone.named_modules() if name.endswith("position_embeddings"))
    return next((module for module in found if isinstance(getattr(module, "weight", None), torch.Tensor)), None)


def _context(backbone: Backbone, embedding: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """(B, L, D): the embedding, then what the backbone's first layer is given for the other tokens.

    Where the backbone has a bare table of tokens, their positions, if it has a table of those, are added here.
    """
    module = getattr(backbone, "embeddings", None)
    if module is None or isinstance(module, nn.Embedding):
        tokens = backbone.get_input_embeddings()(ids)
        table = position_table(backbone)
        tokens = tokens if table is None else tokens + _rows(table, ids.shape[1])
    else:
        tokens = module(input_ids=ids)
        tokens = tokens[0] if isinstance(tokens, tuple) else tokens  # I-BERT adds the scale of quantised ones
    return torch.cat([embedding.unsqueeze(1).to(tokens.dtype), tokens[:, 1:]], 1)


def _positions(backbone: Backbone, like: torch.Tensor) -> tuple[torch.Tensor, Rotary | None]:
    """The pair (p, angles) for the positions of `like` (B, L, D), where p is (L, D)."""
    length, width = like.shape[1:]
    table = position_table(backbone)
    if table is not None:
        return _rows(table, length), None
    cos, sin = _angles(backbone, like)
    half = cos.shape[1] // 2
    angles = torch.cat([cos[:, :half], sin[:, :half]], 1)
    return AMPLITUDE * angles.repeat(1, width // cos.shape[1]), (cos, sin)


def _rows(table: Any, length: int) -> torch.Tensor:
    """The embeddings (length, D) of the first positions in a table; RoBERTa counts positions from padding_idx + 1."""
    first = 0 if table.padding_idx is None else table.padding_idx + 1
    return table.weight[first : first + length]


def _rotary_module(backbone: Backbone) -> Any:
    """What turns queries and keys in all layers: `rotary_emb`, or RoFormer's table of sines and cosines."""
    return getattr(backbone, "rotary_emb", None) or getattr(getattr(backbone, "encoder", None), "embed_positions", None)


def _angles(backbone: Backbone, like: torch.Tensor) -> Rotary:
    length = like.shape[1]
    at = torch.arange(length, device=like.device).unsqueeze(0)
    module = _rotary_module(backbone)
    if isinstance(module, nn.Embedding):
        # A row holds the sines, then the cosines, each once.
        sin, cos = module.weight[:length].to(like.dtype).chunk(2, dim=1)
        return torch.cat([cos, cos], 1), torch.cat([sin, sin], 1)
    if "layer_type" not in inspect.signature(module.forward).parameters:
        cos, sin = module(like, at)
    else:
        # ModernBERT has angles of its own for local attention; the decoder looks everywhere.
        kinds = backbone.config.layer_types
        cos, sin = module(like, at, "full_attention" if "full_attention" in kinds else kinds[0])
    return cos[0], sin[0]


def _turn(heads: torch.Tensor, rotary: Rotary) -> torch.Tensor:
    """RoPE (arXiv 2104.09864, eq. 34, with the coordinates in halves) of (B, heads, Q, size), the last Q positions."""
    cos, sin = (part[-heads.shape[2] :] for part in rotary)
    first, second = heads.chunk(2, dim=-1)
    return heads * cos + torch.cat([-second, first], -1) * sin
