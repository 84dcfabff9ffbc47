"""Which few of many texts show soonest that a model or its tokenizer cannot take them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from heapq import nlargest
from statistics import fmean
from typing import TypeVar

Item = TypeVar("Item")

SAMPLE = 2_000
"""Texts whose characters are counted, evenly spaced among all."""
CUT = 10_000
"""Characters of a text that are counted."""


def spaced(items: Sequence[Item], count: int) -> list[Item]:
    """At most `count` of the items, evenly spaced.

    >>> spaced("abcdefg", 3), spaced("ab", 3)
    (['a', 'c', 'e'], ['a', 'b'])
    """
    return [items[place * len(items) // min(count, len(items))] for place in range(min(count, len(items)))]


def extremes(texts: Sequence[str], count: int) -> list[int]:
    """Places of at most `count` different texts, ascending: the longest, the shortest, and the strangest.

    Half of them are the longest texts; with a `count` of 3 or more one is the shortest; the rest have the characters
    that occur in the fewest texts. Among equals, texts come first whose characters are rarer throughout.

    >>> extremes(["plain words", "some plain words", "words", "plain \u2603", "plain"], 3)
    [1, 2, 3]
    """
    longest = nlargest(max(1, count // 2), range(len(texts)), key=lambda place: len(texts[place]))
    chosen = dict.fromkeys(longest)
    if count > 2:
        chosen[min(range(len(texts)), key=lambda place: len(texts[place]))] = None
    sample = spaced(range(len(texts)), SAMPLE)
    characters = {place: set(texts[place][:CUT]) for place in sample}
    common = Counter(character for found in characters.values() for character in found)

    def strangeness(place: int) -> tuple[float, float]:
        rarity = [1 / common[character] for character in characters[place]] or [0.0]
        return max(rarity), fmean(rarity)

    for place in nlargest(count, sample, key=strangeness):
        if len(chosen) < count:
            chosen[place] = None
    return sorted(chosen)
