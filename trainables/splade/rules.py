"""When a SPLADE run is hopeless, told from its signals alone. Imports neither torch nor ray.

Chance is ln(candidates): the contrastive loss of a model that scores all candidates alike.
"""

from __future__ import annotations

import math

from trainables import collapse
from trainables.collapse import FALLING, Rule, trend, unless_improving, warm
from trainables.history import History
from trainables.splade.config import Config

SPARSIFYING = 0.98
"""The number of active terms falls if it is below this share of what it was over the window before; it changes
slowly."""

SATURATED = 100.0
"""Scores below this are no explosion, however small they started: a large k begins near zero."""


def rules(config: Config, vocabulary: int) -> tuple[Rule, ...]:
    """The rules that apply to `config`, for vectors of `vocabulary` terms."""
    limits, steps = config.collapse_limits, config.steps
    window = History("train", steps).window(limits.window)
    warmed = warm(config.optimiser.warmup, steps)
    grace = max(limits.grace * steps, warmed + window)
    deadline = max(limits.deadline * steps, grace + window)
    ramped = max(limits.deadline * steps, config.ramp * steps + 2 * window, warmed + 2 * window)

    def all_zero(history: History) -> str | None:
        """Stops a run whose vectors have no term left: they get no gradient, so they stay as they are."""
        if history.done < window:
            return None
        for side, name in (("active_document", "document"), ("active_query", "query")):
            if all(block.highest == 0 for block in history.past(side, window)):
                return f"all {name} vectors have been zero for {window} steps, so nothing can be learned any more"
        return None

    def guessing(history: History) -> str | None:
        """Stops a run whose loss stays at the level of guessing."""
        return collapse.guessing(history, window=window, grace=grace, deadline=deadline, queries=config.batch_size)

    def exploding(history: History) -> str | None:
        """Stops a run whose scores grow many times over while the loss is above chance."""
        if history.done < 2 * window:
            return None
        start, now = history.first("score_scale", window), history.typical("score_scale", window)
        loss, chance = history.typical("contrastive", window), _chance(history, window)
        if now < max(SATURATED, limits.explosion * start) or loss < chance:
            return None
        return (
            f"scores explode: {now:.4g} now, {start:.4g} at the start, "
            f"with a contrastive loss of {loss:.4g} against {chance:.4g} of a model that guesses"
        )

    def high_start(history: History) -> bool:
        return history.first("contrastive", window) > limits.high_start * _chance(history, window)

    def false_progress(history: History) -> str | None:
        """Stops a run whose loss falls only because the scores shrink, while the ranking stays a matter of chance."""
        if history.done < max(3 * window, grace):
            return None
        start, now = history.first("contrastive", window), history.typical("contrastive", window)
        if now > FALLING * start or collapse.ranks(history, window, config.batch_size):
            return None
        if history.done < deadline and high_start(history) and trend(history, "contrastive", window).falls():
            return None
        return (
            f"false progress: the contrastive loss fell from {start:.4g} to {now:.4g}, but the positive ranks first "
            f"for {collapse.accuracy(history, window):.1%} of the queries, and guessing would give "
            f"{1 / history.typical('candidates', window):.1%}"
        )

    def dense(history: History) -> str | None:
        """Stops a run whose document vectors are still dense under the full regulariser and get no sparser."""
        if history.done < ramped:
            return None
        active = trend(history, "active_document", window)
        if active.now <= limits.dense_share * vocabulary or not active.stays(SPARSIFYING):
            return None
        # Large weights shrink for long before the first of them is 0.
        if high_start(history) and not trend(history, "flops_document", window).stays():
            return None
        return (
            f"document vectors are dense and get no sparser: {active.now:.0f} of {vocabulary} terms active after "
            f"{history.done} of {steps} steps, {active.before:.0f} over the {window} steps before"
        )

    # Without InfoNCE the scale of the scores is the teacher's, and without a regulariser nothing sparsifies.
    contrastive = (exploding, guessing, false_progress) if config.contrastive_weight else ()
    return (
        all_zero,
        *(unless_improving("ndcg_at_10", limits.window, rule) for rule in contrastive),
        *((dense,) if config.lambda_document else ()),
    )


def _chance(history: History, window: int) -> float:
    return math.log(history.typical("candidates", window))
