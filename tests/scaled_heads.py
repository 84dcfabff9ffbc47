"""Backbones that differ in one number: the embedded encoder, its masked-LM head's matrix times a power of two.

Dividing by k undoes it to the last bit, so that k and the scale only count by their quotient: what is best for one of
them says what is best for all.
"""

from __future__ import annotations

from pathlib import Path

from transformers import AutoModelForMaskedLM, AutoTokenizer

from trainables.encoders import EMBEDDED


def write_scaled_head(folder: Path, scale: float) -> None:
    """Save the embedded encoder to `folder`, its head's matrix untied from the word embeddings and times `scale`."""
    model = AutoModelForMaskedLM.from_pretrained(EMBEDDED, tie_word_embeddings=False)
    head, words = model.get_output_embeddings().weight, model.get_input_embeddings().weight
    head.data = words.data * scale
    model.config.tie_word_embeddings = False
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(EMBEDDED).save_pretrained(folder)
