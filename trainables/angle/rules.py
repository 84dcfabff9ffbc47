"""When a Matryoshka AnglE run is hopeless, told from its signals alone. Imports neither torch nor ray.

Chance is ln(1 + comparisons): the ranking loss of a model to which all pairs are equally alike.
"""

from __future__ import annotations

import math

from trainables.angle.config import Config
from trainables.collapse import Rule, one_point, trend, unless_improving, warm
from trainables.history import History

FALLING = 0.98
"""A ranking loss falls if it is below this share of what it was over the window before, or, beyond its noise, at a pace
that brings it below chance by the end."""

LEARNING = 0.98
"""An in-batch loss below this share of ln(batch size) is better than guessing."""

ABOVE = 1.05
"""A ranking loss of at least this share of chance is above the plateau, which lies at chance."""


def rules(config: Config) -> tuple[Rule, ...]:
    """The rules that apply to `config`."""
    limits, steps = config.collapse_limits, config.steps
    window = History("train", steps).window(limits.window)
    warmed = warm(config.optimiser.warmup, steps)
    deadline = max(limits.deadline * steps, warmed + 2 * window)

    def at_chance(history: History) -> str | None:
        """Stops a run whose ranking loss, past the deadline, is at or above chance and does not fall. A loss at chance
        is no reason before the plateau can be over: AnglE often draws all embeddings together first, where its
        similarity tells two texts apart by little but their order, which means nothing. It stays there for more than a
        hundred steps, however many there are in all, and then learns."""
        if history.done < deadline:
            return None
        ranking = trend(history, "ranking", window)
        chance = math.log1p(history.typical("comparisons", window))
        below, left = limits.at_chance * chance, (steps - history.done) / window
        falls = ranking.now < FALLING * ranking.before or (ranking.falls() and ranking.reaches(below, left))
        if ranking.now < below or falls or alike_learns(history):
            return None
        if ranking.now < ABOVE * chance and history.done < warmed + limits.plateau:
            return None
        return (
            f"the ranking loss is {ranking.now:.4g} after {history.done} of {steps} steps and does not fall; a model "
            f"to which all pairs are equally alike has ln(1 + comparisons), here {chance:.4g}"
        )

    def alike_learns(history: History) -> bool:
        """Whether the in-batch term tells alike pairs from others, which can carry a ranking that is still flat."""
        return bool(history.past("in_batch", window)) and history.typical("in_batch", window) < LEARNING * math.log(
            config.batch_size
        )

    found = [one_point(limits.window, limits.spread)]
    if config.angle_weight or config.cosine_weight:
        found.append(at_chance)
    return tuple(unless_improving("spearman", limits.window, rule) for rule in found)
