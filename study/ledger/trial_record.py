"""What the ledger knows of one trial, and how `summary.json` shows it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import ge
from typing import Any

from study.protocol.messages import Outcome
from study.protocol.states import ReplicateState, TrialState
from study.protocol.summary import ReplicateSummary, TrialSummary
from study.spec import Objective


@dataclass(frozen=True, slots=True)
class Replicate:
    """A replicate that has ended."""

    seed: int
    values: dict[str, float]
    steps: int
    state: ReplicateState
    reason: str | None
    pace: float
    """Seconds per step."""

    @classmethod
    def of(cls, outcome: Outcome, seed: int) -> Replicate:
        return cls(
            seed, outcome.values, outcome.step, outcome.state, outcome.reason, outcome.seconds_per_step
        )  # fmt: skip


@dataclass
class TrialRecord:
    """What the ledger knows about one trial besides what Optuna keeps; stored as one JSON attribute."""

    number: int
    planned_steps: int
    params: dict[str, Any] = field(default_factory=dict)
    state: TrialState = TrialState.RUNNING
    reason: str | None = None
    stop: str | None = None
    """Why the running trial was told to stop for good; a resumed one is told again."""
    values: dict[str, float] = field(default_factory=dict)
    replicates: list[Replicate] = field(default_factory=list)
    """The replicates that have ended, in the order of their seeds."""
    step: int = 0
    """Newest step of the replicate in progress."""
    attempts: int = 0
    launched: float | None = None
    """When the gang of the current attempt was asked for, seconds since the epoch."""
    used: float = 0.0
    """Worker-seconds that gangs of earlier attempts were held."""
    trained: float = 0.0
    """Worker-seconds that were spent inside the training loop."""
    saved: float = 0.0
    """Worker-seconds that ending early did not spend, at the trial's own pace."""
    checkpoint: str | None = None
    """The newest checkpoint or finished model: a path in the study's folder, or a URI."""
    retry_of: int | None = None
    group: int | None = None
    """Place of its group in the order of the study's groups; None in a study without."""
    control: bool = False
    """Whether the trial is a control: an arm to compare with, outside the search."""
    confirms: int | None = None
    """The trial of the search that this one runs again with fresh seeds; None for one of the search."""
    refused: bool = False
    """Whether the trial failed before its start, because no trial can run with its parameters."""
    hashes: dict[str, dict[str, str]] = field(default_factory=dict)
    """Replicate -> digests of its initialisation and data order."""
    latest: dict[str, float] = field(default_factory=dict)

    @classmethod
    def restored(cls, stored: Mapping[str, Any]) -> TrialRecord:
        """The row that was stored; raises KeyError, TypeError or ValueError where it is one of another version."""
        replicates = [
            Replicate(**told | {"state": ReplicateState(told["state"]), "values": _numbers(told["values"])})
            for told in stored["replicates"]
        ]
        plain = {"state": TrialState(stored["state"]), "values": _numbers(stored["values"]), "replicates": replicates}
        return cls(**{**stored, **plain})

    @property
    def steps(self) -> int:
        return sum(told.steps for told in self.replicates) + self.step

    def shown(
        self, *, live: bool, used: float, gpu_hours: float, run_id: str | None, group: str | None
    ) -> TrialSummary:
        """The trial's entry in `summary.json`; `used` are worker-seconds up to now, `group` is what its group is
        called."""
        return TrialSummary(
            number=self.number,
            group=group,
            state=self.state if self.state.ended or live else TrialState.INTERRUPTED,
            reason=self.reason,
            params=self.params,
            values=self.values,
            replicates=tuple(ReplicateSummary(seed=told.seed, values=told.values) for told in self.replicates),
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
            confirms=self.confirms,
            latest=self.latest,
        )


def _numbers(values: Mapping[str, float | None]) -> dict[str, float]:
    """The values as they are stored, with NaN for null: JSON has no number that is not finite."""
    return {name: math.nan if value is None else value for name, value in values.items()}


def front(rows: Iterable[TrialRecord], objectives: Sequence[Objective]) -> list[int]:
    """Numbers of the trials that no other one surpasses: as good in all objectives, and better in one."""
    values = {
        row.number: [row.values[o.name] * (1 if o.direction == "maximize" else -1) for o in objectives] for row in rows
    }
    # Whoever surpasses a trial comes before it, and is on the front or surpassed by one there.
    found: list[int] = []
    for number in sorted(values, key=values.__getitem__, reverse=True):
        one = values[number]
        if not any(values[other] != one and all(map(ge, values[other], one)) for other in found):
            found.append(number)
    return sorted(found)
