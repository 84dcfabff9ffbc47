"""The figures of a report: each function draws one and returns its PNG, or None without anything to draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes

from study.protocol.states import TrialState
from study.protocol.summary import TrialSummary
from study.reporting.formatting import baselines, named, number, reported, setting
from study.reporting.plot_style import (
    BLUE,
    GREEN,
    GREY,
    HIGHLIGHT,
    INK,
    MANY,
    STOPPED,
    Scale,
    drawing,
    log_if_wide,
    plain,
    png,
)
from study.reporting.results import Findings


def parameter_curve(findings: Findings) -> bytes | None:
    """Effectiveness over the study's parameter: validation, test, untrained, baselines, stopped trials."""
    scale = Scale.of(findings)
    placed = [(x, trial) for trial in findings.trials if (x := scale.position(trial)) is not None]
    if not placed:
        return None
    test = f"test.{findings.metric}"
    with drawing(height=4.4) as (figure, (axes,)):
        complete = [(x, trial) for x, trial in placed if trial in findings.complete]
        key = test if findings.has(test) else findings.metric
        split = ", test" if key == test else ""
        _series(axes, findings, placed, f"untrained.{key}", f"untrained{split}", GREY, "D", "--")
        for name, value in baselines(findings.summary, key).items():
            axes.axhline(value, color=INK, linewidth=1.2, linestyle=":", label=f"{name}{split}")
        _series(axes, findings, complete, findings.metric, "validation", BLUE, "o", "-")
        _series(axes, findings, complete, test, "test", GREEN, "^", "-")
        if findings.best is not None and (x := scale.position(findings.best)) is not None:
            axes.axvline(x, color=HIGHLIGHT, linewidth=14, zorder=0.5)
            axes.plot([], [], color=HIGHLIGHT, linewidth=7, label="best on validation")
        _stopped(axes, findings, placed)
        scale.dress(axes)
        axes.set_ylabel(findings.metrics.label(findings.metric))
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1.01), ncols=4, columnspacing=1.6, borderaxespad=0)
        return png(figure)


Placed = Sequence[tuple[float, TrialSummary]]
"""Trials, each with its place on the x axis."""


def _series(
    axes: Axes, findings: Findings, placed: Placed, key: str, name: str, colour: str, marker: str, dash: str
) -> None:
    """Means over replicates, their range, and a line through the best of each place if that is a curve."""
    points = [(x, value, trial) for x, trial in placed if (value := trial.values.get(key)) is not None]
    if not points:
        return
    for x, _, trial in points:
        seeds = [v for r in trial.replicates if (v := r.values.get(key)) is not None]
        if len(seeds) > 1:
            axes.plot([x, x], [min(seeds), max(seeds)], color=colour, linewidth=5, alpha=0.25)
            axes.plot([x] * len(seeds), seeds, linestyle="", marker="_", color=colour, markersize=6)
    hollow: dict[str, Any] = {"markerfacecolor": "white"} if dash == "--" else {"markeredgecolor": "white"}
    size = 5 if dash == "--" else 7
    places = sorted({x for x, *_ in points})
    ordered = Scale.of(findings).numeric and len(places) > 1
    alone = len(findings.trials[0].params) == 1 or len(places) <= len(points) / 2
    pick = max if findings.more else min
    if ordered and alone:
        tops = [pick(value for place, value, _ in points if place == x) for x in places]
        axes.plot(places, tops, color=colour, linestyle=dash, linewidth=1.4 if dash == "--" else 2, zorder=2)
    xs, ys = [x for x, *_ in points], [y for _, y, _ in points]
    axes.plot(xs, ys, linestyle="", marker=marker, color=colour, markersize=size, zorder=3, **hollow)
    line = dash if ordered and alone else ""
    axes.plot([], [], color=colour, linestyle=line, marker=marker, markersize=size, label=name, **hollow)


