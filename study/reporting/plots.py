"""The figures of a report: each function draws one, or returns None without anything to draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any, TypeVar

import altair as alt

from study.protocol.summary import TrialSummary
from study.reporting.charts import (
    HEIGHT,
    NARROW,
    NUMBER,
    POINTER,
    WIDTH,
    Row,
    Scale,
    about,
    chart,
    faded,
    is_wide,
    measured,
    of_series,
    picked,
    span,
    stop_marks,
    tooltip,
    zoomed,
)
from study.reporting.formatting import baselines, named, number, reported, setting
from study.reporting.label_places import Place, label_places
from study.reporting.palette import BLUE, GREEN, GREY, HIGHLIGHT, INK, PAPER, STOPPED
from study.reporting.results import Findings

POINTS, ROWS = 120, 4_000
"""Points that a curve is drawn with at most, and all curves of a figure together: a page has to stay small."""

DOT: dict[str, Any] = {"size": 9, "strokeWidth": 3.5}
"""A point on a line, drawn as a ring without a hole: so its colour is a stroke, as the line's, in the same legend."""

T = TypeVar("T")


def curve(findings: Findings) -> alt.LayerChart | None:
    """Effectiveness over the study's parameter: validation, test, untrained, baselines, stopped trials."""
    scale = Scale.of(findings)
    metric, test = findings.metric, f"test.{findings.metric}"
    key = test if findings.has(test) else metric
    split = ", test" if key == test else ""
    placed = [(place, trial) for trial in findings.trials if (place := scale.place(trial)) is not None]
    if not placed:
        return None
    rows: list[dict[str, Any]] = []
    for place, trial in placed:
        own = about(findings, trial) | {"setting": place}
        keys = {f"untrained{split}": f"untrained.{key}"}
        if trial in findings.complete:
            keys |= {"validation": metric, "test": test}
        for series, of in keys.items():
            value = trial.values.get(of)
            seeds = [v for r in trial.replicates if (v := r.values.get(of)) is not None]
            if value is not None:
                reach = {"low": min(seeds), "high": max(seeds)} if len(seeds) > 1 else {}
                rows.append(own | {"series": series, "value": value} | reach)
        if trial.state in STOPPED:
            rows.append(own | {"series": trial.state.value, "value": findings.last_value(trial)})
    rows += [{"series": f"{name}{split}", "value": v} for name, v in baselines(findings.summary, key).items()]
    looks = {f"untrained{split}": (GREY, "diamond"), "validation": (BLUE, "circle"), "test": (GREEN, "triangle-up")}
    looks |= {row["series"]: (INK, "stroke") for row in rows if "trial" not in row}
    looks |= {state.value: look for state, look in STOPPED.items()}
    best = findings.best and scale.place(findings.best)
    if best is not None:
        rows.append({"setting": best, "series": "best"})
        looks["best"] = (HIGHLIGHT, "square")
    there = {row["series"] for row in rows}
    return chart(_series(findings, scale, rows, {name: look for name, look in looks.items() if name in there}), rows)


