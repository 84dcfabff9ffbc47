"""How often 95% intervals hold the true difference, with few seeds, whatever it is that differs.

    python -m benchmarks.coverage [--runs 4000]

Two arms that are equally good are compared again and again. Beside the intervals of the report stand three that are at
hand elsewhere: percentiles of a bootstrap over seeds and items, Student's t over the seeds' means, and Student's t over
the items' means. Exit code 1 where an interval of the report misses the bar of 92 to 98%.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np

from study.stats.pseudo_values import linear_without, ranked_without
from study.stats.significance import crossed, mean

BAR = (0.92, 0.98)
SEEDS = (3, 5, 10)

Quantity = Literal["mean", "suite", "spearman", "pearson"]
Dominant = Literal["seeds", "items", "mixed"]
SHARES: dict[Dominant, float] = {"seeds": 0.95, "items": 0.0, "mixed": 0.5}
"""Of the variance of a mean of three seeds, which the seeds make up."""
SIZES: dict[Quantity, tuple[int, ...]] = {"mean": (150,), "suite": (50, 200, 30), "spearman": (60,), "pearson": (60,)}
"""Items of each collection."""
EMBEDDINGS: dict[Dominant, tuple[float, float, float]] = {
    "seeds": (0.5, 0.2, 0.4), "items": (0.0, 0.8, 0.4), "mixed": (0.1, 0.6, 0.5),
}  # fmt: skip
"""Standard deviations of an arm's cosines: of their scale between seeds, between pairs, and of what is left."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One row of the table."""

    quantity: Quantity
    dominant: Dominant
    seeds: int

    def samples(self, runs: int) -> Iterator[tuple[list[np.ndarray], float]]:
        """(tables (seeds, items) of differences, one of each collection; the difference that was found) of each run."""
        draw = np.random.default_rng([self.seeds, list(SIZES).index(self.quantity), list(SHARES).index(self.dominant)])
        for _ in range(runs):
            yield self._means(draw) if self.quantity in ("mean", "suite") else self._correlations(draw)

    def _means(self, draw: np.random.Generator) -> tuple[list[np.ndarray], float]:
        sizes, share = SIZES[self.quantity], SHARES[self.dominant]
        items = ((1 - share) / sum(1 / size for size in sizes)) ** 0.5 * len(sizes)
        luck = (3 * share) ** 0.5 * draw.standard_normal((self.seeds, 1))
        tables = [
            luck + items * draw.standard_normal((1, size)) + draw.standard_normal((self.seeds, size)) for size in sizes
        ]
        return tables, float(np.mean([table.mean() for table in tables]))

    def _correlations(self, draw: np.random.Generator) -> tuple[list[np.ndarray], float]:
        """Embeddings of both arms agree with graded labels equally well but for seed and pair; jackknife pseudo-values
        stand in the table, and the difference is that of the correlations themselves."""
        (count,), (of_seeds, of_items, rest) = SIZES[self.quantity], EMBEDDINGS[self.dominant]
        left_out = ranked_without if self.quantity == "spearman" else linear_without
        labels = draw.integers(0, 11, count) / 2
        values, contributions = np.zeros((2, self.seeds)), np.zeros((2, self.seeds, count))
        for arm in range(2):
            pairs = of_items * draw.standard_normal(count)
            for seed in range(self.seeds):
                scale = np.exp(of_seeds * draw.standard_normal())
                cosines = 0.3 * labels + scale * (pairs + rest * draw.standard_normal(count))
                values[arm, seed], others = left_out(cosines, labels)
                contributions[arm, seed] = count * values[arm, seed] - (count - 1) * others
        return [contributions[1] - contributions[0]], float((values[1] - values[0]).mean())


Interval = Callable[[list[np.ndarray], float], tuple[float, float]]
"""Ends of a 95% interval for the difference, of the tables of a sample and of the difference that was found."""


def ours(tables: list[np.ndarray], found: float) -> tuple[float, float]:
    """Variance components with Satterthwaite's degrees of freedom: what the report has."""
    interval = crossed(*tables, value=found)
    return interval.low, interval.high


def percentiles(tables: list[np.ndarray], found: float) -> tuple[float, float]:
    """Percentiles of a bootstrap that resamples the seeds and, within each collection, the items."""
    of_seeds = _resampled(len(tables[0]), 0)
    means = sum(
        ((of_seeds @ table) * _resampled(table.shape[1], place)).sum(1) for place, table in enumerate(tables, 1)
    )
    low, high = np.percentile(means / len(tables), (2.5, 97.5))
    return float(low), float(high)


@cache
def _resampled(count: int, stream: int, draws: int = 400) -> np.ndarray:
    """(draws, count) share that each of `count` has in a resample, the same for all samples."""
    return np.random.default_rng(stream).multinomial(count, np.full(count, 1 / count), draws) / count


def over_seeds(tables: list[np.ndarray], found: float) -> tuple[float, float]:
    """Student's t over the seeds' means, as if the items were all there are."""
    interval = mean(np.mean([table.mean(1) for table in tables], 0).tolist())
    return interval.low, interval.high


def over_items(tables: list[np.ndarray], found: float) -> tuple[float, float]:
    """Student's t over the items' means, as if the seeds were all there are."""
    interval = crossed(*(table.mean(0, keepdims=True) for table in tables), value=found)
    return interval.low, interval.high


METHODS: dict[str, Interval] = {
    "of the report": ours, "bootstrap percentiles": percentiles, "t over seeds": over_seeds, "t over items": over_items,
}  # fmt: skip


def coverage(cell: Cell, runs: int, methods: dict[str, Interval] = METHODS) -> dict[str, float]:
    """Share of the runs whose interval holds the truth, 0, by method."""
    held = dict.fromkeys(methods, 0)
    for tables, found in cell.samples(runs):
        for name, method in methods.items():
            low, high = method(tables, found)
            held[name] += low <= 0 <= high
    return {name: count / runs for name, count in held.items()}


def within(share: float) -> bool:
    return BAR[0] <= share <= BAR[1]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=4_000, help="comparisons for each row")
    runs = parser.parse_args(arguments).runs
    print(f"| 95% interval for | differs most | seeds | {' | '.join(METHODS)} | bar {BAR[0]:.0%} to {BAR[1]:.0%} |")
    print("|---" * (4 + len(METHODS)) + "|")
    missed = 0
    for quantity in SIZES:
        for dominant in SHARES:
            for seeds in SEEDS:
                shares = coverage(Cell(quantity, dominant, seeds), runs)
                kept = within(shares["of the report"])
                missed += not kept
                cells = " | ".join(f"{share:.1%}" for share in shares.values())
                print(f"| {quantity} | {dominant} | {seeds} | {cells} | {'kept' if kept else 'MISSED'} |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
