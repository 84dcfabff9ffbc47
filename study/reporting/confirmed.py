"""What a confirmation found: who wins on validation, and by how much on test queries, over the fresh seeds that all of
it ran with. The search's own figures stand beside it, as what they are: those of the largest of many noisy values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Protocol

from study.protocol.states import TrialState
from study.protocol.summary import StudySummary, TrialSummary
from study.reporting.formatting import at, difference, enumerate_words, p_value, show, winner
from study.reporting.metrics import DeclaredMetrics
from study.stats import pseudo_values
from study.stats.significance import LEVEL, Mean, holm, over_items


@dataclass(frozen=True, slots=True)
class Difference:
    """The winner less another trial that was confirmed, paired by seed and query."""

    other: int
    gap: Mean
    """For other seeds and other queries."""
    adjusted_p: float
    """Corrected by Holm over all that the winner is compared with."""

    @property
    def distinct(self) -> bool:
        return self.adjusted_p < LEVEL


def differences(winner: int, items: Mapping[int, Sequence[Mapping[str, float]]]) -> list[Difference]:
    """The winner less each other trial of `items`: number -> query -> value on test, for each seed in one order.

    The winner was chosen on validation queries, so that its test values are not inflated by the choice. A trial that
    shares fewer than two queries with it is left out.
    """
    gaps = [(other, over_items(items[winner], values)) for other, values in items.items() if other != winner]
    found = [(other, gap) for other, gap in gaps if gap is not None]
    adjusted = holm([gap.p for _, gap in found])
    return [Difference(other, gap, p) for (other, gap), p in zip(found, adjusted, strict=True)]


class Searched(Protocol):
    """What a study without groups found, as far as its confirmation is told by it; `results.Findings` is one."""

    summary: StudySummary
    metrics: DeclaredMetrics
    metric: str
    more: bool
    best: TrialSummary | None
    parameter: str

    def is_better(self, one: float, other: float) -> bool:
        """Whether one value of the metric is better than another."""
        ...

    def replicate_items(self, trial: int, replicate: int) -> dict[str, dict[str, dict[str, float]]]:
        """Split -> metric -> query or pair id -> value of one finished replicate."""
        ...


@dataclass(frozen=True, slots=True)
class Finalist:
    """A trial of the search and the run that confirms it."""

    trial: TrialSummary
    rank: int | None
    """Its place in the search, from 1; None for a control."""
    run: TrialSummary | None
    """None before it has begun."""
    validation: tuple[float, ...]
    """The metric on validation for each fresh seed that has ended."""
    test: Mean | None
    """The metric on the test split, for other seeds and other queries."""
    difference: Difference | None
    """The winner less this one; None for the winner, and where they cannot be paired."""

    @property
    def whole(self) -> bool:
        return self.run is not None and self.run.state == TrialState.COMPLETE


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The confirmation of one search."""

    seeds: tuple[int, ...]
    asked: int
    missing: int
    finalists: tuple[Finalist, ...]
    """The winner first, then by validation mean, those without one last; then the controls."""
    winner: Finalist | None
    sentence: str
    """What it shows, in words."""

    @property
    def caveats(self) -> list[str]:
        """What a reader must know before quoting it."""
        found = []
        if self.missing:
            found.append(
                f"{self.asked - self.missing} finalist(s) instead of {self.asked}: no more trials are complete."
            )
        left = [one for one in self.finalists if not one.whole]
        if left:
            states = {"not begun" if one.run is None else str(one.run.state) for one in left}
            found.append(
                f"Not confirmed whole: trial(s) {', '.join(str(one.trial.number) for one in left)} "
                f"({', '.join(sorted(states))})."
            )
        return found


