"""Where a replicate runs: its rank, its device, its folder, and whom it reports to.

The loop and the recipes see a `Context` and nothing of the engine. A plain `Context` is for this process
alone, for tests and on a bare GPU box; a `LedgerContext` is for a worker of a Ray Train gang and reports
to the ledger actor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables.faults import NodeFault
from trainables.patience import answer

if TYPE_CHECKING:
    import torch

    from trainables.machine import Machine

Record = dict[str, Any]
"""One step: {"step": int, "time": milliseconds since the epoch, "metrics": {name: float}}."""


class Phase(StrEnum):
    """What a replicate does, in the words of a sentence about it. Each phase has a pace of its own."""

    STARTS = "starts"
    """Reads its inputs and builds its model."""
    STEPS = "steps"
    EVALUATES = "evaluates"
    SAVES = "saves"
    """Writes a checkpoint."""
    EXPORTS = "exports"
    """Writes its model and its result."""


@dataclass
class Context:
    """One worker's view of its replicate; as it stands, the local one, which is never told to stop."""

    seed: int
    folder: Path
    """Where this replicate's checkpoints, result and model go."""
    device: torch.device
    store: str | None = field(default=None, kw_only=True)
    """URI of an object store that the replicate's files go to; `folder` is then a working copy. None keeps them in
    `folder`."""
    study: str | None = field(default=None, kw_only=True)
    """Id of the study that the replicate belongs to; None for a run of its own."""
    attempt: int = 1
    rank: int = 0
    world_size: int = 1
    on_records: Callable[[list[Record]], None] | None = None

    def report(self, records: list[Record], wait: bool) -> str | None:
        """Hand over records, oldest first; return a reason to stop, or None. Called on rank 0 only.

        With `wait` the answer takes these very records into account; without it the answer may be
        that to an earlier report, so that a step never waits for its bookkeeping.
        """
        if self.on_records is not None:
            self.on_records(records)
        return None

    def enter(self, phase: Phase) -> None:
        """Say what the replicate does from now on, until it says or reports something else. Called on every rank."""

    def ready(self) -> bool:
        """Whether what was reported before has been answered, so that a report without `wait` will not wait either."""
        return True

    def describe(self, facts: dict[str, Any]) -> None:
        """Put facts about the replicate on record before its first step. Called on rank 0 only.

        Raises RuntimeError where the study's design forbids going on with them.
        """


@dataclass
class LedgerContext(Context):
    """Reports to the ledger actor: `send(records)` returns the ObjectRef of a reason or None."""

    send: Callable[[list[Record]], Any] = field(kw_only=True)
    send_facts: Callable[[dict[str, Any]], Any] = field(kw_only=True)
    send_phase: Callable[[Phase], Any] = field(kw_only=True)
    notice: Callable[[], str | None] = field(kw_only=True)
    """A reason to leave this place, or None: the gang stops with a checkpoint and goes on elsewhere."""
    machine: Machine | None = field(default=None, kw_only=True)
    """Measures what the replicate takes of its machine, which is then among what is reported; or None."""
    _outstanding: tuple[list[Record], Any] | None = field(default=None, init=False, repr=False)
    """The records that were sent last, and the reference of the answer."""

    def describe(self, facts: dict[str, Any]) -> None:
        objection = answer(lambda: self.send_facts(facts))
        if objection is not None:
            raise RuntimeError(objection)

    def enter(self, phase: Phase) -> None:
        if self.rank == 0:
            # Nobody waits for the answer: one that is lost costs nothing.
            self.send_phase(phase)

    def report(self, records: list[Record], wait: bool) -> str | None:
        reason = self._arrived()
        if self.machine is not None and records:
            records[-1]["metrics"] |= self.machine.metrics()
        self._outstanding = records, self.send(records)
        if wait:
            reason = reason or self._arrived()
        return reason or self.notice()

    def ready(self) -> bool:
        import ray

        return self._outstanding is None or bool(ray.wait([self._outstanding[1]], timeout=0)[0])

    def _arrived(self) -> str | None:
        """The answer to what was sent last, when that is on record."""
        if self._outstanding is None:
            return None
        records, sent = self._outstanding
        reason = answer(lambda: self.send(records), sent)
        self._outstanding = None
        return reason


def local_device(index: int = 0) -> torch.device:
    """GPU number `index` of those this process may see, made the current one, or the CPU."""
    import torch

    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def worker_device(gpus: float) -> torch.device:
    """Where a worker that holds `gpus` GPUs trains: on the first that it sees, or without any on the CPU.

    Ray hides the machine's GPUs from those that hold some of them, but not from those that hold none. Raises
    NodeFault where torch cannot use the GPU that is held.
    """
    import torch

    if not gpus:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        built = torch.version.cuda or "none"
        raise NodeFault(
            f"this worker holds a GPU (gpus_per_worker={gpus:g}) that torch {torch.__version__} cannot use: its CUDA "
            f"is {built}, or the driver is too old for it; install a torch that fits, or use gpus_per_worker=0"
        )
    return local_device()


def use_threads(threads: int) -> None:
    """Set torch's intra-op threads of this process; less than one counts as one."""
    import torch

    torch.set_num_threads(max(1, threads))