def _series(
    findings: Findings, scale: Scale, rows: Sequence[Row], looks: dict[str, tuple[str, str]]
) -> list[alt.Chart]:
    """A mark for each trial of a series, the range of its seeds, and a line through the best of each place."""
    x, title = scale.axis(), findings.metrics.label(findings.metric)
    domain = list(looks)
    colours = alt.Scale(domain=domain, range=[colour for colour, _ in looks.values()])
    shapes = alt.Scale(domain=domain, range=[shape for _, shape in looks.values()])
    legend = alt.Legend(title=None)
    colour = alt.Color("series:N", scale=colours, sort=None, legend=legend)
    shape = alt.Shape("series:N", scale=shapes, sort=None, legend=legend)
    values = [value for row in rows for name in ("value", "low", "high") if (value := row.get(name)) is not None]
    y = measured("y", "value", title, values or [0.0, 1.0])
    pick = picked("series")
    trials = [name for name in domain if any(row["series"] == name and "trial" in row for row in rows)]
    stopped = [name for name in trials if name in STOPPED]
    curves = [name for name in trials if name not in STOPPED]
    fixed = [
        name for name in domain if name not in trials and name in {r["series"] for r in rows if "setting" not in r}
    ]
    tips = tooltip(("series", "", ""), ("value", title, NUMBER))
    layers = [of_series("best").mark_rule(strokeWidth=16).encode(x=x, color=colour)]
    if fixed:
        rule = of_series(*fixed).mark_rule(strokeDash=[2, 3], strokeWidth=1.5)
        layers.append(rule.encode(y=y, color=colour, opacity=faded(pick), tooltip=tips[2:]))
    reach = of_series(*curves).transform_filter("isValid(datum.low)").mark_rule(strokeWidth=6)
    layers.append(reach.encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=colour, opacity=faded(pick, 0.3)))
    places = {row["setting"] for row in rows if row["series"] in curves}
    several = len(findings.trials[0].params) > 1 and len(places) > len(findings.trials) / 2
    if scale.numeric and len(places) > 1 and not several:
        best = "max" if findings.more else "min"
        lines = of_series(*curves).transform_aggregate(value=f"{best}(value)", groupby=["setting", "series"])
        dashed = alt.condition(
            alt.expr.indexof(alt.datum.series, "untrained") == 0, alt.value([5, 3]), alt.value([1, 0])
        )
        layers.append(
            lines.mark_line(strokeWidth=2).encode(
                x=x, y=y, color=colour, opacity=faded(pick), strokeDash=dashed, detail="series:N"
            )
        )
    points = of_series(*curves, *stopped).mark_point(filled=True, size=85, opacity=1, stroke=PAPER, strokeWidth=0.8)
    seen = points.transform_filter("isValid(datum.value)")
    shown = seen.encode(x=x, y=y, color=colour, shape=shape, opacity=faded(pick), tooltip=tips)
    layers.append(shown.add_params(pick, zoomed("x", "y") if scale.numeric else zoomed("y")))
    if stopped:
        bare = points.transform_filter("!isValid(datum.value)")
        layers.append(
            bare.encode(x=x, y=alt.value(alt.expr("height - 7")), color=colour, shape=shape, tooltip=tips[:3])
        )
    return layers


def matched_cost(findings: Findings) -> alt.LayerChart | None:
    """The best effectiveness each trial offers within a cost, over all its evaluations."""
    cost = findings.metrics.cost
    offers = [(trial, points) for trial in findings.trials if (points := findings.paid(trial))]
    if not offers or cost is None:
        return None
    scale = Scale.of(findings)
    farthest = max(spent for _, points in offers for spent, *_ in points)
    rows: list[dict[str, Any]] = []
    for trial, points in offers:
        own = about(findings, trial) | {
            "setting": scale.place(trial),
            "best": "yes" if trial is findings.best else "no",
        }
        stairs = findings.front([(spent, value) for spent, value, _ in points])
        stairs.append((farthest, stairs[-1][1]))
        rows += [own | {"series": "best within the cost", "cost": spent, "value": value} for spent, value in stairs]
        rows += [
            own | {"series": "measured", "cost": spent, "value": value, "step": step}
            for spent, value, step in thinned(points, _most(offers))
        ]
    costs = [spent for _, points in offers for spent, *_ in points]
    allowed, metric = f"{findings.metrics.label(cost)} allowed", findings.metrics.label(findings.metric)
    x = measured("x", "cost", allowed, costs, is_wide(costs))
    y = measured("y", "value", f"best validation {metric}", [row["value"] for row in rows])
    pick, colour = scale.pick(), scale.colour()
    tips = tooltip(("step", "step", "d"), ("cost", findings.metrics.label(cost), NUMBER), ("value", metric, NUMBER))
    lines = of_series("best within the cost").mark_line(interpolate="step-after").encode(
        x=x, y=y, color=colour, strokeDash=scale.dash(), detail="trial:N", opacity=faded(pick),
        strokeWidth=alt.condition(alt.datum.best == "yes", alt.value(3.2), alt.value(1.8)),
    )  # fmt: skip
    points_ = of_series("measured").mark_point(**DOT).encode(
        x=x, y=y, color=colour, opacity=faded(pick, 0.7), tooltip=tips
    )  # fmt: skip
    return chart([lines.add_params(pick, zoomed("x", "y")), points_], rows)


