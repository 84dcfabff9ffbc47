"""Collapse on loss signals: pure rules over the history of a run -> a verdict.

A rule sees the whole history and says why the run is hopeless, or nothing. It keeps no state, so a
resumed run judges as an undisturbed one does, and every rank reaches the same verdict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

Signals = Mapping[str, float]
"""What `Recipe.loss` measured at one step, plus `grad_norm` from the loop."""

Rule = Callable[[Sequence[Signals]], str | None]
"""History, oldest first, one entry per step -> the reason to stop, or None. Called after every step."""


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
