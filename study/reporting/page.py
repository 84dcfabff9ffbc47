"""The page that answers a study: `report.html`, with its figures inside; beside it the figures as PNGs, and tables."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from study.protocol.folder import StudyFolder
from study.protocol.states import TrialState
from study.protocol.summary import StudySummary, TrialSummary
from study.reporting import frames
from study.reporting.conclusions import accounts, answer, caveats, notes, over
from study.reporting.formatting import (
    at,
    difference,
    p_value,
    parameters,
    seconds,
    setting,
    show,
)
from study.reporting.paired import sentence, signed, spread
from study.reporting.results import Findings
from study.uris import viewer
from trainables.files import write_whole

FIGURES = ("parameter_curve", "matched_cost", "pareto", "loss_curves")
"""Functions of `study.reporting.plots`, and the names of their PNGs."""
SEARCH_FIGURES = ("plane_map", "importances")
"""Functions of `study.reporting.search_plots`, and the names of their PNGs."""
PAIRED_FIGURES = ("means", "differences")
"""Functions of `study.reporting.paired_plots`; the names of their PNGs begin with `paired_`."""


def write(storage: StudyFolder) -> Path:
    """Write `report.html`, its PNGs and the tables of `frames` into a study's folder; returns the page's path.

    Raises a ValueError that names the file where the folder holds no summary.
    """
    findings = Findings(storage)
    page = _template().render(
        f=findings,
        answer=answer(findings),
        accounts=accounts(findings),
        caveats=caveats(findings),
        s=findings.summary,
        figures=_figures(findings),
        columns=_columns(findings),
        legend=findings.metrics.meanings(name for trial in findings.trials for name in trial.values),
        matched=findings.matched(),
        stopped=[t for t in findings.trials if t.state not in (TrialState.COMPLETE, TrialState.RUNNING)],
        costs=_costs(findings.summary),
        notes=notes(findings),
        shares=", ".join(f"{k} {v:.2f}" for k, v in findings.summary.importances.items()),
        hint=viewer(uri) if (uri := findings.summary.tracking.uri) else None,
        updated=f"{findings.summary.updated:%Y-%m-%d %H:%M}",
        at=at, difference=difference, p_value=p_value, show=show, sentence=sentence, over=over,
        signed=signed, spread=spread,
    )  # fmt: skip
    frames.write(storage, findings.summary)
    write_whole(storage.report, page)
    return storage.report


def _template() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    # Autoescape: names, reasons and error messages are other people's text.
    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("report.html.jinja")


def _figures(findings: Findings) -> dict[str, str]:
    """Draw what there is to draw: each PNG goes beside the page, and in base64 into it."""
    from study.reporting import paired_plots, plots, search_plots

    drawn = {}
    figures = {name: getattr(plots, name)(findings) for name in FIGURES}
    figures |= {name: getattr(search_plots, name)(findings) for name in SEARCH_FIGURES}
    figures |= {f"paired_{name}": getattr(paired_plots, name)(findings.contrasts) for name in PAIRED_FIGURES}
    for name, png in figures.items():
        if png is not None:
            write_whole(findings.storage.figure(name), png)
            drawn[name] = base64.b64encode(png).decode()
    return drawn


@dataclass(frozen=True)
class Column:
    title: str
    cell: Callable[[TrialSummary], str]
    text: bool = False


def _columns(findings: Findings) -> list[Column]:
    """The table of trials: what was measured decides which columns there are.

    The template takes them by position: the first is the studied parameter, and stands before the state.
    """
    metrics = [findings.metric, f"test.{findings.metric}", f"untrained.{findings.key}"]
    metrics += [*filter(None, [findings.metrics.cost]), *findings.metrics.columns]

    def parameter(name: str) -> Column:
        return Column(name, lambda t: setting(t.params.get(name, "–")), text=True)

    def measured(name: str) -> Column:
        title = ("" if name != findings.metric else "validation ") + findings.metrics.label(name)
        return Column(title, lambda t: findings.metrics.show(name, t.values.get(name)))

    return [
        *(parameter(name) for name in parameters(findings.trials, findings.parameter)),
        Column("steps", lambda t: f"{t.steps}/{t.planned_steps or '–'}"),
        *(measured(name) for name in dict.fromkeys(metrics) if findings.has(name)),
        Column("worker-seconds", lambda t: f"{t.worker_seconds:,.0f}"),
        Column("attempts", lambda t: str(t.attempts)),
    ]


def _costs(summary: StudySummary) -> list[tuple[str, str, str]]:
    spent, wall = summary.worker_seconds, summary.wall_seconds
    rows = [
        ("used", spent.used, "held by the workers of all trials, over all attempts"),
        ("saved", spent.saved, "steps not run because a trial was stopped early, at its own pace"),
        ("overhead", spent.overhead, "of what was used, outside the training loop: start-up, waiting, shutting down"),
    ]
    shown = [(name, f"{value:,.0f} worker-seconds", text) for name, value, text in rows]
    return shown + ([("wall clock", seconds(wall), "all launches together")] if wall else [])
