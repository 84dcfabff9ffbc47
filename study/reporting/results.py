"""What a study found: read from its storage folder, computed once, drawn and worded elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal

from study.protocol import journal, per_item
from study.protocol.folder import StudyFolder
from study.protocol.states import StudyStatus, TrialState
from study.protocol.summary import StudySummary, TrialSummary, read
from study.reporting.confirmed import confirmed
from study.reporting.formatting import at, best_trial, number, objective, reported
from study.reporting.metrics import DeclaredMetrics
from study.reporting.paired import contrasts
from study.stats.significance import LEVEL, Mean, holm, over_items

Kind = Literal["trial", "control", "untrained"]


@dataclass
class Curve:
    """What the first replicate of a trial logged, in the order of its steps."""

    signals: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    """Signals of the training steps that the study wants drawn, by name."""
    evaluations: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    """Validation metrics by step, the untrained model (step 0) included."""


@dataclass(frozen=True)
class Comparison:
    """The best trial against something else, paired over the queries that both answered."""

    name: str
    number: int
    kind: Kind
    value: float
    gap: Mean
    adjusted_p: float

    @property
    def distinct(self) -> bool:
        return self.adjusted_p < LEVEL


@dataclass(frozen=True)
class Matched:
    """The most effective evaluation of any trial that costs at most `budget`."""

    budget: float
    trial: TrialSummary
    step: int
    value: float
    cost: float


class Findings:
    """A study's storage, read: summary, curves, per-query values, comparisons.

    Raises a ValueError that names the file where the summary is missing or is not one.
    """

    def __init__(self, storage: StudyFolder, summary: StudySummary | None = None) -> None:
        """Read what the trials of a summary have left; without one that of the folder, of a study without groups."""
        self.storage = storage
        self.summary = read(storage.summary) if summary is None else summary
        self.trials = self.summary.trials
        self.metrics = DeclaredMetrics(self.summary.metrics)
        self.parameter = self.summary.parameter
        self.plane = self.summary.plane
        self.metric, self.more = objective(self.summary)
        self.best = best_trial(self.summary)
        self.controls = [trial for trial in self.trials if trial.control]
        self.key = reported(self.best, self.metric) if self.best else self.metric
        measured = [trial for trial in self.trials if trial.values.get(self.metric) is not None]
        self.complete = [trial for trial in measured if trial.state == TrialState.COMPLETE]
        self.signals = self.summary.signals
        self.curves = _curves(storage, self.metric, self.signals)
        self.items = {t.number: per_item.of_trial(storage, t.number, "test", self.metric) for t in self.trials}
        """Trial -> query -> value, for each replicate that has a result."""
        self.untrained_items = {
            t.number: per_item.of_trial(storage, t.number, "untrained.test", self.metric) for t in self.trials
        }
        self.interval = self._interval(self.best.number) if self.best else None
        self.comparisons = self._comparisons()
        self._replicate_items: dict[tuple[int, int], dict[str, dict[str, dict[str, float]]]] = {}
        self.contrasts = contrasts(self)
        self.confirmed = confirmed(self)

    @property
    def intervals(self) -> list[tuple[str, float, float, bool]]:
        """Of each comparison: with what, the ends of its interval, whether the corrected test shows a difference."""
        return [(c.name, c.gap.low, c.gap.high, c.distinct) for c in self.comparisons]

    @property
    def finished(self) -> bool:
        return self.summary.status == StudyStatus.FINISHED

    @property
    def seeds(self) -> int:
        """The most replicates that any trial has."""
        return max((len(t.replicates) for t in self.trials), default=0)

    def has(self, metric: str) -> bool:
        return any(trial.values.get(metric) is not None for trial in self.trials)

    def is_better(self, one: float, other: float) -> bool:
        return one > other if self.more else one < other

    def best_untrained(self) -> TrialSummary | None:
        """The trial whose untrained model scores best on the reported split.

        Chosen on the reported split itself: the reference gets every advantage.
        """
        key = f"untrained.{self.key}"
        measured = [(value, trial) for trial in self.trials if (value := trial.values.get(key)) is not None]
        pick = max if self.more else min
        return pick(measured, key=lambda pair: pair[0])[1] if measured else None

    def last_value(self, trial: TrialSummary) -> float | None:
        """A trial's last validation value after some training: final, or when it was stopped."""
        evaluated = [m.get(self.metric) for step, m in self.curve(trial).evaluations if step > 0]
        logged = [value for value in map(number, evaluated) if value is not None]
        return trial.values.get(self.metric) if not logged else logged[-1]

    def curve(self, trial: TrialSummary) -> Curve:
        return self.curves.get(trial.number, Curve())

    def replicate_items(self, trial: int, replicate: int) -> dict[str, dict[str, dict[str, float]]]:
        """Split -> metric -> query or pair id -> value of one finished replicate."""
        key = trial, replicate
        if key not in self._replicate_items:
            self._replicate_items[key] = per_item.read(self.storage.replicate(trial, replicate))
        return self._replicate_items[key]

    def paid(self, trial: TrialSummary) -> list[tuple[float, float, int]]:
        """(cost, effectiveness, step) of each validation of a trained model of this trial; of a search that was
        confirmed those of final models only, with fresh seeds where there are any."""
        cost = self.metrics.cost
        if cost is None:
            return []
        plan = self.summary.confirmation
        if plan is not None:
            run = plan.run_of(trial.number)
            last = run if run is not None and run.state == TrialState.COMPLETE else trial
            told = last.values.get(cost), last.values.get(self.metric)
            if trial.state != TrialState.COMPLETE or told[0] is None or told[1] is None:
                return []
            return [(told[0], told[1], trial.steps)]
        points = [
            (spent, value, step)
            for step, metrics in self.curve(trial).evaluations
            if step > 0
            and (spent := number(metrics.get(cost))) is not None
            and (value := number(metrics.get(self.metric))) is not None
        ]
        final = (trial.values.get(cost), trial.values.get(self.metric))
        if not points and final[0] is not None and final[1] is not None:
            points = [(final[0], final[1], trial.steps)]
        return points

    def matched(self) -> list[Matched]:
        """For each round level of cost that was reached, the best that any trial offers within it."""
        offers = [(trial, *point) for trial in self.trials for point in self.paid(trial)]
        rows: list[Matched] = []
        for budget in _round_levels([spent for _, spent, _, _ in offers]):
            within = [offer for offer in offers if offer[1] <= budget]
            if not within:
                continue
            trial, spent, value, step = (max if self.more else min)(within, key=lambda offer: offer[2])
            rows.append(Matched(budget, trial, step, value, spent))
        return rows

    def front(self, points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
        """The (cost, effectiveness) pairs that no other pair beats in both, by rising cost."""
        kept: list[tuple[float, float]] = []
        for spent, value in sorted(points, key=lambda p: (p[0], -p[1] if self.more else p[1])):
            if not kept or self.is_better(value, kept[-1][1]):
                kept.append((spent, value))
        return kept

    def _interval(self, number_: int) -> Mean | None:
        return over_items(self.items[number_]) if self.key.startswith("test.") else None

    def _comparisons(self) -> list[Comparison]:
        """The best against every other complete trial and the best untrained model, Holm over all of them."""
        if self.best is None or self.interval is None:
            return []
        own = self.items[self.best.number]
        others: list[tuple[TrialSummary, Kind, list[dict[str, float]]]] = [
            (t, "control" if t.control else "trial", self.items[t.number]) for t in self.complete if t is not self.best
        ]
        untrained = self.best_untrained()
        if untrained is not None:
            others.append((untrained, "untrained", self.untrained_items[untrained.number]))
        found: list[tuple[TrialSummary, Kind, list[dict[str, float]], Mean]] = []
        for trial, kind, items in others:
            gap = over_items(own, items)
            if gap is not None:
                found.append((trial, kind, items, gap))
        adjusted = holm([gap.p for *_, gap in found])
        return [
            Comparison(
                name=("untrained, " if kind == "untrained" else "") + at(trial, self.parameter),
                number=trial.number,
                kind=kind,
                value=fmean(value for values in items for value in values.values()),
                gap=gap,
                adjusted_p=p,
            )
            for (trial, kind, items, gap), p in zip(found, adjusted, strict=True)
        ]


def _curves(storage: StudyFolder, metric: str, signals: Iterable[str]) -> dict[int, Curve]:
    """First replicates only. The journal may be growing while it is read: half a last line is left out."""
    curves: dict[int, Curve] = {}
    for entry in storage.entries(journal.Metrics):
        if entry.replicate != 0:
            continue
        curve = curves.setdefault(entry.trial, Curve())
        for record in entry.records:
            metrics = record["metrics"]
            for name in signals:
                if f"train.{name}" in metrics:
                    curve.signals.setdefault(name, []).append((record["step"], metrics[f"train.{name}"]))
            if metric in metrics:
                curve.evaluations.append((record["step"], metrics))
    return curves


def _round_levels(values: list[float], most: int = 7) -> list[float]:
    """Up to `most` round numbers (1, 2, 5 times a power of ten) that cover the positive values.

    >>> _round_levels([0.3, 4.0])
    [0.5, 1.0, 2.0, 5.0]
    """
    positive = [value for value in values if value > 0]
    if not positive:
        return []
    low, high = min(positive), max(positive)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ladder = [times * 10.0**power for power in powers for times in (1, 2, 5)]
    inside = [level for level in ladder if level >= low]
    last = next((i for i, level in enumerate(inside) if level >= high), len(inside) - 1)
    levels = inside[: last + 1]
    stride = math.ceil(len(levels) / most)
    return levels[::-1][::stride][::-1]
