"""What a measurement is to all that make one."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What one split measured: metric -> value, and metric -> query or pair id -> value."""

    values: dict[str, float]
    per_item: dict[str, dict[str, float]] = field(default_factory=dict, repr=False)
