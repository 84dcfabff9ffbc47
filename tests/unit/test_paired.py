"""A paired design's statistics against independent ones, and what the report says about them."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from study.protocol.folder import StudyFolder
from study.protocol.states import StudyStatus, TrialState
from study.protocol.summary import (
    ObjectiveSummary,
    ReplicateSummary,
    StudySummary,
    TrialSummary,
    WorkerSeconds,
    read,
)
from study.reporting.conclusions import answer
from study.reporting.page import write as write_report
from study.reporting.paired import over_seeds_and_items, sentence
from study.reporting.results import Findings
from study.reporting.screen import final_text
from study.stats import resampling
from trainables.angle.config import Config, metrics

SIZES = (16, 64)
METRICS = metrics(Config(dims=SIZES))
PARTS = {f"spearman_{size}": METRICS[f"spearman_{size}"].correlation for size in SIZES}


def write(storage: Path, gaps: dict[str, list[float]], *, design: str = "paired", items: bool = True) -> None:
    """A study of two arms whose values differ by `gaps`: metric -> one difference per seed."""
    seeds = len(next(iter(gaps.values())))
    generator = np.random.default_rng(3)
    base = {name: 0.7 + 0.01 * generator.standard_normal(seeds) for name in gaps}
    trials = []
    for number, arm in enumerate(("chunked", "interleaved")):
        replicates = []
        for seed in range(seeds):
            values = {}
            for name in gaps:
                value = float(base[name][seed] + number * gaps[name][seed])
                values |= {name: value - 0.01, f"test.{name}": value, f"untrained.{name}": 0.2}
            replicates.append(ReplicateSummary(seed=seed, values=values))
            folder = storage / "trials" / f"{number:04d}" / f"replicate-{seed}"
            folder.mkdir(parents=True)
            per_item = {"test": per_pair(number, seed)} if items else {}
            (folder / "result.json").write_text(json.dumps({"values": values, "per_item": per_item}))
        means = {k: float(np.mean([r.values[k] for r in replicates])) for k in replicates[0].values}
        trials.append(
            TrialSummary(
                number=number, state="complete", params={"split": arm}, values=means, replicates=replicates,
                steps=100, planned_steps=100, worker_seconds=10.0, attempts=1,
            )
        )  # fmt: skip
    summary = StudySummary(
        study="angle_split_search", id="angle_split_search-0123456789ab", profile="embedded",
        updated="2026-01-05T10:06:12+00:00", status="finished", question="Which split?", parameter="split",
        design=design, objectives=[ObjectiveSummary(name="spearman", direction="maximize")], best=[1], trials=trials,
        metrics=METRICS, planned_trials=2, worker_seconds=WorkerSeconds(used=20.0, saved=0.0, overhead=1.0),
    )  # fmt: skip
    (storage / "summary.json").write_text(summary.text())


def per_pair(arm: int, seed: int, pairs: int = 60) -> dict[str, dict[str, float]]:
    generator = np.random.default_rng([arm, seed])
    labels = np.arange(pairs) % 6
    noise = {size: labels + (3 - arm) * generator.standard_normal(pairs) for size in SIZES}
    columns = {"label": labels.astype(float)} | {f"cosine_{size}": values for size, values in noise.items()}
    return {name: {f"p{i}": float(v) for i, v in enumerate(values)} for name, values in columns.items()}


def ten(centre: float, width: float = 0.002) -> list[float]:
    return [centre + width * (i - 4.5) / 4.5 for i in range(10)]


REAL = {"spearman": ten(0.004), "spearman_16": ten(0.0), "spearman_64": ten(0.008)}


@pytest.mark.parametrize("seeds", [4, 7, 10])
def test_exact_tests_are_scipys(seeds) -> None:
    gaps = np.random.default_rng(seeds).standard_normal(seeds) + 0.4
    reference = scipy.stats.permutation_test((gaps,), np.mean, permutation_type="samples", n_resamples=np.inf)
    assert resampling.flip_p(gaps) == pytest.approx(reference.pvalue)
    wilcoxon = scipy.stats.wilcoxon(gaps, method="exact")
    assert resampling.flip_p(resampling.signed_ranks(gaps)) == pytest.approx(wilcoxon.pvalue)
    wins = int((gaps > 0).sum())
    assert resampling.flip_p(np.sign(gaps)) == pytest.approx(scipy.stats.binomtest(wins, seeds).pvalue)


def test_many_seeds_are_sampled_and_agree_with_the_enumeration(monkeypatch) -> None:
    gaps = np.random.default_rng(0).standard_normal(14) + 0.5
    exact = resampling.flip_p(gaps)
    monkeypatch.setattr(resampling, "EXACT", 5)
    assert resampling.flip_p(gaps) == pytest.approx(exact, rel=0.05)


def test_the_interval_over_seeds_and_pairs_holds_the_difference_and_is_symmetric_in_the_arms() -> None:
    arms = [[per_pair(arm, seed) for seed in range(6)] for arm in (0, 1)]
    whole = [
        np.mean([scipy.stats.spearmanr(list(i[f"cosine_{s}"].values()), list(i["label"].values()))[0] for i in arm])
        for arm, s in itertools.product(arms, SIZES)
    ]
    gap = np.array(whole[2:]) - np.array(whole[:2])
    gaps = [*gap.tolist(), float(gap.mean())]
    found = over_seeds_and_items(arms[0], arms[1], PARTS, gaps)
    assert [one.value for one in found] == gaps
    assert all(one.low < one.value < one.high for one in found)
    back = over_seeds_and_items(arms[1], arms[0], PARTS, [-g for g in gaps])
    np.testing.assert_allclose([one.low for one in found], [-one.high for one in back])
    assert over_seeds_and_items([{}], [{}], PARTS, gaps) is None
    plain = [[{"ndcg": {"a": 0.5, "b": 0.7}}] * 3, [{"ndcg": {"a": 0.6, "b": 0.8}}] * 3]
    (equal,) = over_seeds_and_items(plain[0], plain[1], {"ndcg": None}, [0.1])
    assert (equal.low, equal.high) == pytest.approx((0.1, 0.1))


def test_effects_sizes_and_holm(tmp_path) -> None:
    write(tmp_path, REAL)
    (contrast,) = Findings(StudyFolder(tmp_path)).contrasts
    assert contrast.metric == "test.spearman"
    assert [effect.size for effect in contrast.effects] == [16, 64, None]
    small, large, whole = contrast.effects
    assert large.gap == pytest.approx(0.008)
    assert large.low < 0.008 < large.high
    assert large.wins(True) == 10
    assert large.permutation_p == large.sign_p == large.wilcoxon_p == contrast.smallest_p == 2 / 1024
    assert large.adjusted_p == 2 * large.permutation_p
    assert whole.adjusted_p == whole.permutation_p
    assert small.wins(True) == 5
    assert not small.distinct
    assert small.crossed is not None


def test_the_sentence_says_what_is_shown_and_what_is_not(tmp_path) -> None:
    write(tmp_path, REAL)
    findings = Findings(StudyFolder(tmp_path))
    told = answer(findings)
    assert told.startswith(
        "split = interleaved against split = chunked: test Spearman +0.0040 on average over 2 sizes (95% CI +0.00"
    )
    assert "better in 10 of 10 seeds, p = 0.002). Better at 64 (+0.0080; Holm-adjusted p = 0.004)." in told
    assert told.endswith("No difference shown at 16.")


def test_five_seeds_cannot_show_a_difference_and_it_is_said(tmp_path) -> None:
    write(tmp_path, {name: gaps[5:] for name, gaps in REAL.items()})
    (contrast,) = Findings(StudyFolder(tmp_path)).contrasts
    told = sentence(contrast)
    assert "better in 5 of 5 seeds, p = 0.062), no difference shown." in told
    assert told.endswith("5 seeds cannot show one: no exact test on them goes below p = 0.0625.")


def test_six_seeds_are_too_few_for_holm_over_two_sizes(tmp_path) -> None:
    write(tmp_path, {name: gaps[4:] for name, gaps in REAL.items()})
    told = sentence(Findings(StudyFolder(tmp_path)).contrasts[0])
    assert told.endswith("Corrected for 2 sizes, 6 seeds cannot show one: no p goes below 0.0625.")


def test_worse_is_called_worse(tmp_path) -> None:
    write(tmp_path, {name: [-gap for gap in gaps] for name, gaps in REAL.items()})
    told = sentence(Findings(StudyFolder(tmp_path)).contrasts[0])
    assert "better in 0 of 10 seeds" in told
    assert "Worse at 64 (−0.0080" in told


def test_only_shared_seeds_of_unfinished_arms_are_compared(tmp_path) -> None:
    write(tmp_path, REAL)
    path = tmp_path / "summary.json"
    summary = read(path)
    first, second = summary.trials

    def left_at(replicates: int, status: StudyStatus) -> None:
        arm = second.model_copy(update={"state": TrialState.RUNNING, "replicates": second.replicates[:replicates]})
        path.write_text(summary.model_copy(update={"status": status, "trials": (first, arm)}).text())

    left_at(3, StudyStatus.RUNNING)
    findings = Findings(StudyFolder(tmp_path))
    assert findings.contrasts[0].seeds == (0, 1, 2)
    assert answer(findings).startswith("Still running. split = interleaved against")
    left_at(1, StudyStatus.FINISHED)
    assert Findings(StudyFolder(tmp_path)).contrasts == []


def test_the_report_shows_arms_differences_and_tests(tmp_path) -> None:
    write(tmp_path, REAL | {"pearson": ten(0.0), "pearson_16": ten(0.0), "pearson_64": ten(0.0)})
    page = write_report(StudyFolder(tmp_path)).read_text()
    for name in ("means_spearman", "differences_spearman", "means_pearson", "differences_pearson"):
        assert (tmp_path / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    assert "test Pearson: split = interleaved against split = chunked" in page
    assert "+0.0080" in page
    assert "With 10 seeds none can go below" in page
    assert "0.001953" in page


def test_a_metric_without_sizes_and_another_design(tmp_path) -> None:
    write(tmp_path / "plain", {"spearman": ten(0.004)}, items=False)
    (contrast,) = Findings(StudyFolder(tmp_path / "plain")).contrasts
    assert contrast.sizes == ()
    assert contrast.whole.crossed is None
    assert "test Spearman +0.0040 (95% CI" in sentence(contrast)
    write_report(StudyFolder(tmp_path / "plain"))
    write(tmp_path / "search", REAL, design="search")
    assert Findings(StudyFolder(tmp_path / "search")).contrasts == []
    assert answer(Findings(StudyFolder(tmp_path / "search"))).startswith("Best split = interleaved")


def test_terminal_gives_the_difference_and_no_best_arm(tmp_path) -> None:
    write(tmp_path, REAL)
    text = final_text(read(tmp_path / "summary.json"), StudyFolder(tmp_path))
    assert text.splitlines()[0] == answer(Findings(StudyFolder(tmp_path)))
    assert "Best split" not in text
