"""What a running study shows: a live table in a terminal, one line per event anywhere else.

A display is fed with summaries (the content of `summary.json`) and finds out by itself what is new
in each. It writes to the stream it was given and to nothing else.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from study.words import (
    ENDED,
    Summary,
    Trial,
    at,
    baselines,
    best_trial,
    cost,
    counts,
    label,
    mlflow_hint,
    no_result,
    number,
    objective,
    parameters,
    reported,
    seconds,
    setting,
    show,
    value_of,
    why,
)

COLOURS = {"complete": "green", "pruned": "yellow", "collapsed": "red", "failed": "red", "running": "cyan"}
BAR = 16


class Display:
    """`update` with every new summary, `close` with the last one.

    `parameter` is the config key the study is about, `objective` the metric it is judged by, `total`
    the number of trials it will have. `plain` forces lines (True) or the table (False); by default a
    terminal gets the table.
    """

    def __init__(
        self,
        stream: TextIO,
        parameter: str,
        objective: str,
        total: int,
        plain: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.parameter, self.objective, self.total = parameter, objective, total
        self.clock, self.started = clock, clock()
        self._before: int | None = None
        plain = not stream.isatty() if plain is None else plain
        self._view: _Lines | _Table = _Lines(stream, self) if plain else _Table(stream, self)

    def update(self, summary: Summary) -> None:
        if self._before is None:
            self._before = _ended(summary)
        self._view.update(summary)

    def message(self, text: str) -> None:
        """Say something outside the table, such as that a stop was asked for."""
        self._view.message(text)

    def close(self, summary: Summary | None, report: Path | None = None) -> None:
        """Show the last state and the result; None where there is none to show.

        `report` is the path of the page that was written.
        """
        if summary is not None:
            self.update(summary)
        self._view.close()
        if summary is not None:
            self._view.message(final_text(summary, report))

    def remaining(self, summary: Summary) -> float | None:
        """Seconds until the end at the pace of this launch, concurrency included; None before a trial ended.

        Pace is trials per second since the start, where a running trial counts by its steps.
        """
        ended = _ended(summary)
        here = ended - (self._before or 0)
        if here < 1:
            return None
        underway = sum(_share(trial) for trial in summary["trials"] if trial["state"] == "running")
        return (self.clock() - self.started) * max(0.0, self.total - ended - underway) / (here + underway)


class _Lines:
    """One line per event, flushed, each event once."""

    def __init__(self, stream: TextIO, display: Display) -> None:
        self.stream, self.display = stream, display
        self.states: dict[int, tuple[str, int]] | None = None
        self.evaluated: dict[int, float | None] = {}

    def update(self, summary: Summary) -> None:
        for line in self._events(summary):
            self.message(line)

    def message(self, text: str) -> None:
        self.stream.write(text + "\n")
        self.stream.flush()

    def close(self) -> None:
        pass

    def _events(self, summary: Summary) -> Iterator[str]:
        if self.states is None:
            known = [trial for trial in summary["trials"] if trial["state"] != "running"]
            self.states = {trial["number"]: _stage(trial) for trial in known}
            if known:
                yield f"carrying on: {counts(summary)}"
        for trial in summary["trials"]:
            n, stage = trial["number"], _stage(trial)
            before = self.states.get(n)
            if before is not None and before[0] == "interrupted" and stage == ("running", before[1]):
                # Handed out again, but its gang is not there yet.
                continue
            self.states[n] = stage
            who = f"trial {n} ({_settings(trial, self.display.parameter)})"
            started = before is None or before[1] < stage[1] or before[0] == "interrupted"
            if stage != before and stage[0] != "interrupted" and started:
                yield f"{who} {'started' if stage[1] <= 1 else f'carried on, attempt {stage[1]}'}"
                if stage[1] > 1:
                    self.evaluated[n] = self._value(trial)
            if stage[0] == "running":
                yield from self._evaluation(trial, who)
            elif before is None or before[0] != stage[0]:
                yield f"{who} {_ending(trial, self.display.objective)}" + self._outlook(summary, trial)

    def _evaluation(self, trial: Trial, who: str) -> Iterator[str]:
        value = self._value(trial)
        if value is None or self.evaluated.get(trial["number"]) == value:
            return
        self.evaluated[trial["number"]] = value
        loss = number(trial["latest"].get("train.loss"))
        yield f"{who} step {_steps(trial)}: {label(self.display.objective)} {show(value)}" + (
            f", loss {show(loss)}" if loss is not None else ""
        )

    def _value(self, trial: Trial) -> float | None:
        """Of its newest evaluation, which may be one of an earlier attempt."""
        return number((trial.get("latest") or {}).get(self.display.objective))

    def _outlook(self, summary: Summary, trial: Trial) -> str:
        if trial["state"] not in ENDED:
            return ""
        left = self.display.remaining(summary)
        done, total = _ended(summary), self.display.total
        return f" [{done}/{total}" + (f", about {seconds(left)} left]" if left is not None and done < total else "]")


class _Table:
    """A table that is redrawn in place."""

    def __init__(self, stream: TextIO, display: Display) -> None:
        from rich.console import Console
        from rich.live import Live

        self.stream, self.display = stream, display
        self.console = Console(file=stream, force_terminal=True, highlight=False, markup=False, emoji=False)
        self.live = Live(console=self.console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        self.live.start()

    def update(self, summary: Summary) -> None:
        if self.stream.isatty():
            # rich measures the standard streams, which need not be the terminal that is written to.
            self.console.size = os.get_terminal_size(self.stream.fileno())
        self.live.update(self._render(summary), refresh=True)

    def message(self, text: str) -> None:
        self.console.print(text, soft_wrap=True)

    def close(self) -> None:
        self.live.stop()

    def _render(self, summary: Summary) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        shown = _window(summary, max(3, self.console.height - 7))
        names = parameters(summary["trials"], self.display.parameter)
        best = best_trial(summary)
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("trial", justify="right", no_wrap=True)
        for name in names:
            table.add_column(Text(name), justify="right", no_wrap=True)
        table.add_column("steps", no_wrap=True)
        table.add_column("loss", justify="right", no_wrap=True)
        table.add_column(Text(label(self.display.objective)), justify="right", no_wrap=True)
        table.add_column("state")
        for trial in shown:
            latest = trial.get("latest") or {}
            value = value_of(trial, self.display.objective)
            value = number(latest.get(self.display.objective)) if value is None else value
            own = best is not None and trial["number"] == best["number"]
            table.add_row(
                Text(str(trial["number"])),
                *(Text(setting((trial.get("params") or {}).get(name, "–"))) for name in names),
                Text.assemble(_bar(_share(trial)), " ", _steps(trial)),
                Text(show(number(latest.get("train.loss")))),
                Text(show(value)),
                _state_cell(trial, own),
                style="bold" if own else "",
            )
        hidden = len(summary["trials"]) - len(shown)
        parts = [Text(f"{hidden} more trials are not shown", style="dim")] if hidden else []
        return Group(table, *parts, self._progress(summary))

    def _progress(self, summary: Summary) -> Any:
        from rich.text import Text

        done = _ended(summary)
        underway = sum(_share(trial) for trial in summary["trials"] if trial["state"] == "running")
        facts = [f"{done}/{self.display.total} trials", seconds(self.display.clock() - self.display.started)]
        left = self.display.remaining(summary)
        if left is not None and done < self.display.total:
            facts.append(f"about {seconds(left)} left")
        share = (done + underway) / max(1, self.display.total)
        return Text.assemble("\n", _bar(share, 2 * BAR), "  " + " · ".join(facts))


def final_text(summary: Summary, report: Path | None = None) -> str:
    """The result in a few lines: the best trial, what it cost, where the report and the runs are."""
    compared = summary.get("design") == "paired" or any(trial.get("control") for trial in summary["trials"])
    if compared and report is not None:
        # The answer of a comparison is a difference with its test, not a best trial; both take seconds to import.
        from study.answer import answer
        from study.findings import Findings

        result = answer(Findings(report.parent))
    else:
        result = _result(summary)
    lines = [result, f"{counts(summary)}. {cost(summary)}."]
    failed = [trial for trial in summary["trials"] if trial["state"] == "failed"]
    lines += [f"trial {t['number']} failed: {why(t) or 'no reason recorded'}" for t in failed[:5]]
    if len(failed) > 5:
        lines.append(f"and {len(failed) - 5} more failed")
    if report is not None:
        lines.append(f"report: {report}")
    hint = mlflow_hint(summary)
    if hint is not None:
        lines.append(f"MLflow: {hint}")
    return "\n".join(lines)


def _result(summary: Summary) -> str:
    best = best_trial(summary)
    if best is None:
        return no_result(summary)
    metric, _ = objective(summary)
    key = reported(best, metric)
    figures = [f"{label(key) if key != metric else 'validation ' + label(key)} {show(value_of(best, key))}"]
    if key != metric:
        figures.append(f"validation {show(value_of(best, metric))}")
    untrained = value_of(best, f"untrained.{key}")
    if untrained is not None:
        figures.append(f"untrained {show(untrained)}")
    figures += [f"{name} {show(value)}" for name, value in baselines(summary, key).items()]
    so_far = "" if summary["status"] == "finished" else " so far"
    return f"Best {_settings(best, summary['parameter'])}{so_far}: {', '.join(figures)}"


def _settings(trial: Trial, parameter: str) -> str:
    params = trial.get("params") or {}
    others = [name for name in parameters([trial], parameter) if name != parameter]
    rest = [f"{name} = {setting(params[name])}" for name in others]
    return ", ".join([at(trial, parameter)] * (parameter in params or not rest) + rest)


def _ending(trial: Trial, metric: str) -> str:
    value = value_of(trial, metric)
    text = f"{trial['state']} at step {_steps(trial)}"
    if value is not None:
        text += f", {label(metric)} {show(value)}"
    return text + (f": {why(trial)}" if why(trial) else "")


def _stage(trial: Trial) -> tuple[str, int]:
    return trial["state"], trial.get("attempts") or 1


def _steps(trial: Trial) -> str:
    planned = trial.get("planned_steps")
    return f"{trial.get('steps') or 0}" + (f"/{planned}" if planned else "")


def _share(trial: Trial) -> float:
    planned = trial.get("planned_steps")
    return min(1.0, (trial.get("steps") or 0) / planned) if planned else 0.0


def _ended(summary: Summary) -> int:
    return sum(trial["state"] in ENDED for trial in summary["trials"])


def _bar(share: float, width: int = BAR) -> Any:
    from rich.text import Text

    full = round(share * width)
    return Text.assemble(("━" * full, "cyan"), ("━" * (width - full), "bright_black"))


def _state_cell(trial: Trial, best: bool) -> Any:
    """The only cell that may be cut where the terminal is narrow."""
    from rich.text import Text

    state = trial["state"]
    text = Text(no_wrap=True, overflow="ellipsis").append(state, COLOURS.get(state, ""))
    return text.append((" ★ best" if best else "") + (f": {why(trial)}" if why(trial) else ""))


def _window(summary: Summary, rows: int) -> list[Trial]:
    """The trials worth the room: the running, the best, then the newest; in their own order."""
    best = best_trial(summary)

    def rank(trial: Trial) -> tuple[bool, bool, int]:
        own = best is not None and trial["number"] == best["number"]
        return trial["state"] == "running", own, trial["number"]

    kept = sorted(summary["trials"], key=rank, reverse=True)[:rows]
    return sorted(kept, key=lambda trial: trial["number"])
