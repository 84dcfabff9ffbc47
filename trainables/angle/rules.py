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

SHARE = 0.05
"""A window is at least this share of all steps: in a long run a loss falls slowly."""


def rules(config: Config) -> tuple[Rule, ...]:
    """The rules that apply to `config`."""
    limits, steps = config.collapse_limits, config.steps
    window = max(limits.window, round(SHARE * steps))

    def one_point(history: Sequence[Signals]) -> str | None:
        """Embeddings that have all become the same direction: their cosines carry nothing any more."""
        recent = [signals["spread"] for signals in history[-window:]]
        if len(history) < window or max(recent) >= limits.spread:
            return None
        return (
            f"all embeddings have become one direction: their mean squared distance from their centre was at most "
            f"{max(recent):.2g} for {window} steps"
        )

    def at_chance(history: Sequence[Signals]) -> str | None:
        """A ranking loss at or above chance past the deadline that does not fall.

        Not before: AnglE often draws all embeddings together first, stands at chance for a hundred steps, because
        the order of two texts means nothing and its similarity knows little else there, and then learns.
        """
        if len(history) < max(2 * window, limits.deadline * steps):
            return None
        recent = history[-window:]
        now, before = _mean(recent, "ranking"), _mean(history[-2 * window : -window], "ranking")
        chance = math.fsum(map(_chance, recent)) / window
        if now < limits.at_chance * chance or now < FALLING * before or alike_learns(recent):
            return None
        return (
            f"the ranking loss is {now:.4g} after {len(history)} of {steps} steps and does not fall; a model to which "
            f"all pairs are equally alike has ln(1 + comparisons), here {chance:.4g}"
        )

    def alike_learns(recent: Sequence[Signals]) -> bool:
        """Whether the in-batch term tells alike pairs from others, which can carry a ranking that is still flat."""
        chance = math.log(config.batch_size)
        return config.in_batch_weight > 0 and _mean(recent, "in_batch") < LEARNING * chance

    return (one_point, at_chance) if config.angle_weight or config.cosine_weight else (one_point,)


def _mean(history: Sequence[Signals], name: str) -> float:
    return math.fsum(signals[name] for signals in history) / len(history)


def _chance(signals: Signals) -> float:
    return math.log1p(signals["comparisons"])
