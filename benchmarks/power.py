"""How often a difference that a plan says can be shown is shown by the report's own test.

    python -m benchmarks.power [--runs 2000]

`study/planning/power.py` names the smallest difference that is shown in 80 of 100 studies. Here trials that differ by
just that are compared again and again: the share that the test tells apart should be 75 to 85%. Exit code 1 where it
is not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from study.planning.power import Deviations, by_flips, by_student
from study.stats.resampling import flip_p
from study.stats.significance import LEVEL, crossed

BAR = (0.75, 0.85)
Test = Literal["student", "flips"]
DEVIATIONS = {
    "seeds": Deviations(200, 0.1, 0.1, 0.05),
    "items": Deviations(200, 0.3, 0.1, 0.0),
    "mixed": Deviations(200, 0.25, 0.1, 0.01),
}
ALONE = Deviations(200, 0.25)
"""One seed, of whose luck nothing is known."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One row of the table: a test with Holm over `comparisons`, whose smallest p counts."""

    test: Test
    seeds: int
    dominant: str
    comparisons: int

    @property
    def known(self) -> Deviations:
        return ALONE if self.seeds == 1 else DEVIATIONS[self.dominant]

    @property
    def difference(self) -> float:
        """The one that the plan claims."""
        claim = by_student if self.test == "student" else by_flips
        return claim(self.known, self.seeds, LEVEL / self.comparisons)

    def shown(self, runs: int) -> float:
        """Share of the studies whose test tells trials apart that differ by that."""
        return float(np.mean([p < LEVEL / self.comparisons for p in self._p_values(runs)]))

    def _p_values(self, runs: int) -> Iterator[float]:
        draw, known, difference = np.random.default_rng([self.seeds, self.comparisons]), self.known, self.difference
        for _ in range(runs):
            of_items = known.between_items * draw.standard_normal((1, known.items))
            if self.test == "flips":
                # It is about the items at hand, whose mean is the difference.
                of_items -= of_items.mean()
            of_seeds = (known.between_seeds or 0.0) * draw.standard_normal((self.seeds, 1))
            of_both = known.between_both * draw.standard_normal((self.seeds, known.items))
            table = difference + of_seeds + of_items + of_both
            yield crossed(table).p if self.test == "student" else flip_p(table.mean(1))


CELLS = (
    *(Cell("student", 1, "items", comparisons) for comparisons in (1, 9)),
    *(Cell("student", seeds, dominant, m) for seeds in (3, 5, 10) for dominant in DEVIATIONS for m in (1, 9)),
    *(Cell("flips", seeds, dominant, m) for seeds, m in ((6, 1), (8, 5), (10, 1), (10, 5), (12, 5))
      for dominant in ("seeds", "mixed")),
)  # fmt: skip


def within(share: float) -> bool:
    return BAR[0] <= share <= BAR[1]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2_000, help="studies for each row")
    runs = parser.parse_args(arguments).runs
    print(f"| test | seeds | differs most | Holm over | claimed for 80% | shown | bar {BAR[0]:.0%} to {BAR[1]:.0%} |")
    print("|---|---|---|---|---|---|---|")
    missed = 0
    for cell in CELLS:
        share = cell.shown(runs)
        missed += not within(share)
        facts = f"{cell.test} | {cell.seeds} | {cell.dominant} | {cell.comparisons} | {cell.difference:.3g}"
        print(f"| {facts} | {share:.1%} | {'kept' if within(share) else 'MISSED'} |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
