"""Faults of machines during one launch, and what follows from them: where a trial may not go, and when to wait.

They are kept in memory only: a machine may have been mended before the next launch.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Set

from study.protocol.messages import Trouble
from trainables.faults import Fault

NODE_FAULTS = 3
"""Faults after which a node gets no trial of the study any more."""
TRIAL_NODES = 3
"""Nodes on which a trial must have failed for its failing to be its own."""
HANGS = 3
"""Gangs of a trial that must have hung for its hanging to be its own."""
STARTS = 30
"""Starts of a gang that may fail, while its cluster has room for it, before its trial does."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 300.0
SHARED_PATIENCE_S = 3600.0
"""How long the study waits, in pauses, for what all of its machines share."""


class Faults:
    """What the gangs of this launch have told about machines."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._nodes: Counter[str] = Counter()
        self._tried: defaultdict[int, set[str]] = defaultdict(set)
        """Trial -> nodes on which it has failed."""
        self._hangs: Counter[int] = Counter()
        self._starts: Counter[int] = Counter()
        self._pause, self._until, self._since = FIRST_PAUSE_S, 0.0, 0.0

    def note(self, number: int, trouble: Trouble) -> str | None:
        """Take a fault down; returns what has to be said about it, if anything follows for other trials."""
        if trouble.kind == Fault.SHARED:
            return self.wait(trouble.reason)
        assert trouble.node is not None, "a fault of a node names it"
        self._tried[number].add(trouble.node)
        return self._blame(trouble.node, trouble.reason)

    def hung(self, number: int, nodes: Set[str], reason: str) -> str | None:
        """The trial's gang on these nodes hangs; returns what has to be said about it, if anything follows for other
        trials. Where there are several nodes, nobody knows whose fault it is; a trial blames a node once."""
        self._hangs[number] += 1
        if len(nodes) != 1 or nodes <= self._tried[number]:
            return None
        (node,) = nodes
        self._tried[number].add(node)
        return self._blame(node, reason)

    def own(self, number: int) -> bool:
        """Whether a trial has failed on so many nodes that the fault is not theirs."""
        return len(self._tried[number]) >= TRIAL_NODES or self._hangs[number] >= HANGS

    def started_in_vain(self, number: int) -> bool:
        """Count a start of the trial's gang that failed; whether there were too many."""
        self._starts[number] += 1
        return self._starts[number] > STARTS

    def well(self, number: int) -> None:
        """A trial has made a step: what all machines share is there, and so is its gang."""
        self._pause, self._until = FIRST_PAUSE_S, 0.0
        self._starts.pop(number, None)

    def left(self) -> frozenset[str]:
        """Nodes that get no trial any more."""
        return frozenset(node for node, faults in self._nodes.items() if faults >= NODE_FAULTS)

    def tried(self, number: int) -> frozenset[str]:
        """Nodes on which the trial has failed."""
        return frozenset(self._tried[number])

    def pausing(self) -> bool:
        """Whether no trial should be handed out yet."""
        return self._clock() < self._until

    def out_of_patience(self) -> bool:
        """Whether what all machines share has been away for too long."""
        return bool(self._until) and self._clock() - self._since >= SHARED_PATIENCE_S

    def wait(self, reason: str) -> str | None:
        """What all machines share is away; returns what has to be said about it, if it is not known yet."""
        now = self._clock()
        if now < self._until:
            # Another gang has met the same fault.
            return None
        if not self._until:
            self._since = now
        self._until = now + self._pause
        said = f"waiting {self._pause:.0f} s for what all trials need: {reason}"
        self._pause = min(2 * self._pause, LONGEST_PAUSE_S)
        return said

    def _blame(self, node: str, reason: str) -> str | None:
        self._nodes[node] += 1
        if self._nodes[node] == NODE_FAULTS:
            return f"node {node[:8]} gets no more trials after {NODE_FAULTS} faults: {reason}"
        return None
