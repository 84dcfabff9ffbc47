"""What the labels of graded pairs are: numbers or words, and the range that they go through."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from trainables.data.config import PairData

RANGES = ((0.0, 1.0), (1.0, 5.0), (0.0, 5.0))
"""Ranges of labels in use, the narrowest first: shares, paraphrases and probabilities (0 to 1); SICK (1 to 5); STS
Benchmark and JSTS (0 to 5)."""

WORDS = {
    **dict.fromkeys(("no", "false", "different", "dissimilar", "unrelated", "irrelevant", "contradiction"), 0.0),
    **dict.fromkeys(("not_entailment", "non_entailment", "not_equivalent", "not_duplicate", "not_paraphrase"), 0.0),
    **dict.fromkeys(("neutral", "partial", "maybe"), 0.5),
    **dict.fromkeys(("yes", "true", "same", "similar", "related", "relevant", "entailment"), 1.0),
    **dict.fromkeys(("equivalent", "duplicate", "paraphrase"), 1.0),
}
"""Word -> label, from 0 to 1."""


class Labels:
    """Reads the labels of one source of pairs, all three splits: all of them numbers, or all of them words."""

    def __init__(self, data: PairData) -> None:
        self._data, self._known = data, WORDS
        if data.label_words:
            last = len(data.label_words) - 1
            self._known = {word.lower(): place / last for place, word in enumerate(data.label_words)}
        self._first: dict[bool, str] = {}
        """Where the first label was read that is a word (True), and the first that is a number (False)."""

    def read(self, value: Any, where: str) -> float:
        """The label; ValueError where it is no number in range, and no word that is known."""
        try:
            label, word = (math.nan, True) if isinstance(value, bool) else (float(value), False)
        except (TypeError, ValueError):
            label, word = math.nan, True
        if word:
            label = self._known.get(str(value).strip().lower(), math.nan)
        lowest, highest = declared(self._data) or (RANGES[-1] if not word else RANGES[0])
        if not lowest <= label <= highest:
            raise ValueError(f"{where} is {value!r}; accepted is {self._accepted(lowest, highest)}")
        self._first.setdefault(word, where)
        if len(self._first) == 2:
            raise ValueError(
                f"{self._first[True]} is a word and {self._first[False]} a number; labels are all words or all numbers"
            )
        return label

    def _accepted(self, lowest: float, highest: float) -> str:
        if self._data.label_words:
            return f"a word of data.label_words={list(self._data.label_words)}"
        words = "or a word such as yes and no (data.label_words names others, the least alike first)"
        if declared(self._data) is None:
            lowest, highest = RANGES[-1]
            words = f"unless data.lowest and data.highest declare other ones, {words}"
        return f"a number from data.lowest={lowest:g} to data.highest={highest:g}, {words}"


def declared(data: PairData) -> tuple[float, float] | None:
    """The range that `data` declares or its kind of source has; None for one that the labels must tell."""
    if data.lowest is not None and data.highest is not None:
        return data.lowest, data.highest
    if data.train == "embedded":
        return 0.0, 4.0
    return (0.0, 5.0) if data.train.startswith("stsb:") else None


def label_range(data: PairData, labels: Iterable[float]) -> tuple[float, float]:
    """(lowest, highest) of what `labels`, those of all splits, are graded by: declared, or the narrowest known range.

    >>> from trainables.data.config import PairData
    >>> label_range(PairData(train="a.tsv"), [0.0, 1.0]), label_range(PairData(train="a.tsv"), [1.2, 4.9])
    ((0.0, 1.0), (1.0, 5.0))
    """
    known = declared(data)
    if known is not None:
        return known
    found = list(labels)
    return next((low, high) for low, high in RANGES if low <= min(found) and max(found) <= high)
