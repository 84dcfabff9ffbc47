"""Figures of a search over several parameters: the map of two of them, and what each explains."""

from __future__ import annotations

import altair as alt
import numpy as np

from study.protocol.summary import TrialSummary
from study.reporting.charts import (
    NUMBER,
    about,
    chart,
    measured,
    of_series,
    stop_marks,
    table,
    tooltip,
    zoomed,
)
from study.reporting.formatting import number
from study.reporting.palette import BLUE, INK, STOPPED
from study.reporting.results import Findings

CELLS = 36
"""Cells of the map's background along each axis."""
REACH = 0.18
"""Width of the smoother, as a share of the range that the trials cover."""
MARGIN = 0.06
"""Share of that range that the map goes on beyond it."""


def plane_map(findings: Findings) -> alt.LayerChart | None:
    """Heat map of the metric over the study's plane, with the trials on it; None without four measured trials.

    The background is a Gaussian smoother (Nadaraya-Watson) of the trials' validation values, drawn only near
    trials. Trials that stopped early are marked but do not enter it: their values are of fewer steps.
    """
    plane, metric = findings.plane, findings.metric
    if plane is None:
        return None
    placed = [(place, trial) for trial in findings.trials if (place := _place(trial, plane))]
    done = [(place, value) for place, t in placed if t in findings.complete and (value := t.values.get(metric))]
    if len(done) < 4:
        return None
    places, values = np.array([place for place, _ in done]), np.array([value for _, value in done])
    everywhere = np.array([place for place, _ in placed])
    if not np.ptp(everywhere, axis=0).all():
        return None
    rows = []
    for (own_x, own_y), trial in placed:
        series = trial.state.value if trial.state in STOPPED else "finished" if trial in findings.complete else ""
        weight = {"best": "yes" if trial is findings.best else "no"}
        value = trial.values.get(metric) if trial in findings.complete else findings.last_value(trial)
        rows.append(about(findings, trial) | weight | {"series": series, "x": own_x, "y": own_y, "value": value})
    title = f"validation {findings.metrics.label(metric)}"
    x, y = (
        measured(channel, channel, name, everywhere[:, i].tolist(), margin=MARGIN)
        for i, (channel, name) in enumerate(zip("xy", plane, strict=True))
    )
    colour = alt.Color(
        "value:Q",
        scale=alt.Scale(scheme="viridis", domain=[float(values.min()), float(values.max())]),
        legend=alt.Legend(title=title, format="~g"),
    )
    tips = tooltip(("state", "state", ""), ("value", title, NUMBER))
    ground = alt.Chart(table(_ground(everywhere, places, values), "ground")).mark_rect(opacity=0.55).encode(
        x=x, x2="x2:Q", y=y, y2="y2:Q", color=colour
    )  # fmt: skip
    dots = of_series("finished").mark_point(filled=True, size=130, stroke=INK, strokeWidth=0.9, opacity=1)
    ring = (
        of_series("finished").transform_filter("datum.best == 'yes'").mark_point(size=420, color=INK, strokeWidth=1.8)
    )
    layers = [
        ground.add_params(zoomed("x", "y")),
        dots.encode(x=x, y=y, color=colour, tooltip=tips),
        ring.encode(x=x, y=y, tooltip=tips),
        *stop_marks(rows, x, y, tips),
    ]
    return chart(layers, rows, height=420)


def _ground(everywhere: np.ndarray, places: np.ndarray, values: np.ndarray) -> list[dict[str, float]]:
    """The cells near trials, each with its smoothed value. `everywhere`, `places`: (trials, 2); `values`: (trials,)."""
    extent = np.ptp(everywhere, axis=0)
    low, high = everywhere.min(0) - MARGIN * extent, everywhere.max(0) + MARGIN * extent
    size = (high - low) / CELLS
    corners = np.stack(np.meshgrid(*(low[i] + size[i] * np.arange(CELLS) for i in (0, 1))), axis=-1).reshape(-1, 2)
    apart = np.square((corners[:, None] + size / 2 - places) / extent).sum(-1)
    weights = np.exp(-apart / (2 * REACH**2))
    near = apart.min(-1) < (2 * REACH) ** 2
    smooth = weights @ values / weights.sum(-1)
    return [
        {"x": x, "y": y, "x2": x + float(size[0]), "y2": y + float(size[1]), "value": value}
        for (x, y), value in zip(corners[near].tolist(), smooth[near].tolist(), strict=True)
    ]


def importances(findings: Findings) -> alt.LayerChart | None:
    """Bars of `importances` of the summary."""
    shares = findings.summary.importances
    if not shares:
        return None
    rows = [{"series": "share", "parameter": name, "value": share} for name, share in shares.items()]
    title = f"share of the variance of validation {findings.metrics.label(findings.metric)}"
    y = alt.Y("parameter:N", sort=list(shares), axis=alt.Axis(title=None, labelLimit=150))
    x = alt.X(
        "value:Q", scale=alt.Scale(domain=[0, 1.05], nice=False), axis=alt.Axis(title=title, format="~g", tickCount=6)
    )
    share = [alt.Tooltip("parameter:N", title="parameter"), alt.Tooltip("value:Q", title="share", format=".3f")]
    bars = of_series("share").mark_bar(color=BLUE, height={"band": 0.6}).encode(x=x, y=y, tooltip=share)
    texts = of_series("share").mark_text(align="left", dx=5).encode(x=x, y=y, text=alt.Text("value:Q", format=".2f"))
    return chart([bars, texts], rows, height=26 + 34 * len(shares))


def _place(trial: TrialSummary, plane: tuple[str, str]) -> tuple[float, float] | None:
    """(x, y) of a trial that has both parameters."""
    found = [number(trial.params.get(key)) for key in plane]
    match found:
        case [float() as x, float() as y]:
            return x, y
    return None
