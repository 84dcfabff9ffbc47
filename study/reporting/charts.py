"""What the figures of a report have in common: their data, their axes, how they answer to a reader.

A figure is an Altair chart of one panel. Its data are one CSV table, which readers can take away as it is; layers pick
their rows from it by the column `series`. Columns that most figures have:

    trial, parameters, state   number of the trial, its parameters as text, what has become of it
    setting                    its value of the parameter that the study is about
    series                     which of the figure's marks the row is for
    value                      the metric that the figure shows; `cost` what was paid for it
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import altair as alt

from study.protocol.states import TrialState
from study.protocol.summary import TrialSummary
from study.reporting.formatting import number, parameters, setting
from study.reporting.palette import AXIS, CATEGORIES, GREY, GRID, INK, ORDERED, PAPER, SOFT, STOPPED
from study.reporting.results import Findings

WIDTH, HEIGHT = 720, 320
"""Pixels of a figure's panel on paper; on a page it is as wide as its column."""
NARROW = 280
"""Pixels of a panel on a telephone."""
MANY = len(ORDERED)
"""More values than this get a colour ramp instead of a legend and round ticks instead of their own."""
DASHES = ([1, 0], [5, 2])
"""Neighbouring values of a short list alternate between these."""
NUMBER = ",.4~g"
"""How tooltips write a measured value, in the notation of d3-format."""

POINTER = "pointer"
"""Name of a layer that is there for the pointer alone."""

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif"
CONFIG: dict[str, Any] = {
    "font": FONT,
    "background": PAPER,
    "padding": 4,
    "view": {"stroke": None},
    "axis": {
        "domainColor": AXIS, "gridColor": GRID, "tickColor": AXIS, "labelColor": SOFT, "titleColor": INK,
        "labelFontSize": 12, "titleFontSize": 12.5, "titleFontWeight": "normal", "titlePadding": 8, "labelLimit": 190,
    },
    "axisX": {"grid": False, "labelOverlap": "greedy"},
    "axisY": {"domain": False, "ticks": False, "labelPadding": 6},
    "legend": {
        "orient": "top", "columns": 7, "labelColor": SOFT, "titleColor": INK, "labelFontSize": 12, "symbolSize": 90,
        "titleFontSize": 12.5, "titleFontWeight": "normal", "titleLimit": 260, "labelLimit": 190,
        "symbolStrokeWidth": 2, "columnPadding": 14, "gradientLength": 200, "gradientThickness": 10, "symbolOpacity": 1,
    },
    "text": {"color": INK, "fontSize": 12},
}  # fmt: skip
"""The look of every figure, in words of Vega-Lite."""

Row = Mapping[str, Any]


def table(rows: Iterable[Row], name: str = "rows") -> alt.InlineData:
    """Rows as the data of a chart: one CSV text, whose columns are those that any row has.

    >>> table([{"trial": 0, "value": 0.25}, {"trial": 1, "series": "a, b"}]).values
    'trial,value,series\\n0,0.25,\\n1,,"a, b"\\n'
    """
    rows = list(rows)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(row.get(name)) for name in columns] for row in rows)
    kinds = {name: _kind(row[name] for row in rows if row.get(name) is not None) for name in columns}
    return alt.InlineData(values=text.getvalue(), name=name, format=alt.CsvDataFormat(type="csv", parse=kinds))