def pareto(findings: Findings) -> alt.LayerChart | None:
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
    start = [
        (spent, value, trial)
        for trial in findings.trials
        if (spent := trial.values.get(f"untrained.{spent_key}")) is not None
        and (value := trial.values.get(f"untrained.{key}")) is not None
    ]
    scale = Scale.of(findings)
    front = findings.front([(spent, value) for spent, value, _ in points])
    points.sort(key=lambda p: (p[2] is not best, (p[0], p[1]) not in front))
    costs, values = [spent for spent, *_ in points + start], [value for _, value, _ in points + start]
    log = is_wide(costs)
    labels = [setting(trial.params.get(findings.parameter, trial.number)) for *_, trial in points]
    spots = [(spent, value) for spent, value, _ in points + start]
    placed = _both_widths(spots, labels, span(costs, log, 0.07), span(values, False, 0.1), log)
    rows = [_row(findings, scale, point) | {"series": "untrained"} for point in start]
    rows += [{"series": "Pareto front", "cost": spent, "value": value} for spent, value in front]
    for point, label, (place, narrow) in zip(points, labels, placed, strict=True):
        offset = {} if place is None else {"label": label, "dx": place.dx, "dy": place.dy, "align": place.align}
        weight = {"best": "yes" if point[2] is best else "no", "narrow": "yes" if narrow else "no"}
        rows.append(_row(findings, scale, point) | {"series": "trained"} | weight | offset)
    x = measured("x", "cost", findings.metrics.label(spent_key), costs, log, 0.07)
    y = measured("y", "value", findings.metrics.label(key), values, margin=0.1)
    tips = tooltip(
        ("series", "", ""),
        ("cost", findings.metrics.label(spent_key), NUMBER),
        ("value", findings.metrics.label(key), NUMBER),
    )
    pick = picked("series")
    looks = {"untrained": "diamond", "trained": "circle", "Pareto front": "stroke"}
    there = [name for name in looks if any(row["series"] == name for row in rows)]
    shapes = alt.Scale(domain=there, range=[looks[name] for name in there])
    shape = alt.Shape(
        "series:N", scale=shapes, sort=None, legend=alt.Legend(title=None, symbolStrokeColor=GREY, symbolFillColor=GREY)
    )
    line = of_series("Pareto front").mark_line(interpolate="step-after", color=INK, strokeWidth=1.3).encode(
        x=x, y=y, opacity=faded(pick)
    )  # fmt: skip
    hollow = of_series("untrained").mark_point(size=45, color=GREY).encode(
        x=x, y=y, shape=shape, opacity=faded(pick), tooltip=tips
    )  # fmt: skip
    solid = of_series("trained").mark_point(filled=True, size=90, strokeWidth=1.2).encode(
        x=x, y=y, color=scale.colour("circle"), shape=shape, opacity=faded(pick), tooltip=tips,
        stroke=alt.condition(alt.datum.best == "yes", alt.value(INK), alt.value(PAPER)),
    )  # fmt: skip
    shown = alt.expr(f"width > {WIDTH * 0.7:g} || datum.narrow == 'yes' ? 1 : 0")
    texts = [
        of_series("trained").transform_filter(f"isValid(datum.dx) && datum.best == '{own}'")
        .mark_text(dx=alt.expr("datum.dx"), dy=alt.expr("datum.dy"), align=alt.expr("datum.align"), baseline="middle",
                   fontWeight="bold" if own == "yes" else "normal", opacity=shown)
        .encode(x=x, y=y, text="label:N")
        for own in ("no", "yes")
    ]  # fmt: skip
    return chart([line.add_params(pick, zoomed("x", "y")), hollow, solid, *texts], rows)


def _row(findings: Findings, scale: Scale, point: tuple[float, float, TrialSummary]) -> dict[str, Any]:
    spent, value, trial = point
    return about(findings, trial) | {"setting": scale.place(trial), "cost": spent, "value": value}


def _both_widths(
    spots: Sequence[tuple[float, float]], labels: Sequence[str], xs: list[float], ys: list[float], log: bool
) -> list[tuple[Place | None, bool]]:
    """Where each label goes, and whether it has room on a telephone too: what fits there fits everywhere."""

    def pixels(width: float) -> list[tuple[float, float]]:
        low, high = map(math.log10, xs) if log else xs
        return [
            (
                width * ((math.log10(x) if log else x) - low) / (high - low),
                HEIGHT * (ys[1] - y) / (ys[1] - ys[0]),
            )
            for x, y in spots
        ]

    narrow = label_places(pixels(NARROW), labels, NARROW, HEIGHT)
    wide = label_places(pixels(0.7 * WIDTH), labels, 0.7 * WIDTH, HEIGHT, fixed=narrow)
    return [(place, own is not None) for place, own in zip(wide, narrow, strict=True)]


