"""What a running study shows: a live table in a terminal, one line per event anywhere else.

A display is fed with summaries (`study.protocol.summary`) and finds out by itself what is new
in each. It writes to the stream it was given and to nothing else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from study.protocol.folder import StudyFolder
from study.protocol.states import StudyStatus, TrialState
from study.protocol.summary import StudySummary, TrialSummary
from study.reporting.formatting import (
    answers,
    at,
    baselines,
    best_trial,
    confirming,
    cost,
    counts,
    ended,
    no_result,
    objective,
    parameters,
    reported,
    seconds,
    setting,
    show,
    steps,
    why,
)
from study.reporting.metrics import DeclaredMetrics
from study.reporting.progress import Progress
from study.reporting.table import TICK_S, TableView
from study.terminal import View
from study.uris import runs_page, viewer

if TYPE_CHECKING:
    from study.reporting.results import Findings


class Display:
    """`update` with every new summary, `close` with the last one.

    `parameter` is the config key the study is about, `objective` the metric it is judged by, `total`
    the number of trials it will have. `plain` forces lines (True) or the table (False); by default a
    terminal gets the table. `elapsed_s` are the seconds that the launch has run for already.
    """

    def __init__(
        self,
        stream: TextIO | View,
        parameter: str,
        objective: str,
        total: int,
        plain: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
        elapsed_s: float = 0.0,
    ) -> None:
        self.progress = Progress(parameter, objective, total, clock, elapsed_s)
        plain = not stream.isatty() if plain is None else plain
        self._view: _Lines | TableView = _Lines(stream, self.progress) if plain else TableView(stream, self.progress)

    def update(self, summary: StudySummary) -> None:
        self.progress.update(summary)
        self._view.update(summary)

    def message(self, text: str) -> None:
        """Say something outside the table, such as that a stop was asked for."""
        self._view.message(text)

    @contextmanager
    def waiting(self, what: Callable[[], str]) -> Iterator[None]:
        """Show that something goes on, `what` it is and for how long, until the end of the block."""
        began, over = time.monotonic(), threading.Event()

        def show() -> None:
            while not over.wait(TICK_S):
                self._view.waiting(what(), time.monotonic() - began)

        shown = threading.Thread(target=show, name="waiting", daemon=True)
        shown.start()
        try:
            yield
        finally:
            over.set()
            shown.join()

    def close(self, summary: StudySummary | None, storage: StudyFolder | None = None) -> None:
        """Show the last state and the result; None where there is none to show.

        `storage` is the folder that a report was written into.
        """
        if summary is not None:
            self.update(summary)
        self._view.close()
        if summary is not None:
            self._view.message(final_text(summary, storage))


class _Lines:
    """One line per event, flushed, each event once."""

    def __init__(self, stream: TextIO | View, progress: Progress) -> None:
        self.stream, self.progress = stream, progress
        self.states: dict[int, tuple[TrialState, int]] | None = None
        self.evaluated: dict[int, float | None] = {}
        self.confirming = False
        """Whether it was said what is confirmed."""
        self.next_waiting_s = 10.0

    def update(self, summary: StudySummary) -> None:
        for line in self._events(summary):
            self.message(line)

    def message(self, text: str) -> None:
        self.stream.write(text + "\n")
        self.stream.flush()

    def waiting(self, what: str, elapsed_s: float) -> None:
        """Print a line after ten seconds of waiting, and whenever the time has doubled."""
        if elapsed_s >= self.next_waiting_s:
            self.message(f"{what}, {seconds(elapsed_s)}")
            self.next_waiting_s *= 2

    def close(self) -> None:
        pass

    def _events(self, summary: StudySummary) -> Iterator[str]:
        if self.states is None:
            known = [trial for trial in summary.runs if trial.state != TrialState.RUNNING]
            self.states = {trial.number: _stage(trial) for trial in known}
            if known:
                yield f"carrying on: {counts(summary)}"
        yield from self._search_over(summary)
        for trial in summary.runs:
            n, stage = trial.number, _stage(trial)
            before = self.states.get(n)
            if before is not None and before[0] == TrialState.INTERRUPTED and stage == (TrialState.RUNNING, before[1]):
                # Handed out again, but its gang is not there yet.
                continue
            self.states[n] = stage
            confirms = "" if trial.confirms is None else f", confirms trial {trial.confirms}"
            who = f"trial {n} ({_settings(trial, self.progress.parameter)}{confirms})"
            started = before is None or before[1] < stage[1] or before[0] == TrialState.INTERRUPTED
            if stage != before and stage[0] != TrialState.INTERRUPTED and started:
                yield f"{who} {'started' if stage[1] <= 1 else f'carried on, attempt {stage[1]}'}"
                if stage[1] > 1:
                    self.evaluated[n] = self._value(trial)
            if stage[0] == TrialState.RUNNING:
                yield from self._evaluation(trial, who)
            elif before is None or before[0] != stage[0]:
                yield f"{who} {self._ending(trial)}" + self._outlook(summary, trial)

    def _search_over(self, summary: StudySummary) -> Iterator[str]:
        """Once, what is confirmed and with which seeds; what a launch begins with it says anew."""
        found = summary.confirmation
        if found is None or self.confirming:
            return
        self.confirming = True
        for one in found.groups:
            of_group = "" if one.name is None else f" of {one.name}"
            if not one.finalists:
                yield f"the search{of_group} is over and has no finalist: no trial of it is complete"
                continue
            few = f" ({one.missing} fewer than asked for: no more trials are complete)" if one.missing else ""
            controls = f", controls {', '.join(map(str, one.controls))}" if one.controls else ""
            yield (
                f"the search{of_group} is over; to be confirmed with the fresh seeds "
                f"{', '.join(map(str, found.seeds))}: trials {', '.join(map(str, one.finalists))}{few}{controls}"
            )

    def _evaluation(self, trial: TrialSummary, who: str) -> Iterator[str]:
        value = self._value(trial)
        if value is None or self.evaluated.get(trial.number) == value:
            return
        self.evaluated[trial.number] = value
        loss = trial.latest.get("train.loss")
        # Steps count over all replicates; from the second one on a line says whose metrics it has.
        replicate = f"replicate {len(trial.replicates) + 1}, " if trial.replicates else ""
        told = f"{who} {replicate}step {steps(trial)}: {self._named(value)}"
        yield told + (f", loss {show(loss)}" if loss is not None else "")

    def _value(self, trial: TrialSummary) -> float | None:
        """The objective's value at the trial's newest evaluation, which may be one of an earlier attempt."""
        return trial.latest.get(self.progress.objective)

    def _named(self, value: float) -> str:
        """The objective's name with a value of it."""
        metrics, objective = self.progress.metrics, self.progress.objective
        return f"{metrics.label(objective)} {metrics.show(objective, value)}"

    def _ending(self, trial: TrialSummary) -> str:
        value = trial.values.get(self.progress.objective)
        told = f"{trial.state} at step {steps(trial)}" + ("" if value is None else f", {self._named(value)}")
        return told + (f": {why(trial)}" if why(trial) else "")

    def _outlook(self, summary: StudySummary, trial: TrialSummary) -> str:
        if not trial.state.ended:
            return ""
        left = self.progress.remaining(summary)
        done, total = ended(summary), self.progress.total
        return f" [{done}/{total}" + (f", about {seconds(left)} left]" if left is not None and done < total else "]")


