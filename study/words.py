"""How a study's numbers are put into words: one wording for the terminal and the report.

Everything here reads only a summary (the content of `summary.json`) and imports nothing heavy.
"""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from study.uris import anonymous

Summary = Mapping[str, Any]
Trial = Mapping[str, Any]

ENDED = ("complete", "pruned", "collapsed", "failed")
STATES = (*ENDED, "interrupted", "running")

_ACRONYMS = {
    "ndcg": "nDCG", "mrr": "MRR", "map": "MAP", "flops": "FLOPS", "bm25": "BM25",
    "spearman": "Spearman", "pearson": "Pearson",
}  # fmt: skip

_MEANINGS = {
    "ndcg": "the gain of the documents found, discounted by their rank, as a share of the best possible",
    "mrr": "one over the rank of the first relevant document, 0 where none is found so far up",
    "recall": "the share of the relevant documents that are found so far up",
    "flops": "multiplications per query and document scored: the sum over all terms of the share of queries that have "
    "the term times the share of documents that have it",
    "active": "terms of a vector that are not 0, on average",
    "spearman": "rank correlation of the cosine with the labels",
    "pearson": "linear correlation of the cosine with the labels",
}
"""Of metrics, by the first word of their names."""


def meanings(metrics: Iterable[str]) -> dict[str, str]:
    """Name for readers -> what it is, of each metric that has such a text, once whatever split it is measured on.

    >>> list(meanings(["ndcg_at_10", "test.flops", "flops", "loss"]))
    ['nDCG@10', 'FLOPS']
    """
    names = dict.fromkeys(metric.rpartition(".")[2] for metric in metrics)
    found = ((name, _MEANINGS.get(name.partition("_")[0])) for name in names)
    return {label(name): text for name, text in found if text is not None}


def number(value: Any) -> float | None:
    """`value` as a finite float; None for anything else, NaN and infinity included."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def value_of(trial: Trial, metric: str) -> float | None:
    """A trial's mean over replicates, or None where it has not been measured."""
    return number((trial.get("values") or {}).get(metric))


def label(metric: str) -> str:
    """A metric's name for readers.

    >>> label("ndcg_at_10"), label("test.flops"), label("active_query")
    ('nDCG@10', 'test FLOPS', 'active query')
    """
    *prefixes, name = metric.split(".")
    name = name.replace("_at_", "@").replace("_", " ")
    words = [_ACRONYMS.get(w, w) for w in name.split(" ")]
    head, at, cut = words[0].partition("@")
    words[0] = _ACRONYMS.get(head, head) + at + cut
    return " ".join([*prefixes, *words])


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

    >>> difference(0.2124), difference(-0.03)
    ('+0.212', '−0.030')
    """
    return ("−" if value < 0 else "+") + show(abs(value))


def setting(value: Any) -> str:
    """A parameter's value.

    >>> setting(2.0), setting(0.25), setting(3.14159), setting("chunked")
    ('2', '0.25', '3.14', 'chunked')
    """
    return f"{value:.3g}" if isinstance(value, float) and abs(value) < 1000 else str(value)


def at(trial: Trial, parameter: str) -> str:
    """`k = 2`; a control goes by what it changes, another trial without the parameter by its number."""
    params = trial.get("params") or {}
    if trial.get("control"):
        return "control " + ", ".join(f"{name} = {setting(value)}" for name, value in params.items())
    return f"{parameter} = {setting(params[parameter])}" if parameter in params else f"trial {trial['number']}"


def parameters(trials: Iterable[Trial], first: str) -> list[str]:
    """All searched parameters, the one the study is about in front."""
    names = {name: None for trial in trials if not trial.get("control") for name in (trial.get("params") or {})}
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


def counts(summary: Summary) -> str:
    """`9 trials: 7 complete, 2 collapsed`, or `4 of 9 trials: ...` while some have not been started."""
    trials, planned = summary["trials"], summary.get("planned_trials") or 0
    states = Counter(trial["state"] for trial in trials)
    parts = ", ".join(f"{states[state]} {state}" for state in STATES if states[state])
    of = f" of {planned}" if planned > len(trials) else ""
    noun = "trial" if max(planned, len(trials)) == 1 else "trials"
    return f"{len(trials)}{of} {noun}" + (f": {parts}" if parts else "")


def cost(summary: Summary) -> str:
    """`312 worker-seconds used, 95 saved by stopping early`, or in GPU-hours where trials hold GPUs.

    >>> cost({"worker_seconds": {}, "gpu_hours": {"used": 12.5, "saved": 3.0, "price": 2.0}})
    '12.50 GPU-hours used (25.00 at 2 each), 3.00 saved by stopping early'
    """
    spent = summary["worker_seconds"]
    gpus = summary.get("gpu_hours") or {}
    if gpus.get("used"):
        price = number(gpus.get("price"))
        text = f"{gpus['used']:,.2f} GPU-hours used" + (
            f" ({gpus['used'] * price:,.2f} at {price:g} each)" if price else ""
        )
        return text + (f", {gpus['saved']:,.2f} saved by stopping early" if gpus["saved"] >= 0.01 else "")
    used, saved = number(spent.get("used")) or 0.0, number(spent.get("saved")) or 0.0
    if max(used, saved) >= 3 * 3600:
        text = f"{used / 3600:,.1f} worker-hours used"
        return text + (f", {saved / 3600:,.1f} saved by stopping early" if saved >= 360 else "")
    return f"{used:,.0f} worker-seconds used" + (f", {saved:,.0f} saved by stopping early" if saved >= 1 else "")


def objective(summary: Summary) -> tuple[str, bool]:
    """The first objective's metric, and whether more of it is better."""
    first = summary["objectives"][0]
    return first["name"], first["direction"] == "maximize"


