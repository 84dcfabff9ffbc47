"""Peak memory of one call, for the benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def peak(run: Callable[[], Any], small: Callable[[], Any], device: str) -> float:
    """MiB that `run` needs at most beyond what is held, in this process, which should have run nothing else.

    `small` is the same on little data: it loads what the first call of anything loads. Linux only on the CPU.
    """
    small()
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
    before = _status("VmRSS")
    run()
    return (_status("VmHWM") - before) / 2**10


def _status(key: str) -> int:
    """KiB of a field of /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))
