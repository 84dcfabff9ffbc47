"""The answer to a study's question in sentences, as sure as its numbers are and no surer."""

from __future__ import annotations

from collections.abc import Iterable

from study.protocol.states import StudyStatus
from study.protocol.summary import StudySummary, TrialSummary
from study.reporting.formatting import (
    at,
    baselines,
    confirming,
    cost,
    counts,
    difference,
    enumerate_words,
    no_result,
    number,
    p_value,
    parameters,
    setting,
    show,
)
from study.reporting.paired import sentence
from study.reporting.results import Findings
from study.stats.significance import LEVEL, Mean


def answer(findings: Findings) -> str:
    """The result in a sentence or two, with its uncertainty and what it is measured against."""
    confirmed = findings.confirmed
    told = f" {confirmed.sentence}" if confirmed else ""
    if findings.contrasts:
        asked = [sentence(c) for c in findings.contrasts if c.metric.rpartition(".")[2] == findings.metric]
        return _status(findings) + " ".join(asked) + told
    if confirmed is not None and confirmed.winner is not None:
        return _status(findings) + confirmed.sentence
    if findings.best is None:
        return _status(findings) + no_result(findings.summary)
    opening = "Best" if findings.finished else "Best so far:"
    text = f"{_status(findings)}{opening} {at(findings.best, findings.parameter)}: {_figure(findings)}"
    text += _against_controls(findings) + _against_untrained(findings)
    others = [f"{name} {show(value)}" for name, value in baselines(findings.summary, findings.key).items()]
    return text + (f"; {enumerate_words(others)}." if others else ".") + told


def accounts(summary: StudySummary) -> str:
    """How many trials ended how, and what they cost."""
    told = ". ".join(filter(None, (counts(summary), confirming(summary))))
    return f"{told}. {cost(summary.worker_seconds, summary.gpu_hours)}."


def caveats(findings: Findings) -> list[str]:
    """What a reader must know before quoting the answer, most important first."""
    if findings.best is None:
        return []
    confirmed = findings.confirmed
    if confirmed is not None and confirmed.winner is not None:
        return [*confirmed.caveats, *filter(None, [_edge(findings, confirmed.winner.trial)])]
    texts = (_front(findings), _rivals(findings), _edge(findings, findings.best), _seed_noise(findings))
    return [text for text in texts if text]


def unconfirmed(intervals: Iterable[tuple[str, float, float, bool]]) -> str:
    """One sentence on intervals that exclude zero where the corrected test shows no difference; "" for none.

    `intervals` are (what was compared, lower end, upper end, whether the corrected test shows a difference).

    >>> unconfirmed([("k = 4", 0.01, 0.3, False), ("k = 8", -0.1, 0.3, False)]).partition(":")[0]
    'The interval of k = 4 excludes zero although the corrected test shows no difference'
    >>> unconfirmed([("k = 4", 0.01, 0.3, True)])
    ''
    """
    names = [name for name, low, high, distinct in intervals if not distinct and (low > 0 or high < 0)]
    if not names:
        return ""
    subject, verb = ("interval", "excludes") if len(names) == 1 else ("intervals", "exclude")
    return (
        f"The {subject} of {enumerate_words(names)} {verb} zero although the corrected test shows no difference: an "
        "interval takes no account of how many comparisons there are; the verdict goes by the test."
    )


def notes(findings: Findings) -> list[str]:
    """How the study was set up, as far as it bears on what its numbers mean."""
    searched = parameters(findings.trials, findings.parameter)
    rates = [name for name in searched if name.rpartition(".")[2] == "lr"]
    texts = []
    if not rates:
        texts.append(
            f"The learning rate was not re-tuned: every {findings.parameter} ran with the same one, "
            "which may suit some values better than others."
        )
    elif rates != [findings.parameter]:
        texts.append(f"The learning rate was re-tuned: searched together with {findings.parameter} as {rates[0]}.")
    texts.append(
        _seed_noise(findings)
        or f"{findings.seeds} seeds per trial: its value is their mean, pruning looks at the first one."
    )
    if findings.interval is not None:
        held = (
            "Intervals and tests are over seeds and queries together (variance components, Satterthwaite's degrees of "
            "freedom): they hold for other seeds and other queries."
            if findings.interval.seeds > 1
            else "Intervals and tests are over queries (Student's t), not over seeds, of which there is one."
        )
        texts.append(
            f"{held} The best trial is chosen on validation queries, so that its test value is not inflated by the "
            "choice."
        )
    return texts


def _seed_noise(findings: Findings) -> str:
    if findings.seeds > 1:
        return ""
    return "One seed per trial: differences between trials include seed noise."


def _status(findings: Findings) -> str:
    texts = {
        StudyStatus.FINISHED: "",
        StudyStatus.RUNNING: "Still running. ",
        StudyStatus.INTERRUPTED: "Interrupted before its end. ",
        StudyStatus.FAILED: "The study failed. ",
    }
    return texts[findings.summary.status]


