"""Which tokens form a whole word, whatever the tokenizer."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tokenizers import Encoding

_UNKNOWN, _SPACE, _WORD, _OTHER = range(4)

_UNSPACED = (
    "CJK", "HIRAGANA", "KATAKANA", "HALFWIDTH KATAKANA", "IDEOGRAPHIC", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN",
)  # fmt: skip
"""First words of the names of letters whose scripts put no space between words."""

_classes = np.full(0x110000, _UNKNOWN, dtype=np.uint8)
"""The class of every character met so far, by its code point."""


def word_starts(texts: Sequence[str], encodings: Sequence[Encoding]) -> np.ndarray:
    """Whether a token begins a word: bool, (tokens of all encodings, one text after the other).

    Two neighbouring tokens are of one word where the tokenizer's own pre-tokens do not part them and

    - the text has a letter or digit on both sides of their border, or
    - they are parts of one character (byte-level BPE, byte fallback), or
    - the first is only the white space before the second (a lone SentencePiece `▁`).

    So borders come from the text, which reads alike for WordPiece `##`, SentencePiece `▁` and byte-level BPE,
    and punctuation is a word of its own even where SentencePiece takes a whole text for one pre-token. In
    scripts without spaces between words, such as Chinese or Thai, each token is a word.
    """
    codes = np.frombuffer("\n".join((*texts, "")).encode("utf-32-le"), dtype=np.uint32)
    classes = _classes_of(codes)
    lengths = [len(encoding) for encoding in encodings]
    base = np.repeat(np.cumsum([0, *(len(text) + 1 for text in texts[:-1])]), lengths)
    flat = chain.from_iterable(chain.from_iterable(encoding.offsets for encoding in encodings))
    spans = np.fromiter(flat, dtype=np.int64, count=2 * sum(lengths)).reshape(-1, 2)
    begin, end = spans[:, 0] + base, spans[:, 1] + base
    # None, the pre-token of special tokens, becomes NaN, which equals nothing.
    pre_token = np.array(list(chain.from_iterable(e.word_ids for e in encodings)), dtype=np.float64)
    first, last = classes[begin], classes[np.maximum(end - 1, begin)]

    starts = np.ones(len(spans), dtype=bool)
    touching = (pre_token[1:] == pre_token[:-1]) & (begin[1:] <= end[:-1]) & (base[1:] == base[:-1])
    lettered = (first[1:] == _WORD) & (last[:-1] == _WORD)
    blank = ((first == _SPACE) & (last == _SPACE) | (begin == end))[:-1]  # empty where spaces are trimmed
    starts[1:] = ~(touching & (lettered | blank | (begin[1:] < end[:-1])))
    return starts


def marked_starts(tokens: Sequence[str], marker: str) -> list[bool]:
    """Whether a token begins a word, for tokenizers without offsets, by the marks in the tokens: `##` continues a word,
    `▁` begins one."""
    if marker == "##":
        return [not token.startswith(marker) for token in tokens]
    starts = []
    before = ""
    for token in tokens:
        starts.append(token.startswith(marker) or not (_lettered(before[-1:]) and _lettered(token[:1])))
        before = token
    return starts


def _lettered(character: str) -> bool:
    return character != "" and _class_of(character) == _WORD


def _classes_of(codes: np.ndarray) -> np.ndarray:
    found = _classes[codes]
    if not found.all():
        for code in np.unique(codes[found == _UNKNOWN]):
            _classes[code] = _class_of(chr(code))
        found = _classes[codes]
    return found


def _class_of(character: str) -> int:
    if character.isspace():
        return _SPACE
    if unicodedata.category(character)[0] not in "LMN":
        return _OTHER
    return _OTHER if unicodedata.name(character, "").startswith(_UNSPACED) else _WORD
