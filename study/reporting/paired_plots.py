"""The figures of a paired design: arms side by side, and their differences, at every size."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

import altair as alt

from study.reporting.charts import NUMBER, chart, faded, measured, of_series, picked, zoomed
from study.reporting.paired import Contrast, Effect
from study.reporting.palette import CATEGORIES, GREY, INK, ORANGE, PAPER, SHAPES

WHOLE = "mean"
"""The place on the axis of the mean over sizes."""


def means(contrasts: Sequence[Contrast]) -> alt.LayerChart:
    """Mean and standard deviation over seeds of every arm at every size, with each seed as a point.

    The contrasts are those of one metric.
    """
    first = contrasts[0]
    arms = {first.reference: [e.reference for e in first.effects]}
    arms |= {c.other: [e.other for e in c.effects] for c in contrasts}
    rows: list[dict[str, Any]] = []
    for arm, values in arms.items():
        for effect, seeds in zip(first.effects, values, strict=True):
            own, middle, band = {"arm": arm, "size": _size(first, effect)}, fmean(seeds), stdev(seeds)
            spread = {"value": middle, "low": middle - band, "high": middle + band}
            rows.append({"series": "mean and deviation"} | own | spread)
            rows += [
                {"series": "seed"} | own | {"seed": seed, "value": value}
                for seed, value in zip(first.seeds, seeds, strict=False)
            ]
    x = _axis(first)
    names = list(arms)
    offset = alt.XOffset("arm:N", sort=names, scale=alt.Scale(domain=names, paddingOuter=len(names) * 0.35))
    shown = [value for row in rows for key in ("value", "low", "high") if (value := row.get(key)) is not None]
    y = measured("y", "value", first.name, shown)
    legend, pick = alt.Legend(title=None), picked("arm")
    colours = [CATEGORIES[i % len(CATEGORIES)] for i in range(len(names))]
    shapes = [SHAPES[i % len(SHAPES)] for i in range(len(names))]
    colour = alt.Color("arm:N", scale=alt.Scale(domain=names, range=colours), sort=None, legend=legend)
    shape = alt.Shape("arm:N", scale=alt.Scale(domain=names, range=shapes), sort=None, legend=legend)
    tips = [alt.Tooltip("arm:N", title="arm"), alt.Tooltip("size:N", title="size")]
    seed = [*tips, alt.Tooltip("seed:N", title="seed"), alt.Tooltip("value:Q", title=first.name, format=".4f")]
    whole = [
        *tips,
        alt.Tooltip("value:Q", title="mean over seeds", format=".4f"),
        alt.Tooltip("low:Q", title="mean − deviation", format=".4f"),
        alt.Tooltip("high:Q", title="mean + deviation", format=".4f"),
    ]
    middle_, common = of_series("mean and deviation"), {"x": x, "xOffset": offset, "color": colour}
    layers = [
        of_series("seed").mark_point(filled=True, size=22).encode(
            y=y, shape=shape, opacity=faded(pick, 0.5), tooltip=seed, **common
        ),
        middle_.mark_rule(strokeWidth=2.2).encode(y=alt.Y("low:Q"), y2="high:Q", opacity=faded(pick), **common),
        middle_.mark_point(filled=True, size=110, stroke=PAPER, strokeWidth=0.8).encode(
            y=y, shape=shape, opacity=faded(pick), tooltip=whole, **common
        ),
    ]  # fmt: skip
    layers[0] = layers[0].add_params(pick, zoomed("y"))
    return chart(layers, rows)


def differences(contrast: Contrast) -> alt.LayerChart:
    """Mean difference to the reference at every size with its interval, and each seed's difference."""
    rows: list[dict[str, Any]] = []
    verdicts = ("difference shown", "no difference shown")
    for effect in contrast.effects:
        own = {"size": _size(contrast, effect), "verdict": verdicts[0] if effect.distinct else verdicts[1]}
        interval = {"value": effect.gap, "low": effect.low, "high": effect.high, "p": effect.adjusted_p}
        rows.append({"series": "mean and interval"} | own | interval)
        rows += [
            {"series": "seed"} | own | {"seed": seed, "value": gap}
            for seed, gap in zip(contrast.seeds, effect.gaps, strict=True)
        ]
    x, name = _axis(contrast), f"difference in {contrast.name}"
    shown = [value for row in rows for key in ("value", "low", "high") if (value := row.get(key)) is not None]
    y = measured("y", "value", name, [*shown, 0.0])
    there = [verdict for verdict in verdicts if any(row["verdict"] == verdict for row in rows)]
    looks = dict(zip(verdicts, ((ORANGE, "circle"), (GREY, "square")), strict=True))
    legend, pick = alt.Legend(title=None), picked("verdict")
    colours = alt.Scale(domain=there, range=[looks[verdict][0] for verdict in there])
    shapes = alt.Scale(domain=there, range=[looks[verdict][1] for verdict in there])
    colour = alt.Color("verdict:N", scale=colours, sort=None, legend=legend)
    shape = alt.Shape("verdict:N", scale=shapes, sort=None, legend=legend)
    size = alt.Tooltip("size:N", title="size")
    seed = [size, alt.Tooltip("seed:N", title="seed"), alt.Tooltip("value:Q", title=name, format="+.4f")]
    whole = [
        size,
        alt.Tooltip("value:Q", title=name, format="+.4f"),
        alt.Tooltip("low:Q", title="interval from", format="+.4f"),
        alt.Tooltip("high:Q", title="to", format="+.4f"),
        alt.Tooltip("p:Q", title="p, corrected", format=NUMBER),
        alt.Tooltip("verdict:N", title="verdict"),
    ]
    middle = of_series("mean and interval")
    layers = [
        alt.Chart().mark_rule(color=INK, strokeWidth=1).encode(y=alt.datum(0)),
        of_series("seed").mark_point(filled=True, size=22, xOffset=9).encode(
            x=x, y=y, color=colour, opacity=faded(pick, 0.55), tooltip=seed
        ),
        middle.mark_rule(strokeWidth=2.2).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=colour, opacity=faded(pick)),
        middle.mark_point(filled=True, size=110, stroke=PAPER, strokeWidth=0.8).encode(
            x=x, y=y, color=colour, shape=shape, opacity=faded(pick), tooltip=whole
        ),
    ]  # fmt: skip
    layers[1] = layers[1].add_params(pick, zoomed("y"))
    return chart(layers, rows, height=260)


def _size(contrast: Contrast, effect: Effect) -> str:
    return str(effect.size) if effect.size is not None else WHOLE if contrast.sizes else "all"


def _axis(contrast: Contrast) -> alt.X:
    sizes = [_size(contrast, effect) for effect in contrast.effects]
    title = "size" if contrast.sizes else None
    return alt.X("size:N", sort=sizes, scale=alt.Scale(domain=sizes), axis=alt.Axis(title=title, labelAngle=0))