def _figure(findings: Findings) -> str:
    assert findings.best is not None
    split = "" if findings.key.startswith("test.") else "validation "
    key, metrics = findings.key, findings.metrics
    text = f"{split}{metrics.label(key)} {metrics.show(key, findings.best.values.get(key))}"
    interval = findings.interval
    if interval is None:
        return text
    return f"{text} (95% CI {show(interval.low)}–{show(interval.high)} over {over(interval)})"


def over(mean: Mean) -> str:
    """What the interval of a mean was computed over, in words.

    >>> over(Mean(0.4, 0.3, 0.5, 0.01, 200)), over(Mean(0.4, 0.3, 0.5, 0.01, 200, seeds=3))
    ('200 queries', '3 seeds × 200 queries')
    """
    queries = f"{mean.items} queries"
    return queries if mean.seeds == 1 else f"{mean.seeds} seeds × {queries}"


def _against_controls(findings: Findings) -> str:
    """How the best trial of the search compares with each control."""
    told = []
    for c in findings.comparisons:
        if c.kind != "control":
            continue
        interval = f"95% CI {difference(c.gap.low)} to {difference(c.gap.high)}, paired {p_value(c.adjusted_p)}"
        if c.distinct:
            verdict = f"{difference(c.gap.value)} {'over' if findings.is_better(c.gap.value, 0) else 'against'}"
        else:
            verdict = f"no measurable difference ({difference(c.gap.value)}) to"
        told.append(f", {verdict} the {c.name} ({show(c.value)}; {interval})")
    return "".join(told)


def _against_untrained(findings: Findings) -> str:
    """How the best trial compares with the best untrained model; the test is one of those that the report's table
    corrects for."""
    trial = findings.best_untrained()
    if trial is None:
        return ""
    value = findings.best.values.get(findings.key) if findings.best else None
    reference = trial.values.get(f"untrained.{findings.key}")
    assert value is not None
    assert reference is not None
    gap = value - reference
    name = f"the best untrained {findings.parameter} ({at(trial, findings.parameter)}, {show(reference)}"
    tested = next((c for c in findings.comparisons if c.kind == "untrained"), None)
    if tested is None:
        return f", {difference(gap)} against {name}; not tested)"
    closing = f"; paired {p_value(tested.adjusted_p)})"
    if not tested.distinct:
        return f", no measurable difference ({difference(gap)}) to {name}{closing}"
    if findings.is_better(reference, value):
        return f", training made it worse: {difference(gap)} against {name}{closing}"
    return f", {difference(gap)} {'over' if findings.more else 'against'} {name}{closing}"


def _front(findings: Findings) -> str:
    """The trials of the Pareto front, for a study with several objectives, which has no single best trial."""
    objectives = [objective.name for objective in findings.summary.objectives]
    if len(objectives) < 2:
        return ""
    front = [at(t, findings.parameter) for t in findings.trials if t.number in findings.summary.best]
    return (
        f"Best in {findings.metrics.label(objectives[0])}; the trials that none beats in all of "
        f"{enumerate_words([findings.metrics.label(name) for name in objectives])} are {enumerate_words(front)}."
    )


def _rivals(findings: Findings) -> str:
    """Is the best one really better than the other trials?"""
    rivals = [c for c in findings.comparisons if c.kind == "trial"]
    level = [c for c in rivals if not c.distinct]
    above = [c for c in rivals if c.distinct and findings.is_better(0, c.gap.value)]
    parts = []
    if above:
        names = enumerate_words([c.name for c in above])
        parts.append(f"It was chosen on validation; on the test queries {names} did better.")
    if level:
        names = enumerate_words([c.name for c in level])
        parts.append(f"On the test queries it cannot be told apart from {names} (Holm-adjusted p ≥ {LEVEL:g}).")
    if rivals and not above and not level:
        largest = p_value(max(c.adjusted_p for c in rivals))
        others = "the other complete trial" if len(rivals) == 1 else f"each of the {len(rivals)} other complete trials"
        # How a control compares the answer says.
        others += " of the search" if findings.controls else ""
        parts.append(f"On the test queries it is better than {others} (Holm-adjusted {largest} or less).")
    return " ".join(parts)


def _edge(findings: Findings, best: TrialSummary) -> str:
    """A best value at the end of what was tried is a hint, not an optimum."""
    tried = [number(trial.params.get(findings.parameter)) for trial in findings.trials]
    values = sorted({value for value in tried if value is not None})
    own = number(best.params.get(findings.parameter))
    if len(values) < 2 or own not in (values[0], values[-1]):
        return ""
    end = "lower" if own == values[0] else "upper"
    span = f"{setting(values[0])} to {setting(values[-1])}"
    return f"It lies at the {end} end of what was tried ({span}): a better one may lie beyond."
