"""Every interval that is printed covers what it says: in simulations of few seeds, whatever it is that differs."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from benchmarks import coverage
from study.stats.pseudo_values import contributions, linear_without, ranked_without
from study.stats.significance import crossed, mean, over_items
from trainables.report import Correlation

CORRELATIONS = {
    "spearman": Correlation(kind="rank", one="cosine", other="label"),
    "pearson": Correlation(kind="linear", one="cosine", other="label"),
}
RUNS: dict[coverage.Quantity, int] = {"mean": 500, "suite": 500, "spearman": 120, "pearson": 120}
WIDE = (0.89, 0.995)
"""What so few runs of an interval that keeps the bar of `benchmarks/coverage.py` stay within."""


def covers(intervals, truth: float = 0.0) -> None:
    share = np.mean([found.low < truth < found.high for found in intervals])
    assert 0.92 <= share <= 0.98, share


@pytest.mark.parametrize("seeds", coverage.SEEDS)
@pytest.mark.parametrize("dominant", coverage.SHARES)
@pytest.mark.parametrize("quantity", RUNS)
def test_over_seeds_and_items(quantity, dominant, seeds) -> None:
    """The table of `benchmarks/coverage.py` in small."""
    cell = coverage.Cell(quantity, dominant, seeds)
    share = coverage.coverage(cell, RUNS[quantity], {"ours": coverage.ours})["ours"]
    assert WIDE[0] <= share <= WIDE[1]


@pytest.mark.parametrize(
    ("method", "dominant", "seeds"),
    [("percentiles", "seeds", 3), ("percentiles", "seeds", 5), ("over_items", "mixed", 3), ("over_seeds", "items", 3)],
)
@pytest.mark.parametrize("quantity", ["mean", "suite"])
def test_what_the_report_does_not_print_would_fail(quantity, method, dominant, seeds) -> None:
    cell = coverage.Cell(quantity, dominant, seeds)
    assert coverage.coverage(cell, RUNS[quantity], {method: getattr(coverage, method)})[method] < WIDE[0]


@pytest.mark.parametrize("seeds", coverage.SEEDS)
def test_means_over_seeds_alone_and_over_items_alone(seeds) -> None:
    draw = np.random.default_rng(seeds)
    covers((mean(gaps) for gaps in (0.3 + draw.standard_normal((1_000, seeds))).tolist()), 0.3)
    # Per-query measures: many zeros and ones.
    queries = np.round(draw.beta(0.4, 0.4, (1_000, 50)), 1)
    covers((mean(values) for values in queries.tolist()), 0.5)


@pytest.mark.parametrize("ties", [1, 0])
@pytest.mark.parametrize("items", [3, 12, 40])
def test_leaving_one_out_is_leaving_it_out(items, ties) -> None:
    draw = np.random.default_rng(items)
    x, y = draw.standard_normal(items), draw.permutation(np.arange(items) % 5).astype(float)
    x = np.round(x, 1) if ties else x
    for ours, theirs in ((ranked_without, scipy.stats.spearmanr), (linear_without, scipy.stats.pearsonr)):
        whole, others = ours(x, y)
        assert whole == pytest.approx(theirs(x, y)[0], abs=1e-12)
        brute = [theirs(np.delete(x, i), np.delete(y, i))[0] for i in range(items)]
        assert others == pytest.approx(np.array(brute), abs=1e-12)


def test_a_side_without_differences_correlates_with_nothing() -> None:
    for ours in (ranked_without, linear_without):
        whole, others = ours(np.ones(4), np.arange(4.0))
        assert whole == 0
        assert others.tolist() == [0, 0, 0, 0]


def test_contributions_of_a_mean_are_its_values_and_none_where_they_are_missing() -> None:
    items = {"ndcg_at_10": {"a": 0.5, "b": 0.7}, "label": {"a": 1.0, "b": 2.0}}
    assert contributions(items, {"ndcg_at_10": None}, ["a", "b"]).tolist() == [[0.5], [0.7]]
    assert contributions(items, {"mrr_at_10": None}, ["a", "b"]) is None
    assert contributions(items, CORRELATIONS, ["a", "b"]) is None


def test_the_interval_is_students_where_one_component_is_all_there_is() -> None:
    values = np.random.default_rng(0).standard_normal(8)
    by_item, by_seed = crossed(np.tile(values, (4, 1))), crossed(np.tile(values[:, None], (1, 30)))
    for found in (by_item, by_seed):
        expected = mean(values.tolist())
        assert (found.low, found.high, found.p) == pytest.approx((expected.low, expected.high, expected.p))
    equal = crossed(np.full((3, 4), 0.25))
    assert (equal.low, equal.high, equal.p) == (0.25, 0.25, 0.0)
    with pytest.raises(ValueError, match="over items needs at least 2 of them, got 1"):
        crossed(np.ones((3, 1)))


def test_shared_items_and_seeds_are_paired() -> None:
    one = [{"a": 0.5, "b": 0.7, "c": 0.9}, {"a": 0.6, "b": 0.7, "c": 0.8}]
    other = [{"a": 0.4, "b": 0.3, "d": 0.0}]
    found = over_items(one, other)
    assert (found.value, found.items, found.seeds) == (pytest.approx(0.25), 2, 1)
    assert over_items(one).seeds == 2
    assert over_items(one, [{"d": 1.0}]) is None
    assert over_items([]) is None
