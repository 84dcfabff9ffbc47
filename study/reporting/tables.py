"""The tables of a report, in words: drawn on a page and written in Markdown elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from study.protocol.states import TrialState
from study.protocol.summary import TrialSummary
from study.reporting.confirmed import Finalist
from study.reporting.formatting import aligned, at, difference, p_value, parameters, setting, show
from study.reporting.paired import Contrast, signed, spread
from study.reporting.results import Findings

Kind = Literal["number", "text", "state", "words"]
"""How a column is set: right, left, as a mark of a trial's state, left and in lines."""


@dataclass(frozen=True)
class Column:
    title: str
    kind: Kind = "number"


@dataclass(frozen=True)
class Table:
    """Cells as text, row by row; the rows in `marked` stand out."""

    label: str
    """What the table is, for those who cannot see it."""
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    marked: frozenset[int] = frozenset()
    sortable: bool = False

    def text(self) -> str:
        """The table in lines, its columns aligned."""
        return aligned(([column.title for column in self.columns], *self.rows))


def trials(findings: Findings) -> Table:
    """All trials: what was measured decides which columns there are."""
    metrics = [findings.metric, f"test.{findings.metric}", f"untrained.{findings.key}"]
    metrics += [*filter(None, [findings.metrics.cost]), *findings.metrics.columns]
    searched = parameters(findings.trials, findings.parameter)
    controls = len(findings.controls) > 0

    def parameter(name: str) -> tuple[Column, Callable[[TrialSummary], str]]:
        return Column(name, "text"), lambda t: setting(t.params.get(name, "–"))

    def measured(name: str) -> tuple[Column, Callable[[TrialSummary], str]]:
        title = ("" if name != findings.metric else "validation ") + findings.metrics.label(name)
        return Column(title), lambda t: findings.metrics.show(name, t.values.get(name))

    first, *others = [parameter(name) for name in searched] or [parameter(findings.parameter)]
    cells: list[tuple[Column, Callable[[TrialSummary], str]]] = [
        (Column("trial"), lambda t: f"{t.number}{' ★' if t is findings.best else ''}"),
        first,
        (Column("state", "state"), lambda t: t.state.value),
        *others,
        (Column("steps"), lambda t: f"{t.steps}/{t.planned_steps or '–'}"),
        *(measured(name) for name in dict.fromkeys(metrics) if findings.has(name)),
        (Column("worker-seconds"), lambda t: f"{t.worker_seconds:,.0f}"),
        (Column("attempts"), lambda t: str(t.attempts)),
    ]
    if controls:
        cells.insert(3, (Column("control", "text"), lambda t: _control(t, searched)))
    rows = tuple(tuple(cell(trial) for _, cell in cells) for trial in findings.trials)
    marked = frozenset(i for i, trial in enumerate(findings.trials) if trial is findings.best)
    return Table("Trials", tuple(column for column, _ in cells), rows, marked, sortable=True)


def _control(trial: TrialSummary, searched: Sequence[str]) -> str:
    """What a control changes beside the parameters that have columns."""
    if not trial.control:
        return "–"
    changed = [f"{name} = {setting(value)}" for name, value in trial.params.items() if name not in searched]
    return ", ".join(changed) or "yes"


def stopped(findings: Findings) -> Table:
    """Trials that did not finish, with the whole reason."""
    columns = (Column("trial"), Column("parameters", "text"), Column("state", "state"), Column("at step"),
               Column("reason", "words"))  # fmt: skip
    ended = [t for t in findings.trials if t.state not in (TrialState.COMPLETE, TrialState.RUNNING)]
    rows = tuple(
        (
            str(t.number),
            at(t, findings.parameter),
            t.state.value,
            f"{t.steps}/{t.planned_steps or '–'}",
            (t.reason or "").strip() or "no reason recorded",
        )
        for t in ended
    )
    return Table("Stopped trials", columns, rows)


def matched(findings: Findings) -> Table:
    """The best of all trials within each round level of cost."""
    metrics, cost = findings.metrics, findings.metrics.cost or ""
    columns = (
        Column(f"{metrics.label(cost)} at most"),
        Column(f"best {findings.parameter}", "text"),
        Column(f"validation {metrics.label(findings.metric)}"),
        Column(metrics.label(cost)),
        Column("trial"),
        Column("step"),
    )
    rows = tuple(
        (
            f"{m.budget:g}",
            at(m.trial, findings.parameter),
            metrics.show(findings.metric, m.value),
            metrics.show(cost, m.cost),
            str(m.trial.number),
            str(m.step),
        )
        for m in findings.matched()
    )
    return Table("Best within each allowance", columns, rows)


