"""The report of a study: `report.html`, with its figures inside, and `report.md`; beside them figures and tables."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from study.protocol.folder import StudyFolder
from study.protocol.states import StudyStatus
from study.protocol.summary import StudySummary, read
from study.reporting import frames, tables, vega
from study.reporting.conclusions import accounts, answer, caveats, notes, over, unconfirmed
from study.reporting.figures import by_metric, differences_of, figures, group_figures
from study.reporting.formatting import at, named, seconds, winner
from study.reporting.groups import grouped, headline, overview
from study.reporting.origin import origin
from study.reporting.paired import sentence
from study.reporting.palette import DARK
from study.reporting.results import Findings
from study.uris import runs_page, viewer
from trainables.files import write_whole

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Figure:
    """A figure as the page has it: for a browser to draw, and as a picture for paper; None while a study runs."""

    name: str
    specification: Mapping[str, Any]
    picture: str | None

    @property
    def json(self) -> str:
        return vega.as_json(self.specification)

    @property
    def base64(self) -> str:
        return base64.b64encode((self.picture or "").encode()).decode()


@dataclass(frozen=True)
class Section:
    """What the templates say of one set of findings."""

    findings: Findings
    drawn: Mapping[str, Figure]
    prefix: str = ""
    """What the names of its figures begin with."""
    title: str = ""
    """The group that they are of; "" in a study without groups."""

    @property
    def answer(self) -> str:
        return answer(self.findings)

    @property
    def caveats(self) -> list[str]:
        return caveats(self.findings)

    @cached_property
    def legend(self) -> dict[str, str]:
        """Metric for readers -> what it is."""
        trials = self.findings.trials
        return self.findings.metrics.meanings(name for trial in trials for name in trial.values)

    @cached_property
    def names(self) -> dict[str, str]:
        """Words that headings and texts are made of."""
        found = self.findings
        return {
            "metric": found.metrics.label(found.metric),
            "cost": found.metrics.label(found.metrics.cost or ""),
            "best": at(found.best, found.parameter) if found.best else "none yet",
            "shares": ", ".join(f"{name} {share:.2f}" for name, share in found.summary.importances.items()),
        }


@dataclass(frozen=True)
class Report:
    """All that a page says of a study."""

    storage: StudyFolder
    summary: StudySummary
    sections: tuple[Section, ...]
    """One, or one for each group."""
    answer: str
    overview: tables.Table | None
    """The groups side by side; None in a study without groups."""
    explained: Figure | None = None
    """What may explain how they differ."""

    @classmethod
    def of(cls, storage: StudyFolder, pictures: bool) -> Report:
        """Raises a ValueError that names the file where the folder holds no summary."""
        summary = read(storage.summary)
        groups = grouped(storage, summary)
        if not groups:
            findings = Findings(storage, summary)
            section = Section(findings, _drawn(findings, pictures))
            return cls(storage, summary, (section,), section.answer, None)
        sections = tuple(
            Section(one.findings, _drawn(one.findings, pictures), f"group{number}_", f"{summary.group}: {one.name}")
            for number, one in enumerate(groups)
        )
        key = summary.group or ""
        side = overview(key, groups)
        columns = tuple(tables.Column(head, "text") for head in side.heads)
        table = tables.Table("Groups", columns, side.rows)
        together = _shown(group_figures(groups), pictures).get("groups")
        return cls(storage, summary, sections, headline(key, groups), table, together)

    @property
    def figures(self) -> dict[str, Figure]:
        """Name of the file, without its suffix -> figure."""
        own = {section.prefix + name: figure for section in self.sections for name, figure in section.drawn.items()}
        return own | ({"groups": self.explained} if self.explained else {})

    @property
    def caveats(self) -> list[str]:
        """Those of the study; groups have theirs in their sections."""
        return self.sections[0].caveats if self.overview is None else []

    @property
    def models(self) -> list[str]:
        """Where the best model, or that of each group, is, or its newest checkpoint."""
        bests = [(one.title, winner(one.findings.summary) or one.findings.best) for one in self.sections]
        return [
            f"{title + ', ' if title else ''}{self.storage.resolved(best.checkpoint)}"
            for title, best in bests
            if best is not None and best.checkpoint
        ]


def answer_of(storage: StudyFolder) -> str:
    """The answer to the study's question in a sentence or two. Raises as `write`."""
    summary = read(storage.summary)
    groups = grouped(storage, summary)
    return headline(summary.group or "", groups) if groups else answer(Findings(storage, summary))


