"""What is compared on a suite, against a drawn bootstrap and in simulation, and what its page says of it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from synthetic_study import write_study

from study.protocol.folder import EvaluationFolder
from study.protocol.measured import Measured
from study.reporting.suite_tables import compare, reference, write
from study.stats.significance import components, crossed, holm
from trainables.evaluation.suites import Dataset, Suite

SIZES = {"a": 40, "b": 90, "c": 25}


def results(shifts: dict[int, float], seeds: int = 1, generator: int = 0, luck: float = 0.0) -> list[Measured]:
    """Trials whose queries score `shifts` more than those of a trial with 0, but for noise and the seeds' `luck`."""
    draw = np.random.default_rng(generator)
    base = {name: draw.random(size) for name, size in SIZES.items()}
    found = []
    for trial, shift in shifts.items():
        for seed in range(seeds):
            own = luck * draw.standard_normal()
            for name, values in base.items():
                scores = values + shift + own + 0.05 * draw.standard_normal(len(values))
                items = {f"q{n}": float(score) for n, score in enumerate(scores)}
                found.append(
                    Measured(trial, seed, name, {"ndcg_at_10": float(scores.mean())}, {"ndcg_at_10": items}, 0)
                )
    return found


def test_the_mean_over_the_suite_is_tested_and_corrected_over_the_other_trials_alone() -> None:
    found = compare("ndcg_at_10", results({0: 0.2, 1: 0.0, 2: 0.199}), reference=0)
    assert [(one.reference, one.other) for one in found] == [(0, 1), (0, 2)]
    assert [one.adjusted_p for one in found] == holm([one.gap.p for one in found])
    assert [one.distinct for one in found] == [True, False]
    for one in found:
        assert list(one.collections) == list(SIZES)
        assert one.gap.value == pytest.approx(np.mean([gap.value for gap in one.collections.values()]))
        assert one.gap.items == sum(SIZES.values())
    assert compare("ndcg_at_10", results({4: 0.0}), reference=4) == []


def test_a_lead_too_small_for_each_collection_shows_in_their_mean() -> None:
    (found,) = compare("ndcg_at_10", results({0: 0.013, 1: 0.0}, generator=34), reference=0)
    assert all(gap.p > 0.05 for gap in found.collections.values())
    assert found.distinct


def test_equal_trials_do_not_differ() -> None:
    same = {"ndcg_at_10": {"q0": 0.5, "q1": 0.25}}
    (found,) = compare("ndcg_at_10", [Measured(trial, 0, "a", {}, same, 0) for trial in (0, 1)], reference=0)
    assert (found.gap.value, found.adjusted_p, found.distinct) == (0.0, 1.0, False)


def test_parts_of_the_variance_are_those_of_bootstraps_over_seeds_and_over_queries_within_collections() -> None:
    draw, seeds, runs = np.random.default_rng(7), 4, 4_000
    luck = draw.standard_normal((seeds, 1))
    tables = [luck + 4 * draw.standard_normal((1, n)) + draw.standard_normal((seeds, n)) for n in (30, 50)]
    found = components(*tables)
    by_seed = np.mean([table.mean(1) for table in tables], 0)
    over_seeds = by_seed[draw.integers(0, seeds, (runs, seeds))].mean(1).var() * seeds / (seeds - 1)
    assert found.seeds[0] == (pytest.approx(over_seeds, rel=0.1), seeds - 1)
    for table, (variance, freedom) in zip(tables, found.items, strict=True):
        items = table.shape[1]
        over_items = table.mean(0)[draw.integers(0, items, (runs, items))].mean(1).var() * items / (items - 1)
        assert (variance, freedom) == (pytest.approx(over_items / len(tables) ** 2, rel=0.1), items - 1)


@pytest.mark.parametrize("seeds", [1, 3])
def test_trials_that_are_level_are_told_apart_in_five_of_a_hundred_suites(seeds) -> None:
    found = [compare("ndcg_at_10", results({0: 0.0, 1: 0.0}, seeds, n, luck=0.01), 0)[0].adjusted_p for n in range(400)]
    share = np.mean([p < 0.05 for p in found])
    if seeds == 1:
        # Queries alone cannot tell the luck of a seed from a difference.
        assert share > 0.2
    else:
        assert 0.02 <= share <= 0.08


def test_the_best_of_the_study_is_asked_about_or_the_first_arm(tmp_path) -> None:
    summary = write_study(tmp_path, {k: {"test": 0.5 + k / 100, "untrained": 0.2} for k in (1, 2, 4)})
    assert summary.best == (2,)
    assert reference(summary, summary.trials) == 2
    assert reference(summary, summary.trials[:2]) == 0
    assert reference(summary, summary.trials[1::-1]) == 1
    assert reference(summary.model_copy(update={"design": "paired"}), summary.trials[::-1]) == 0


def test_the_page_has_the_mean_and_where_it_comes_from(tmp_path) -> None:
    summary = write_study(tmp_path, {k: {"test": 0.5 + k / 100, "untrained": 0.2} for k in (1, 2, 4)})
    suite = Suite("own", ("ndcg_at_10",), tuple(Dataset(name, name) for name in SIZES), "ours")
    folder = EvaluationFolder(tmp_path / "evaluation")
    page = write(folder, suite, summary, summary.trials, results({0: 0.0, 1: 0.199, 2: 0.2})).read_text()
    told, _, parts = page.partition("Where that comes from: each collection by itself, not corrected")
    assert "of trial 2 less that of each other trial on average over 3 collections, paired over queries; Holm" in told
    assert "Holm over 2 comparison(s)." in told
    assert "| trial 1      |" in told
    assert told.count("may be chance") == 1
    assert [line.split("|")[1].strip() for line in parts.splitlines() if "trial 0" in line] == list(SIZES)
    content = json.loads(folder.figures("own").read_text())
    assert [one["other"] for one in content["comparisons"]] == [0, 1]


