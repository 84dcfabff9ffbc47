"""Full evaluations side by side: tables of a suite, and which differences between trials are more than chance."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from study.protocol.folder import EvaluationFolder
from study.protocol.measured import Measured
from study.protocol.summary import StudySummary, TrialSummary
from study.reporting.formatting import at, difference, p_value
from study.reporting.metrics import DeclaredMetrics
from study.stats.significance import LEVEL, Mean, crossed, holm, table
from trainables.evaluation.metrics import at_size, declared
from trainables.evaluation.suites import Suite, means, shares
from trainables.files import write_whole


@dataclass(frozen=True)
class Compared:
    """The trial that is asked about less another one, in the first metric of a suite."""

    reference: int
    other: int
    gap: Mean
    """Of the means over the suite, each collection counting the same; for other queries of these collections and,
    where there are several replicates, for other seeds."""
    adjusted_p: float
    """The p-value of that difference, corrected by Holm over the other trials."""
    collections: dict[str, Mean]
    """The difference on each collection; they say where the suite's comes from and are not corrected."""

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
    compared = [one for group in _grouped(trials) for one in _compared(suite, summary, group, results)]
    by_size = {
        size: [one for group in _grouped(trials) for one in _compared(suite, summary, group, results, size)]
        for size in sizes(suite.metrics[0], values[trials[0].number])
    }
    folder.path.mkdir(parents=True, exist_ok=True)
    content = {
        "suite": suite.name,
        "study": summary.study,
        "metric": suite.metrics[0],
        "convention": suite.convention,
        "trials": [
            {
                "number": trial.number,
                "params": trial.params,
                "mean": _means(suite, values[trial.number]),
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
        "comparisons_by_size": {size: [asdict(one) for one in found] for size, found in by_size.items()},
    }
    write_whole(folder.figures(suite.name), json.dumps(content, indent=2))
    if by_size:
        write_whole(folder.picture(suite.name), _curves(suite, summary, trials, values, list(by_size)))
    page = folder.page(suite.name)
    write_whole(page, _page(suite, summary, trials, values, compared, by_size))
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


def _grouped(trials: Sequence[TrialSummary]) -> list[list[TrialSummary]]:
    """The trials of each group: no trial is compared with one of another."""
    return [[trial for trial in trials if trial.group == group] for group in dict.fromkeys(t.group for t in trials)]


def sizes(metric: str, datasets: Mapping[str, Mapping[str, float]]) -> list[int]:
    """Prefixes of vectors that a metric of these collections was measured with, the shortest first."""
    names = next(iter(datasets.values()))
    found = (name.removeprefix(f"{metric}_") for name in names if name.startswith(f"{metric}_"))
    return sorted(int(size) for size in found if size.isdigit())


def _compared(
    suite: Suite,
    summary: StudySummary,
    trials: Sequence[TrialSummary],
    results: Sequence[Measured],
    size: int | None = None,
) -> list[Compared]:
    """Comparisons in the suite's first metric, of whole vectors or of prefixes of a `size`."""
    metric = suite.metrics[0] if size is None else at_size(suite.metrics[0], size)
    numbers = {trial.number for trial in trials}
    asked = [one for one in results if one.trial in numbers]
    return compare(metric, asked, reference(summary, trials), shares(suite.datasets))


def reference(summary: StudySummary, trials: Sequence[TrialSummary]) -> int:
    """Which of the evaluated trials the others are compared with: the study's best where it is among them, in a paired
    design the first arm, else the first one that was asked for."""
    numbers = [trial.number for trial in trials]
    if summary.design == "paired":
        return min(numbers)
    return next((number for number in summary.best if number in numbers), numbers[0])


def compare(
    metric: str, results: Sequence[Measured], reference: int, weights: Mapping[str, float] | None = None
) -> list[Compared]:
    """Each other trial with the reference, on average over the collections and on each; empty for a single trial.

    Both are paired by query and, in the order of `results`, by replicate. A trial is left out where it shares fewer
    than two queries of a collection with the reference. `weights` are what collections count, by name, and add up to 1;
    without them each counts the same.
    """
    datasets = list(dict.fromkeys(one.dataset for one in results))
    parts = None if weights is None else [weights[name] for name in datasets]
    items: dict[tuple[int, str], list[dict[str, float]]] = {}
    for one in results:
        items.setdefault((one.trial, one.dataset), []).append(one.per_item[metric])
    found: list[tuple[int, Mean, dict[str, Mean]]] = []
    for other in dict.fromkeys(one.trial for one in results if one.trial != reference):
        gaps = {name: table(items[reference, name], items[other, name]) for name in datasets}
        whole = {name: gap for name, gap in gaps.items() if gap is not None}
        if len(whole) == len(datasets):
            gap = crossed(*whole.values(), weights=parts)
            found.append((other, gap, {name: crossed(one) for name, one in whole.items()}))
    adjusted = holm([gap.p for _, gap, _ in found])
    return [
        Compared(reference, other, gap, p, collections)
        for (other, gap, collections), p in zip(found, adjusted, strict=True)
    ]


def _means(suite: Suite, datasets: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Metric -> mean over collections, each counting the same, parts of one together."""
    names = next(iter(datasets.values()))
    columns = {name: {dataset: values[name] for dataset, values in datasets.items()} for name in names}
    return {name: fmean(means(column, suite.datasets).values()) for name, column in columns.items()}


def _page(
    suite: Suite,
    summary: StudySummary,
    trials: Sequence[TrialSummary],
    values: Mapping[int, Mapping[str, Mapping[str, float]]],
    compared: Sequence[Compared],
    by_size: Mapping[int, Sequence[Compared]],
) -> str:
    metrics = DeclaredMetrics(declared(suite.metrics) | dict(summary.metrics))
    lines = [f"# {summary.study} on {suite.name}", "", f"Convention: {suite.convention}.", ""]
    datasets = [dataset.name for dataset in suite.datasets]
    heads = [f"trial {trial.number}, {at(trial, summary.parameter)}" for trial in trials]
    averages = [_means(suite, values[trial.number]) for trial in trials]
    measured = values[trials[0].number][datasets[0]]
    of_sizes = {at_size(metric, size) for metric in suite.metrics for size in sizes(metric, {"": measured})}
    for metric in (name for name in measured if name not in of_sizes):
        column = [{name: values[trial.number][name][metric] for name in datasets} for trial in trials]
        rows = [[name, *(metrics.show(metric, found[name]) for found in column)] for name in datasets]
        together = [means(found, suite.datasets) for found in column]
        rows += [
            [f"{name} (mean)", *(metrics.show(metric, found[name]) for found in together)]
            for name in dict.fromkeys(one.part_of for one in suite.datasets if one.part_of is not None)
        ]
        if len(datasets) > 1:
            rows.append(["mean", *(metrics.show(metric, average[metric]) for average in averages)])
        lines += [*_table([metrics.label(metric), *heads], rows), ""]
    if by_size:
        lines += [f"![{metrics.label(suite.metrics[0])} by prefix]({suite.name}.svg)", ""]
    for metric in suite.metrics if by_size else ():
        rows = [
            [str(size), *(metrics.show(metric, average[at_size(metric, size)]) for average in averages)]
            for size in by_size
        ]
        of = " (mean)" if len(datasets) > 1 else ""
        lines += [*_table([f"{metrics.label(metric)}{of} of prefixes of", *heads], rows), ""]
    lines += _differences_by_size(metrics.label(suite.metrics[0]), by_size)
    for reference in dict.fromkeys(one.reference for one in compared):
        of_group = [one for one in compared if one.reference == reference]
        lines += _differences(metrics.label(suite.metrics[0]), datasets, of_group)
    return "\n".join(lines)


def _curves(
    suite: Suite,
    summary: StudySummary,
    trials: Sequence[TrialSummary],
    values: Mapping[int, Mapping[str, Mapping[str, float]]],
    sizes: Sequence[int],
) -> str:
    from study.reporting import vega
    from study.reporting.prefix_plot import curves

    metric = suite.metrics[0]
    label = f"{DeclaredMetrics(declared(suite.metrics)).label(metric)} on {suite.name}"
    found = {}
    for trial in trials:
        averages = _means(suite, values[trial.number])
        name = f"trial {trial.number}, {at(trial, summary.parameter)}"
        found[name] = {size: averages[at_size(metric, size)] for size in sizes}
    return vega.svg(vega.specification(curves(label, found)))


def _differences(metric: str, datasets: Sequence[str], compared: Sequence[Compared]) -> list[str]:
    over = "replicates and queries" if any(one.gap.seeds > 1 for one in compared) else "queries"
    mean = f" on average over {len(datasets)} collections" if len(datasets) > 1 else ""
    trial = f"trial {compared[0].reference}"
    lines = [
        f"{metric} of {trial} less that of each other trial{mean}, paired over {over}; Holm over {len(compared)} "
        "comparison(s).",
        "",
        *_table([f"{trial} less", "difference", "95% interval", "adjusted", ""], map(_row, compared)),
        "",
    ]
    if len(datasets) > 1:
        rows = [
            [name, f"trial {one.other}", *_gap(one.collections[name]), p_value(one.collections[name].p)]
            for name in datasets
            for one in compared
        ]
        lines += [
            "Where that comes from: each collection by itself, not corrected for their number.",
            "",
            *_table(["", f"{trial} less", "difference", "95% interval", "by itself"], rows),
            "",
        ]
    return lines


def _differences_by_size(metric: str, by_size: Mapping[int, Sequence[Compared]]) -> list[str]:
    found = [(size, one) for size, compared in by_size.items() for one in compared]
    if not found:
        return []
    adjusted = holm([one.gap.p for _, one in found])
    rows = [
        [str(size), f"trial {one.reference}", f"trial {one.other}", *_gap(one.gap), p_value(p)]
        for (size, one), p in zip(found, adjusted, strict=True)
    ]
    head = ["prefix of", "", "less", "difference", "95% interval", "adjusted"]
    return [f"Differences in {metric} at each prefix; Holm over {len(found)}.", "", *_table(head, rows), ""]


def _row(one: Compared) -> list[str]:
    return [
        f"trial {one.other}", *_gap(one.gap), p_value(one.adjusted_p), "" if one.distinct else "may be chance",
    ]  # fmt: skip


def _gap(gap: Mean) -> list[str]:
    return [difference(gap.value), f"{difference(gap.low)} to {difference(gap.high)}"]


def _table(head: Sequence[str], rows: Any) -> list[str]:
    """Markdown that also reads well where it is not rendered."""
    table = [list(head), *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in table
    ]
    return [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]
