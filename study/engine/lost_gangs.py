"""Why a gang was lost, read from what Ray Train raises."""

from __future__ import annotations

import re
from dataclasses import dataclass

from study.protocol.messages import Trouble
from trainables.errors import told
from trainables.faults import Fault

SHORT_OF_MEMORY = re.compile(
    r"Memory on the node \(IP: (?P<address>[^,]*), ID: (?P<node>[0-9a-f]+)\) was (?P<used>[\d.]+)\s*GB[^/]*/ "
    r"(?P<all>[\d.]+)\s*GB"
)
"""What Ray says where it ended a worker because its machine ran out of memory."""


@dataclass(frozen=True)
class LostGang:
    """A gang that Ray Train gave up."""

    reason: str
    """One line."""
    trouble: Trouble | None = None
    """The fault of a machine that it was, if it was one."""
    before_its_start: bool = False
    """Whether its workers, or those that were to take the place of lost ones, did not come to be."""
    lacked_room: bool = False
    """Whether that was because the cluster had no room for them."""

    @classmethod
    def of(cls, error: Exception) -> LostGang:
        """What `error`, raised by a trainer's `fit`, says."""
        from ray.train import ControllerError, WorkerGroupError

        from study.private_names import gang_lacked_room

        if isinstance(error, ControllerError):
            lacked_room = gang_lacked_room(error.controller_failure)
            why = "the cluster has no room for it" if lacked_room else told(error.controller_failure, 500)
            return cls(f"its gang could not start: {why}", before_its_start=True, lacked_room=lacked_room)
        errors = list(error.worker_failures.values()) if isinstance(error, WorkerGroupError) else [error]
        for one in errors:
            found = SHORT_OF_MEMORY.search(str(one))
            if found is not None:
                reason = (
                    f"the machine {found['address']} ran out of memory ({found['used']} of {found['all']} GB used), "
                    "and Ray ended a worker there; run fewer trials at a time (concurrency), or lower batch sizes or "
                    "lengths"
                )
                return cls(reason, Trouble(Fault.NODE, reason, found["node"]))
        return cls(f"its gang was lost: {told(errors[0] if errors else error, 500)}")