def final_text(summary: StudySummary, storage: StudyFolder | None = None) -> str:
    """The result in a few lines: the best trial, what it cost, where the report and the runs are."""
    compared = summary.design == "paired" or summary.confirmation or any(trial.control for trial in summary.trials)
    if summary.groups and storage is not None:
        found = _group_table(summary, storage)
    elif compared and storage is not None and not summary.groups:
        # The answer of a comparison is a difference with its test, not a best trial; both take seconds to import.
        from study.reporting.conclusions import answer
        from study.reporting.results import Findings

        findings = Findings(storage)
        found = answer(findings) + _confirmation(findings)
    else:
        found = result(summary)
    told = ". ".join(filter(None, (counts(summary), confirming(summary))))
    lines = [found, f"{told}. {cost(summary.worker_seconds, summary.gpu_hours)}."]
    failed = [trial for trial in summary.runs if trial.state == TrialState.FAILED]
    lines += [f"trial {t.number} failed: {why(t) or 'no reason recorded'}" for t in failed[:5]]
    if len(failed) > 5:
        lines.append(f"and {len(failed) - 5} more failed")
    if storage is not None:
        lines += [
            f"best model{f' of {best.group}' if best.group else ''}: {storage.resolved(best.checkpoint)}"
            for best in answers(summary)
            if best.checkpoint
        ]
        lines.append(f"report: {storage.report}")
    if summary.tracking.uri:
        shown, page = viewer(summary.tracking.uri), runs_page(summary.tracking.uri, summary.tracking.page)
        lines += [f"MLflow: {page}"] if page.startswith(shown) else [f"MLflow: {shown}", f"runs: {page}"]
    return "\n".join(lines)


def _group_table(summary: StudySummary, storage: StudyFolder) -> str:
    from study.reporting.groups import grouped, headline, overview

    groups, key = grouped(storage, summary), summary.group or ""
    confirmed = "".join(_confirmation(group.findings, group.name) for group in groups)
    return f"{headline(key, groups)}\n\n{overview(key, groups).text()}\n{confirmed}"


def _confirmation(findings: Findings, group: str = "") -> str:
    """The table of what is confirmed, set off; "" where nothing is."""
    from study.reporting.tables import confirmation

    if findings.confirmed is None:
        return ""
    return f"\n\n{f'{group}, confirmed' if group else 'Confirmed'}:\n{confirmation(findings).text()}\n"


def result(summary: StudySummary) -> str:
    """The best trial with its figures in one sentence, or why there is none; a line for each group where there are
    groups."""
    if summary.groups:
        return "\n".join(f"{group.name}: {result(summary.alone(group))}" for group in summary.groups)
    best = best_trial(summary)
    if best is None:
        return no_result(summary)
    metric, _ = objective(summary)
    key, metrics = reported(best, metric), DeclaredMetrics(summary.metrics)
    split = "validation " if key == metric else ""
    figures = [f"{split}{metrics.label(key)} {metrics.show(key, best.values.get(key))}"]
    if key != metric:
        figures.append(f"validation {metrics.show(key, best.values.get(metric))}")
    untrained = best.values.get(f"untrained.{key}")
    if untrained is not None:
        figures.append(f"untrained {metrics.show(key, untrained)}")
    figures += [f"{name} {metrics.show(key, value)}" for name, value in baselines(summary, key).items()]
    so_far = "" if summary.status == StudyStatus.FINISHED else " so far"
    return f"Best {_settings(best, summary.parameter)}{so_far}: {', '.join(figures)}"


def _settings(trial: TrialSummary, parameter: str) -> str:
    params = trial.params
    others = [name for name in parameters([trial], parameter) if name != parameter]
    rest = [f"{name} = {setting(params[name])}" for name in others]
    return ", ".join([at(trial, parameter)] * (parameter in params or not rest) + rest)


def _stage(trial: TrialSummary) -> tuple[TrialState, int]:
    return trial.state, trial.attempts or 1
