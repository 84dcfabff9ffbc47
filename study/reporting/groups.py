"""A study's groups side by side: each has findings of its own, and none is compared with another."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from study.protocol.folder import StudyFolder
from study.protocol.states import TrialState
from study.protocol.summary import StudySummary, TrialSummary, read
from study.reporting.confirmed import Finalist
from study.reporting.formatting import aligned, counts, difference, p_value, setting, show
from study.reporting.results import Comparison, Findings
from study.stats.significance import Mean, over_items


@dataclass(frozen=True)
class Overview:
    """A table with a row for each group: cells as text, by their heads."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def text(self) -> str:
        """The table in lines, its columns aligned."""
        return aligned((self.heads, *self.rows))


@dataclass(frozen=True)
class GroupFindings:
    """What a study found for one of its groups."""

    name: str
    findings: Findings

    @property
    def best(self) -> str:
        """The best value of the studied parameter, or what became of the trials where none is."""
        found = self.findings
        if found.best is None:
            return "none"
        return _value(found.best, found.parameter)

    @property
    def winner(self) -> Finalist | None:
        """What the confirmation names; None before it does."""
        return self.findings.confirmed.winner if self.findings.confirmed else None

    def against(self, control: TrialSummary) -> Comparison | None:
        """The best trial against a control; None where they cannot be paired."""
        return next((c for c in self.findings.comparisons if c.number == control.number and c.kind == "control"), None)

    def value_of(self, trial: TrialSummary | None) -> str:
        """A trial's figure on the reported split with its interval, or what became of it."""
        found = self.findings
        if trial is None:
            return "–"
        if trial.state != TrialState.COMPLETE:
            return trial.state.value
        value = found.metrics.show(found.key, trial.values.get(found.key))
        interval = self._interval(trial)
        return value if interval is None else f"{value} ({show(interval.low)}–{show(interval.high)})"

    @cached_property
    def explained_by(self) -> float | None:
        """What may explain why groups differ, such as a norm of the head: the same for all trials of a group."""
        name = self.findings.metrics.explains
        found = (trial.values.get(f"untrained.{name}") for trial in self.findings.trials)
        return next((value for value in found if value is not None), None)

    def _interval(self, trial: TrialSummary) -> Mean | None:
        return over_items(self.findings.items[trial.number]) if self.findings.key.startswith("test.") else None


def grouped(storage: StudyFolder, summary: StudySummary | None = None) -> list[GroupFindings]:
    """The findings of each group, in the order of the groups; [] for a study without groups."""
    whole = read(storage.summary) if summary is None else summary
    return [GroupFindings(group.name, Findings(storage, whole.alone(group))) for group in whole.groups]


def overview(key: str, groups: list[GroupFindings]) -> Overview:
    """Group by group the best value of the studied parameter, its figure and that of each control.

    `key` is the key of the config whose values are the groups.
    """
    first = groups[0].findings
    labels = [group.findings.metrics.label(group.findings.key) for group in groups if group.findings.best is not None]
    metric = labels[0] if labels else first.metrics.label(first.metric)
    controls = list(dict.fromkeys(_changed(control) for group in groups for control in group.findings.controls))
    explains = first.metrics.explains
    heads: tuple[str, ...] = (key, f"best {first.parameter}", f"{metric} (95% CI)")
    confirming = any(group.findings.confirmed for group in groups)
    if confirming:
        heads += (f"confirmed {first.parameter}", "with fresh seeds (95% CI)")
        heads += tuple(f"less {changed} (95% CI, p)" for changed in controls)
    for changed in controls:
        heads += (f"at {changed} (95% CI)", "difference")
    heads += ((first.metrics.label(explains),) if explains else ()) + ("trials",)
    rows = []
    for group in groups:
        row: tuple[str, ...] = (group.name, group.best, group.value_of(group.findings.best))
        if confirming:
            row += _confirmed(group, controls)
        for changed in controls:
            control = next((one for one in group.findings.controls if _changed(one) == changed), None)
            row += (group.value_of(control), _difference(group, control))
        row += ((show(group.explained_by),) if explains else ()) + (counts(group.findings.summary),)
        rows.append(row)
    return Overview(heads, tuple(rows))


def headline(key: str, groups: list[GroupFindings]) -> str:
    """The answer of a study with groups, in a sentence: each group has its own."""
    parameter = groups[0].findings.parameter
    told = [f"{group.name} {_verdict(group)}" for group in groups]
    return f"Best {parameter} for each {key}: {'; '.join(told)}."


def _verdict(group: GroupFindings) -> str:
    """The best value of the studied parameter, and whether a control is no worse."""
    won = group.winner
    if won is not None:
        controls = [one for one in group.findings.confirmed.finalists if one.rank is None]  # type: ignore[union-attr]
        said = [
            f"{'not distinguishable from' if not one.difference.distinct else 'worse than'} {_changed(one.trial)}"
            for one in controls
            if one.difference is not None
            and not (one.difference.distinct and group.findings.is_better(one.difference.gap.value, 0))
        ]
        told = _value(won.trial, group.findings.parameter) + " (confirmed"
        return told + "".join(f", {text}" for text in said) + ")"
    if group.findings.best is None:
        return "none (" + counts(group.findings.summary).partition(": ")[2] + ")"
    found = [(control, group.against(control)) for control in group.findings.controls]
    said = []
    for control, gap in found:
        if control.state != TrialState.COMPLETE:
            said.append(f"at {_changed(control)} {control.state}")
        elif gap is not None and not gap.distinct:
            said.append(f"not distinguishable from {_changed(control)}")
        elif gap is not None and not group.findings.is_better(gap.gap.value, 0):
            said.append(f"worse than {_changed(control)}")
    return group.best + (f" ({', '.join(said)})" if said else "")


def _difference(group: GroupFindings, control: TrialSummary | None) -> str:
    gap = group.against(control) if control is not None and group.findings.best is not None else None
    return "–" if gap is None else f"{difference(gap.gap.value)} ({p_value(gap.adjusted_p)})"


def _confirmed(group: GroupFindings, controls: list[str]) -> tuple[str, ...]:
    """The winner's value of the studied parameter, its figure, and its difference to each control."""
    won, found = group.winner, group.findings.confirmed
    if won is None or found is None:
        return ("–",) * (2 + len(controls))
    test = won.test
    shown = "–" if test is None else f"{show(test.value)} ({show(test.low)}–{show(test.high)})"
    gaps = {_changed(one.trial): one.difference for one in found.finalists if one.rank is None}
    cells = []
    for changed in controls:
        gap = gaps.get(changed)
        cells.append(
            "–"
            if gap is None
            else f"{difference(gap.gap.value)} ({difference(gap.gap.low)} to {difference(gap.gap.high)}, "
            f"{p_value(gap.adjusted_p)})"
        )
    return (_value(won.trial, group.findings.parameter), shown, *cells)


def _value(trial: TrialSummary, parameter: str) -> str:
    value = trial.params.get(parameter)
    return f"trial {trial.number}" if value is None else setting(value)


def _changed(control: TrialSummary) -> str:
    return ", ".join(f"{name} = {setting(value)}" for name, value in control.params.items())
