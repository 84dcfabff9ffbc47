"""What the ledger knows of one trial, and how `summary.json` shows it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import ge
from typing import Any

from study.protocol.states import TrialState
from study.protocol.summary import ReplicateSummary, TrialSummary
from study.spec import Objective
from study.stored import FINAL


@dataclass
class Row:
    """What the ledger knows about one trial besides what Optuna keeps; stored as one JSON attribute."""

    number: int
    planned_steps: int
    params: dict[str, Any] = field(default_factory=dict)
    state: str = "running"
    reason: str | None = None
    stop: str | None = None
    """Why the running trial was told to stop for good; a resumed one is told again."""
    values: dict[str, float] = field(default_factory=dict)
    replicates: list[dict[str, Any]] = field(default_factory=list)
    """Finished replicates: seed, values, steps, state."""
    step: int = 0
    """Newest step of the replicate in progress."""
    attempts: int = 0
    launched: float | None = None
    """When the gang of the current attempt was asked for, seconds since the epoch."""
    used: float = 0.0
    """Worker-seconds that gangs of earlier attempts were held."""
    trained: float = 0.0
    """Worker-seconds inside the loop."""
    saved: float = 0.0
    """Worker-seconds that ending early did not spend, at the trial's own pace."""
    checkpoint: str | None = None
    """A path in the study's folder, or a URI."""
    retry_of: int | None = None
    control: bool = False
    """Whether it is an arm to compare with, outside the search."""
    refused: bool = False
    """Whether it failed before its start, because no trial can run with its parameters."""
    hashes: dict[str, dict[str, str]] = field(default_factory=dict)
    """Replicate -> digests of its initialisation and data order."""
    latest: dict[str, float] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        return sum(r["steps"] for r in self.replicates) + self.step

    def shown(self, *, live: bool, used: float, gpu_hours: float, run_id: str | None) -> TrialSummary:
        """The trial's entry in `summary.json`; `used` are worker-seconds up to now."""
        return TrialSummary(
            number=self.number,
            state=TrialState(self.state) if self.state in FINAL or live else TrialState.INTERRUPTED,
            reason=self.reason,
            params=self.params,
            values=self.values,
            replicates=tuple(ReplicateSummary(seed=r["seed"], values=r["values"]) for r in self.replicates),
            steps=self.steps,
            planned_steps=self.planned_steps,
            worker_seconds=round(used, 3),
            saved_worker_seconds=round(self.saved, 3),
            gpu_hours=round(gpu_hours, 4),
            attempts=self.attempts,
            run_id=run_id,
            checkpoint=self.checkpoint,
            retry_of=self.retry_of,
            control=self.control,
            latest=self.latest,
        )


def front(rows: Iterable[Row], objectives: Sequence[Objective]) -> list[int]:
    """Numbers of the trials that no other one surpasses: as good in all objectives, and better in one."""
    values = {
        row.number: [row.values[o.name] * (1 if o.direction == "maximize" else -1) for o in objectives] for row in rows
    }

    def surpassed(one: list[float]) -> bool:
        return any(other != one and all(map(ge, other, one)) for other in values.values())

    return sorted(number for number, found in values.items() if not surpassed(found))
