"""How a study's numbers are put into words: one wording for the terminal and the report.

Everything here reads only a summary (`study.protocol.summary`) and imports nothing heavy.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from study.protocol.states import StudyStatus, TrialState
from study.protocol.summary import GpuHours, StudySummary, TrialSummary, WorkerSeconds

STATES = (*(state for state in TrialState if state.ended), TrialState.INTERRUPTED, TrialState.RUNNING)
"""The states of trials, in the order in which reports count them."""

_METHODS = {"bm25": "BM25"}
"""Methods of comparison that need no training -> their names for readers, where these differ."""


def number(value: Any) -> float | None:
    """A parameter's or a journal's value as a finite float; None for anything else, NaN and infinity included."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def named(name: str) -> str:
    """The name for readers of a signal, or of anything else that no recipe declares.

    >>> named("encoder_loss"), named("test.a_at_10"), named("bm25")
    ('encoder loss', 'test a@10', 'BM25')
    """
    return _METHODS.get(name, " ".join(name.replace("_at_", "@").replace("_", " ").split(".")))


def show(value: float | None) -> str:
    """A measured value: three decimals below 10, fewer above, scientific where neither reads well.

    >>> [show(v) for v in (0.43149, 12.345, 1875.2, 0.00021, None)]
    ['0.431', '12.3', '1,875', '2.1e-04', '–']
    """
    if value is None:
        return "–"
    size = abs(value)
    if size >= 1e6 or 0 < size < 5e-4:
        return f"{value:.1e}"
    return f"{value:,.0f}" if size >= 1000 else f"{value:.1f}" if size >= 10 else f"{value:.3f}"


def difference(value: float) -> str:
    """A signed difference, with a real minus sign.

    >>> difference(0.2124), difference(-0.03), difference(-0.00034)
    ('+0.212', '−0.030', '−0.0003')
    """
    size = abs(value)
    return ("−" if value < 0 else "+") + (f"{size:.4f}" if 0 < size < 5e-4 else show(size))


def setting(value: Any) -> str:
    """A parameter's value.

    >>> setting(2.0), setting(0.25), setting(3.14159), setting("chunked")
    ('2', '0.25', '3.14', 'chunked')
    """
    return f"{value:.3g}" if isinstance(value, float) and abs(value) < 1000 else str(value)


def at(trial: TrialSummary, parameter: str) -> str:
    """What a trial is called, such as `k = 2`: a control by what it changes, another trial without the study's
    parameter by its number; behind its group where it has one."""
    params = trial.params
    if trial.control:
        told = "control " + ", ".join(f"{name} = {setting(value)}" for name, value in params.items())
    else:
        told = f"{parameter} = {setting(params[parameter])}" if parameter in params else f"trial {trial.number}"
    return told if trial.group is None else f"{trial.group}, {told}"


def parameters(trials: Iterable[TrialSummary], first: str) -> list[str]:
    """All searched parameters, the one the study is about in front."""
    names = {name: None for trial in trials if not trial.control for name in trial.params}
    return sorted(names, key=lambda name: (name != first, list(names).index(name)))


def p_value(p: float) -> str:
    """
    >>> p_value(0.00004), p_value(0.0312), p_value(0.4)
    ('p < 0.001', 'p = 0.031', 'p = 0.40')
    """
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def enumerate_words(items: Sequence[str]) -> str:
    """
    >>> enumerate_words(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def seconds(value: float) -> str:
    """A span of time in the unit that reads best.

    >>> [seconds(v) for v in (0.4, 48, 312, 9000)]
    ['0 s', '48 s', '5 min 12 s', '2 h 30 min']
    """
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


def counts(summary: StudySummary) -> str:
    """`9 trials: 7 complete, 2 collapsed`, or `4 of 9 trials: ...` while some have not been started."""
    trials, planned = summary.trials, summary.planned_trials
    states = Counter(trial.state for trial in trials)
    parts = ", ".join(f"{states[state]} {state}" for state in STATES if states[state])
    of = f" of {planned}" if planned > len(trials) else ""
    noun = "trial" if max(planned, len(trials)) == 1 else "trials"
    return f"{len(trials)}{of} {noun}" + (f": {parts}" if parts else "")


def cost(workers: WorkerSeconds, gpus: GpuHours) -> str:
    """`312 worker-seconds used, 95 saved by stopping early`, or in GPU-hours where trials hold GPUs.

    >>> cost(WorkerSeconds(), GpuHours(used=12.5, saved=3.0, price=2.0))
    '12.50 GPU-hours used (25.00 at 2 each), 3.00 saved by stopping early'
    """
    if gpus.used:
        text = f"{gpus.used:,.2f} GPU-hours used" + (
            f" ({gpus.used * gpus.price:,.2f} at {gpus.price:g} each)" if gpus.price else ""
        )
        return text + (f", {gpus.saved:,.2f} saved by stopping early" if gpus.saved >= 0.01 else "")
    used, saved = workers.used, workers.saved
    if max(used, saved) >= 3 * 3600:
        text = f"{used / 3600:,.1f} worker-hours used"
        return text + (f", {saved / 3600:,.1f} saved by stopping early" if saved >= 360 else "")
    return f"{used:,.0f} worker-seconds used" + (f", {saved:,.0f} saved by stopping early" if saved >= 1 else "")


def objective(summary: StudySummary) -> tuple[str, bool]:
    """The first objective's metric, and whether more of it is better."""
    first = summary.objectives[0]
    return first.name, first.direction == "maximize"