def _stopped(axes: Axes, findings: Findings, placed: Placed) -> None:
    """Trials that did not finish, at their last validation value, or on the axis where they have none."""
    for state, (colour, marker) in STOPPED.items():
        found = [(x, findings.last_value(trial)) for x, trial in placed if trial.state == state]
        measured = [(x, value) for x, value in found if value is not None]
        bare = [(x, 0.0) for x, value in found if value is None]
        look: dict[str, Any] = {
            "s": 75,
            "marker": marker,
            "color": colour,
            "zorder": 4,
            "clip_on": False,
        } | _edge(marker)
        for points, transform in ((measured, axes.transData), (bare, axes.get_xaxis_transform())):
            if points:
                axes.scatter(*zip(*points, strict=True), transform=transform, **look)
        if found:
            axes.scatter([], [], label=state, **look)


def _edge(marker: str) -> dict[str, Any]:
    return {"linewidths": 1.8} if marker == "x" else {"edgecolors": "white", "linewidths": 0.8}


def matched_cost(findings: Findings) -> bytes | None:
    """The best effectiveness each trial offers within a cost, over all its evaluations."""
    cost = findings.metrics.cost
    offers = [(trial, points) for trial in findings.trials if (points := findings.paid(trial))]
    if not offers or cost is None:
        return None
    scale = Scale.of(findings)
    with drawing(height=4.2) as (figure, (axes,)):
        farthest = max(spent for _, points in offers for spent, *_ in points)
        for trial, points in offers:
            stairs = findings.front([(spent, value) for spent, value, _ in points])
            stairs.append((farthest, stairs[-1][1]))
            colour, own = scale.colour(trial), trial is findings.best
            width = 3.0 if own else 1.8
            axes.step(*zip(*stairs, strict=True), where="post", color=colour, linestyle=scale.dash(trial),
                      linewidth=width, zorder=2 + own)  # fmt: skip
            axes.scatter([p[0] for p in points], [p[1] for p in points], s=16, color=colour, alpha=0.55, zorder=2)
        log_if_wide(axes, [spent for _, points in offers for spent, *_ in points])
        axes.set_xlabel(f"{findings.metrics.label(cost)} allowed")
        axes.set_ylabel(f"best validation {findings.metrics.label(findings.metric)}")
        scale.key(figure, axes, [trial for trial, _ in offers])
        return png(figure)


def pareto(findings: Findings) -> bytes | None:
    """Effectiveness against cost of finished trials, the front, and the untrained models."""
    best, cost = findings.best, findings.metrics.cost
    if best is None or cost is None:
        return None
    key = findings.key
    spent_key = reported(best, cost) if key.startswith("test.") else cost
    points = [
        (spent, value, trial)
        for trial in findings.complete
        if (spent := trial.values.get(spent_key)) is not None and (value := trial.values.get(key)) is not None
    ]
    if not points:
        return None
    scale = Scale.of(findings)
    with drawing(height=4.2) as (figure, (axes,)):
        start = [
            (spent, value)
            for trial in findings.trials
            if (spent := trial.values.get(f"untrained.{spent_key}")) is not None
            and (value := trial.values.get(f"untrained.{key}")) is not None
        ]
        if start:
            xs, ys = zip(*start, strict=True)
            axes.scatter(xs, ys, s=26, facecolors="white", edgecolors=GREY, marker="D", label="untrained", zorder=2)
        front = findings.front([(spent, value) for spent, value, _ in points])
        axes.step(*zip(*front, strict=True), where="post", color=INK, linewidth=1.3, label="Pareto front", zorder=2)
        for spent, value, trial in points:
            on = (spent, value) in front
            edge, size = (INK, 80) if on else ("white", 55)
            axes.scatter([spent], [value], s=size, color=scale.colour(trial), edgecolors=edge, zorder=3)
            if len(points) > MANY and not on and trial is not best:
                continue
            text = setting(trial.params.get(findings.parameter, trial.number))
            weight = "bold" if trial is best else "normal"
            axes.annotate(text, (spent, value), (0, 8), textcoords="offset points", ha="center", weight=weight)
        log_if_wide(axes, [spent for spent, *_ in points] + [spent for spent, _ in start])
        axes.margins(y=0.1)
        axes.set_xlabel(f"{findings.metrics.label(spent_key)} (numbers at the points: {findings.parameter})")
        axes.set_ylabel(findings.metrics.label(key))
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0)
        return png(figure)