def _cell(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def _rounded(value: float) -> float:
    """A number as a table has it, so that what is looked up by it is found."""
    return float(_cell(float(value)))


def _kind(values: Iterable[Any]) -> str:
    return "number" if all(number(value) is not None for value in values) else "string"


def chart(layers: Sequence[alt.Chart | None], rows: Iterable[Row], height: float = HEIGHT, **more: Any) -> Any:
    """The layers, over the same rows, in the look of every figure."""
    drawn = alt.layer(*(layer for layer in layers if layer), data=table(rows), width=WIDTH, height=height, **more)
    drawn.config = CONFIG
    return drawn


def of_series(*names: str) -> alt.Chart:
    """Marks for the rows of these series."""
    return alt.Chart().transform_filter(alt.FieldOneOfPredicate(field="series", oneOf=list(names)))


def about(findings: Findings, trial: TrialSummary) -> dict[str, Any]:
    """The columns of a row that say which trial it is of."""
    own = [name for name in parameters([trial], findings.parameter) if name in trial.params]
    names = own or list(trial.params)
    return {
        "trial": trial.number,
        "parameters": ", ".join(f"{name} = {setting(trial.params[name])}" for name in names),
        "state": trial.state.value,
    }


def tooltip(*more: tuple[str, str, str]) -> list[alt.Tooltip]:
    """What is told of the mark under the pointer: which trial it is, and `more` as (column, title, format)."""
    told = [alt.Tooltip("trial:Q", title="trial"), alt.Tooltip("parameters:N", title="parameters")]
    for column, title, form in more:
        if form:
            told.append(alt.Tooltip(f"{column}:Q", title=title, format=form))
        else:
            told.append(alt.Tooltip(f"{column}:N", title=title))
    return told


def picked(column: str) -> alt.Parameter:
    """A legend whose entries can be clicked: those clicked on are shown, the others fade."""
    return alt.selection_point(name="picked", fields=[column], bind="legend", toggle="true")


def picked_trial() -> alt.Parameter:
    """Lines that can be clicked, where no legend tells them apart."""
    return alt.selection_point(name="picked", fields=["trial"], toggle="true")


def faded(pick: alt.Parameter, shown: float = 1.0) -> Any:
    return alt.condition(pick, alt.value(shown), alt.value(0.07))


def zoomed(*encodings: Literal["x", "y"]) -> alt.Parameter:
    """Dragging moves the axes; turning the wheel with Ctrl or Cmd held zooms, so that a page can be scrolled past."""
    return alt.selection_interval(
        name="zoomed", bind="scales", encodings=list(encodings), zoom="wheel![event.ctrlKey || event.metaKey]"
    )


# --- axes ----------------------------------------------------------------------------------------


def log_axis(channel: str) -> dict[str, Any]:
    """Properties of a logarithmic axis: decades, with 2 and 5 between them where there is room, as far as one zooms."""
    low, high = f"domain('{channel}')[0]", f"domain('{channel}')[1]"
    digits = f"{high} / {low} > 1000 ? /^1/ : /^[125]/"
    shown = f"{high} / {low} < 6 || test({digits}, format(datum.value, '.0e'))"
    condition = {"test": shown, "value": 1}
    return {
        "labelExpr": f"{shown} ? format(datum.value, '~g') : ''",
        "labelOverlap": "greedy",
        "gridOpacity": {"condition": condition, "value": 0},
        "tickOpacity": {"condition": condition, "value": 0},
    }


def is_wide(values: Sequence[float]) -> bool:
    """Whether values need a logarithmic axis to be told apart."""
    return min(values) > 0 and max(values) > 8 * min(values)


def span(values: Sequence[float], log: bool, margin: float = 0.04) -> list[float]:
    """The domain of an axis: what the values cover, and a share of it on both sides.

    >>> span([1, 100], log=True, margin=0.5), span([2.0, 4.0], log=False, margin=0.5)
    ([0.1, 1000.0], [1.0, 5.0])
    """
    low, high = min(values), max(values)
    if log:
        low, high = math.log10(low), math.log10(high)
    reach = (high - low or 1.0) * margin
    low, high = low - reach, high + reach
    return [10**low, 10**high] if log else [low, high]


def measured(
    channel: str, column: str, title: str, values: Sequence[float], log: bool = False, margin: float = 0.05
) -> Any:
    """The axis of what was measured."""
    scale = alt.Scale(type="log" if log else "linear", domain=span(values, log, margin), nice=False)
    axis = alt.Axis(title=title, **(log_axis(channel) if log else {"format": "~g", "tickCount": 6}))
    kind = {"x": alt.X, "y": alt.Y}[channel]
    return kind(f"{column}:Q", scale=scale, axis=axis)


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
        distinct: list[Any] = sorted({_rounded(value) if numeric else str(value) for value in found})
        asked = findings.summary.parameter_log
        log = numeric and distinct[0] > 0 and (is_wide(distinct) if asked is None else asked)
        return cls(findings.parameter, tuple(distinct), numeric, log)

    def place(self, trial: TrialSummary) -> Any:
        """The trial's `setting`; None for a trial without the parameter."""
        value = trial.params.get(self.name)
        if value is None or not self.values:
            return None
        return _rounded(value) if self.numeric else str(value)

    def axis(self) -> alt.X:
        """The axis of the parameter: log where asked, ticks at the values tried while they are few."""
        if not self.numeric:
            slanted = sum(map(len, map(str, self.values))) * 7 > NARROW
            turn: dict[str, Any] = {"labelAngle": -35, "labelAlign": "right"} if slanted else {"labelAngle": 0}
            return alt.X(
                "setting:N", sort=list(self.values), scale=alt.Scale(domain=list(self.values)),
                axis=alt.Axis(title=self.name, **turn),
            )  # fmt: skip
        domain = span(self.values, self.log)
        scale = alt.Scale(type="log" if self.log else "linear", domain=domain, nice=False)
        axis: dict[str, Any] = {"title": self.name} | (log_axis("x") if self.log else {"format": "~g", "tickCount": 8})
        if len(self.values) <= MANY:
            axis = {"title": self.name, "values": list(self.values), "labelExpr": "format(datum.value, '.3~g')"}
        return alt.X("setting:Q", scale=scale, axis=alt.Axis(**axis))

    @property
    def ramp(self) -> bool:
        """Whether there are too many values for a legend."""
        return self.numeric and len(self.values) > MANY

    def pick(self) -> alt.Parameter:
        """What a click leaves to be seen: the trials of a value in the legend, or one trial."""
        return picked_trial() if self.ramp else picked("setting")

    def colour(self, symbol: str = "stroke") -> alt.Color:
        """The colour of a trial: one for each value while they are few, else along a ramp."""
        if self.ramp:
            scale = alt.Scale(type="log" if self.log else "linear", domain=[self.values[0], self.values[-1]],
                              range=list(ORDERED))  # fmt: skip
            return alt.Color(
                "setting:Q", scale=scale, legend=alt.Legend(title=self.name, type="gradient", format=".3~g")
            )
        return alt.Color("setting:N", scale=self._listed(self._colours()), sort=None, legend=self._legend(symbol))

    def dash(self) -> alt.StrokeDash:
        if self.ramp:
            return alt.StrokeDash(value=list(DASHES[0]))
        dashes = [list(DASHES[i % 2]) for i in range(len(self.values))]
        return alt.StrokeDash("setting:N", scale=self._listed(dashes), sort=None, legend=self._legend("stroke"))

    def _listed(self, looks: Sequence[Any]) -> alt.Scale:
        return alt.Scale(domain=list(self.values), range=list(looks))

    def _legend(self, symbol: str) -> alt.Legend:
        words: dict[str, Any] = {"labelExpr": "format(datum.value, '.3~g')"} if self.numeric else {}
        return alt.Legend(title=self.name, symbolType=symbol, symbolSize=170 if symbol == "stroke" else 90, **words)

    def _colours(self) -> list[str]:
        if not self.numeric:
            return [CATEGORIES[i % len(CATEGORIES)] for i in range(len(self.values))]
        last = max(1, len(self.values) - 1)
        return [ORDERED[round(i * (MANY - 1) / last)] for i in range(len(self.values))] or [GREY]


def stop_marks(rows: Sequence[Row], x: alt.X, y: alt.Y, tips: list[alt.Tooltip]) -> list[alt.Chart]:
    """Marks of trials that did not finish, with a legend of their own: the rows whose `series` is their end."""
    there = {row["series"] for row in rows}
    states = [state.value for state in STOPPED if state.value in there]
    scale = alt.Scale(domain=states, range=[STOPPED[TrialState(state)][1] for state in states])
    shape = alt.Shape("series:N", scale=scale, sort=None, legend=alt.Legend(title="stopped", symbolFillColor=GREY))
    return [
        of_series(state)
        .mark_point(
            filled=True, size=110, opacity=1, stroke=PAPER, strokeWidth=0.8, color=STOPPED[TrialState(state)][0]
        )
        .encode(x=x, y=y, shape=shape, tooltip=tips)
        for state in states
    ]
