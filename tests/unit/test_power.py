"""What a plan says that a study can show: against simulations of the report's tests, and in words."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.special import ndtr, stdtrit
from synthetic_study import write_study
from test_paired import REAL
from test_paired import write as write_arms

from benchmarks import power as claims
from study import spec
from study.confirmation import Confirm
from study.ledger.optuna_study import definition
from study.planning import power
from study.planning.power import Deviations
from study.protocol.folder import StudyFolder
from study.reporting.results import Findings

WIDE = (0.72, 0.88)
"""What 500 runs of a claim that keeps the bar of `benchmarks/power.py` stay within."""


def study_of(name: str, profile: str = "embedded", **known) -> spec.Study:
    return spec.load(spec.available()[name], profile, {}, {f"power.{key}": value for key, value in known.items()})[1]


@pytest.mark.parametrize(
    "cell",
    [claims.Cell("student", 1, "items", 9), claims.Cell("student", 3, "seeds", 1),
     claims.Cell("student", 3, "mixed", 9), claims.Cell("flips", 6, "seeds", 1), claims.Cell("flips", 10, "mixed", 5)],
    ids=str,
)  # fmt: skip
def test_the_claimed_difference_is_shown_in_80_of_100_studies(cell) -> None:
    """The table of `benchmarks/power.py` in small."""
    assert WIDE[0] <= cell.shown(500) <= WIDE[1]


def test_a_smaller_difference_is_not(monkeypatch) -> None:
    cell = claims.Cell("student", 3, "mixed", 9)
    smaller = cell.difference * 0.8
    monkeypatch.setattr(claims, "by_student", lambda *_: smaller)
    assert cell.shown(500) < WIDE[0]


def test_the_luck_of_one_seed_counts_and_the_tests_false_alarms_are_told() -> None:
    known = Deviations(400, 0.2, between_seeds=0.01)
    assert power.by_student(known, 1, 0.05) == pytest.approx((1.96 + 0.8416) * (0.01**2 + 0.04 / 400) ** 0.5, rel=1e-3)
    draw, alarms = np.random.default_rng(0), 0
    for _ in range(1_000):
        values = 0.01 * draw.standard_normal() + 0.2 * draw.standard_normal(400)
        alarms += abs(values.mean()) > 1.96 * values.std(ddof=1) / 20
    assert power.false_alarms(known) == pytest.approx(alarms / 1_000, abs=0.04)
    lines = "\n".join(power.outlook(study_of("splade_k_search", items=400, item_deviation=0.2, seed_deviation=0.01)))
    assert f"the report's test over items tells {power.false_alarms(known):.0%} apart" in lines


def test_holm_counts_what_the_report_compares(tmp_path) -> None:
    grid = {k: {"test": 0.5 + k / 100, "untrained": 0.2} for k in (1, 2, 4, 8)}
    write_study(tmp_path, grid)
    study = study_of("splade_k_search")
    shorter = study.model_copy(update={"budget": study.budget.model_copy(update={"trials": len(grid)})})
    assert power.comparisons(shorter) == len(Findings(StudyFolder(tmp_path)).comparisons)


def test_holm_counts_the_sizes_of_paired_arms() -> None:
    study = study_of("angle_split_search", "jsts", item_deviation=0.2, seed_deviation=0.002)
    assert len(study.config.dims) == 5
    assert any("at one of 5 sizes on" in line and "p < 0.01)" in line for line in power.outlook(study))


@pytest.mark.parametrize(
    ("reported", "said"), [(0.278, "reported is 0.278 (them), no less than that"), (0.01, "LESS than that")]
)
def test_what_the_literature_reports_stands_beside_it(reported, said) -> None:
    study = study_of("splade_k_search", items=300, item_deviation=0.25, reported=reported, source="them")
    first, *rest = power.outlook(study)
    smallest = power.by_student(Deviations(300, 0.25), 1, 0.05 / 9)
    assert first.startswith(f"power       80% for a difference of {smallest:.2g} in ndcg_at_10 between the best trial")
    assert "Holm over 9" in first
    assert any(said in line for line in rest)
    assert all(line.startswith(" " * 12) for line in rest)


def test_five_seeds_cannot_show_anything_and_ten_can() -> None:
    paper = study_of("angle_split_search", "paper", items=1_400, item_deviation=0.2, seed_deviation=0.002)
    few = power.outlook(paper.model_copy(update={"confirm": None}))
    assert "flips of signs over 5 seeds give no p below 0.0625, and less than 0.05 is needed; that takes 6" in few[0]
    assert "less than 0.01 is needed; that takes 8 seeds" in few[1]
    assert few[-1].strip().startswith("reported is 0.0035 (JSTS, ")
    assert "LESS" not in few[-1]
    ten = power.outlook(study_of("angle_split_search", items=1_400, item_deviation=0.2, seed_deviation=0.002))
    known = Deviations(1_400, 0.2, between_seeds=0.002)
    here, elsewhere = power.by_flips(known, 10, 0.05), power.by_student(known, 10, 0.05)
    assert 0.0015 < here < 0.0025 < 0.01 < elsewhere
    assert ten[0].startswith(f"power       80% for a difference of {here:.2g} in spearman on average over 5 sizes")
    assert f"flips of signs over 10 seeds, p < 0.05), of {elsewhere:.2g} for other items too" in ten[0]
    assert power.by_flips(Deviations(10, 0.1, between_seeds=0.0), 10, 0.05) == 0
    with pytest.raises(ValueError, match=r"3 seeds give no p below 0\.25"):
        power.by_flips(Deviations(10, 0.1, between_seeds=0.1), 3, 0.05)


def test_unknown_luck_of_seeds_is_said() -> None:
    one = "\n".join(power.outlook(study_of("splade_k_search", item_deviation=0.2, items=60)))
    assert "one seed: the difference is one of two trained models" in one
    three = "\n".join(power.outlook(study_of("retromae_mask_search", "arms", item_deviation=0.2, items=60)))
    assert "that is as if seeds did not differ" in three
    assert "between seeds: stated" in three


def test_nothing_known_is_said_and_how_to_know_it() -> None:
    line, reported = power.outlook(study_of("retromae_mask_search", reported=0.1, source="them"))
    assert reported.strip() == "reported is 0.1 (them)"
    assert line.startswith("power       not known, for want of what a difference varies by")
    assert "--power measured=FOLDER" in line


def measured_study(folder, seeds: int, draw: np.random.Generator, items: int = 400) -> Deviations:
    """An earlier study whose differences vary by 0.02 between seeds, 0.3 between items and 0.1 between both."""
    write_study(folder, {k: {"test": 0.5, "untrained": 0.2} for k in (1, 2, 4)}, seeds=seeds)
    for trial in range(3):
        of_items = 0.3 / 2**0.5 * draw.standard_normal(items)
        for seed in range(seeds):
            values = 0.5 + 0.02 / 2**0.5 * draw.standard_normal() + of_items
            values = values + 0.1 / 2**0.5 * draw.standard_normal(items)
            scores = {f"q{n}": float(value) for n, value in enumerate(values)}
            place = folder / "trials" / f"{trial:04d}" / f"replicate-{seed}" / "result.json"
            place.write_text(json.dumps({"per_item": {"test": {"ndcg_at_10": scores}}}))
    return power.measured(StudyFolder(folder))


def test_an_earlier_study_tells_its_deviations(tmp_path) -> None:
    found = measured_study(tmp_path / "several", 12, np.random.default_rng(0))
    assert found.items == 400
    assert found.between_items == pytest.approx(0.3, rel=0.1)
    assert found.between_both == pytest.approx(0.1, rel=0.1)
    assert found.between_seeds == pytest.approx(0.02, rel=0.4)
    at_one_seed = Deviations(400, found.between_items, found.between_both, 0.02)
    within = (found.between_items**2 + found.between_both**2) / 400
    seen = (within / (within + 0.02**2)) ** 0.5
    assert power.false_alarms(at_one_seed) == pytest.approx(2 * ndtr(-1.96 * seen), rel=1e-3)
    alone = measured_study(tmp_path / "one", 1, np.random.default_rng(0))
    assert alone.between_items == pytest.approx((0.3**2 + 0.1**2) ** 0.5, rel=0.1)
    assert alone.between_seeds is None
    stated = spec.Power(measured=str(tmp_path / "one"), item_deviation=0.9, seed_deviation=0.03, items=50)
    both = power.deviations(stated)
    assert both is not None
    assert (both.items, both.between_items, both.between_seeds) == (50, alone.between_items, 0.03)
    assert both.origin.endswith("2 difference(s) of 1 seed(s) on 400 items; seeds stated")


def test_paired_arms_and_correlations_tell_theirs(tmp_path) -> None:
    """With as many seeds and pairs again, the interval would be as wide as the one that was found."""
    write_arms(tmp_path, REAL)
    (contrast,) = Findings(StudyFolder(tmp_path)).contrasts
    known = power.measured(StudyFolder(tmp_path))
    variance, freedom = known.estimates(10).estimate()
    assert contrast.whole.crossed is not None
    low, high = contrast.whole.crossed
    assert float(stdtrit(freedom, 0.975) * variance**0.5) == pytest.approx((high - low) / 2)


def test_a_folder_without_values_per_item_is_refused(tmp_path) -> None:
    write_study(tmp_path, {1: {"test": 0.5, "untrained": 0.2}})
    with pytest.raises(ValueError, match="no two trials of it are complete with values per test item"):
        power.measured(StudyFolder(tmp_path))
    with pytest.raises(ValueError, match=r"power\.measured=.*nowhere: no study was run in this folder"):
        power.outlook(study_of("splade_k_search", measured=str(tmp_path / "nowhere")))


def test_what_is_known_of_a_study_does_not_change_it() -> None:
    assert definition(study_of("splade_k_search", items=50)) == definition(study_of("splade_k_search"))


def test_a_study_that_confirms_is_judged_by_its_confirmation() -> None:
    """By its fresh seeds, corrected for the finalists alone: the search's own luck matters no more."""
    known = {"items": 300, "item_deviation": 0.3, "seed_deviation": 0.001, "reported": 0.06}
    plain = study_of("splade_k_search", **known)
    confirmed = plain.model_copy(update={"confirm": Confirm(finalists=3, seeds=5)})
    assert "between the best trial and another one" in power.outlook(plain)[0]
    first, second, *rest = power.outlook(confirmed)
    smallest = power.by_student(Deviations(300, 0.3, between_seeds=0.001), 5, 0.025)
    assert f"a difference of {smallest:.2g} in ndcg_at_10 between the confirmed best and another one" in first
    assert "300 items and 5 fresh seeds, Holm over 2: p < 0.025)" in first
    assert "no less than that" in second
    assert not any("one seed" in line for line in rest)
