"""The figure of a suite whose models were measured at prefixes of their vectors."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle, islice

import altair as alt

from study.reporting.charts import chart, measured, of_series
from study.reporting.palette import CATEGORIES, PAPER, SHAPES


def curves(label: str, values: Mapping[str, Mapping[int, float]]) -> alt.LayerChart:
    """A metric, called `label`, by size of the prefix, as a line for each trial, whose name maps to its values."""
    rows = [
        {"series": "mean", "trial": trial, "size": size, "value": value}
        for trial, found in values.items()
        for size, value in found.items()
    ]
    sizes = sorted({size for found in values.values() for size in found})
    names = list(values)
    axis = alt.Axis(title="coordinates of the prefix", values=sizes, format="d")
    x = alt.X("size:Q", scale=alt.Scale(type="log", base=2, nice=False), axis=axis)
    y = measured("y", "value", label, [value for found in values.values() for value in found.values()])
    legend = alt.Legend(title=None)
    colours = alt.Scale(domain=names, range=list(islice(cycle(CATEGORIES), len(names))))
    shapes = alt.Scale(domain=names, range=list(islice(cycle(SHAPES), len(names))))
    colour = alt.Color("trial:N", scale=colours, sort=None, legend=legend)
    shape = alt.Shape("trial:N", scale=shapes, sort=None, legend=legend)
    of = of_series("mean")
    lines = of.mark_line(strokeWidth=1.8).encode(x=x, y=y, color=colour)
    points = of.mark_point(filled=True, size=90, stroke=PAPER, strokeWidth=0.8).encode(
        x=x, y=y, color=colour, shape=shape
    )
    return chart([lines, points], rows)
