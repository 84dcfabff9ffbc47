"""Asking an actor whose storage may be away for a while."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from trainables.errors import told
from trainables.faults import fault_of

log = logging.getLogger(__name__)

PATIENCE_S = 3600.0
"""How long a storage may be away before what needs it gives up."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 15.0


def answer(
    ask: Callable[[], Any],
    first: Any = None,
    patience_s: float = PATIENCE_S,
    say: Callable[[str], None] | None = None,
) -> Any:
    """The answer to a remote call, asked again while what it needs is away: a database, a file system, the network.

    `ask` makes the call and returns its ObjectRef; what it does must be the same done twice. `first` is one that was
    made already. `say` is told once why there is no answer yet. Raises what the call does for any other reason, and for
    this one after `patience_s` seconds.
    """
    import ray

    deadline, pause = time.monotonic() + patience_s, FIRST_PAUSE_S
    reference = ask() if first is None else first
    while True:
        try:
            return ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            if fault_of(error) is None or time.monotonic() + pause > deadline:
                raise
            if say is not None:
                say(told(error, 300))
                say = None
            log.warning("asked again in %g s: %s", pause, told(error, 300))
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_S)
        reference = ask()