def training_curves(findings: Findings) -> dict[str, alt.LayerChart]:
    """Signal that the study wants drawn -> its values by step, one line a trial; the ends of stopped trials marked."""
    scale = Scale.of(findings)
    drawn = {}
    for name in findings.signals:
        curves = {trial.number: findings.curve(trial).signals.get(name, []) for trial in findings.trials}
        finite = {n: [(s, v) for s, v in curve if math.isfinite(v)] for n, curve in curves.items()}
        found = [(trial, curve) for trial in findings.trials if (curve := finite[trial.number])]
        if found:
            drawn[name] = _curves(findings, scale, found, f"training {named(name)}", smooth=True)
    return drawn


def validation_curve(findings: Findings) -> alt.LayerChart | None:
    """The objective by step, one line a trial; the ends of stopped trials marked."""
    found = []
    for trial in findings.trials:
        evaluations = findings.curve(trial).evaluations
        points = [(step, v) for step, m in evaluations if (v := number(m.get(findings.metric))) is not None]
        if points:
            found.append((trial, points))
    title = f"validation {findings.metrics.label(findings.metric)}"
    return _curves(findings, Scale.of(findings), found, title, smooth=False) if found else None


def _curves(
    findings: Findings,
    scale: Scale,
    found: Sequence[tuple[TrialSummary, list[tuple[int, float]]]],
    title: str,
    smooth: bool,
) -> alt.LayerChart:
    rows: list[dict[str, Any]] = []
    for trial, curve in found:
        own = about(findings, trial) | {"setting": scale.place(trial)}
        means = _smooth([value for _, value in curve]) if smooth else [value for _, value in curve]
        triples = [(step, value, mean) for (step, value), mean in zip(curve, means, strict=True)]
        weight = {"best": "yes" if trial is findings.best else "no"}
        for step, value, mean in thinned(triples, _most(found)):
            rows.append(own | weight | {"series": "curve", "step": step, "single": value, "value": mean})
        if trial.state in STOPPED:
            step, _, mean = triples[-1]
            rows.append(own | {"series": trial.state.value, "step": step, "value": mean})
    log = smooth and all(value > 0 for _, curve in found for _, value in curve)
    shown = [row["value"] for row in rows] + [row["single"] for row in rows if smooth and "single" in row]
    steps = [row["step"] for row in rows]
    x = alt.X("step:Q", scale=alt.Scale(domain=span([0, max(steps)], False, 0.015), nice=False),
              axis=alt.Axis(title="step", tickCount=8))  # fmt: skip
    y = measured("y", "value", title + (" (log)" if log else ""), shown, log)
    pick, colour, dash = scale.pick(), scale.colour(), scale.dash()
    tips = tooltip(("state", "state", ""), ("step", "step", ",d"), ("value", title, NUMBER))
    every = of_series("curve")
    bold = alt.condition(alt.datum.best == "yes", alt.value(3), alt.value(1.7))
    layers = [
        every.mark_line().encode(x=x, y=y, color=colour, strokeDash=dash, detail="trial:N", opacity=faded(pick),
                                 strokeWidth=bold)
    ]  # fmt: skip
    if smooth:
        thin = every.mark_line(strokeWidth=0.7, clip=True)
        layers.append(thin.encode(x=x, y=alt.Y("single:Q"), color=colour, detail="trial:N", opacity=faded(pick, 0.3)))
    dots = every.mark_point(**DOT).encode(x=x, y=y, color=colour, opacity=faded(pick), tooltip=tips)
    # A line has one tooltip for all of it: the pointer finds points, which are not drawn where they would be many.
    layers.append(dots.encode(opacity=alt.value(0)).properties(name=POINTER) if smooth else dots)
    layers[0] = layers[0].add_params(pick, zoomed("x", "y"))
    return chart([*layers, *stop_marks(rows, x, y, tips)], rows)


def thinned(points: Sequence[T], most: int) -> list[T]:
    """At most `most` of the points, evenly spread, the last one among them.

    >>> thinned(range(10), 4)
    [2, 4, 7, 9]
    """
    if len(points) <= most:
        return list(points)
    return [points[math.ceil((i + 1) * len(points) / most) - 1] for i in range(most)]


def _most(curves: Sequence[Any]) -> int:
    return max(8, min(POINTS, ROWS // len(curves)))


def _smooth(values: Sequence[float]) -> list[float]:
    """Mean of each value and those before it within a fortieth of the curve: the end stays where it is."""
    reach = max(1, len(values) // 40)
    return [fmean(values[max(0, i - reach + 1) : i + 1]) for i in range(len(values))]
