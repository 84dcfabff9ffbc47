"""Figures of a search over several parameters: the map of two of them, and what each explains."""

from __future__ import annotations

from typing import Any

import numpy as np

from study.protocol.summary import TrialSummary
from study.reporting.formatting import number
from study.reporting.plot_style import BLUE, INK, STOPPED, drawing, png
from study.reporting.results import Findings

CELLS = 120
"""Cells of the map's background along each axis."""
REACH = 0.18
"""Width of the smoother, as a share of the range that the trials cover."""


def plane_map(findings: Findings) -> bytes | None:
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
    span = np.ptp(everywhere, axis=0)
    if not span.all():
        return None
    low, high = everywhere.min(0) - 0.06 * span, everywhere.max(0) + 0.06 * span
    with drawing(height=5.4) as (figure, (axes,)):
        xs, ys = (np.linspace(low[i], high[i], CELLS) for i in (0, 1))
        cells = np.stack(np.meshgrid(xs, ys), axis=-1)
        apart = np.square((cells[:, :, None] - places) / span).sum(-1)
        weights = np.exp(-apart / (2 * REACH**2))
        smooth = np.where(apart.min(-1) < (2 * REACH) ** 2, weights @ values / weights.sum(-1), np.nan)
        look: dict[str, Any] = {"cmap": "viridis", "vmin": values.min(), "vmax": values.max()}
        axes.pcolormesh(xs, ys, smooth, shading="nearest", alpha=0.55, rasterized=True, **look)
        dots = axes.scatter(
            places[:, 0], places[:, 1], c=values, s=85, edgecolors=INK, linewidths=0.9, zorder=3, **look
        )
        figure.colorbar(dots, ax=axes, label=f"validation {findings.metrics.label(metric)}", pad=0.02)
        for state, (colour, marker) in STOPPED.items():
            where = np.array([place for place, trial in placed if trial.state == state])
            if where.size:
                axes.scatter(where[:, 0], where[:, 1], color=colour, marker=marker, s=80, label=state, zorder=4)
        if findings.best is not None and (place := _place(findings.best, plane)):
            axes.scatter(*place, s=330, facecolors="none", edgecolors=INK, linewidths=1.6, label="best", zorder=5)
        axes.set_xlabel(plane[0])
        axes.set_ylabel(plane[1])
        axes.grid(False)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1.01), ncols=5, borderaxespad=0)
        return png(figure)


def importances(findings: Findings) -> bytes | None:
    """Bars of `importances` of the summary."""
    shares = findings.summary.importances
    if not shares:
        return None
    with drawing(height=0.9 + 0.42 * len(shares)) as (figure, (axes,)):
        names = list(shares)[::-1]
        bars = axes.barh(names, [shares[name] for name in names], color=BLUE, height=0.6)
        axes.bar_label(bars, fmt="%.2f", padding=4, color=INK)
        axes.set_xlim(0, 1.08)
        axes.set_xlabel(f"share of the variance of validation {findings.metrics.label(findings.metric)}")
        axes.grid(axis="y", visible=False)
        return png(figure)


def _place(trial: TrialSummary, plane: tuple[str, str]) -> tuple[float, float] | None:
    """(x, y) of a trial that has both parameters."""
    found = [number(trial.params.get(key)) for key in plane]
    match found:
        case [float() as x, float() as y]:
            return x, y
    return None
