"""Does a tokenizer fit its model, and the texts of a study?

transformers makes a tokenizer of special tokens alone where a checkpoint comes without tokenizer files, and a
vocabulary of one language reads another as unknown words: a model would be trained on nothing, without an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

SAID, REFUSED = 0.05, 0.5
"""Shares of unknown tokens: at the first or above it is said, at the second or above the texts are refused, because
nothing can be learnt from them."""

CUT = 4_000
"""Characters of a text that are looked at."""

_BARE = {"", "▁", "Ġ", " "}
"""Tokens that stand for no text."""


def check(backbone: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """ValueError where the tokenizer cannot be this model's: no words, no padding, or ids that have no embedding."""
    vocabulary = tokenizer.get_vocab()
    special = set(tokenizer.all_special_tokens)
    if not vocabulary.keys() - special - _BARE:
        raise ValueError(
            f"backbone {backbone!r} has no vocabulary: its tokenizer knows {len(vocabulary)} tokens, all of them "
            "special, as where the tokenizer's files are missing; put those that it was trained with, such as "
            "tokenizer.json, beside its weights"
        )
    if tokenizer.pad_token_id is None:
        raise ValueError(
            f"backbone {backbone!r} has a tokenizer without a padding token, and texts of different length share a "
            "batch; name one as pad_token in its tokenizer_config.json"
        )
    rows = embeddings(model)
    last = max(vocabulary, key=lambda token: vocabulary[token])
    if vocabulary[last] >= rows:
        raise ValueError(
            f"backbone {backbone!r} has embeddings for {rows} tokens, but its tokenizer gives numbers up to "
            f"{vocabulary[last]} ({last!r}); a tokenizer that belongs to these weights is needed"
        )


def check_first(backbone: str, tokenizer: PreTrainedTokenizerBase) -> None:
    """ValueError where texts do not begin with a special token, whose last state can be the embedding of a text."""
    if tokenizer("a")["input_ids"][:1] not in [[id] for id in tokenizer.all_special_ids] or (
        tokenizer.padding_side != "right"
    ):
        raise ValueError(
            f"backbone {backbone!r} does not begin its texts with a special token, whose last state is the embedding "
            "here; a tokenizer that puts one there, and padding behind, is needed"
        )


def embeddings(model: PreTrainedModel) -> int:
    """Tokens that the model has an embedding for."""
    weight = getattr(model.get_input_embeddings(), "weight", None)
    return int(model.config.vocab_size if weight is None else weight.shape[0])


def terms(tokenizer: PreTrainedTokenizerBase, size: int) -> torch.Tensor:
    """Which of `size` numbers a token stands for, (size,) bool: vocabularies are padded for the hardware's sake."""
    found = torch.zeros(size, dtype=torch.bool)
    found[[number for number in tokenizer.get_vocab().values() if number < size]] = True
    return found


def remarks(backbone: str, tokenizer: PreTrainedTokenizerBase, texts: Mapping[str, Sequence[str]]) -> list[str]:
    """What should be known of how the tokenizer reads these texts, name of an input -> some of them: a sentence each.

    ValueError where at least half of the tokens of an input are unknown to it.
    """
    found = []
    for name, some in texts.items():
        share, examples = unknown(tokenizer, some)
        if share < SAID:
            continue
        such = f" (such as {', '.join(map(repr, examples))})" if examples else ""
        sentence = f"{share:.0%} of the tokens of {name} are unknown to the tokenizer of backbone {backbone!r}{such}"
        if share >= REFUSED:
            raise ValueError(f"{sentence}, so there is next to nothing to learn from; use a backbone of this language")
        found.append(f"{sentence}; a backbone of this language would see more")
    return found


def unknown(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> tuple[float, list[str]]:
    """(share of unknown tokens, up to three of the words that they stand for).

    A text that becomes no token at all, as with tokenizers that drop what they do not know, counts as one unknown.
    Raises ValueError that quotes the text which the tokenizer cannot read at all.
    """
    tokens, missed = 0, 0
    examples: dict[str, None] = {}
    for text in (text[:CUT] for text in texts if text.strip()):
        try:
            encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=tokenizer.is_fast, verbose=False)
        except Exception as error:
            raise ValueError(
                f"the tokenizer cannot read the text {text[:60]!a}: {type(error).__name__}: {error}"
            ) from error
        ids = encoded["input_ids"]
        places = [place for place, number in enumerate(ids) if number == tokenizer.unk_token_id]
        tokens, missed = tokens + max(1, len(ids)), missed + (len(places) if ids else 1)
        if tokenizer.is_fast:
            examples |= {text[slice(*encoded["offset_mapping"][place])]: None for place in places[:3]}
    return missed / max(1, tokens), [word for word in examples if word.strip()][:3]
