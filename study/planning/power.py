"""What a plan says of the difference that a study can show, with the tests that its report will use.

A difference d of two trials is found as D = d + luck. With n seeds, N test items, and deviations s, i, e of a
difference between seeds, between items, and between their combinations, D is normal around d with the variance

    V = s^2 / n + i^2 / N + e^2 / (n N)

The study can show the smallest d for which the report's test gives p < LEVEL / m in `POWER` of all studies, where m is
the number of comparisons that Holm corrects for: that is what the smallest p of a table has to stay below.

Over seeds and items the test is Student's t with an estimate of V and its degrees of freedom f (`stats.significance`):

    power(d) = mean over estimates (v, f) of F((d - c) / sqrt V) + F((-d - c) / sqrt V)
    c        = t(1 - level / 2, f) sqrt v

where F is the normal distribution, and v and f are drawn from the distribution that they have for normal values: that
of `Components` whose parts are chi-square variables around what they estimate. Over arms paired by seed the test flips
the signs of n differences (`stats.resampling`) that vary by sqrt(s^2 + e^2 / N); its power is counted over drawn ones.
It is about the test items at hand, so that what the interval over seeds and items shows stands beside it.

With one seed the report's test is over items alone, and s is in D but not in v. Beyond that luck the study shows

    d = (z(1 - level / 2) + z(POWER)) sqrt(s^2 + i^2 / N)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import NormalDist, median
from typing import TYPE_CHECKING

from study.protocol import per_item
from study.protocol.folder import StudyFolder
from study.protocol.states import TrialState
from study.protocol.summary import StudySummary, read
from study.spec import Power, Study
from study.stats import pseudo_values
from study.stats.resampling import smallest_p
from study.stats.significance import LEVEL, Components, components
from trainables.report import Correlation

if TYPE_CHECKING:
    import numpy as np

POWER = 0.8
REPORTED = "reported"
DRAWS = 4_000
FLIPS = 12
"""Up to so many seeds all flips of signs are looked at; beyond, as many as these have."""


@dataclass(frozen=True, slots=True)
class Deviations:
    """Standard deviations of the difference of two trials in a metric, and the number of test items."""

    items: int
    between_items: float
    between_both: float = 0.0
    between_seeds: float | None = None
    """None where nothing is known of it."""
    origin: str = "stated"

    def variance(self, seeds: int) -> float:
        """V, without the seeds where nothing is known of them."""
        return (self.between_seeds or 0.0) ** 2 / seeds + self._items() + self._both(seeds)

    def estimates(self, seeds: int) -> Components:
        """What the parts of `significance.components` are on average, for one collection."""
        both = ((self._both(seeds), (seeds - 1) * (self.items - 1)),) if seeds > 1 else ()
        of_seeds = (self.between_seeds or 0.0) ** 2 / seeds + self._both(seeds)
        return Components(
            ((of_seeds, seeds - 1),) if seeds > 1 else (), ((self._items() + self._both(seeds), self.items - 1),), both
        )

    def _items(self) -> float:
        return self.between_items**2 / self.items

    def _both(self, seeds: int) -> float:
        return self.between_both**2 / (seeds * self.items)


def outlook(study: Study) -> list[str]:
    """Lines for a plan; ValueError where the folder of an earlier study cannot be read."""
    known = deviations(study.power)
    lines = _paired(study, known) if study.design == "paired" else [] if study.confirm else _searched(study, known)
    lines += _confirmed(study, known)
    if known is None:
        lines.append(
            "not known, for want of what a difference varies by between test items and between seeds, and of the "
            "number of items: --power measured=FOLDER takes them from an earlier study"
        )
    else:
        seeds = "not known" if known.between_seeds is None else f"{known.between_seeds:.2g}"
        lines.append(
            f"a difference varies by {known.between_items:.2g} between items, {seeds} between seeds: {known.origin}"
        )
    if not any(line.startswith(REPORTED) for line in lines):
        lines += _reported(study.power, None)
    return [("power       " if place == 0 else " " * 12) + line for place, line in enumerate(lines)]


def comparisons(study: Study) -> int:
    """Tests that the report's table corrects for: the best trial with each other one and with the best untrained model.

    Trials that end early are not tested; then the level is milder than the plan says.
    """
    return study.budget.trials


def _searched(study: Study, known: Deviations | None) -> list[str]:
    if known is None:
        return []
    tests, seeds, name = comparisons(study), study.replicates, study.objectives[0].name
    smallest = by_student(known, seeds, LEVEL / tests)
    over = f"{known.items:,} items" if seeds == 1 else f"{known.items:,} items and {seeds} seeds"
    of_group = "" if study.group is None else " of its group"
    lines = [
        f"{POWER:.0%} for a difference of {smallest:.2g} in {name} between the best trial and another one{of_group} "
        f"(Student's t over {over}, Holm over {tests}: p < {LEVEL / tests:.2g})",
        *_reported(study.power, smallest),
    ]
    if seeds == 1 and known.between_seeds:
        lines.append(
            f"one seed: of two trials that are level, the report's test over items tells {false_alarms(known):.0%} "
            f"apart at p < {LEVEL:g}; several replicates or fresh seeds for the best few tell luck from difference"
        )
    if known.between_seeds is None:
        lines.append(
            "one seed: the difference is one of two trained models, not of their settings" if seeds == 1
            else "that is as if seeds did not differ: what a difference varies by between them is not known"
        )  # fmt: skip
    return lines


def _confirmed(study: Study, known: Deviations | None) -> list[str]:
    """What the confirmation can show, from which the answer is given: the winner against all else that is confirmed."""
    if study.confirm is None or known is None:
        return []
    each, seeds = study.confirmations // len(study.groups), study.confirm.seeds
    tests, name = max(each - 1, 1), study.objectives[0].name
    smallest = by_student(known, seeds, LEVEL / tests)
    luck = "" if known.between_seeds is not None else ", as if seeds did not differ, of which nothing is known"
    return [
        f"{POWER:.0%} for a difference of {smallest:.2g} in {name} between the confirmed best and another one that is "
        f"confirmed (Student's t over {known.items:,} items and {seeds} fresh seeds, Holm over {tests}: "
        f"p < {LEVEL / tests:.2g}{luck})",
        *_reported(study.power, smallest),
    ]


def _paired(study: Study, known: Deviations | None) -> list[str]:
    """Of a metric with sizes the difference at one size is taken to vary as that of their mean does."""
    name, seeds = study.objectives[0].name, study.replicates
    sizes = sum(metric.of == name for metric in study.metrics.values())
    tests = [(f"{name} on average over {sizes} sizes" if sizes else name, 1)]
    if sizes:
        tests.append((f"{name} at one of {sizes} sizes", sizes))
    lines = []
    for what, corrected in tests:
        level = LEVEL / corrected
        if smallest_p(seeds) >= level:
            enough = next(n for n in range(seeds, 100) if smallest_p(n) < level)
            lines.append(
                f"no difference in {what} can be shown: flips of signs over {seeds} seeds give no p below "
                f"{smallest_p(seeds):.4g}, and less than {level:.2g} is needed; that takes {enough} seeds"
            )
        elif known is not None and known.between_seeds is not None:
            smallest, for_others = by_flips(known, seeds, level), by_student(known, seeds, level)
            lines += [
                f"{POWER:.0%} for a difference of {smallest:.2g} in {what} on these {known.items:,} items (flips of "
                f"signs over {seeds} seeds, p < {level:.2g}), of {for_others:.2g} for other items too (Student's t "
                "over both)",
                *_reported(study.power, for_others),
            ]
    return lines


def _reported(power: Power, smallest: float | None) -> list[str]:
    """What the literature reports, beside what the study can show where that is known."""
    if power.reported is None:
        return []
    source = f" ({power.source})" if power.source else ""
    if smallest is None:
        verdict = ""
    elif power.reported >= smallest:
        verdict = ", no less than that"
    else:
        verdict = ", LESS than that: the study is not likely to show it; more seeds or test items are needed"
    return [f"{REPORTED} is {power.reported:g}{source}{verdict}"]


def by_student(known: Deviations, seeds: int, level: float) -> float:
    """The smallest difference that the test over items and, with several, seeds shows at `level`; see the module."""
    import numpy as np
    from scipy.special import ndtr, stdtrit

    spread = math.sqrt(known.variance(seeds))
    if seeds == 1 and known.between_seeds:
        normal = NormalDist()
        return (normal.inv_cdf(1 - level / 2) + normal.inv_cdf(POWER)) * spread
    draw, expected = np.random.default_rng(0), known.estimates(seeds)
    drawn = Components(
        *(
            tuple((part * draw.chisquare(freedom, DRAWS) / freedom, freedom) for part, freedom in parts)
            for parts in (expected.seeds, expected.items, expected.both)
        )
    )
    variances, freedoms = drawn.estimate()
    critical = stdtrit(freedoms, 1 - level / 2) * np.sqrt(variances)
    return _smallest(lambda d: float((ndtr((d - critical) / spread) + ndtr((-d - critical) / spread)).mean()), spread)


def false_alarms(known: Deviations) -> float:
    """How often the test over items of one seed gives p < LEVEL for two trials that are level over all seeds."""
    normal, luck = NormalDist(), known.between_seeds or 0.0
    seen = math.sqrt(1 - luck**2 / known.variance(1))
    return 2 * normal.cdf(-normal.inv_cdf(1 - LEVEL / 2) * seen)


def by_flips(known: Deviations, seeds: int, level: float) -> float:
    """The smallest mean difference on the test items at hand that flips of the signs of paired seeds' differences show
    at `level`. ValueError where no difference gives so small a p.
    """
    import numpy as np

    if smallest_p(seeds) >= level:
        raise ValueError(f"{seeds} seeds give no p below {smallest_p(seeds):g}, not to speak of {level:g}")
    spread = math.hypot(known.between_seeds or 0.0, known.between_both / math.sqrt(known.items))
    if spread == 0:
        return 0.0
    draw = np.random.default_rng(0)
    signs = _flips(seeds, draw)
    sums, weights = spread * draw.standard_normal((DRAWS // 2, seeds)) @ signs.T, signs.sum(1)

    def power(difference: float) -> float:
        reached = np.abs(sums + difference * weights)
        return float(((reached >= reached[:, :1] * (1 - 1e-9)).mean(1) < level).mean())

    return _smallest(power, spread / math.sqrt(seeds))


def _flips(seeds: int, draw: np.random.Generator) -> np.ndarray:
    """(flips, seeds) signs, the first row all 1; a row stands for its negative too."""
    import numpy as np

    if seeds > FLIPS:
        drawn = draw.choice((-1.0, 1.0), (2 ** (FLIPS - 1), seeds))
        drawn[0] = 1.0
        return drawn
    return np.array([(1.0, *signs) for signs in product((1.0, -1.0), repeat=seeds - 1)])


def _smallest(power: Callable[[float], float], spread: float) -> float:
    """The difference whose `power` is POWER, to a thousandth of the `spread` of what is found."""
    low, high = 0.0, spread
    while power(high) < POWER:
        low, high = high, 2 * high
    while high - low > spread / 1000:
        middle = (low + high) / 2
        low, high = (middle, high) if power(middle) < POWER else (low, middle)
    return high


def deviations(power: Power) -> Deviations | None:
    """What is known of a study's differences: deviations that an earlier study measured go before stated ones, a stated
    number of items before that of the earlier study. None where items or what varies between them stay open."""
    if power.measured:
        storage = StudyFolder(Path(power.measured).absolute())
        if not storage.summary.exists():
            raise ValueError(f"power.measured={power.measured}: no study was run in this folder")
        found = measured(storage)
        if found.between_seeds is None and power.seed_deviation is not None:
            found = replace(found, between_seeds=power.seed_deviation, origin=f"{found.origin}; seeds stated")
        return replace(found, items=power.items or found.items)
    if power.items is None or power.item_deviation is None:
        return None
    return Deviations(power.items, power.item_deviation, between_seeds=power.seed_deviation)


def measured(storage: StudyFolder) -> Deviations:
    """The deviations of the differences that an earlier study found in its objective, on test items where it has them.

    They are those between its best trial and each other complete one, or between arms and the first arm; of several
    the median variance. ValueError where the folder has no two such trials with values per item.
    """
    summary = read(storage.summary)
    tables = [
        table
        for alone in [summary.alone(group) for group in summary.groups] or [summary]
        for table in _differences(storage, alone)
    ]
    if not tables:
        raise ValueError(f"{storage.path}: no two trials of it are complete with values per test item")
    varied = [_variances(table) for table in tables]
    of_seeds = [variance for variance, _, _ in varied if variance is not None]
    seeds, items = tables[0].shape
    return Deviations(
        items=items,
        between_items=math.sqrt(median(variance for _, variance, _ in varied)),
        between_both=math.sqrt(median(variance for _, _, variance in varied)),
        between_seeds=math.sqrt(median(of_seeds)) if of_seeds else None,
        origin=f"measured in {storage.path}, {len(tables)} difference(s) of {seeds} seed(s) on {items} items",
    )


def _variances(table: np.ndarray) -> tuple[float | None, float, float]:
    """Variance between seeds, between items and between both of differences (seeds, items); with one seed nothing is
    known of the first, and the last is part of the second."""
    seeds, items = table.shape
    found = components(table)
    of_seeds, of_items, of_both = (
        float(sum(variance for variance, _ in parts)) for parts in (found.seeds, found.items, found.both)
    )
    between_seeds = max(of_seeds - of_both, 0.0) * seeds if found.seeds else None
    return between_seeds, max(of_items - of_both, 0.0) * items, of_both * seeds * items


def _differences(storage: StudyFolder, summary: StudySummary) -> list[np.ndarray]:
    """(seeds, items) differences of the first objective: each other complete trial less the best one or the first arm,
    with as many seeds as all of them have."""
    complete = [trial for trial in summary.trials if trial.state == TrialState.COMPLETE]
    name = summary.objectives[0].name
    chosen = [trial for trial in complete if summary.design == "paired" or trial.number in summary.best]
    if not chosen:
        return []
    sizes = {part: metric.correlation for part, metric in summary.metrics.items() if metric.of == name}
    declared = summary.metrics.get(name)
    parts = sizes or {name: declared.correlation if declared else None}
    ordered = [chosen[0], *(trial for trial in complete if trial is not chosen[0])]
    found = [[per_item.read(own).get("test", {}) for own in storage.trial(t.number).replicates()] for t in ordered]
    found = [[items for items in replicates if items] for replicates in found]
    found = [replicates for replicates in found if replicates]
    if len(found) < 2:
        return []
    seeds = min(map(len, found))
    keys = [correlation.one if correlation else part for part, correlation in parts.items()]
    ids = sorted(set.intersection(*(set(items.get(keys[0], {})) for rows in found for items in rows[:seeds])))
    tables = [_table(replicates[:seeds], parts, ids) for replicates in found]
    if len(ids) < 2 or tables[0] is None:
        return []
    return [table - tables[0] for table in tables[1:] if table is not None]


def _table(
    replicates: Sequence[pseudo_values.Items], parts: Mapping[str, Correlation | None], ids: Sequence[str]
) -> np.ndarray | None:
    """(seeds, items) that each item contributes to the mean over the parts of a metric; None where that is unknown."""
    import numpy as np

    found = [pseudo_values.contributions(items, parts, ids) for items in replicates]
    return None if any(row is None for row in found) else np.stack([row.mean(1) for row in found if row is not None])