def comparisons(findings: Findings) -> Table:
    """The best trial against everything else that was measured on the test split."""
    own = at(findings.best, findings.parameter) if findings.best else ""
    columns = (
        Column(f"{own} against", "text"),
        Column(findings.metrics.label(findings.key)),
        Column("difference"),
        Column("95% interval"),
        Column("p"),
        Column("p, Holm"),
        Column("verdict", "text"),
    )
    rows = tuple(
        (
            c.name,
            show(c.value),
            difference(c.gap.value),
            f"{difference(c.gap.low)} to {difference(c.gap.high)}",
            _p(c.gap.p),
            _p(c.adjusted_p),
            "not distinguishable" if not c.distinct else "better" if findings.is_better(c.gap.value, 0) else "worse",
        )
        for c in findings.comparisons
    )
    return Table("Paired comparisons", columns, rows)


def confirmation(findings: Findings) -> Table:
    """The finalists and the controls with fresh seeds, beside what the search had found; the winner first."""
    found, metrics = findings.confirmed, findings.metrics
    assert found is not None
    name = metrics.label(findings.metric)
    columns = (
        Column("trial"),
        Column(findings.parameter, "text"),
        Column("place in the search"),
        Column(f"validation {name}, search"),
        Column("fresh seeds"),
        Column(f"validation {name}, fresh"),
        Column(f"{metrics.label(f'test.{findings.metric}')} (95% CI)"),
        Column("winner less it"),
        Column("95% interval"),
        Column("p, Holm"),
        Column("verdict", "text"),
    )
    rows = tuple(_finalist(findings, one) for one in found.finalists)
    marked = frozenset([0]) if found.winner is not None else frozenset[int]()
    return Table("Confirmation", columns, rows, marked)


def _finalist(findings: Findings, one: Finalist) -> tuple[str, ...]:
    found, gap = findings.confirmed, one.difference
    assert found is not None
    won, value = one is found.winner, one.trial.params.get(findings.parameter)
    mean = findings.metrics.show(findings.metric, fmean(one.validation)) if one.validation else "–"
    deviation = f" ± {show(stdev(one.validation))}" if len(one.validation) > 1 else ""
    state = "not begun" if one.run is None else str(one.run.state)
    verdict = "winner" if won else "–" if one.whole else state
    if gap is not None:
        better = findings.is_better(gap.gap.value, 0)
        verdict = "not distinguishable" if not gap.distinct else "worse" if better else "better"
    return (
        f"{one.trial.number}{' ★' if won else ''}",
        "control" if value is None and one.trial.control else setting("–" if value is None else value),
        "control" if one.rank is None else str(one.rank),
        findings.metrics.show(findings.metric, one.trial.values.get(findings.metric)),
        f"{len(one.validation)}/{len(found.seeds)}",
        f"{mean}{deviation}",
        "–" if one.test is None else f"{show(one.test.value)} ({show(one.test.low)}–{show(one.test.high)})",
        *(
            ("–", "–", "–")
            if gap is None
            else (
                difference(gap.gap.value),
                f"{difference(gap.gap.low)} to {difference(gap.gap.high)}",
                _p(gap.adjusted_p),
            )
        ),
        verdict,
    )


def effects(contrast: Contrast) -> Table:
    """An arm against the first at every size, with the corrected test before those that it is made of."""
    columns = (
        Column("size", "text"),
        Column(contrast.reference),
        Column(contrast.other),
        Column("difference"),
        Column("95% interval, seeds"),
        Column("95% interval, seeds × items"),
        Column("better in"),
        Column("p, Holm"),
        Column("p, permutation"),
        Column("p, sign"),
        Column("p, Wilcoxon"),
    )
    rows = tuple(
        (
            str(e.size) if e.size else "mean" if contrast.sizes else "–",
            spread(e.reference),
            spread(e.other),
            signed(e.gap),
            f"{signed(e.low)} to {signed(e.high)}",
            f"{signed(e.crossed[0])} to {signed(e.crossed[1])}" if e.crossed else "–",
            f"{e.wins(contrast.more)} of {len(contrast.seeds)}",
            *(f"{p:.4f}" for p in (e.adjusted_p, e.permutation_p, e.sign_p, e.wilcoxon_p)),
        )
        for e in contrast.effects
    )
    marked = frozenset(i for i, effect in enumerate(contrast.effects) if effect.distinct)
    return Table(f"Paired differences in {contrast.name}", columns, rows, marked)


def _p(value: float) -> str:
    return p_value(value)[2:].replace("= ", "")
