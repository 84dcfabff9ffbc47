"""The rules that find a run collapsed: pure functions from the history of a stage to a verdict. A rule reads the
summary of the signals that a `History` keeps, and returns the reason why the run is hopeless, or None. It keeps no
state, and the history is in every checkpoint: a resumed run is judged as an undisturbed one, and every rank reaches the
same verdict. A trend is judged against the noise of its signal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from trainables.history import History

Rule = Callable[[History], str | None]
"""History -> the reason to stop, or None. Called whenever a block is complete."""

AT_CHANCE = 0.98
"""A loss of at least this share of the loss of guessing counts as chance."""

FALLING = 0.95
"""A loss falls if it is below this share of what it was over the window before."""

SURE = 2.0
"""Standard errors beyond which a difference between two windows is more than noise."""


def non_finite(history: History) -> str | None:
    """Stops a run whose loss or gradient is NaN or infinite now; no later step can mend it."""
    for name in ("loss", "grad_norm"):
        value = history.now.get(name, 0.0)
        if not math.isfinite(value):
            return f"{name} is {value} at step {history.before + history.done}"
    return None


def judge(history: History, rules: Sequence[Rule]) -> str | None:
    """The first rule's reason, in the order of `rules`, or None while the run is healthy."""
    reason = non_finite(history)
    for rule in rules if history.fresh else ():
        reason = reason or rule(history)
    return reason


def unless_improving(metric: str, window: int, rule: Rule) -> Rule:
    """The rule `rule`, except that it never stops a run whose `metric` on validation data has recently been better than
    ever. "Recently" is the last two windows, the steps that a trend is judged on."""

    def judged(history: History) -> str | None:
        return None if history.improves(metric, 2 * history.window(window)) else rule(history)

    return judged


@dataclass(frozen=True, slots=True)
class Trend:
    """Medians of a signal over the newest window and over the window before it."""

    now: float
    before: float
    error: float
    """Standard error of the difference between the two windows, from how much neighbouring blocks differ."""

    def falls(self) -> bool:
        """Whether the signal falls by more than its noise explains."""
        return self.now + SURE * self.error < self.before

    def stays(self, share: float = FALLING) -> bool:
        """Whether the signal is surely above `share` of what it was: a fall that may be noise does not count as one."""
        return self.now - SURE * self.error > share * self.before

    def reaches(self, level: float, windows: float) -> bool:
        """Whether the signal comes below `level` within so many windows at its present pace."""
        return self.now - (self.before - self.now) * windows < level


def trend(history: History, name: str, window: int) -> Trend:
    """The trend of the signal `name`, which must have been measured in each of the last two windows of `window`
    steps."""
    parts = [[block.middle for block in history.past(name, window, ago)] for ago in (window, 0)]
    steps = [abs(b - a) for part in parts for a, b in pairwise(part)]
    # For normal noise 1.4826 times the median deviation is the standard deviation, a difference of two has sqrt(2)
    # times that of one, and a median has 1.2533 times the standard error of a mean.
    deviation = 1.4826 * median(steps) / math.sqrt(2) if steps else 0.0
    error = 1.2533 * deviation * math.sqrt(sum(1 / len(part) for part in parts))
    return Trend(median(parts[1]), median(parts[0]), error)


def at_chance(
    history: History,
    name: str,
    chance: float,
    ignorant: str,
    *,
    window: int,
    grace: float,
    deadline: float,
    share: float = AT_CHANCE,
) -> str | None:
    """Stops a run whose loss `name` is at chance, that is at least `share` of `chance`, and does not fall. Past the
    deadline it also stops a run whose loss falls too slowly to come below chance by the end. `chance` is the loss of a
    model that has learnt nothing, and `ignorant` names that model in the reason.

    The first `grace` steps are no reason to stop; `window` steps are judged together.
    """
    done = history.done
    if done < max(2 * window, grace):
        return None
    course = trend(history, name, window)
    if course.now < share * chance:
        return None
    told = f"{name.removesuffix('_loss')} loss {course.now:.4g} against {chance:.4g} of {ignorant}"
    if course.stays():
        return f"{told}, and not falling: it was {course.before:.4g} over the {window} steps before"
    left = (history.steps - done) / window
    if done >= deadline and not (course.falls() and course.reaches(share * chance, left)):
        return f"{told}, after {done} of {history.steps} steps, and falling too slowly: it was {course.before:.4g}"
    return None


def guessing(history: History, *, window: int, grace: float, deadline: float, queries: int) -> str | None:
    """Stops a run whose in-batch loss stays at the level of guessing while its ranking is a matter of chance, too. A
    run with such a loss that ranks better than chance has settled in a poor optimum: the pruner may end it by
    comparison with other trials."""
    if history.done < max(2 * window, grace) or ranks(history, window, queries):
        return None
    chance = math.log(history.typical("candidates", window))
    return at_chance(
        history, "contrastive", chance, "a model that guesses", window=window, grace=grace, deadline=deadline
    )


def ranks(history: History, window: int, queries: int) -> bool:
    """Whether, over `window` steps of so many queries, positives rank first more often than guessing explains. They
    must do so at least half as often again as by guessing: in long windows the smallest preference would be
    significant."""
    guess = 1 / history.typical("candidates", window)
    luck = 2 * math.sqrt(guess * (1 - guess) / (window * queries))
    return accuracy(history, window) > guess + max(luck, guess / 2)


def accuracy(history: History, window: int) -> float:
    """Share of positives that rank first, from 0 to 1, over the last `window` steps."""
    return fmean(block.mean for block in history.past("accuracy", window))


def one_point(least: int, spread: float) -> Rule:
    """Stops a run whose embeddings all point in one direction, so that their similarities say nothing any more. That is
    the case where the signal `spread`, the mean squared distance of the embeddings, scaled to length 1, from their
    centre, has been below `spread` for a window of at least `least` steps."""

    def rule(history: History) -> str | None:
        window = history.window(least)
        if history.done < window:
            return None
        widest = max(block.highest for block in history.past("spread", window))
        if widest >= spread:
            return None
        return (
            f"all embeddings have become one direction: their mean squared distance from their centre was at most "
            f"{widest:.2g} for {window} steps"
        )

    return rule


def warm(warmup: float, steps: int) -> int:
    """Number of steps in which the learning rate warms up; no loss is judged before they are over."""
    return round(warmup * steps)
