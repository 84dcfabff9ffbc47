"""What a replicate takes of its machine, under the names that trackers know for it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    import torch

EVERY_S = 10.0
MEGABYTE = 1e6


@dataclass
class Machine:
    """Measures the node of a worker and the GPU that it trains on, at most once in `EVERY_S` seconds."""

    device: torch.device
    _measured: float = field(default=float("-inf"), init=False)

    def __post_init__(self) -> None:
        # psutil tells what the processors did since it was asked last.
        psutil.cpu_percent()

    def metrics(self) -> dict[str, float]:
        """`system.` metrics of now; {} where the last ones are not old enough."""
        if time.monotonic() - self._measured < EVERY_S:
            return {}
        self._measured = time.monotonic()
        memory = psutil.virtual_memory()
        found = {
            "cpu_utilization_percentage": psutil.cpu_percent(),
            "system_memory_usage_megabytes": memory.used / MEGABYTE,
            "system_memory_usage_percentage": memory.percent,
        }
        if self.device.type == "cuda":
            import torch

            free, total = torch.cuda.mem_get_info(self.device)
            found |= {
                "gpu_0_memory_usage_megabytes": (total - free) / MEGABYTE,
                "gpu_0_memory_usage_percentage": 100 * (1 - free / total),
            }
        return {f"system.{name}": value for name, value in found.items()}
