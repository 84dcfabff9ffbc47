"""A running study in a terminal: a table that is redrawn in place."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import IO, Any, TextIO, cast

from study.protocol.states import TrialState
from study.protocol.summary import StudySummary, TrialSummary
from study.reporting.formatting import (
    answers,
    ended,
    parameters,
    seconds,
    setting,
    share,
    show,
    steps,
    why,
)
from study.reporting.progress import Progress, done
from study.terminal import View

COLOURS = {"complete": "green", "pruned": "yellow", "collapsed": "red", "failed": "red", "running": "cyan"}
BAR, TAIL = 16, 4
NAME = 20
"""Characters of a group's name that are shown."""
TICK_S = 0.5
"""How often a wait is drawn."""


@dataclass(frozen=True)
class Look:
    """What a table shows where there is room for it."""

    bars: bool
    parameters: bool
    """Whether all searched parameters are shown, not only the one that the study is about."""
    loss: bool


LOOKS = (
    Look(bars=True, parameters=True, loss=True),
    Look(bars=False, parameters=True, loss=True),
    Look(bars=False, parameters=False, loss=True),
    Look(bars=False, parameters=False, loss=False),
)


class TableView:
    """A table that is redrawn in place."""

    def __init__(self, stream: TextIO | View, progress: Progress) -> None:
        from rich.console import Console
        from rich.live import Live

        self.stream, self.progress = stream, progress
        self.console = Console(
            file=cast(IO[str], stream), force_terminal=True, highlight=False, markup=False, emoji=False
        )
        self.live = Live(console=self.console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        self.live.start()

    def update(self, summary: StudySummary) -> None:
        self._measure()
        self.live.update(self._render(summary), refresh=True)

    def message(self, text: str) -> None:
        self.console.print(text, soft_wrap=True)

    def waiting(self, what: str, elapsed_s: float) -> None:
        """Show a bar that moves, for a wait that has lasted so many seconds."""
        from rich.text import Text

        self._measure()
        turn = int(elapsed_s / TICK_S) % (BAR - TAIL + 1)
        before, after = "━" * turn, "━" * (BAR - TAIL - turn)
        bar = Text.assemble((before, "bright_black"), ("━" * TAIL, "cyan"), (after, "bright_black"))
        told = f"{what}, {seconds(elapsed_s)}  "
        self.live.update(Text.assemble(told, bar, no_wrap=True, overflow="crop"), refresh=True)

    def _measure(self) -> None:
        """rich measures the standard streams, which need not be the terminal that is written to."""
        from rich.console import ConsoleDimensions

        if self.stream.isatty():
            size = os.get_terminal_size(self.stream.fileno())
            # Some terminals do not know their size.
            self.console.size = ConsoleDimensions(size.columns or 80, size.lines or 24)

    def close(self) -> None:
        self.live.stop()

    def _render(self, summary: StudySummary) -> Any:
        from rich.console import Group
        from rich.measure import Measurement
        from rich.text import Text

        shown = _window(summary, max(3, self.console.height - 7))
        unbounded = self.console.options.update(max_width=10_000)
        # The first look that the terminal has room for, the smallest where it has room for none.
        for look in LOOKS:
            table = self._table(summary, shown, look)
            if Measurement.get(self.console, unbounded, table).minimum <= self.console.width:
                break
        hidden = len(summary.runs) - len(shown)
        parts = [Text(f"{hidden} more trials are not shown", style="dim")] if hidden else []
        return Group(table, *parts, self._progress(summary))

    def _table(self, summary: StudySummary, shown: list[TrialSummary], look: Look) -> Any:
        from rich.table import Table
        from rich.text import Text

        names = parameters(summary.trials, self.progress.parameter)[: None if look.parameters else 1]
        best = answers(summary)
        table = Table(box=None, pad_edge=False, padding=(0, 2 if look.bars else 1, 0, 0), header_style="dim")
        table.add_column("trial" if look.bars else "#", justify="right", no_wrap=True)
        if summary.groups:
            table.add_column(Text(summary.group or ""), no_wrap=True, overflow="ellipsis", max_width=NAME)
        for name in names:
            table.add_column(Text(name), justify="right", no_wrap=True)
        table.add_column("steps", no_wrap=True)
        if look.loss:
            table.add_column("loss", justify="right", no_wrap=True)
        table.add_column(Text(self.progress.metrics.label(self.progress.objective)), justify="right", no_wrap=True)
        table.add_column("state")
        for trial in shown:
            value = trial.values.get(self.progress.objective)
            value = trial.latest.get(self.progress.objective) if value is None else value
            own = trial in best
            far = Text.assemble(_bar(share(trial)), " ", steps(trial)) if look.bars else Text(steps(trial))
            table.add_row(
                Text(str(trial.number)),
                *([Text(trial.group or "–")] if summary.groups else []),
                *(Text(setting(trial.params.get(name, "–"))) for name in names),
                far,
                *([Text(show(trial.latest.get("train.loss")))] if look.loss else []),
                Text(self.progress.metrics.show(self.progress.objective, value)),
                _state_cell(trial, own),
                style="bold" if own else "",
            )
        return table

    def _progress(self, summary: StudySummary) -> Any:
        from rich.text import Text

        trials = f"{ended(summary)}/{self.progress.total} trials"
        facts = [trials, seconds(self.progress.clock() - self.progress.started)]
        left = self.progress.remaining(summary)
        if left is not None and ended(summary) < self.progress.total:
            facts.append(f"about {seconds(left)} left")
        part = done(summary) / max(1, self.progress.total)
        told = "  " + " · ".join(facts)
        return Text.assemble("\n", _bar(part, max(0, min(2 * BAR, self.console.width - len(told)))), told)


def _bar(part: float, width: int = BAR) -> Any:
    from rich.text import Text

    full = round(part * width)
    return Text.assemble(("━" * full, "cyan"), ("━" * (width - full), "bright_black"))


def _state_cell(trial: TrialSummary, best: bool) -> Any:
    """The only cell that may be cut where the terminal is narrow."""
    from rich.text import Text

    text = Text(no_wrap=True, overflow="ellipsis").append(trial.state.value, COLOURS.get(trial.state, ""))
    confirms = "" if trial.confirms is None else f", confirms {trial.confirms}"
    return text.append(confirms + (" ★ best" if best else "") + (f": {why(trial)}" if why(trial) else ""))


def _window(summary: StudySummary, rows: int) -> list[TrialSummary]:
    """The trials worth the room: the running, the best, then the newest; in their own order."""
    best = answers(summary)

    def rank(trial: TrialSummary) -> tuple[bool, bool, int]:
        return trial.state == TrialState.RUNNING, trial in best, trial.number

    kept = sorted(summary.runs, key=rank, reverse=True)[:rows]
    return sorted(kept, key=lambda trial: trial.number)