def confirmed(findings: Searched) -> Confirmed | None:
    """What the confirmation of a search has found so far; None where nothing is confirmed."""
    plan, trials = findings.summary.confirmation, {trial.number: trial for trial in findings.summary.trials}
    if plan is None or not plan.groups or not plan.groups[0].finalists:
        return None
    (group,) = plan.groups
    best = winner(findings.summary)
    runs = {number: plan.run_of(number) for number in (*group.finalists, *group.controls)}
    items = {n: _items(findings, run) for n, run in runs.items() if run and run.state == TrialState.COMPLETE}
    items = {number: values for number, values in items.items() if all(values)}
    found = differences(best.number, items) if best is not None and best.number in items else []
    gaps = {one.other: one for one in found}

    def finalist(number: int, rank: int | None) -> Finalist:
        run = runs[number]
        values = [replicate.values.get(findings.metric) for replicate in run.replicates] if run else []
        measured = tuple(value for value in values if value is not None)
        test = over_items(items[number]) if number in items else None
        return Finalist(trials[number], rank, run, measured, test, gaps.get(number))

    def order(one: Finalist) -> tuple[bool, bool, float]:
        value = fmean(one.validation) if one.validation else 0.0
        return one.trial is not best, not one.whole, -value if findings.more else value

    chosen = sorted((finalist(number, place) for place, number in enumerate(group.finalists, 1)), key=order)
    told = (*chosen, *(finalist(number, None) for number in group.controls))
    first = told[0] if best is not None else None
    return Confirmed(
        plan.seeds, plan.finalists, group.missing, told, first, _sentence(findings, plan.seeds, told, first)
    )


def _items(findings: Searched, run: TrialSummary) -> list[dict[str, float]]:
    """Test query or pair -> what it contributes to the metric, for each fresh seed; {} where that is not known."""
    sizes = [name for name in findings.metrics.sizes(findings.metric).values() if name in run.values]
    parts = {name: findings.metrics.correlation(name) for name in sizes or [findings.metric]}
    found = []
    for replicate in range(len(run.replicates)):
        items = findings.replicate_items(run.number, replicate).get("test", {})
        ids = sorted(next(iter(items.values()), {}))
        table = pseudo_values.contributions(items, parts, ids) if ids else None
        found.append({} if table is None else dict(zip(ids, table.mean(1).tolist(), strict=True)))
    return found


def _sentence(findings: Searched, seeds: tuple[int, ...], finalists: Sequence[Finalist], first: Finalist | None) -> str:
    if first is None:
        done = sum(one.whole for one in finalists)
        return f"Being confirmed with {len(seeds)} fresh seeds: {done} of {len(finalists)} trials are complete."
    metrics, name = findings.metrics, findings.metrics.label(findings.metric)
    mean = fmean(first.validation)
    text = f"Confirmed with {len(seeds)} fresh seeds: {at(first.trial, findings.parameter)}, "
    if first.test is None:
        text += f"validation {name} {metrics.show(findings.metric, mean)}"
    else:
        text += (
            f"{metrics.label(f'test.{findings.metric}')} {show(first.test.value)} (95% CI {show(first.test.low)}–"
            f"{show(first.test.high)} over {first.test.seeds} seeds × {first.test.items} queries)"
        )
    for one in finalists:
        if one.rank is None:
            text += _against(findings, one)
    level = [
        at(one.trial, findings.parameter)
        for one in finalists
        if one.rank is not None and one.difference is not None and not one.difference.distinct
    ]
    text += f"; it cannot be told apart from {enumerate_words(level)} on test queries." if level else "."
    best = findings.best
    if best is None or best.number == first.trial.number:
        return text + " The search had named the same."
    value = best.values.get(findings.metric)
    return (
        f"{text} The search alone had named {at(best, findings.parameter)}, by a validation {name} of "
        f"{metrics.show(findings.metric, value)} that was the largest of many."
    )


def _against(findings: Searched, control: Finalist) -> str:
    """How the winner compares with a control."""
    name, gap = at(control.trial, findings.parameter), control.difference
    if gap is None:
        return f", the {name} not confirmed"
    interval = f"95% CI {difference(gap.gap.low)} to {difference(gap.gap.high)}, {p_value(gap.adjusted_p)}"
    if not gap.distinct:
        return f", no measurable difference ({difference(gap.gap.value)}; {interval}) to the {name}"
    word = "over" if findings.is_better(gap.gap.value, 0) else "against"
    return f", {difference(gap.gap.value)} ({interval}) {word} the {name}"