def best_trial(summary: StudySummary) -> TrialSummary | None:
    """The best finished trial of a study without groups; with several objectives the one that is best in the first."""
    assert not summary.groups, "each group has its own: best_trials"
    metric, more = objective(summary)
    chosen = [trial for trial in summary.trials if trial.number in summary.best]
    measured = [(value, trial) for trial in chosen if (value := trial.values.get(metric)) is not None]
    if not measured:
        return None
    return (max if more else min)(measured, key=lambda pair: pair[0])[1]


def best_trials(summary: StudySummary) -> list[TrialSummary]:
    """The best finished trial of each group that has one; of a study without groups that of the study."""
    own = [best_trial(summary.alone(group)) for group in summary.groups] or [best_trial(summary)]
    numbers = {trial.number for trial in own if trial is not None}
    return [trial for trial in summary.trials if trial.number in numbers]


def winner(summary: StudySummary) -> TrialSummary | None:
    """The trial of the search that its confirmation names, of a study without groups; None before that."""
    assert not summary.groups, "each group has its own: answers"
    groups = summary.confirmation.groups if summary.confirmation else ()
    return next((trial for one in groups for trial in summary.trials if trial.number == one.winner), None)


def answers(summary: StudySummary) -> list[TrialSummary]:
    """What answers the study's question, for each group that has an answer: the winner of the confirmation, and before
    there is one the best of the search."""
    own = [winner(one) or best_trial(one) for one in map(summary.alone, summary.groups)] or (
        [] if summary.groups else [winner(summary) or best_trial(summary)]
    )
    numbers = {trial.number for trial in own if trial is not None}
    return [trial for trial in summary.trials if trial.number in numbers]


def confirming(summary: StudySummary) -> str:
    """`Confirmation: 2 of 4 with 5 fresh seeds: 2 complete`; "" where there is none."""
    found = summary.confirmation
    if found is None:
        return ""
    states = Counter(run.state for run in found.runs if found.run_of(run.confirms or 0) is run)
    parts = ", ".join(f"{states[state]} {state}" for state in STATES if states[state])
    of = f" of {found.planned}" if found.planned > states.total() else ""
    return f"Confirmation: {states.total()}{of} with {len(found.seeds)} fresh seeds" + (f": {parts}" if parts else "")


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """A table in lines, its columns aligned.

    >>> print(aligned([("k", "value"), ("16", "0.4")]))
    k   value
    16  0.4
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def reported(trial: TrialSummary, metric: str) -> str:
    """The key a trial's figure is reported under: its test value where there is one."""
    return f"test.{metric}" if trial.values.get(f"test.{metric}") is not None else metric


def baselines(summary: StudySummary, key: str) -> dict[str, float]:
    """Name for readers -> value of each baseline measured under exactly this key."""
    found = {named(name): values.get(key) for name, values in summary.baselines.items()}
    return {name: value for name, value in found.items() if value is not None}


def no_result(summary: StudySummary) -> str:
    """Why there is no best trial, for a study that has none."""
    ended = [trial for trial in summary.trials if trial.state.ended]
    if not ended:
        return "No result yet: no trial has ended."
    states = {trial.state for trial in ended}
    one = len(ended) == 1
    everyone = "the only trial that ended" if one else f"all {len(ended)} trials that ended"
    going_on = summary.status in (StudyStatus.RUNNING, StudyStatus.INTERRUPTED)
    none = "No result yet" if going_on else "No result"
    if states == {TrialState.COLLAPSED}:
        text = f"{none if going_on else f'No {summary.parameter} that was tried trains'}: {everyone} collapsed."
    elif states == {TrialState.FAILED}:
        text = f"{none}: {everyone} failed."
    elif TrialState.COMPLETE in states:
        text = f"{none}: no complete trial has a value."
    else:
        text = f"{none}: {everyone} {'was' if one else 'were'} stopped early or failed."
    example = next((trial for trial in ended if trial.reason), None)
    return text if example is None else f"{text} First reason ({at(example, summary.parameter)}): {why(example)}."


def why(trial: TrialSummary) -> str:
    """The first line of a trial's reason, without a repetition of its state.

    >>> late = "pruned at step 50: behind the others"
    >>> why(TrialSummary(number=0, state="pruned", reason=late, params={}, planned_steps=100))
    'behind the others'
    """
    lines = (trial.reason or "").strip().splitlines() or [""]
    return re.sub(rf"^{trial.state}( at step \d+)?: ", "", lines[0]).rstrip(".")


def steps(trial: TrialSummary) -> str:
    """Steps done, of those planned.

    >>> steps(TrialSummary(number=0, state="running", params={}, steps=40, planned_steps=100))
    '40/100'
    """
    return f"{trial.steps}" + (f"/{trial.planned_steps}" if trial.planned_steps else "")


def share(trial: TrialSummary) -> float:
    """Share of a trial's planned steps that are done, from 0 to 1."""
    return min(1.0, trial.steps / trial.planned_steps) if trial.planned_steps else 0.0


def ended(summary: StudySummary) -> int:
    """Trials that have ended, those that confirm the search included."""
    return sum(trial.state.ended for trial in summary.runs)