def write(storage: StudyFolder) -> Path:
    """Write `report.html`, `report.md`, the figures as PNGs and the tables of `frames` into a study's folder.

    Returns the page's path. Raises a ValueError that names the file where the folder holds no summary.
    """
    report = Report.of(storage, pictures=True)
    for path in storage.figures():
        path.unlink()
    for name, figure in report.figures.items():
        assert figure.picture is not None
        write_whole(storage.figure(name), vega.png(figure.picture))
    frames.write(storage, report.summary)
    write_whole(storage.report_text, _rendered("report.md.jinja", report))
    write_whole(storage.report, _rendered("report.html.jinja", report))
    return storage.report


def write_while_running(storage: StudyFolder) -> None:
    """Write `report.html` as far as the study is: cheaply, without pictures and tables. Raises as `write`."""
    write_whole(storage.report, _rendered("report.html.jinja", Report.of(storage, pictures=False)))


def _drawn(findings: Findings, pictures: bool) -> dict[str, Figure]:
    return _shown(figures(findings), pictures)


def _shown(charts: Mapping[str, Any], pictures: bool) -> dict[str, Figure]:
    drawn = {name: vega.specification(chart) for name, chart in charts.items()}
    return {name: Figure(name, vega.wide(one), vega.svg(one) if pictures else None) for name, one in drawn.items()}


@cache
def _environment() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

    # Names, reasons and error messages are other people's text.
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=select_autoescape(["html.jinja"]), undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters["cell"] = _cell
    return environment


def _rendered(template: str, report: Report) -> str:
    findings, summary = report.sections[0].findings, report.summary
    return _environment().get_template(template).render(
        sections=report.sections,
        s=summary,
        answer=report.answer,
        overview=report.overview,
        explained=report.explained,
        explains=findings.metrics.label(findings.metrics.explains or ""),
        accounts=accounts(summary),
        caveats=report.caveats,
        notes=notes(findings),
        costs=_costs(summary),
        origin=origin(findings),
        models=report.models,
        hint=viewer(uri) if (uri := summary.tracking.uri) else None,
        runs=runs_page(uri, summary.tracking.page) if uri else None,
        updated=f"{summary.updated:%Y-%m-%d %H:%M} UTC",
        running=summary.status == StudyStatus.RUNNING,
        tables=tables, named=named, sentence=sentence, over=over, by_metric=by_metric, differences_of=differences_of,
        unconfirmed=unconfirmed, style=lambda: (HERE / "report.css").read_text(encoding="utf-8"),
        script=lambda: (HERE / "report.js").read_text(encoding="utf-8"), program=vega.program,
        dark=vega.as_json(DARK),
    )  # fmt: skip


def _cell(text: str) -> str:
    """A text as the cell of a table in Markdown.

    >>> _cell("a|b\\n<c>")
    'a\\\\|b \\\\<c>'
    """
    for mark in ("\\", "|", "<", "&", "*", "_", "`", "["):
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())


def _costs(summary: StudySummary) -> list[tuple[str, str, str]]:
    spent, wall = summary.worker_seconds, summary.wall_seconds
    rows = [
        ("used", spent.used, "held by the workers of all trials, over all attempts"),
        ("saved", spent.saved, "steps not run because a trial was stopped early, at its own pace"),
        ("overhead", spent.overhead, "of what was used, outside the training loop: start-up, waiting, shutting down"),
    ]
    shown = [(name, f"{value:,.0f} worker-seconds", text) for name, value, text in rows]
    return shown + ([("wall clock", seconds(wall), "all launches together")] if wall else [])
