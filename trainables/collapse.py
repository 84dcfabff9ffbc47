"""Collapse on loss signals: pure rules over the history of a run -> a verdict.

A rule sees the whole history and says why the run is hopeless, or nothing. It keeps no state, so a
resumed run judges as an undisturbed one does, and every rank reaches the same verdict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median

Signals = Mapping[str, float]
"""What `Recipe.loss` measured at one step, plus `grad_norm` from the loop."""

Rule = Callable[[Sequence[Signals]], str | None]
"""History, oldest first, one entry per step -> the reason to stop, or None. Called after every step."""

AT_CHANCE = 0.98
"""A loss from this share of that of a model that knows nothing on counts as chance."""

FALLING = 0.95
"""A loss falls if it is below this share of what it was over the window before."""


def non_finite(history: Sequence[Signals]) -> str | None:
    """A loss or gradient that is NaN or infinite now; no later step can mend it."""
    now = history[-1]
    for name in ("loss", "grad_norm"):
        if name in now and not math.isfinite(now[name]):
            return f"{name} is {now[name]} at step {len(history)}"
    return None


def judge(history: Sequence[Signals], rules: Sequence[Rule]) -> str | None:
    """The first rule's reason, in the order of `rules`, or None while the run is healthy."""
    for rule in (non_finite, *rules):
        reason = rule(history)
        if reason is not None:
            return reason
    return None


def typical(history: Sequence[Signals], name: str, window: int, ago: int = 0) -> float:
    """Median of a signal over `window` steps that ended `ago` steps ago."""
    part = history[len(history) - window - ago : len(history) - ago]
    return median(signals[name] for signals in part)


def at_chance(
    history: Sequence[Signals],
    name: str,
    chance: float,
    ignorant: str,
    *,
    window: int,
    grace: float,
    deadline: float,
    steps: int,
    share: float = AT_CHANCE,
) -> str | None:
    """A loss from `share` of `chance` on, that of an `ignorant` model, that does not fall; past the deadline, even
    one that does.

    `history` is that of a stage of `steps` steps, of which the first `grace` are no reason to stop; `window` steps
    are judged together.
    """
    done = len(history)
    if done < max(2 * window, grace):
        return None
    now, before = typical(history, name, window), typical(history, name, window, ago=window)
    if now < share * chance:
        return None
    told = f"{name.removesuffix('_loss')} loss {now:.4g} against {chance:.4g} of {ignorant}"
    if done >= deadline:
        return f"{told}, after {done} of {steps} steps"
    if now > FALLING * before:
        return f"{told}, and not falling: it was {before:.4g} over the {window} steps before"
    return None
