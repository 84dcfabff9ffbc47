"""Tell somebody that a study has ended, failed or found a new best trial: `--notify COMMAND_OR_URL`.

An address gets a JSON document by POST, a command the message as its last argument. Both happen beside the study, which
waits for neither, and goes on where they fail. An address may be a secret, and is never shown whole.
"""

from __future__ import annotations

import json
import os
import queue
import shlex
import shutil
import subprocess
import threading
import urllib.request
from collections.abc import Callable
from urllib.parse import urlsplit

VARIABLE = "STUDY_NOTIFY"
"""Environment variable with a target, for those who are not to see it on a command line."""
PATIENCE_S = 10.0
"""How long an address, a command, and at the end of a study all that is still to be told may take."""


def check(target: str) -> None:
    """Raise ValueError, with nothing of an address but its host, unless this is an address or a command of this
    machine."""
    if _is_address(target):
        if not urlsplit(target).hostname:
            raise ValueError(f"--notify {shown(target)}: an address names a host, such as https://example.org/hook")
        return
    try:
        words = shlex.split(target)
    except ValueError as error:
        raise ValueError(f"--notify: the command cannot be read: {error}") from None
    if not words or shutil.which(words[0]) is None:
        raise ValueError(
            f"--notify {shown(target)}: no such command; accepted are a command, which gets the message as its last "
            "argument, and an http(s) address"
        )


def shown(target: str) -> str:
    """The target as it may be shown.

    >>> shown("https://me:secret@hooks.example.org/T01/secret"), shown("mail -s done me@example.org")
    ('https://hooks.example.org/***', 'mail ***')
    """
    if _is_address(target):
        parts = urlsplit(target)
        return f"{parts.scheme}://{parts.hostname or ''}/***"
    first, _, rest = target.strip().partition(" ")
    return f"{first} ***" if rest else first


class Notifier:
    """Sends messages one after the other, in a thread of its own; `say` is told of the first one that fails."""

    def __init__(self, target: str, say: Callable[[str], None]) -> None:
        self.target, self.say = target, say
        self._waiting: queue.SimpleQueue[dict[str, str] | None] = queue.SimpleQueue()
        self._failed = False
        self._thread = threading.Thread(target=self._work, name="notify", daemon=True)
        self._thread.start()

    def send(self, event: str, study: str, message: str) -> None:
        """Tell it, soon; returns at once. `text` in the document repeats the message, as chat servers want it."""
        self._waiting.put({"event": event, "study": study, "message": message, "text": f"{study}: {message}"})

    def close(self) -> None:
        """Wait until all is told, `PATIENCE_S` at the most."""
        self._waiting.put(None)
        self._thread.join(PATIENCE_S)

    def _work(self) -> None:
        while (told := self._waiting.get()) is not None:
            try:
                (_post if _is_address(self.target) else _run)(self.target, told)
            except Exception as error:
                # Whatever it is, it is none of the study's business.
                if not self._failed:
                    self.say(f"--notify {shown(self.target)} fails: {_reason(error)}; the study goes on")
                self._failed = True


def _post(target: str, told: dict[str, str]) -> None:
    request = urllib.request.Request(
        target, json.dumps(told).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S):
        pass


def _run(target: str, told: dict[str, str]) -> None:
    names = {"STUDY_EVENT": told["event"], "STUDY_NAME": told["study"]}
    subprocess.run(
        [*shlex.split(target), told["text"]], env=os.environ | names, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=PATIENCE_S, check=True,
    )  # fmt: skip


def _reason(error: Exception) -> str:
    """What went wrong, without the target."""
    if isinstance(error, subprocess.CalledProcessError):
        return f"exit code {error.returncode}"
    if isinstance(error, subprocess.TimeoutExpired):
        return f"no end after {PATIENCE_S:.0f} s"
    return str(getattr(error, "reason", None) or type(error).__name__)


def _is_address(target: str) -> bool:
    return target.startswith(("http://", "https://"))
