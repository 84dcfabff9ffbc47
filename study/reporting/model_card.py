"""What a study adds to the card of one of its models: why this one, and how sure its figures are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from study.protocol.states import TrialState
from study.protocol.summary import TrialSummary
from study.reporting.conclusions import answer, caveats
from study.reporting.formatting import at
from study.reporting.results import Findings
from study.stats.pseudo_values import Items, contributions
from study.stats.significance import mean
from trainables.card import Interval, Section
from trainables.report import Correlation, Metric

if TYPE_CHECKING:
    import numpy as np


def sections(findings: Findings, trial: TrialSummary, seed: int) -> list[Section]:
    """The study's answer, and which of its models this is."""
    summary = findings.summary
    complete = sum(one.state == TrialState.COMPLETE for one in summary.trials)
    own = f"trial {trial.number} ({at(trial, findings.parameter)}), seed {seed}"
    if findings.best is None or trial.number == findings.best.number:
        place = f"This is {own}: the best of {complete} finished trials on validation, which the choice was made on."
    else:
        place = (
            f"This is {own}, and **not** the best of the study's {complete} finished trials: that is trial "
            f"{findings.best.number} ({at(findings.best, findings.parameter)})."
        )
    seeds = len(trial.replicates)
    if seeds > 1:
        place += (
            f" It is one of {seeds} models that differ in their seed; the study judges trials by the mean of these."
        )
    lines = [
        f"Study `{summary.study}` (profile `{summary.profile}`, `{summary.id}`) asked: {summary.question}",
        f"**{answer(findings)}**",
        *(f"- {text}" for text in caveats(findings)),
        place,
    ]
    return [Section("Why this model", "\n\n".join(lines))]


def intervals(
    values: Mapping[str, float], items: Mapping[str, Items], metrics: Mapping[str, Metric]
) -> dict[str, Interval]:
    """Confidence intervals of the figures on test queries or pairs, over these items: Student's t, for correlations on
    their pseudo-values.

    `items` are those of each split, `metrics` what the recipe says of what it reports.
    """
    found = {}
    for name, metric in metrics.items():
        key = f"test.{name}"
        parts = {part: one.correlation for part, one in metrics.items() if one.of == name} or {name: metric.correlation}
        column = _contributions(items.get("test", {}), parts)
        if key not in values or column is None or len(column) < 2:
            continue
        over = mean(column.tolist())
        # Pseudo-values have the correlation as their mean but for a small bias.
        shift = values[key] - over.value
        what = "pairs" if any(parts.values()) else "queries"
        found[key] = Interval(over.low + shift, over.high + shift, f"{over.items} {what}")
    return found


def _contributions(items: Items, parts: Mapping[str, Correlation | None]) -> np.ndarray | None:
    """What each item contributes to the mean of the metrics, (items,); None where values per item were not kept."""
    first, correlation = next(iter(parts.items()))
    ids = list(items.get(correlation.one if correlation else first, ()))
    found = contributions(items, parts, ids)
    return None if found is None else found.mean(1)
