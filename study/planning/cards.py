"""The GPUs of this machine that a process may use, found without importing torch or Ray."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from study.spec import Resources

ASK = ("nvidia-smi", "--query-gpu=index,uuid,name", "--format=csv,noheader")
DRIVER = Path("/proc/driver/nvidia/gpus")
HIDDEN = "CUDA_VISIBLE_DEVICES"


def visible() -> list[str]:
    """Names of the NVIDIA GPUs that the driver has and CUDA_VISIBLE_DEVICES leaves, in the driver's order.

    An entry of that variable that names no card hides those behind it, as it does for CUDA.
    """
    cards = _all()
    chosen = os.environ.get(HIDDEN)
    if chosen is None:
        return [name for _, name in cards]
    found = []
    for wanted in filter(None, (part.strip() for part in chosen.split(","))):
        if wanted.isdecimal():
            matching = cards[int(wanted) : int(wanted) + 1]
        else:
            matching = [card for card in cards if card[0].startswith(wanted)]
        if not matching:
            break
        found.append(matching[0][1])
    return found


def _all() -> list[tuple[str, str]]:
    """(UUID, name) of every card; from the driver's own files where nvidia-smi is not installed."""
    try:
        done = subprocess.run(ASK, capture_output=True, text=True, timeout=10, check=True)
        lines = [line.split(", ", 2) for line in done.stdout.splitlines()]
        return [(uuid, name.strip()) for _, uuid, name in lines]
    except (OSError, subprocess.SubprocessError, ValueError):
        return [_described(path.read_text()) for path in sorted(DRIVER.glob("*/information"))]


def _described(text: str) -> tuple[str, str]:
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
    return facts.get("GPU UUID", ""), facts.get("Model", "unknown")


def outlook(wanted: Resources, cards: list[str]) -> str:
    """What a plan says of this machine's cards and of what trials do with them.

    >>> outlook(Resources(), ["H200", "H200"])
    '2 visible here (H200, H200); trials train on the CPU: --resources gpus_per_worker=1 gives each worker one'
    >>> outlook(Resources(workers=2, gpus_per_worker=1), [])
    'none visible here; a trial takes 2: name a cluster that has them with --address'
    """
    here = f"{len(cards)} visible here ({', '.join(cards)})" if cards else "none visible here"
    taken = wanted.workers * wanted.gpus_per_worker
    if not taken:
        advice = ": --resources gpus_per_worker=1 gives each worker one" if cards else ""
        return f"{here}; trials train on the CPU{advice}"
    if taken > len(cards):
        return f"{here}; a trial takes {taken:g}: name a cluster that has them with --address"
    return f"{here}; a trial takes {taken:g}"
