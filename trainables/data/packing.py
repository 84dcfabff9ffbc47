"""Texts in pieces of full length: short ones joined, long ones cut, nothing dropped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from trainables.data.word_boundaries import word_starts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_BLOCK = 64
"""Texts that are tokenized together."""


def pack(texts: Iterable[str], tokenizer: PreTrainedTokenizerBase, max_length: int) -> Iterator[str]:
    """Pieces of the texts, in order, that have `max_length` tokens with the special ones, or a few less.

    A piece ends at the end of a word; the next begins there. Texts that share a piece have the tokenizer's
    separator token between them, as in RoBERTa's FULL-SENTENCES (arXiv 1907.11692, section 4.2). Pieces are
    texts again, so whatever reads texts reads them. Only the last piece may be short. ValueError for a
    tokenizer without offsets.
    """
    if not tokenizer.is_fast:
        raise ValueError(
            f"packed is true, but {type(tokenizer).__name__} does not say which characters a token stands for "
            "(it is no fast tokenizer); use false"
        )
    room = max_length - tokenizer.num_special_tokens_to_add()
    if room < 1:
        raise ValueError(f"max_length is {max_length}, which leaves no room beside the special tokens")
    separator = tokenizer.sep_token or tokenizer.eos_token or " "
    piece: list[str] = []
    used = 0
    for text, begins, starts in _tokenized(texts, tokenizer):
        words = np.flatnonzero(starts)
        at, count = 0, len(starts)
        while at < count:
            free = room - used - bool(piece)
            stop = count if count - at <= free else int(words[np.searchsorted(words, at + max(free, 0), "right") - 1])
            if stop <= at and not piece:
                stop = at + free  # one word that is longer than a piece
            if stop > at:
                piece.append(text[begins[at] : begins[stop]].rstrip())
                used += stop - at + (len(piece) > 1)
                at = stop
            if at < count:
                yield separator.join(piece)
                piece, used = [], 0
    if piece:
        yield separator.join(piece)


def _tokenized(texts: Iterable[str], tokenizer: PreTrainedTokenizerBase) -> Iterator[tuple[str, list[int], np.ndarray]]:
    """(text, where its tokens begin and the last one ends, whether they begin a word).

    What stands between two tokens, such as punctuation that a normaliser drops, belongs to the first.
    """
    source = iter(texts)
    while block := list(islice(source, _BLOCK)):
        encodings = tokenizer(block, add_special_tokens=False, verbose=False).encodings
        parts = np.split(word_starts(block, encodings), np.cumsum([len(encoding) for encoding in encodings])[:-1])
        for text, encoding, starts in zip(block, encodings, parts, strict=True):
            yield text, [0, *(begin for begin, _ in encoding.offsets[1:]), len(text)], starts
