"""The look of a report's figures: colours, axes of a study's parameter, paper size.

Colours are Okabe and Ito's for categories and plasma without its pale end for an ordered parameter.
Categories also differ in marker, and neighbouring values in dash: nothing is told by colour alone.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from study.protocol.states import TrialState
from study.protocol.summary import TrialSummary
from study.reporting.formatting import number, setting
from study.reporting.results import Findings

BLUE, VERMILION, GREEN, ORANGE, GREY, INK = "#0072B2", "#D55E00", "#009E73", "#E69F00", "#8a8f98", "#1d2129"
HIGHLIGHT = "#fbeec6"
CATEGORIES = (BLUE, ORANGE, GREEN, "#CC79A7", "#56B4E9", VERMILION, "#000000")
STOPPED: dict[TrialState, tuple[str, str]] = {
    TrialState.PRUNED: (ORANGE, "v"),
    TrialState.COLLAPSED: (VERMILION, "X"),
    TrialState.FAILED: (INK, "x"),
    TrialState.INTERRUPTED: (GREY, "s"),
}
PALE = 0.87
"""Share of the colour map that is dark enough on white."""
MANY = 12
"""More values than this get a colour bar instead of a legend and round ticks instead of their own."""

STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 10.5,
    "axes.titlesize": 11,
    "axes.edgecolor": "#b8bdc6",
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e9ebef",
    "grid.linewidth": 0.8,
    "xtick.color": "#4a505a",
    "ytick.color": "#4a505a",
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "lines.linewidth": 2.0,
    "savefig.dpi": 150,
    "savefig.facecolor": "white",
}


def plain(value: float, _: float | None = None) -> str:
    """A tick's text: 0.01, 1, 100 rather than powers."""
    return f"{value:g}"


@dataclass(frozen=True)
class Scale:
    """Where a value of the study's parameter lies on an axis, and its colour."""

    name: str
    values: tuple[Any, ...]
    numeric: bool
    log: bool

    @classmethod
    def of(cls, findings: Findings) -> Scale:
        found = [t.params[findings.parameter] for t in findings.trials if findings.parameter in t.params]
        numeric = bool(found) and all(number(value) is not None for value in found)
        distinct: list[Any] = sorted(set(found)) if numeric else sorted({str(value) for value in found})
        wide = numeric and distinct[0] > 0 and distinct[-1] > 8 * distinct[0]
        asked = findings.summary.parameter_log
        log = numeric and distinct[0] > 0 and (wide if asked is None else asked)
        return cls(findings.parameter, tuple(distinct), numeric, log)

    def position(self, trial: TrialSummary) -> float | None:
        """The trial's place on the x axis; None for a trial without the parameter."""
        value = trial.params.get(self.name)
        if value is None or not self.values:
            return None
        return float(value) if self.numeric else float(self.values.index(str(value)))

    def colour(self, trial: TrialSummary) -> Any:
        x = self.position(trial)
        if x is None:
            return GREY
        if not self.numeric:
            return CATEGORIES[int(x) % len(CATEGORIES)]
        return matplotlib.colormaps["plasma"](PALE * self._norm()(x))

    def dash(self, trial: TrialSummary) -> Any:
        """Neighbouring values of a short list alternate between solid and dashed."""
        value = trial.params.get(self.name)
        odd = value in self.values and len(self.values) <= MANY and self.values.index(value) % 2
        return (0, (4, 1.2)) if odd else "-"

    def _norm(self) -> Any:
        from matplotlib.colors import LogNorm, Normalize

        low, high = self.values[0], self.values[-1]
        if low == high:
            return lambda _: 0.4
        return LogNorm(low, high) if self.log else Normalize(low, high)

    def dress(self, axes: Axes) -> None:
        """Set the x axis up: log where asked, ticks at the values tried while they are few."""
        axes.set_xlabel(self.name)
        if not self.numeric:
            axes.set_xticks(range(len(self.values)), [str(value) for value in self.values])
            axes.set_xlim(-0.5, len(self.values) - 0.5)
            return
        if self.log:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(plain)
        if len(self.values) <= MANY:
            axes.set_xticks(self.values, [setting(value) for value in self.values])
            axes.xaxis.set_minor_locator(NullLocator())

    def key(self, figure: Figure, axes: Axes, trials: Sequence[TrialSummary]) -> None:
        """Say which colour is which value: a legend for a few, a colour bar for many."""
        shown = {x: trial for trial in trials if (x := self.position(trial)) is not None}
        if self.numeric and len(shown) > MANY:
            from matplotlib.cm import ScalarMappable
            from matplotlib.colors import ListedColormap

            colours = ListedColormap(matplotlib.colormaps["plasma"]([PALE * i / 255 for i in range(256)]))
            figure.colorbar(ScalarMappable(self._norm(), colours), ax=axes, label=self.name, pad=0.02, format=plain)
            return
        for _, trial in sorted(shown.items()):
            name = setting(trial.params[self.name])
            axes.plot([], [], color=self.colour(trial), linestyle=self.dash(trial), linewidth=2.4, label=name)
        axes.legend(title=self.name, loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0)


@contextmanager
def drawing(rows: int = 1, height: float = 3.9, **ratios: Any) -> Iterator[tuple[Figure, list[Axes]]]:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8.2, height), layout="constrained")
        grid = figure.subplots(rows, 1, sharex=rows > 1, squeeze=False, gridspec_kw=ratios or None)
        yield figure, list(grid[:, 0])


def png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format="png")
    return buffer.getvalue()


def log_if_wide(axes: Axes, values: Sequence[float]) -> None:
    if min(values) > 0 and max(values) > 8 * min(values):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(plain)
