"""The screen is a view: a study does not end because nobody looks at it any more."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO


class View:
    """A text stream whose reader may leave: what can no longer be shown is dropped.

    A pipe that nobody reads (`| head`) and a terminal that was closed raise at the first write, and again when
    Python flushes at the end; from then on the stream leads to /dev/null.
    """

    encoding = "utf-8"

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._shown(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._shown(self._stream.flush)

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def _shown(self, action: Callable[[], Any]) -> None:
        try:
            action()
        except BlockingIOError:
            # A terminal that another program has set so, and that is slow just now: what it has no room for is lost.
            return
        except OSError:
            forget(self._stream)


def forget(stream: TextIO) -> None:
    """Let what is still written to the stream go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def keep_screen(log: Path) -> tuple[View, View]:
    """Keep this process's screen for itself: whatever libraries print goes to a file from now on."""
    log.parent.mkdir(parents=True, exist_ok=True)
    View(sys.stdout).flush()
    View(sys.stderr).flush()
    # A terminal of another encoding shows what it can.
    out, err = (View(os.fdopen(os.dup(number), "w", buffering=1, errors="replace")) for number in (1, 2))
    with log.open("a") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    return out, err


STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that stop a study as Ctrl-C does; the last is a terminal's when it is closed."""


def listen(heard: Callable[[int, Any], None]) -> None:
    """Have `STOPS` handled by `heard`, but for a SIGHUP that was ignored before: so asks `nohup`."""
    for number in STOPS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, heard)


OURS = {signal.SIGHUP, signal.SIGTERM}
"""Signals that only the process of the command hears, which stops what it has started in order."""


@contextmanager
def deaf_children() -> Iterator[None]:
    """Processes that are started in the block, and theirs, never hear `OURS`; this one does, at its end.

    Ray's own would die at once of a terminal that is closed, and of the SIGTERM that `timeout`, Slurm and container
    runtimes send to every process of a job: a study could then neither write its checkpoints nor say how it ended.
    Only SIGKILL ends them.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, OURS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
