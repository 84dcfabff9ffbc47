"""When a Matryoshka AnglE run is hopeless, told from its signals alone. Imports neither torch nor ray.

Chance is ln(1 + comparisons): the ranking loss of a model to which all pairs are equally alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from trainables.angle.config import Config
from trainables.collapse import Rule, Signals

FALLING = 0.98
"""A loss falls if its mean over the window is below this share of its mean over the window before."""

LEARNING = 0.98
"""An in-batch loss below this share of ln(batch size) is better than guessing."""


def rules(config: Config) -> tuple[Rule, ...]:
    """The rules that apply to `config`."""
    limits, steps = config.collapse_limits, config.steps
    window = limits.window

    def one_point(history: Sequence[Signals]) -> str | None:
        """Embeddings that have all become the same direction: their cosines carry nothing any more."""
        recent = [signals["spread"] for signals in history[-window:]]
        if len(history) < window or max(recent) >= limits.spread:
            return None
        return (
            f"all embeddings have become one direction: their mean squared distance from their centre was at most "
            f"{max(recent):.2g} for {window} steps"
        )

    def alike_learns(recent: Sequence[Signals]) -> bool:
        """Whether the in-batch term tells alike pairs from others, which can carry a ranking that is still flat."""
        chance = math.log(config.batch_size)
        return config.in_batch_weight > 0 and _mean(recent, "in_batch") < LEARNING * chance

    def flat_at_chance(history: Sequence[Signals]) -> str | None:
        """A loss that stays at chance step after step, where a model that ranks anything fluctuates."""
        if len(history) < max(window, limits.grace * steps):
            return None
        recent = history[-window:]
        farthest = max(abs(signals["ranking"] / _chance(signals) - 1) for signals in recent)
        if farthest >= limits.flat or alike_learns(recent):
            return None
        return (
            f"the ranking loss stays at {_mean(recent, 'ranking'):.4g}, within {farthest:.2%} of ln(1 + comparisons), "
            f"the loss of a model to which all pairs are equally alike, for {window} steps"
        )

    def above_chance(history: Sequence[Signals]) -> str | None:
        """A loss above chance past the deadline that does not fall: the order of the pairs is worse than none."""
        if len(history) < max(2 * window, limits.deadline * steps):
            return None
        recent = history[-window:]
        now, before = _mean(recent, "ranking"), _mean(history[-2 * window : -window], "ranking")
        start = _mean(history[:window], "ranking")
        chance = math.fsum(map(_chance, recent)) / window
        if now <= chance or now <= FALLING * before or now <= FALLING * start or alike_learns(recent):
            return None
        return (
            f"the ranking loss is {now:.4g} after {len(history)} of {steps} steps, against {chance:.4g} of a model to "
            f"which all pairs are equally alike, and not falling: it was {start:.4g} at the start"
        )

    ranking = (flat_at_chance, above_chance) if config.angle_weight or config.cosine_weight else ()
    return (one_point, *ranking)


def _mean(history: Sequence[Signals], name: str) -> float:
    return math.fsum(signals[name] for signals in history) / len(history)


def _chance(signals: Signals) -> float:
    return math.log1p(max(1.0, signals["comparisons"]))
