"""Whose fault an error is, and what follows for the trials of a study."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from study.engine.capacity import elsewhere
from study.ledger import faults
from study.ledger.faults import Faults
from study.protocol.messages import Trouble
from trainables.faults import Fault, NodeFault, fault_of, lacks_device_memory, sizes

STORAGE = Path("/shared/studies/k")


def system(number: int, file: str | None = None) -> OSError:
    return OSError(number, os.strerror(number), file)


class OutOfMemoryError(RuntimeError):
    """As torch's."""


class StorageInternalError(Exception):
    """As Optuna's."""


class AnswerError(Exception):
    """As Ray's of a remote call, which has its cause at hand."""

    def __init__(self, cause: Exception) -> None:
        super().__init__("a traceback")
        self.cause = cause


def raised_from(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        # Of the trial.
        (ValueError("batch_size=0"), None),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied (8x32 and 64x8)"), None),
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"), None),
        (RuntimeError("CUDA error: device-side assert triggered"), None),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), None),
        (system(errno.ENOENT, str(STORAGE / "x")), None),
        (system(errno.EACCES, "/data/pairs.tsv"), None),
        # Of a machine.
        (RuntimeError("CUDA error: uncorrectable ECC error encountered\nCUDA kernel errors might be"), Fault.NODE),
        (RuntimeError("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."), Fault.NODE),
        (RuntimeError("No CUDA-capable device is detected"), Fault.NODE),
        (RuntimeError("CUDA error: unspecified launch failure"), Fault.NODE),
        (NodeFault("this worker holds a GPU that torch cannot use"), Fault.NODE),
        (MemoryError(), Fault.NODE),
        (system(errno.ENOSPC, "/tmp/scratch/x"), Fault.NODE),
        (raised_from(RuntimeError("cannot load"), system(errno.EIO, "/var/cache/model.bin")), Fault.NODE),
        # Of all of them.
        (system(errno.ENOSPC, str(STORAGE / "trials" / "x")), Fault.SHARED),
        (system(errno.ESTALE, str(STORAGE / "journal.jsonl")), Fault.SHARED),
        (system(errno.ENOSPC), Fault.SHARED),
        (RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"), Fault.SHARED),
        (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), Fault.SHARED),
        (StorageInternalError("An exception is raised during the commit."), Fault.SHARED),
        (AnswerError(system(errno.ENOSPC)), Fault.SHARED),
    ],
)
def test_whose_fault_it_is(error, fault) -> None:
    assert fault_of(error, STORAGE) == fault


def test_a_full_disk_is_the_machines_where_it_only_holds_a_working_copy() -> None:
    assert fault_of(system(errno.ENOSPC)) == Fault.NODE
    assert fault_of(system(errno.ECONNREFUSED)) == Fault.SHARED


def test_lack_of_device_memory_is_told_with_what_it_depends_on() -> None:
    assert lacks_device_memory(raised_from(RuntimeError("step"), OutOfMemoryError("CUDA out of memory")))
    assert not lacks_device_memory(MemoryError())
    assert sizes({"lr": 1, "train": {"batch_size": 8, "max_length": 16}}) == "train.batch_size=8, train.max_length=16"


def test_a_node_leaves_the_study_after_some_faults() -> None:
    known = Faults()
    trouble = Trouble(Fault.NODE, "uncorrectable ECC error", "a0" * 16)
    assert [known.note(number, trouble) for number in range(faults.NODE_FAULTS - 1)] == [None, None]
    assert known.left() == frozenset()
    assert known.tried(0) == {"a0" * 16}
    said = known.note(7, trouble)
    assert said == "node a0a0a0a0 gets no more trials after 3 faults: uncorrectable ECC error"
    assert known.left() == {"a0" * 16}
    assert not known.own(7)


def test_a_trial_that_fails_wherever_it_goes_is_at_fault_itself() -> None:
    known = Faults()
    for node in ("a", "b", "c"):
        assert not known.own(4)
        known.note(4, Trouble(Fault.NODE, "out of memory", node))
    assert known.own(4)
    assert known.left() == frozenset()


def test_what_all_share_is_waited_for_longer_and_longer_and_not_for_ever() -> None:
    now = 0.0
    known = Faults(lambda: now)
    trouble = Trouble(Fault.SHARED, "no space left on device")
    said = []
    while not known.out_of_patience():
        said.append(known.note(1, trouble))
        assert known.note(2, trouble) is None, "one pause for all gangs"
        while known.pausing():
            now += 1
    assert now == pytest.approx(faults.SHARED_PATIENCE_S, abs=faults.LONGEST_PAUSE_S)
    assert said[:2] == [f"waiting {s} s for what all trials need: no space left on device" for s in (5, 10)]


def test_a_step_shows_that_it_is_there_again() -> None:
    now = 0.0
    known = Faults(lambda: now)
    known.note(1, Trouble(Fault.SHARED, "the store refuses"))
    assert known.pausing()
    known.well(1)
    assert not known.pausing()
    now = faults.SHARED_PATIENCE_S * 2
    known.note(1, Trouble(Fault.SHARED, "the store refuses"))
    assert not known.out_of_patience(), "a second outage has a patience of its own"


def test_a_gang_that_does_not_start_though_there_is_room_has_so_many_tries() -> None:
    known = Faults()
    assert not any(known.started_in_vain(1) for _ in range(faults.STARTS))
    assert known.started_in_vain(1)
    known.well(1)
    assert not known.started_in_vain(1)


def test_a_gang_goes_to_other_nodes() -> None:
    assert elsewhere({"b1", "a0"}) == {"ray.io/node-id": "!in(a0,b1)"}
    assert elsewhere([]) == {}


def test_a_trial_that_hangs_blames_its_machine_once_and_in_the_end_itself() -> None:
    known = Faults()
    assert [known.hung(1, {"a"}, "hangs") for _ in range(faults.HANGS - 1)] == [None, None]
    assert known.tried(1) == {"a"}
    assert not known.own(1)
    known.hung(1, {"a"}, "hangs")
    assert known.own(1)
    assert known.left() == frozenset()
    known.hung(2, {"a"}, "hangs")
    assert known.hung(3, {"a"}, "hangs") == "node a gets no more trials after 3 faults: hangs"


def test_a_gang_on_several_machines_that_hangs_blames_none_of_them() -> None:
    known = Faults()
    for number in range(faults.NODE_FAULTS):
        assert known.hung(number, {"a", "b"}, "hangs") is None
    assert known.left() == known.tried(0) == frozenset()
