"""Sizes of backbones, from their configuration alone: what a plan needs before anything is downloaded."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

GATED = ("modernbert", "gte", "new")
"""Model types whose feed-forward layers have three matrices instead of two."""


@dataclass(frozen=True, slots=True)
class Shape:
    """An encoder as a plan sees it; biases and norms are too small to count."""

    layers: int
    hidden: int
    intermediate: int
    vocabulary: int
    gated: bool = False
    embedding: int | None = None
    """Width of the token embeddings where it differs from that of the states, else None."""
    shared: bool = False
    """Whether all layers share the parameters of one."""

    @property
    def layer(self) -> int:
        """Parameters of a layer: four matrices of attention, two or three of the feed-forward part."""
        return 4 * self.hidden**2 + (3 if self.gated else 2) * self.hidden * self.intermediate

    @property
    def parameters(self) -> int:
        """Number of parameters of the layers and of the token embeddings, which the head shares."""
        layers = self.layer * (1 if self.shared else self.layers)
        return layers + self.vocabulary * (self.embedding or self.hidden)

    def forward(self, tokens: int, projected: int, more_layers: int = 0) -> float:
        """Floating-point operations of a forward pass of `tokens`, of which `projected` go through the head, with
        `more_layers` than the encoder has.

        Two for each weight and token (Kaplan et al., arXiv 2001.08361, section 2.1), attention scores left out.
        """
        return 2.0 * tokens * (self.layers + more_layers) * self.layer + 2.0 * projected * self.vocabulary * (
            self.embedding or self.hidden
        )


KNOWN = {
    "google-bert/bert-base-uncased": Shape(12, 768, 3072, 30_522),
    "distilbert/distilbert-base-uncased": Shape(6, 768, 3072, 30_522),
    "albert/albert-base-v2": Shape(12, 768, 3072, 30_000, embedding=128, shared=True),
    "FacebookAI/roberta-base": Shape(12, 768, 3072, 50_265),
    "Alibaba-NLP/gte-en-mlm-base": Shape(12, 768, 3072, 30_528, gated=True),
    "answerdotai/ModernBERT-base": Shape(22, 768, 1152, 50_368, gated=True),
    "jhu-clsp/ettin-encoder-150m": Shape(22, 768, 1152, 50_368, gated=True),
    "cl-nagoya/ruri-v3-130m": Shape(19, 512, 2048, 102_400, gated=True),
    "cl-nagoya/ruri-v3-30m": Shape(10, 256, 1024, 102_400, gated=True),
}
"""Shapes of the models on the hub that profiles name, from their config.json."""


def shape_of(backbone: str) -> Shape | None:
    """The shape of a known hub name or of a local folder; None where nothing at hand tells it."""
    if backbone in KNOWN:
        return KNOWN[backbone]
    folder = Path(__file__).parent / "embedded_encoder" if backbone == "embedded" else Path(backbone).expanduser()
    path = folder / "config.json"
    if not path.is_file():
        return None
    found = json.loads(path.read_text(encoding="utf-8"))
    names = ("num_hidden_layers", "hidden_size", "intermediate_size", "vocab_size")
    if any(not isinstance(found.get(name), int) for name in names):
        return None
    layers, hidden, intermediate, vocabulary = (found[name] for name in names)
    return Shape(layers, hidden, intermediate, vocabulary, gated=found.get("model_type") in GATED)