def loss_curves(findings: Findings) -> bytes | None:
    """Signals of training and validation metric by step, with the places where trials were stopped."""
    drawn = [trial for trial in findings.trials if findings.curve(trial).signals]
    if not drawn:
        return None
    scale = Scale.of(findings)
    signals = [name for name in findings.signals if any(name in findings.curve(t).signals for t in drawn)]
    evaluated = any(findings.curve(trial).evaluations for trial in drawn)
    heights = [3.6] * len(signals) + [2.4] * evaluated
    with drawing(rows=len(heights), height=sum(heights), height_ratios=heights) as (figure, panels):
        for axes, name in zip(panels, signals, strict=False):
            _signal(axes, findings, scale, drawn, name)
        for trial in drawn:
            evaluations = findings.curve(trial).evaluations
            points = [(step, v) for step, m in evaluations if (v := number(m.get(findings.metric))) is not None]
            if points:
                colour, dash = scale.colour(trial), scale.dash(trial)
                width = 2.6 if trial is findings.best else 1.6
                panels[-1].plot(*zip(*points, strict=True), color=colour, linestyle=dash, linewidth=width,
                                marker="o", markersize=3.5)  # fmt: skip
        panels[-1].set_xlabel("step")
        if evaluated:
            panels[-1].set_ylabel(f"validation {findings.metrics.label(findings.metric)}")
        scale.key(figure, panels[0], drawn)
        _stop_key(panels[-1] if evaluated else panels[0], {trial.state for trial in drawn}, evaluated)
        return png(figure)


def _signal(axes: Axes, findings: Findings, scale: Scale, drawn: Sequence[TrialSummary], name: str) -> None:
    """One signal of every trial: single steps thin, running means thick, the ends of stopped trials marked."""
    positive = True
    for trial in drawn:
        curve = findings.curve(trial).signals.get(name, [])
        finite = [(step, value) for step, value in curve if math.isfinite(value)]
        if not finite:
            continue
        positive = positive and all(value > 0 for _, value in finite)
        steps, values = [step for step, _ in finite], [value for _, value in finite]
        colour, width = scale.colour(trial), 2.6 if trial is findings.best else 1.6
        axes.plot(steps, values, color=colour, linewidth=0.7, alpha=0.3)
        axes.plot(steps, _smooth(values), color=colour, linewidth=width, linestyle=scale.dash(trial))
        if trial.state in STOPPED:
            mark, marker = STOPPED[trial.state]
            axes.scatter(steps[-1:], _smooth(values)[-1:], s=75, color=mark, marker=marker, zorder=5, **_edge(marker))
    if positive:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(plain)
        axes.yaxis.set_minor_formatter(plain)
    axes.set_ylabel(f"training {named(name)}" + (" (log)" if positive else ""))


def _stop_key(axes: Axes, states: set[TrialState], beside: bool) -> None:
    """A second legend for the stop marks, under the first."""
    marks = [(state, *STOPPED[state]) for state in STOPPED if state in states]
    if not marks:
        return
    if not beside:
        axes.add_artist(axes.get_legend() or axes.legend())
    handles = [axes.scatter([], [], s=60, color=colour, marker=marker, label=state) for state, colour, marker in marks]
    axes.legend(handles=handles, title="stopped", loc="upper left" if beside else "lower left",
                bbox_to_anchor=(1.01, 1.0) if beside else (1.01, 0), borderaxespad=0)  # fmt: skip


def _smooth(values: Sequence[float]) -> list[float]:
    """Mean of each value and those before it within a fortieth of the curve: the end stays where it is."""
    reach = max(1, len(values) // 40)
    return [fmean(values[max(0, i - reach + 1) : i + 1]) for i in range(len(values))]
