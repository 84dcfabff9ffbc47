"""What the ledger, the engine and the gangs of trials tell each other.

Two numbers keep those apart who work for the same trial one after the other, and one of them may not have noticed:

    ticket   counts how often the ledger has handed the trial out. The engine holds it, and gives it to the gang that
             it starts. A gang of an earlier handing-out, which the engine's launcher may start once more after the
             trial was given back, is told that there is nothing to run.
    attempt  counts the gangs that have taken the trial over. Rank 0 holds it, in all that it reports and writes. A
             worker of an earlier gang, which may outlive its study for a moment, finds its reports answered with
             "superseded" and its checkpoints refused.

So a ticket says who may begin, an attempt says who may write. A gang whose workers were lost begins again under the
same ticket, with a new attempt. Tickets end with the ledger's process; attempts are stored with the trial.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from study.protocol.states import ReplicateState
from study.spec import Resources
from trainables.faults import Fault


@dataclass(frozen=True, slots=True)
class HandOut:
    """A trial to be run, for the engine."""

    number: int
    ticket: int
    tried: frozenset[str] = frozenset()
    """Ids of nodes on which the trial has met a fault of theirs, and should not be run again."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A fault of machines that kept a gang from going on, for the ledger."""

    kind: Fault
    reason: str
    """One line."""
    node: str | None = None
    """Id of the node whose fault it is; None where it is none's alone."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What the engine has to know between two trials."""

    halted: bool
    """Whether no trial will be handed out any more, whatever room there is."""
    pausing: bool
    """Whether none is handed out for a while."""
    left: frozenset[str]
    """Ids of nodes that get no more trials."""
    seated: int
    """Trials whose gangs have their places, of those that were handed out."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a gang is to run, for its rank 0."""

    trainer: str
    config: dict[str, Any]
    attempt: int
    study: str
    """The study's id."""
    seeds: tuple[int, ...]
    """One for each replicate."""
    folder: str
    """The trial's folder, in the study's storage folder."""
    store: str | None
    """URI of an object store that keeps what the trial writes instead, or None."""
    system_metrics: bool = False
    """Whether rank 0 reports what the trial takes of its machine."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a replicate came to its end, for the ledger."""

    state: ReplicateState
    reason: str | None
    step: int
    values: dict[str, float]
    """Metric -> value; `test.` before the name for the test split, `untrained.` for values of step 0."""
    per_item: dict[str, dict[str, dict[str, float]]] | None = None
    """Split -> metric -> query or pair id -> value, where the ledger has to store it, else None."""
    seconds_per_step: float = 0.0
    seconds: float = 0.0
    """Seconds that the replicate has spent in the training loop, over all attempts."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """Checkpoints and models of a trial that the study does not keep, for whoever removes them."""

    number: int
    folder: str
    """The trial's folder, in the study's storage folder."""
    store: str | None
    """URI of what an object store has of the trial, or None."""
    replicates: int
    """How many replicates it may have."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What a launch has found at its end, for the study's records."""

    answer: str | None = None
    """The answer in words, or None where there is no report of it."""
    report: str | None = None
    """The place of the artifact that says more."""
    models: tuple[tuple[int, str], ...] = ()
    """(trial, path in the study's folder) of the best trials' finished models: one, or one of each group."""
    register: str | None = None
    """Name under which a registry is to have them, or None."""


@dataclass(frozen=True, slots=True)
class ActorName:
    """The name by which the ledger's actor is found in the cluster."""

    name: str
    namespace: str


@dataclass(frozen=True, slots=True)
class GangSetting:
    """What the gangs of one launch of a study have in common."""

    ledger: ActorName
    launch: str
    """A name that no other launch has."""
    own_cluster: bool
    """Whether the cluster was started by the study, and ends with it."""
    resources: Resources
    scratch: str
    """Folder for what Ray writes."""
    storage: str
    """The study's folder."""
