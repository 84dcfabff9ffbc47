"""Gangs that hang: which of those that have a trial have been silent for many times the pace of what they do.

A call into a GPU's driver or a read from a dead file server may never return, and a gang in it neither trains, nor
fails, nor hears that it is to stop. Its rank 0 therefore tells when it starts, steps, evaluates, saves and exports, and
reports steps while it makes them, all from the thread that does the work.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from trainables.context import Phase
from trainables.patience import PATIENCE_S

FLOOR_S = 600.0
"""A silence that is never too long."""
TIMES = 10
"""The longest silence of a phase so far, so many times, is too long for it."""
UNKNOWN = 36
"""Floors that a phase may be silent which no gang of this launch has come to the end of yet."""
LOOKED_S = 10.0
"""What goes by between two looks counts at most so much: while nobody looks, nobody listens either."""


@dataclass
class Gang:
    """What was heard of the gang of one trial."""

    phase: Phase
    silent_s: float = 0.0


class Silence:
    """Listens to the gangs of one launch."""

    def __init__(self, floor_s: float = FLOOR_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._floor_s, self._clock = floor_s, clock
        self._gangs: dict[int, Gang] = {}
        self._longest: dict[Phase, float] = {}
        self._looked = clock()

    def begins(self, number: int) -> None:
        """A gang has taken the trial over."""
        self._look()
        self._gangs[number] = Gang(Phase.STARTS)

    def hear(self, number: int, phase: Phase | None = None) -> None:
        """The trial's gang gives a sign of life; `phase` is what it does from now on, None the same as before."""
        self._look()
        gang = self._gangs.get(number)
        if gang is None:
            return
        self._longest[gang.phase] = max(self._longest.get(gang.phase, 0.0), gang.silent_s)
        self._gangs[number] = Gang(phase or gang.phase)

    def leaves(self, number: int) -> None:
        """The trial has no gang any more."""
        self._gangs.pop(number, None)

    def hung(self) -> dict[int, str]:
        """Trial -> why its gang is believed to hang, in words."""
        self._look()
        return {
            number: f"its gang hangs: it {gang.phase}, and has been silent for {gang.silent_s:.0f} s"
            for number, gang in self._gangs.items()
            if gang.silent_s > self._limit_s(gang.phase)
        }

    def _limit_s(self, phase: Phase) -> float:
        longest = self._longest.get(phase)
        limit = UNKNOWN * self._floor_s if longest is None else max(self._floor_s, TIMES * longest)
        # What it writes to may be away for as long as it is patient.
        return limit + PATIENCE_S if phase in (Phase.SAVES, Phase.EXPORTS) else limit

    def _look(self) -> None:
        now = self._clock()
        passed, self._looked = min(now - self._looked, LOOKED_S), now
        for gang in self._gangs.values():
            gang.silent_s += passed
