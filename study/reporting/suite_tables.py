"""Full evaluations side by side: tables of a suite, and which differences between trials are more than chance."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

from study.protocol.folder import EvaluationFolder
from study.protocol.measured import Measured
from study.protocol.summary import StudySummary, TrialSummary
from study.reporting.formatting import at, difference, p_value
from study.reporting.metrics import DeclaredMetrics
from study.stats.significance import LEVEL, Mean, holm, over_items
from trainables.evaluation.metrics import declared
from trainables.evaluation.suites import Suite
from trainables.files import write_whole


@dataclass(frozen=True)
class Compared:
    """Two trials on one collection, paired over its queries and, where there are several, over replicates."""

    dataset: str
    better: int
    worse: int
    gap: Mean
    """Gain of the better trial over the worse, with an interval over queries, or over replicates and queries."""
    p: float
    """The p-value of ranx' paired Student test; over several replicates, that of the interval."""
    adjusted_p: float
    """The p-value corrected by Holm over all collections and pairs of trials."""

    @property
    def distinct(self) -> bool:
        return self.adjusted_p < LEVEL


def write(
    folder: EvaluationFolder,
    suite: Suite,
    summary: StudySummary,
    trials: Sequence[TrialSummary],
    results: Sequence[Measured],
) -> Path:
    """Write a suite's figures and its page; returns the page's path."""
    values = tabled(results)
    compared = compare(suite.metrics[0], results)
    folder.path.mkdir(parents=True, exist_ok=True)
    content = {
        "suite": suite.name,
        "study": summary.study,
        "metric": suite.metrics[0],
        "trials": [
            {
                "number": trial.number,
                "params": trial.params,
                "mean": _means(values[trial.number]),
                "datasets": values[trial.number],
                "replicates": [
                    {"replicate": one.replicate, "dataset": one.dataset, "values": one.values}
                    for one in results
                    if one.trial == trial.number
                ],
            }
            for trial in trials
        ],
        "comparisons": [asdict(one) for one in compared],
    }
    write_whole(folder.figures(suite.name), json.dumps(content, indent=2))
    page = folder.page(suite.name)
    write_whole(page, _page(suite, summary, trials, values, compared))
    return page


def tabled(results: Sequence[Measured]) -> dict[int, dict[str, dict[str, float]]]:
    """Trial -> collection -> metric -> mean over replicates."""
    grouped: dict[int, dict[str, list[dict[str, float]]]] = {}
    for one in results:
        grouped.setdefault(one.trial, {}).setdefault(one.dataset, []).append(one.values)
    return {
        trial: {
            dataset: {metric: fmean(values[metric] for values in found) for metric in found[0]}
            for dataset, found in datasets.items()
        }
        for trial, datasets in grouped.items()
    }


def compare(metric: str, results: Sequence[Measured]) -> list[Compared]:
    """Every pair of trials on every collection; empty for a single trial."""
    items: dict[str, dict[int, list[dict[str, float]]]] = {}
    for dataset in dict.fromkeys(one.dataset for one in results):
        for trial in dict.fromkeys(one.trial for one in results):
            found = [one.per_item[metric] for one in results if (one.trial, one.dataset) == (trial, dataset)]
            items.setdefault(dataset, {})[trial] = found
    pairs: list[tuple[str, int, int, Mean, float]] = []
    for dataset, by_trial in items.items():
        for one, other in combinations(by_trial, 2):
            means = {t: fmean(value for values in by_trial[t] for value in values.values()) for t in (one, other)}
            better, worse = sorted((one, other), key=lambda trial: -means[trial])
            gap = over_items(by_trial[better], by_trial[worse])
            if gap is None:
                continue
            p = gap.p if gap.seeds > 1 else _paired_p(by_trial[better][0], by_trial[worse][0])
            pairs.append((dataset, better, worse, gap, p))
    adjusted = holm([p for *_, p in pairs])
    return [Compared(*pair, p) for pair, p in zip(pairs, adjusted, strict=True)]


def _paired_p(left: Mapping[str, float], right: Mapping[str, float]) -> float:
    """ranx' two-sided paired Student test of two mappings from query to value; 1 for two that are equal throughout.

    ranx is imported here because that takes seconds.
    """
    from ranx.statistical_tests import paired_student_t_test

    p = float(paired_student_t_test([left[query] for query in left], [right[query] for query in left])[0])
    return 1.0 if math.isnan(p) else p


def _means(datasets: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Metric -> mean over collections, each counting the same."""
    names = next(iter(datasets.values()))
    return {name: fmean(values[name] for values in datasets.values()) for name in names}


def _page(
    suite: Suite,
    summary: StudySummary,
    trials: Sequence[TrialSummary],
    values: Mapping[int, Mapping[str, Mapping[str, float]]],
    compared: Sequence[Compared],
) -> str:
    metrics = DeclaredMetrics(declared(suite.metrics) | dict(summary.metrics))
    lines = [f"# {summary.study} on {suite.name}", ""]
    datasets = [dataset.name for dataset in suite.datasets]
    for metric in values[trials[0].number][datasets[0]]:
        heads = [f"trial {trial.number}, {at(trial, summary.parameter)}" for trial in trials]
        rows = [
            [name, *(metrics.show(metric, values[trial.number][name][metric]) for trial in trials)] for name in datasets
        ]
        if len(datasets) > 1:
            rows.append(["mean", *(metrics.show(metric, _means(values[trial.number])[metric]) for trial in trials)])
        lines += [*_table([metrics.label(metric), *heads], rows), ""]
    if compared:
        lines += [
            f"Differences in {metrics.label(suite.metrics[0])}, paired over {_paired_over(compared)}, Holm over "
            f"{len(compared)} comparison(s).",
            "",
            *_table(["", "better", "worse", "difference", "95% interval", "adjusted", ""], map(_row, compared)),
            "",
        ]
    return "\n".join(lines)


def _paired_over(compared: Sequence[Compared]) -> str:
    seeds = {one.gap.seeds for one in compared}
    if seeds == {1}:
        return "queries: Student's t by ranx"
    return "replicates and queries: variance components, Satterthwaite's degrees of freedom"


def _row(one: Compared) -> list[str]:
    return [
        one.dataset, f"trial {one.better}", f"trial {one.worse}", difference(one.gap.value),
        f"{difference(one.gap.low)} to {difference(one.gap.high)}", p_value(one.adjusted_p),
        "" if one.distinct else "may be chance",
    ]  # fmt: skip


def _table(head: Sequence[str], rows: Any) -> list[str]:
    """Markdown that also reads well where it is not rendered."""
    table = [list(head), *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in table
    ]
    return [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]
