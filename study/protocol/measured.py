"""What one replicate of a trial reaches on one collection: measured by study/suites, tabled by study/reporting."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Measured:
    """One replicate on one collection."""

    trial: int
    replicate: int
    dataset: str
    values: dict[str, float]
    """Metric -> mean over queries."""
    per_item: dict[str, dict[str, float]] = field(repr=False)
    """Metric -> query id -> value."""
    time: int
    """When: milliseconds since the epoch."""
