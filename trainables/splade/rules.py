"""When a SPLADE run is hopeless, told from its signals alone. Imports neither torch nor ray.

Chance is ln(candidates): the contrastive loss of a model that scores all candidates alike. What is typical of a
window is its median: healthy runs have single steps of 20 times their usual loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from trainables.collapse import FALLING, Rule, Signals, at_chance, typical
from trainables.splade.config import Config

SPARSIFYING = 0.98
"""As `FALLING` for the number of active terms, which changes slowly."""

SATURATED = 100.0
"""Scores below this are no explosion, however small they started: a large k begins near zero."""


def rules(config: Config, vocabulary: int) -> tuple[Rule, ...]:
    """The rules that apply to `config`, for vectors of `vocabulary` terms."""
    limits, steps = config.collapse_limits, config.steps
    window = limits.window

    def all_zero(history: Sequence[Signals]) -> str | None:
        """Vectors without a term have no gradient, so they stay as they are."""
        if len(history) < window:
            return None
        for side, name in (("active_document", "document"), ("active_query", "query")):
            if all(signals[side] == 0 for signals in history[-window:]):
                return f"all {name} vectors have been zero for {window} steps, so nothing can be learned any more"
        return None

    def guessing(history: Sequence[Signals]) -> str | None:
        """A loss that stays that of a model that knows nothing."""
        return at_chance(
            history,
            "contrastive",
            _chance(history),
            "a model that knows nothing",
            window=window,
            grace=limits.grace * steps,
            deadline=limits.deadline * steps,
            steps=steps,
        )

    def exploding(history: Sequence[Signals]) -> str | None:
        """Scores that grow many times over while the loss is above chance."""
        if len(history) < 2 * window:
            return None
        start, now = typical(history[:window], "score_scale", window), typical(history, "score_scale", window)
        loss = typical(history, "contrastive", window)
        if now < max(SATURATED, limits.explosion * start) or loss < _chance(history):
            return None
        return (
            f"scores explode: {now:.4g} now, {start:.4g} at the start, "
            f"with a contrastive loss of {loss:.4g} against {_chance(history):.4g} of a model that knows nothing"
        )

    def false_progress(history: Sequence[Signals]) -> str | None:
        """A loss that falls because the scores shrink, while the ranking stays a matter of chance."""
        if len(history) < max(3 * window, limits.grace * steps):
            return None
        start, now = typical(history[:window], "contrastive", window), typical(history, "contrastive", window)
        guess = 1 / history[-1]["candidates"]
        lucky = guess + 2 * math.sqrt(guess * (1 - guess) / (window * config.batch_size))
        accuracy = fmean(signals["accuracy"] for signals in history[-window:])
        if now > FALLING * start or accuracy > lucky:
            return None
        return (
            f"false progress: the contrastive loss fell from {start:.4g} to {now:.4g}, but the positive ranks first "
            f"for {accuracy:.1%} of the queries, and guessing would give {guess:.1%}"
        )

    def dense(history: Sequence[Signals]) -> str | None:
        """Document vectors that are still dense past the deadline and get no sparser."""
        if len(history) < max(2 * window, limits.deadline * steps):
            return None
        now = typical(history, "active_document", window)
        before = typical(history, "active_document", window, ago=window)
        if now <= limits.dense_share * vocabulary or now < SPARSIFYING * before:
            return None
        return (
            f"document vectors are dense and get no sparser: {now:.0f} of {vocabulary} terms active after "
            f"{len(history)} of {steps} steps, {before:.0f} over the {window} steps before"
        )

    # Without InfoNCE the scale of the scores is the teacher's, and without a regulariser nothing sparsifies.
    contrastive = (exploding, guessing, false_progress) if config.contrastive_weight else ()
    return (all_zero, *contrastive, *((dense,) if config.lambda_document else ()))


def _chance(history: Sequence[Signals]) -> float:
    return math.log(history[-1]["candidates"])
