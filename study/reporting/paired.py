"""Arms of a paired design compared seed by seed: effects, intervals and tests, at every prefix length.

Arms are trials, seeds their replicates; arms share initialisation and data order per seed, so that differences
are taken within seeds. The first arm is the reference. A metric that a recipe reports for several sizes under
`NAME_32`, `NAME_64` and on average under `NAME` is compared at each of them; one without sizes is compared once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, Protocol

import numpy as np

from study.protocol.states import TrialState
from study.protocol.summary import StudySummary, TrialSummary
from study.reporting.formatting import at, enumerate_words, p_value
from study.reporting.metrics import DeclaredMetrics
from study.stats import pseudo_values, resampling
from study.stats.significance import LEVEL, Mean, crossed, holm, mean
from trainables.report import Correlation


class Compared(Protocol):
    """What a study found, as far as its arms are compared by it; `results.Findings` is one."""

    summary: StudySummary
    trials: tuple[TrialSummary, ...]
    metrics: DeclaredMetrics
    metric: str
    more: bool
    parameter: str

    def replicate_items(self, trial: int, replicate: int) -> dict[str, dict[str, dict[str, float]]]:
        """Split -> metric -> query or pair id -> value of one finished replicate."""
        ...


@dataclass(frozen=True)
class Effect:
    """One metric of two arms: `seeds` values each, and what their differences (other - reference) show."""

    size: int | None
    """The prefix length; None for the metric itself, which is the mean over sizes where there are any."""
    reference: tuple[float, ...]
    other: tuple[float, ...]
    low: float
    high: float
    """Upper end of the 95% interval of the mean difference over seeds, by Student's t; `low` is the lower end."""
    sign_p: float
    permutation_p: float
    wilcoxon_p: float
    adjusted_p: float
    """The p-value of the permutation test, corrected by Holm over the sizes; that of the mean over sizes is not
    corrected."""
    crossed: tuple[float, float] | None
    """95% interval over seeds x test items, `significance.crossed`; None where items were not recorded."""

    @property
    def gaps(self) -> tuple[float, ...]:
        return tuple(b - a for a, b in zip(self.reference, self.other, strict=True))

    @property
    def gap(self) -> float:
        return fmean(self.gaps)

    @property
    def distinct(self) -> bool:
        return self.adjusted_p < LEVEL

    def wins(self, more: bool) -> int:
        """Seeds in which the other arm is better."""
        return sum(gap > 0 if more else gap < 0 for gap in self.gaps)


@dataclass(frozen=True)
class Contrast:
    """One arm against the reference in one metric."""

    metric: str
    """Key of the metric, with the prefix `test.` where it was measured on the test split."""
    name: str
    """Name of the metric for readers."""
    more: bool
    """Whether a larger value of the metric is better."""
    reference: str
    other: str
    seeds: tuple[int, ...]
    whole: Effect
    sizes: tuple[Effect, ...]

    @property
    def effects(self) -> tuple[Effect, ...]:
        return (*self.sizes, self.whole)

    @property
    def intervals(self) -> list[tuple[str, float, float, bool]]:
        """Of each effect: what it is at, the ends of its interval over seeds, whether the corrected test shows it."""
        whole = f"the mean of {self.name}" if self.sizes else self.name
        return [(f"size {e.size}" if e.size else whole, e.low, e.high, e.distinct) for e in self.effects]

    @property
    def smallest_p(self) -> float:
        """The smallest two-sided p that an exact test on so many seeds can give."""
        return resampling.smallest_p(len(self.seeds))


def contrasts(findings: Compared) -> list[Contrast]:
    """Every arm against the first, in the objective and then in the other metrics that have sizes.

    Empty for another design, and while no two arms have two seeds in common.
    """
    if findings.summary.design != "paired":
        return []
    at_hand = (TrialState.COMPLETE, TrialState.RUNNING, TrialState.INTERRUPTED)
    arms = [trial for trial in findings.trials if trial.state in at_hand]
    found = []
    for metric in _metrics(findings):
        for other in arms[1:]:
            contrast = _contrast(findings, metric, arms[0], other)
            if contrast is not None:
                found.append(contrast)
    return found


def _metrics(findings: Compared) -> list[str]:
    """The objective, and metrics that have both a value of their own and values for sizes."""
    names = {name for trial in findings.trials for name in trial.values}
    sized = {name for name in names if not names.isdisjoint(findings.metrics.sizes(name).values()) and "." not in name}
    return [findings.metric, *sorted(sized - {findings.metric})]


