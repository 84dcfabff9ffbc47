"""The figure of a study's groups together: the parameter over what may explain why groups differ."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from study.reporting.charts import (
    NUMBER,
    about,
    chart,
    faded,
    is_wide,
    measured,
    of_series,
    picked,
    tooltip,
    zoomed,
)
from study.reporting.formatting import number
from study.reporting.groups import GroupFindings
from study.reporting.palette import CATEGORIES, PAPER, STOPPED

COMPLETE, BEST = "complete", "best"
SHAPES = {COMPLETE: "circle", BEST: "circle"} | {state.value: shape for state, (_, shape) in STOPPED.items()}


def explained(groups: Sequence[GroupFindings]) -> alt.LayerChart | None:
    """Every trial at its value of the studied parameter, over what its group brings along: a norm of the head, say.

    The best trial of each group is large. None where the trainer declares nothing that explains groups, where fewer
    than two groups have it, and for a parameter that is no number.
    """
    first = groups[0].findings
    explains = first.metrics.explains
    rows = [
        about(group.findings, trial)
        | {"group": group.name, "series": _series(group, trial.number), "cause": group.explained_by, "setting": value}
        | {"value": trial.values.get(group.findings.metric)}
        for group in groups
        if group.explained_by is not None
        for trial in group.findings.trials
        if (value := number(trial.params.get(first.parameter))) is not None
    ]
    if not explains or len({row["cause"] for row in rows}) < 2:
        return None
    causes, settings = ([row[name] for row in rows] for name in ("cause", "setting"))
    x = measured("x", "cause", first.metrics.label(explains), causes, log=is_wide(causes))
    y = measured("y", "setting", first.parameter, settings, log=is_wide(settings), margin=0.08)
    names = [group.name for group in groups if any(row["group"] == group.name for row in rows)]
    colours = alt.Scale(domain=names, range=[CATEGORIES[i % len(CATEGORIES)] for i in range(len(names))])
    colour = alt.Color("group:N", scale=colours, sort=None, legend=alt.Legend(title=None, symbolType="circle"))
    pick = picked("group")
    metric = first.metrics.label(first.metric)
    tips = tooltip(("group", first.summary.group or "group", ""), ("state", "state", ""), ("value", metric, NUMBER))
    layers = []
    for series in (name for name in SHAPES if any(row["series"] == name for row in rows)):
        trials, shape = of_series(series), SHAPES[series]
        if series == COMPLETE:
            mark = trials.mark_point(filled=False, size=90, shape=shape, strokeWidth=1.6)
        else:
            size = 320 if series == BEST else 90
            mark = trials.mark_point(filled=True, size=size, shape=shape, stroke=PAPER, strokeWidth=0.8)
        layers.append(mark.encode(x=x, y=y, color=colour, opacity=faded(pick), tooltip=tips))
    layers[0] = layers[0].add_params(pick, zoomed("x", "y"))
    return chart(layers, rows)


def _series(group: GroupFindings, number: int) -> str:
    """How a trial is marked: the best of its group, by its state where it was stopped, or as complete."""
    findings = group.findings
    if findings.best is not None and findings.best.number == number:
        return BEST
    state = next(trial.state for trial in findings.trials if trial.number == number)
    return state.value if state in STOPPED else COMPLETE
