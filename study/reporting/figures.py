"""The figures that a study has, by name."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import altair as alt
from altair.utils.schemapi import debug_mode

from study.reporting import group_plots, paired_plots, plots, search_plots
from study.reporting.groups import GroupFindings
from study.reporting.paired import Contrast
from study.reporting.results import Findings


def figures(findings: Findings) -> dict[str, alt.LayerChart]:
    """Name -> chart of each figure that there is something to draw for.

    `means_METRIC` and `differences_METRIC` are of a paired design, the latter with `_2`, `_3` for a second and a third
    arm that is compared with the first; `training_SIGNAL` is one for each signal that the study wants drawn. The others
    are named as the functions of `study.reporting.plots` and `search_plots` that draw them.
    """
    # Each part of a chart would be held against the schema, which takes longer than all else.
    with debug_mode(False):
        found = _drawn(findings)
    return {name: chart for name, chart in found.items() if chart is not None}


def group_figures(groups: Sequence[GroupFindings]) -> dict[str, alt.LayerChart]:
    """The figure of all groups together, `groups`, where there is something to draw for it."""
    with debug_mode(False):
        chart = group_plots.explained(groups)
    return {} if chart is None else {"groups": chart}


def _drawn(findings: Findings) -> dict[str, alt.LayerChart | None]:
    found: dict[str, alt.LayerChart | None] = {}
    for metric, contrasts in by_metric(findings.contrasts).items():
        found[f"means_{metric}"] = paired_plots.means(contrasts)
        for contrast in contrasts:
            found[differences_of(contrast, contrasts)] = paired_plots.differences(contrast)
    if not findings.contrasts:
        found["curve"] = plots.curve(findings)
    found["matched_cost"] = plots.matched_cost(findings)
    found["pareto"] = plots.pareto(findings)
    found["plane_map"] = search_plots.plane_map(findings)
    found["importances"] = search_plots.importances(findings)
    found |= {f"training_{signal}": chart for signal, chart in plots.training_curves(findings).items()}
    found["validation_curve"] = plots.validation_curve(findings)
    return found


def by_metric(contrasts: Sequence[Contrast]) -> dict[str, list[Contrast]]:
    """Metric without its split -> the contrasts in it, in their order."""
    return {metric: list(group) for metric, group in groupby(contrasts, key=lambda c: c.metric.rpartition(".")[2])}


def differences_of(contrast: Contrast, contrasts: Sequence[Contrast]) -> str:
    """Name of the figure of one of the contrasts of a metric."""
    place = list(contrasts).index(contrast)
    return f"differences_{contrast.metric.rpartition('.')[2]}" + (f"_{place + 1}" if place else "")