def _contrast(findings: Compared, metric: str, reference: TrialSummary, other: TrialSummary) -> Contrast | None:
    key = f"test.{metric}" if all(_values(arm, f"test.{metric}") for arm in (reference, other)) else metric
    values = _values(reference, key), _values(other, key)
    seeds = tuple(sorted(values[0].keys() & values[1].keys()))
    if len(seeds) < 2:
        return None
    names = {name for arm in (reference, other) for r in arm.replicates for name in r.values}
    sizes = {size: name for size, name in findings.metrics.sizes(key).items() if name in names}
    keys = [*sizes.values(), key]
    table = np.array([[[_values(arm, name)[seed] for name in keys] for seed in seeds] for arm in (reference, other)])
    gaps = table[1] - table[0]
    intervals = [mean(column) for column in gaps.T.tolist()]
    items = [[_items(findings, arm, seed, key) for seed in seeds] for arm in (reference, other)]
    parts = {name: findings.metrics.correlation(name) for name in (part.rpartition(".")[2] for part in sizes.values())}
    over_items = over_seeds_and_items(items[0], items[1], parts or {metric: None}, gaps.mean(0).tolist())
    tests = [resampling.flip_p(column) for column in gaps.T]
    adjusted = [*holm(tests[:-1]), tests[-1]]
    effects = [
        Effect(
            size=size,
            reference=tuple(table[0, :, column].tolist()),
            other=tuple(table[1, :, column].tolist()),
            low=intervals[column].low,
            high=intervals[column].high,
            sign_p=resampling.flip_p(np.sign(gaps[:, column])),
            permutation_p=tests[column],
            wilcoxon_p=resampling.flip_p(resampling.signed_ranks(gaps[:, column])),
            adjusted_p=adjusted[column],
            crossed=None if over_items is None else (over_items[column].low, over_items[column].high),
        )
        for column, size in enumerate((*sizes, None))
    ]
    more = findings.more if metric == findings.metric else findings.metrics.more(metric)
    names_ = at(reference, findings.parameter), at(other, findings.parameter)
    return Contrast(key, findings.metrics.label(key), more, *names_, seeds, effects[-1], tuple(effects[:-1]))


def over_seeds_and_items(
    reference: Sequence[pseudo_values.Items],
    other: Sequence[pseudo_values.Items],
    parts: Mapping[str, Correlation | None],
    gaps: Sequence[float],
) -> list[Mean] | None:
    """The mean differences `gaps`, in each of `parts` and, where there is one more, on average over them, with
    intervals that hold for other seeds and other items. One `Items` per seed and arm; None where one lacks what a part
    is computed from.
    """
    measured = next((values for items in reference for values in items.values()), {})
    ids = sorted(measured)
    arms = [[pseudo_values.contributions(items, parts, ids) for items in arm] for arm in (reference, other)]
    if not ids or any(table is None for arm in arms for table in arm):
        return None
    first, second = (np.stack(arm) for arm in arms)  # type: ignore[arg-type]
    table = second - first
    if len(gaps) > len(parts):
        table = np.concatenate([table, table.mean(2, keepdims=True)], 2)
    return [crossed(table[:, :, column], value=gap) for column, gap in enumerate(gaps)]


def _values(trial: TrialSummary, key: str) -> dict[int, float]:
    """Seed -> value of the finished replicates."""
    return {r.seed: value for r in trial.replicates if (value := r.values.get(key)) is not None}


def _items(findings: Compared, trial: TrialSummary, seed: int, key: str) -> dict[str, Any]:
    """Metric -> item -> value of one replicate on the split that `key` is of."""
    replicate = next(i for i, r in enumerate(trial.replicates) if r.seed == seed)
    split = "test" if key.startswith("test.") else "validation"
    return findings.replicate_items(trial.number, replicate).get(split, {})


def sentence(contrast: Contrast) -> str:
    """What the comparison shows, in words; a difference that no test calls real is called not shown."""
    name = contrast.name
    whole = contrast.whole
    where = f" on average over {len(contrast.sizes)} sizes" if contrast.sizes else ""
    told = (
        f"{contrast.other} against {contrast.reference}: {name} {signed(whole.gap)}{where} "
        f"(95% CI {signed(whole.low)} to {signed(whole.high)}, better in {whole.wins(contrast.more)} of "
        f"{len(contrast.seeds)} seeds, {p_value(whole.permutation_p)})"
    )
    told += "." if whole.distinct else ", no difference shown."
    parts = [
        _group(contrast, [e for e in contrast.sizes if e.distinct and (e.gap > 0) is contrast.more], "Better"),
        _group(contrast, [e for e in contrast.sizes if e.distinct and (e.gap > 0) is not contrast.more], "Worse"),
    ]
    level = [str(e.size) for e in contrast.sizes if not e.distinct]
    if level:
        parts.append(f"No difference shown at {enumerate_words(level)}.")
    if contrast.smallest_p >= LEVEL:
        parts.append(
            f"{len(contrast.seeds)} seeds cannot show one: no exact test on them goes below "
            f"p = {contrast.smallest_p:.4g}."
        )
    elif contrast.sizes and contrast.smallest_p * len(contrast.sizes) >= LEVEL:
        parts.append(
            f"Corrected for {len(contrast.sizes)} sizes, {len(contrast.seeds)} seeds cannot show one: no p goes below "
            f"{contrast.smallest_p * len(contrast.sizes):.4g}."
        )
    return " ".join([told, *filter(None, parts)])


def _group(contrast: Contrast, effects: Sequence[Effect], word: str) -> str:
    if not effects:
        return ""
    sizes = enumerate_words([str(e.size) for e in effects])
    gaps = enumerate_words([signed(e.gap) for e in effects])
    return f"{word} at {sizes} ({gaps}; Holm-adjusted {p_value(max(e.adjusted_p for e in effects))})."


def signed(value: float) -> str:
    """A difference of correlations or shares: four decimals and a real minus sign.

    >>> signed(0.00352), signed(-0.1)
    ('+0.0035', '−0.1000')
    """
    return ("−" if value < 0 else "+") + f"{abs(value):.4f}"


def spread(values: Sequence[float]) -> str:
    """Mean and standard deviation over seeds.

    >>> spread([0.5, 0.7])
    '0.6000 ± 0.1414'
    """
    return f"{fmean(values):.4f} ± {stdev(values):.4f}"
