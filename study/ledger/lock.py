"""One process per study: a lock that names its holder and dies with it."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from pathlib import Path

from trainables.errors import told

LOCKS = Path("/proc/locks")
"""All locks of this machine: kind, number of the process, and inode, among others."""


class Held(RuntimeError):
    """Another process works on this study."""


class Lock:
    """An exclusive `flock` on `path`, held until `release` or the end of the process."""

    def __init__(self, path: Path, wait_s: float = 0.0) -> None:
        """Raise `Held`, naming the holder, if the lock is not free within `wait_s` seconds.

        ValueError where there can be no lock, as with a file of another user.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+")
        except OSError as error:
            raise ValueError(
                f"{path} cannot be locked: {told(error)}; make it yours to read and write, or name a folder you own"
            ) from error
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise Held(self._holder(path)) from None
                time.sleep(0.1)
            except OSError as error:
                self._file.close()
                raise ValueError(
                    f"{path} cannot be locked: {told(error)}; name a folder on another file system"
                ) from error
        self._file.seek(0)
        self._file.truncate()
        started = time.strftime("%Y-%m-%d %H:%M:%S")
        json.dump({"pid": os.getpid(), "host": socket.gethostname(), "since": started}, self._file)
        self._file.flush()

    def release(self) -> None:
        self._file.close()

    def _holder(self, path: Path) -> str:
        self._file.seek(0)
        _, who = _told(self._file.read())
        return f"{path.parent} is in use by {who}; wait for it or stop it with Ctrl-C"


def holder(path: Path) -> str | None:
    """Which process of this machine holds the lock at `path`, in words; None where none does. Does not try the lock."""
    try:
        pid, who = _told(path.read_text(encoding="utf-8"))
        inode = path.stat().st_ino
        held = [line.split() for line in LOCKS.read_text().splitlines()]
    except OSError:
        return None
    owners = {int(words[4]) for words in held if words[1] == "FLOCK" and int(words[5].rpartition(":")[2]) == inode}
    return who if pid in owners else None


def _told(content: str) -> tuple[int | None, str]:
    """(number of the process, all that it says of itself) in a lock's file."""
    try:
        holder = json.loads(content)
        return int(holder["pid"]), f"process {holder['pid']} on {holder['host']} since {holder['since']}"
    except (ValueError, KeyError, TypeError):
        return None, "another process"