def test_trials_of_different_groups_are_never_compared(tmp_path) -> None:
    summary = write_study(tmp_path, {k: {"test": 0.5 + k / 100, "untrained": 0.2} for k in (1, 2, 4, 8)})
    of_groups = [t.model_copy(update={"group": "ab"[t.number % 2]}) for t in summary.trials]
    grouped = summary.model_copy(update={"trials": tuple(of_groups), "best": (2, 3)})
    suite = Suite("own", ("ndcg_at_10",), tuple(Dataset(name, name) for name in SIZES), "ours")
    folder = EvaluationFolder(tmp_path / "evaluation")
    page = write(folder, suite, grouped, of_groups, results({0: 0.0, 1: 0.1, 2: 0.2, 3: 0.3})).read_text()
    content = json.loads(folder.figures("own").read_text())
    assert [(one["reference"], one["other"]) for one in content["comparisons"]] == [(2, 0), (3, 1)]
    assert page.count("Holm over 1 comparison(s).") == 2


def test_parts_of_a_collection_count_as_one_in_means_and_differences(tmp_path) -> None:
    summary = write_study(tmp_path, {k: {"test": 0.5 + k / 100, "untrained": 0.2} for k in (1, 2)})
    kinds = tuple(Dataset(name, name, part_of=None if name == "a" else "forums") for name in SIZES)
    suite, found = Suite("own", ("ndcg_at_10",), kinds, "ours"), results({0: 0.0, 1: 0.1})
    folder = EvaluationFolder(tmp_path / "evaluation")
    page = write(folder, suite, summary, summary.trials, found).read_text()
    content = json.loads(folder.figures("own").read_text())
    values = {one.dataset: one.values["ndcg_at_10"] for one in found if one.trial == 1}
    mean = (values["a"] + (values["b"] + values["c"]) / 2) / 2
    assert content["trials"][1]["mean"]["ndcg_at_10"] == pytest.approx(mean)
    assert content["convention"] == "ours"
    assert "Convention: ours." in page
    assert any(line.startswith("| forums (mean) |") for line in page.splitlines())
    (gap,) = content["comparisons"]
    parts = gap["collections"]
    expected = (parts["a"]["value"] + (parts["b"]["value"] + parts["c"]["value"]) / 2) / 2
    assert gap["gap"]["value"] == pytest.approx(expected)


def test_weights_of_collections_are_those_of_a_drawn_bootstrap() -> None:
    draw, runs = np.random.default_rng(3), 4_000
    tables = [4 * draw.standard_normal((1, n)) for n in (30, 50, 20)]
    weights = [0.5, 0.25, 0.25]
    drawn = sum(
        weight * table[0][draw.integers(0, table.size, (runs, table.size))].mean(1)
        for weight, table in zip(weights, tables, strict=True)
    )
    found = crossed(*tables, weights=weights)
    assert found.value == pytest.approx(sum(w * t.mean() for w, t in zip(weights, tables, strict=True)))
    assert (found.high - found.low) / 2 == pytest.approx(1.99 * drawn.std(), rel=0.06)


def test_each_prefix_has_its_row_and_its_differences(tmp_path) -> None:
    summary = write_study(tmp_path, {k: {"test": 0.5 + k / 100, "untrained": 0.2} for k in (1, 2)})
    suite = Suite("own", ("ndcg_at_10",), tuple(Dataset(name, name) for name in SIZES), "ours")
    whole, half = results({0: 0.0, 1: 0.1}), results({0: -0.2, 1: 0.1}, generator=5)
    both = [
        replace(
            one,
            values=one.values | {"ndcg_at_10_16": one.values["ndcg_at_10"], "ndcg_at_10_8": part.values["ndcg_at_10"]},
            per_item=one.per_item
            | {"ndcg_at_10_16": one.per_item["ndcg_at_10"], "ndcg_at_10_8": part.per_item["ndcg_at_10"]},
        )
        for one, part in zip(whole, half, strict=True)
    ]
    folder = EvaluationFolder(tmp_path / "evaluation")
    page = write(folder, suite, summary, summary.trials, both).read_text()
    assert page.count("nDCG@10 (mean) of prefixes of") == 1
    assert "nDCG@10 8" not in page, "no table for each prefix by collection"
    content = json.loads(folder.figures("own").read_text())
    assert list(content["comparisons_by_size"]) == ["8", "16"]
    short, long = (content["comparisons_by_size"][size][0]["gap"]["value"] for size in ("8", "16"))
    assert (short, long) == (pytest.approx(0.3, abs=0.02), pytest.approx(0.1, abs=0.02))
    assert "Differences in nDCG@10 at each prefix; Holm over 2." in page
    assert "![nDCG@10 by prefix](own.svg)" in page
    picture = folder.picture("own").read_text()
    assert "coordinates of the prefix" in picture
    assert picture.count('aria-roledescription="line mark"') == 2
