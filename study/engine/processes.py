"""The processes that this one started, and their end."""

from __future__ import annotations

import psutil


def descendants() -> list[psutil.Process]:
    """Children, their children and so on, as they are now."""
    return psutil.Process().children(recursive=True)


def kill(processes: list[psutil.Process]) -> None:
    """End them without asking; one that has ended already is left alone, even if its number is in use again."""
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
