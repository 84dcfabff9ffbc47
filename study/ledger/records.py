"""What the ledger puts in the journal."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from study.ledger.identity import Launch
from study.ledger.journal import Journal
from study.ledger.trial_record import TrialRecord
from study.protocol.journal import (
    Answered,
    Artifact,
    Ended,
    Ending,
    Entry,
    InputsRead,
    Model,
    ReplicateBegun,
    StudyBegun,
    TrialBegun,
    Values,
)
from study.protocol.messages import Outcome
from study.protocol.states import StudyStatus
from study.spec import Study
from trainables.config import TrainerConfig
from trainables.overrides import flat


class Records:
    """Writes a study's entries to its journal; `tags` are put on every run, and so are the study's `facts`."""

    def __init__(
        self, journal: Journal, name: str, profile: str, spec: Study, tags: Mapping[str, str], facts: Mapping[str, str]
    ) -> None:
        self.journal, self.name, self.profile, self.spec = journal, name, profile, spec
        self.tags, self.facts = dict(tags), dict(facts)

    def study(self, study_id: str, launch: Launch, label: str) -> None:
        """Write that a launch begins of the study that people call `label`; it may be a later one of the same study."""
        config = flat(self.spec.config.model_dump(exclude={"cache"}))
        spec = self.spec
        params = config | {
            "trainer": spec.trainer, "sampler": spec.sampler, "replicates": spec.replicates, "seed": spec.seed
        }  # fmt: skip
        self.journal.append(
            StudyBegun(
                id=study_id, launch=launch.token, name=label, params=params,
                tags=self._run_tags() | launch.tags, time=now(),
            )
        )  # fmt: skip

    def inputs(self, facts: Mapping[str, str], baselines: Mapping[str, Mapping[str, float]]) -> None:
        """Write what reading the inputs brought."""
        self.facts = dict(facts)
        self.journal.append(InputsRead(tags=self.facts, time=now()))
        values = {f"{name}.{metric}": value for name, found in baselines.items() for metric, value in found.items()}
        if values:
            # The same time at every launch: a tracker keeps one point of what is equal in name, step, time and value.
            self.values(values, 0, self.journal.began)

    def values(self, values: Mapping[str, float], step: int, when_ms: int) -> None:
        """Write metrics of the study as a whole."""
        self.journal.append(Values(values=dict(values), step=step, time=when_ms))

    def best(self, rows: Iterable[TrialRecord], step: int, when_ms: int, what: str = "best") -> None:
        """Write the figures of the best trial, or of those of every group, as metrics of the study that are called
        `what`."""
        values: dict[str, float] = {}
        for row in rows:
            group = self.spec.group_name(row.group)
            prefix = f"{what}." if group is None else f"{what}.{group}."
            own = {name: value for name, value in row.values.items() if not name.startswith("untrained.")}
            values |= {prefix + name: value for name, value in own.items()} | {f"{prefix}trial": row.number}
        self.values(values, step, when_ms)

    def precision(self, value: str) -> None:
        """Write what `precision=auto` stands for; every run has it from now on."""
        self.tags["precision"] = value
        self.journal.append(InputsRead(tags=self.facts | {"precision": value}, time=now()))

    def trial(
        self, row: TrialRecord, config: TrainerConfig | None, seeds: Sequence[int], fault: str | None = None
    ) -> None:
        """Write that a trial is handed out, perhaps not for the first time, with a seed for each of its replicates, or
        that a `fault` of a machine has set it back; `config` is None where its parameters make none."""
        params = flat((config or self.spec.config).model_dump(exclude={"cache"})) | {"seed": seeds[0]}
        if config is None:
            params |= self.spec.groups[row.group or 0] | row.params
        self.journal.append(
            TrialBegun(
                trial=row.number, name=self._run_name(row), replicates=len(seeds), params=params,
                tags=self._run_tags() | self._trial_tags(row) | ({"fault": fault} if fault else {}), time=now(),
            )
        )  # fmt: skip

    def replicate(self, trial: int, replicate: int, seed: int, facts: Mapping[str, Any]) -> None:
        """Write that a replicate begins, or is carried on."""
        tags = self.tags | {key: str(value) for key, value in facts.items()}
        self.journal.append(
            ReplicateBegun(
                trial=trial, replicate=replicate, name=f"trial {trial} · replicate {replicate}",
                seed=seed, tags=tags, time=now(),
            )
        )  # fmt: skip

    def replicate_ended(self, row: TrialRecord, replicate: int, seeds: Sequence[int], outcome: Outcome) -> None:
        """Write that a replicate of a trial with several has ended; a single one ends with its trial."""
        if len(seeds) > 1:
            self._end(row.number, replicate, outcome.state, outcome.reason, outcome.values, outcome.step)

    def trial_ended(self, row: TrialRecord) -> None:
        values = row.values | {
            "worker_seconds.used": row.used, "worker_seconds.saved": row.saved, "steps": row.steps
        }  # fmt: skip
        self._end(row.number, None, row.state, row.reason, values, row.steps, row.attempts)

    def study_ended(self, status: StudyStatus, reason: str | None) -> None:
        self._end(None, None, status, reason, {}, 0)

    def artifact(self, path: str, place: str) -> None:
        """Write that a file or folder belongs to the study's run."""
        self.journal.append(Artifact(path=path, place=place, time=now()))

    def answered(self, answer: str, report: str | None) -> None:
        """Write what the study has found; `report` is the artifact that says more."""
        self.journal.append(Answered(answer=answer, report=report, time=now()))

    def model(self, row: TrialRecord, path: str, register: str | None) -> None:
        """Write that the trial's finished model is in this folder, and under which name others may find it."""
        self.journal.append(Model(trial=row.number, path=path, step=row.steps, register=register, time=now()))

    def _end(
        self,
        trial: int | None,
        replicate: int | None,
        state: Ending,
        reason: str | None,
        values: Mapping[str, float],
        step: int,
        attempts: int | None = None,
    ) -> None:
        """Write that something has ended, unless the journal has that end already."""
        if self.journal.ended(trial, replicate):
            return
        entries: list[Entry] = []
        if values:
            # The last record has most of them already; with its time they are the same points to a tracker.
            last = self.journal.last_time(trial) if trial is not None else None
            when = last or now()
            entries.append(Values(trial=trial, replicate=replicate, values=dict(values), step=step, time=when))
        entries.append(
            Ended(trial=trial, replicate=replicate, state=state, reason=reason, attempts=attempts, time=now())
        )
        self.journal.append(*entries)

    def _run_tags(self) -> dict[str, str]:
        return self.tags | self.facts | {"study.name": self.name, "study.profile": self.profile}

    def _trial_tags(self, row: TrialRecord) -> dict[str, str]:
        group = self.spec.group_name(row.group)
        tags = {"control": str(row.control).lower(), "phase": "search" if row.confirms is None else "confirmation"}
        tags |= {} if row.confirms is None else {"confirms": str(row.confirms)}
        return tags | ({} if group is None else {"group": group})

    def _run_name(self, row: TrialRecord) -> str:
        shown = row.params.get(self.spec.parameter)
        value = f"{shown:.4g}" if isinstance(shown, float) else shown
        what = "control" if row.control else None if shown is None else f"{self.spec.parameter}={value}"
        confirms = None if row.confirms is None else f"confirms {row.confirms}"
        return " · ".join(filter(None, (f"trial {row.number}", confirms, self.spec.group_name(row.group), what)))


def now() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
