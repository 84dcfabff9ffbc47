"""Masks for masked language modelling: whole words, and a random stream of its own for every text.

Nothing is drawn from a generator. A random number is a hash of (seed of the text, its place), in integers
only, so it is the same on the CPU and on a GPU, and a text is masked alike whatever it shares a batch with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from trainables.data.cut import cut
from trainables.data.word_boundaries import marked_starts, word_starts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from trainables.data.text import TextSet

MASKING, REPLACING, REPLACEMENT = range(3)
"""Streams of a text's random numbers that are taken here; others begin at `FREE_STREAM`."""
FREE_STREAM = 3

_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_MIXERS = ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64))
_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class MaskableTokens:
    """A padded batch of B texts, the longest of L tokens; all tensors are (B, L)."""

    ids: torch.Tensor
    """Token ids, int64."""
    mask: torch.Tensor
    """Attention mask, int64: 1 on tokens and 0 on padding."""
    special: torch.Tensor
    """bool, true on what is no text: padding, the tokenizer's special tokens, and unknown words, from which
    nothing can be learnt."""
    word: torch.Tensor
    """int64, which word of its text a token belongs to, from 0; -1 where special."""


class Masker:
    """Tokenizes texts and masks their words."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """ValueError for a tokenizer without a mask token or without a padding token."""
        for name in ("mask", "pad"):
            if getattr(tokenizer, f"{name}_token_id") is None:
                raise ValueError(
                    f"{type(tokenizer).__name__} ({tokenizer.name_or_path or 'unnamed'}) has no {name} token; "
                    "masked language modelling needs a tokenizer that has one"
                )
        self.tokenizer = tokenizer
        self.mask_id = int(tokenizer.mask_token_id)
        self._marker = None if tokenizer.is_fast else _marker(tokenizer)
        self._special = np.array(sorted(set(tokenizer.all_special_ids)), dtype=np.int64)
        self._ordinary = torch.from_numpy(np.setdiff1d(np.arange(len(tokenizer)), self._special))

    @property
    def whole_words(self) -> bool:
        """Whether words are masked as a whole.

        True for every fast tokenizer (see `word_boundaries.word_starts`) and for slow ones that mark their tokens with
        `##` or `▁`; with other tokenizers each token is masked on its own.
        """
        return self.tokenizer.is_fast or self._marker is not None

    def encode(self, texts: Sequence[str], max_length: int, device: torch.device) -> MaskableTokens:
        """Tokens of the texts, each cut to `max_length` tokens, special ones included, and padded to the longest."""
        texts = cut(self.tokenizer, texts, max_length)
        encoded = self.tokenizer(
            texts,
            truncation=True,
            max_length=max_length,
            padding=True,
            return_tensors="np",
            return_token_type_ids=False,
        )
        ids = encoded["input_ids"].astype(np.int64)
        special = np.isin(ids, self._special) | (encoded["attention_mask"] == 0)
        if self.tokenizer.is_fast:
            starts = word_starts(texts, encoded.encodings).reshape(ids.shape)
        elif self._marker is not None:
            rows = [self.tokenizer.convert_ids_to_tokens(row) for row in ids.tolist()]
            starts = np.array([marked_starts(row, self._marker) for row in rows])
        else:
            starts = np.ones_like(special)
        # A word that goes on behind a special token is two.
        starts[:, 1:] |= special[:, :-1]
        word = np.where(special, -1, np.cumsum(starts & ~special, axis=1) - 1)
        parts = (ids, encoded["attention_mask"].astype(np.int64), special, word)
        return MaskableTokens(*(torch.from_numpy(part).to(device, non_blocking=True) for part in parts))

    def mask(self, tokens: MaskableTokens, ratio: float, seeds: torch.Tensor) -> torch.Tensor:
        """Which tokens are masked, (B, L) bool; `seeds` is (B,) int64, one for each text.

        Words are taken in random order until the masked tokens are as near as they come to `ratio` of those
        that are not special, one at least. A word so long that masking it alone is further off than masking
        nothing is not taken while there are shorter ones. ValueError for a ratio outside (0, 1).
        """
        if not 0 < ratio < 1:
            raise ValueError(f"mask ratio is {ratio}; accepted is a number between 0 and 1, both excluded")
        texts, length = tokens.ids.shape
        index = tokens.word.clamp(min=0)
        sizes = torch.zeros_like(index).scatter_add_(1, index, (~tokens.special).long())
        wanted = (sizes.sum(1, keepdim=True).double() * ratio).round().long().clamp(min=1)
        shortest = sizes.masked_fill(sizes == 0, length).amin(1, keepdim=True)
        taken = (sizes > 0) & (sizes <= torch.maximum(2 * wanted - 1, shortest))
        order = draws(seeds, length, MASKING).masked_fill(~taken, _LARGEST).argsort(dim=1)
        place = torch.arange(length, device=index.device)
        sums = (sizes * taken).gather(1, order).cumsum(1)
        # Of two equally near sums the first; places make the minimum unique.
        last = ((sums - wanted).abs() * length + place).argmin(1, keepdim=True)
        chosen = torch.zeros_like(taken).scatter_(1, order, (place <= last).expand(texts, length)) & taken
        return chosen.gather(1, index) & ~tokens.special

    def corrupt(self, tokens: MaskableTokens, masked: torch.Tensor, seeds: torch.Tensor) -> torch.Tensor:
        """The encoder's input, (B, L) int64: of the masked tokens 80% are the mask token, 10% a random one that
        is not special, 10% as they were (BERT, arXiv 1810.04805, section 3.1).

        So does RetroMAE's own code, whose collator is transformers' whole-word one
        (github.com/staoxiao/RetroMAE, src/pretrain/data.py), while its paper (arXiv 2205.12035, section 3.1)
        speaks of the mask token only.
        """
        length = tokens.ids.shape[1]
        tenth = draws(seeds, length, REPLACING) % 10
        ordinary = self._ordinary.to(tokens.ids.device, non_blocking=True)
        random = ordinary[draws(seeds, length, REPLACEMENT) % len(ordinary)]
        replaced = torch.where(tenth < 8, self.mask_id, torch.where(tenth == 8, random, tokens.ids))
        return torch.where(masked, replaced, tokens.ids)


def text_seeds(seed: int, step: int, batch_size: int) -> torch.Tensor:
    """Seeds of the texts of a global batch, (batch_size,) int64, from which a worker takes its share."""
    return _stream(_mix(_mix(torch.tensor([seed])) + step), batch_size)[0]


def draws(seeds: torch.Tensor, count: int, stream: int) -> torch.Tensor:
    """`count` random numbers for each seed, (len(seeds), count) int64 from 0 to 2^63 - 1.

    A function of (seed, stream, place): splitmix64 (Steele, Lea, Flood 2014, OOPSLA) from a state that is a
    hash of the first two.

    >>> one, both = torch.tensor([7]), torch.tensor([7, 8])
    >>> torch.equal(draws(one, 3, stream=0)[0], draws(both, 5, stream=0)[0, :3])
    True
    """
    return _stream(_mix(_mix(seeds) + stream), count) & _LARGEST


def unigram_entropy(source: TextSet, masker: Masker, max_length: int, texts: int = 2_000) -> float:
    """Entropy in nats of the tokens that are not special, measured on at most `texts` texts.

    It is the lowest cross-entropy on these tokens of a model that looks at nothing but how often a token
    comes. Biased low where texts are few.
    """
    count = texts if source.size is None else min(texts, source.size)
    drawn = source.texts(0, count, seed=0)
    counts = torch.zeros(len(masker.tokenizer), dtype=torch.int64)
    for start in range(0, count, 64):
        tokens = masker.encode(drawn[start : start + 64], max_length, torch.device("cpu"))
        counts += torch.bincount(tokens.ids[~tokens.special], minlength=len(counts))
    seen = counts[counts > 0].double()
    if not len(seen):
        raise ValueError(f"{source.name}: {count} texts have no token but special ones with this tokenizer")
    total = seen.sum()
    return math.log(total) - ((seen * seen.log()).sum() / total).item()


def _stream(state: torch.Tensor, count: int) -> torch.Tensor:
    places = torch.arange(1, count + 1, device=state.device)
    return _mix(state[:, None] + places * _GOLDEN)


def _mix(x: torch.Tensor) -> torch.Tensor:
    """splitmix64's finaliser on int64, whose products wrap around as those of unsigned integers do."""
    for shift, factor in _MIXERS:
        x = (x ^ _shifted(x, shift)) * factor
    return x ^ _shifted(x, 31)


def _shifted(x: torch.Tensor, bits: int) -> torch.Tensor:
    """x >> bits with zeros coming in, which torch does not offer for signed integers."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _marker(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """What marks the parts of words in a slow tokenizer's vocabulary."""
    vocabulary = tokenizer.get_vocab()
    return next((mark for mark in ("##", "▁") if any(t.startswith(mark) and t != mark for t in vocabulary)), None)