def best_trial(summary: Summary) -> Trial | None:
    """The best finished trial; with several objectives the one that is best in the first of them."""
    metric, more = objective(summary)
    chosen = [trial for trial in summary["trials"] if trial["number"] in (summary.get("best") or ())]
    measured = [(value, trial) for trial in chosen if (value := value_of(trial, metric)) is not None]
    if not measured:
        return None
    return (max if more else min)(measured, key=lambda pair: pair[0])[1]


def reported(trial: Trial, metric: str) -> str:
    """The key a trial's figure is reported under: its test value where there is one."""
    return f"test.{metric}" if value_of(trial, f"test.{metric}") is not None else metric


def baselines(summary: Summary, key: str) -> dict[str, float]:
    """Name for readers -> value of each baseline measured under exactly this key."""
    found = {}
    for name, values in (summary.get("baselines") or {}).items():
        value = number(values.get(key))
        if value is not None:
            found[label(name)] = value
    return found


def no_result(summary: Summary) -> str:
    """Why there is no best trial, for a study that has none."""
    trials, parameter = summary["trials"], summary["parameter"]
    ended = [trial for trial in trials if trial["state"] in ENDED]
    if not ended:
        return "No result yet: no trial has ended."
    states = {trial["state"] for trial in ended}
    one = len(ended) == 1
    everyone = "the only trial that ended" if one else f"all {len(ended)} trials that ended"
    if states == {"collapsed"}:
        text = f"No {parameter} that was tried trains: {everyone} collapsed."
    elif states == {"failed"}:
        text = f"No result: {everyone} failed."
    elif "complete" in states:
        text = "No result: no complete trial has a value."
    else:
        text = f"No result: {everyone} {'was' if one else 'were'} stopped early or failed."
    example = next((trial for trial in ended if reason_of(trial)), None)
    return text if example is None else f"{text} First reason ({at(example, parameter)}): {why(example)}."


def reason_of(trial: Trial) -> str:
    return str(trial.get("reason") or "").strip()


def why(trial: Trial) -> str:
    """The first line of a trial's reason, without a repetition of its state.

    >>> why({"state": "pruned", "reason": "pruned at step 50: behind the others"})
    'behind the others'
    """
    lines = reason_of(trial).splitlines() or [""]
    return re.sub(rf"^{trial['state']}( at step \d+)?: ", "", lines[0]).rstrip(".")


def steps(trial: Trial) -> str:
    """Steps done, of those planned.

    >>> steps({"steps": 40, "planned_steps": 100})
    '40/100'
    """
    planned = trial.get("planned_steps")
    return f"{trial.get('steps') or 0}" + (f"/{planned}" if planned else "")


def share(trial: Trial) -> float:
    """Of its planned steps, those done."""
    planned = trial.get("planned_steps")
    return min(1.0, (trial.get("steps") or 0) / planned) if planned else 0.0


def ended(summary: Summary) -> int:
    """Trials that have ended."""
    return sum(trial["state"] in ENDED for trial in summary["trials"])


def mlflow_hint(summary: Summary) -> str | None:
    """Where the runs can be looked at: an address, or the command that serves a local store."""
    uri = str((summary.get("mlflow") or {}).get("tracking_uri") or "")
    if not uri:
        return None
    shown = anonymous(uri)
    return shown if uri.startswith(("http://", "https://")) else f"mlflow ui --backend-store-uri {shlex.quote(shown)}"
