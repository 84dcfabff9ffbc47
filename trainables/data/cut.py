"""Long texts cut before they are tokenized, where no token that is kept can change.

A tokenizer reads the whole of a text, however few tokens of it are wanted: 5 MB take a minute. What it makes of a
prefix is what it makes of the text up to the last few pre-tokens, the pieces that it splits a text into before it
looks anything up: a token depends on its own pre-token alone, and where a pre-token ends is seen at the next
character. The exceptions are runs of digits, which some group from their end, runs of white space, and marks, which
may melt with what is before them. So the prefix ends inside of none of these, and it is taken only if whole
pre-tokens, and room for the longest token that was added to the vocabulary, lie between the last token that is kept
and its end. Otherwise a longer one is tried, then the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import regex

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_CHARACTERS_PER_TOKEN = 16
_GROWTH = 8
_WHOLE = 4
"""A text at most this many times as long as the first prefix is tokenized whole: cutting it would save too little."""

_END = regex.compile(
    r"\S(?=\s)|[\p{Han}\p{Hiragana}\p{Katakana}](?=[\p{Han}\p{Hiragana}\p{Katakana}])|[\p{P}\p{S}](?=[\p{P}\p{S}\p{L}])"
)
"""Places where a prefix may end: where white space begins, between two characters of a script without spaces, behind
punctuation and symbols."""


def cut(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], length: int) -> list[str]:
    """The texts, or prefixes of them with the same first `length` tokens, special ones included.

    Only fast tokenizers that truncate on the right tell enough of what they did; others get whole texts.
    """
    if not tokenizer.is_fast or tokenizer.truncation_side != "right":
        return list(texts)
    first = _CHARACTERS_PER_TOKEN * (length + 16)
    return [text if len(text) <= _WHOLE * first else _prefix(tokenizer, text, length, first) for text in texts]


def _prefix(tokenizer: PreTrainedTokenizerBase, text: str, length: int, size: int) -> str:
    margin = max(map(len, tokenizer.get_added_vocab()), default=0) + 2
    while _WHOLE * size < len(text):
        end = _last_end(text, size)
        if end is not None and _decided(tokenizer, text[:end], length, margin):
            return text[:end]
        size *= _GROWTH
    return text


def _last_end(text: str, size: int) -> int | None:
    """The last place in the second half of the first `size` characters where a prefix may end."""
    ends = [found.end() for found in _END.finditer(text, size // 2, size)]
    return ends[-1] if ends else None


def _decided(tokenizer: PreTrainedTokenizerBase, prefix: str, length: int, margin: int) -> bool:
    """Whether the first `length` tokens of every text that begins with `prefix` are those of `prefix`."""
    found = tokenizer([prefix], add_special_tokens=False, truncation=False, padding=False, verbose=False)
    encoding = found.encodings[0]
    if len(encoding) <= length:
        return False
    words = encoding.word_ids
    last = words[length - 1]
    behind = {word for word in words[length:] if word != last}
    return len(behind) > 2 and encoding.offsets[length - 1][1] + margin <= len(prefix)
