"""What a confirmation found: the winner's differences on test queries, over the fresh seeds that all of it ran with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from study.stats.significance import LEVEL, Mean, holm, over_items


@dataclass(frozen=True, slots=True)
class Difference:
    """The winner less another trial that was confirmed, paired by seed and query."""

    other: int
    gap: Mean
    """For other seeds and other queries."""
    adjusted_p: float
    """Corrected by Holm over all that the winner is compared with."""

    @property
    def distinct(self) -> bool:
        return self.adjusted_p < LEVEL


def differences(winner: int, items: Mapping[int, Sequence[Mapping[str, float]]]) -> list[Difference]:
    """The winner less each other trial of `items`: number -> query -> value on test, for each seed in one order.

    The winner was chosen on validation queries, so that its test values are not inflated by the choice. A trial that
    shares fewer than two queries with it is left out.
    """
    gaps = [(other, over_items(items[winner], values)) for other, values in items.items() if other != winner]
    found = [(other, gap) for other, gap in gaps if gap is not None]
    adjusted = holm([gap.p for _, gap in found])
    return [Difference(other, gap, p) for (other, gap), p in zip(found, adjusted, strict=True)]
