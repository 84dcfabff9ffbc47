"""Whose fault an error is: the trial's own, of the machine that it ran on, or of what all machines share."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from trainables.errors import one_line
from trainables.overrides import flat


class Fault(StrEnum):
    """An error that says nothing about a trial."""

    NODE = "node"
    """Of one machine: its GPU, its driver, its memory, its own disk. Another machine may do better."""
    SHARED = "shared"
    """Of what all machines need: the storage folder, a database, an object store, the network. It may pass."""


class NodeFault(RuntimeError):
    """This machine cannot do what it was given to do."""


DISK = {
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE, errno.ENODEV, errno.ENXIO, errno.EMFILE,
    errno.ENFILE, errno.ENOTCONN, errno.ESHUTDOWN, errno.ETIMEDOUT, errno.ENOLCK,
}  # fmt: skip
"""Numbers of OSErrors of a file system: full, read-only, failing, or unmounted on its server's side."""
NETWORK = {
    errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETUNREACH,
    errno.ENETDOWN, errno.EPIPE,
}  # fmt: skip
REMOTE = {"botocore", "fsspec", "httpx", "huggingface_hub", "pyarrow", "requests", "sqlalchemy", "urllib3"}
"""Libraries that speak to servers: what they raise about a connection is of the server or the way to it."""
AWAY = {"OperationalError", "InterfaceError", "DisconnectionError", "StorageInternalError"}
"""What SQLAlchemy, and Optuna above it, raise where a database cannot be asked just now."""
DEVICE = re.compile(
    r"uncorrectable (nvlink|ecc)|ecc error|\bxid\b|fallen off the bus|hardware stack error|device (is )?lost"
    r"|no cuda-capable device|cuda-capable device\(s\) is/are busy|cuda driver (version is insufficient|error)"
    r"|cuda unknown error|cuda error: (unknown error|unspecified launch failure|initialization error|system )"
    r"|failed to initialize nvml|nvml.*(unknown error|lost)|driver shutting down|cudaErrorECCUncorrectable",
    re.IGNORECASE,
)
"""What CUDA says when a GPU or its driver has failed. An illegal access, a failed assertion and a lack of the device's
memory are not among them: they come with the program and its sizes."""
OS_ERROR = re.compile(r"(?:os error |code: )(\d+)", re.IGNORECASE)
"""The number of an error of the system in what a library written in Rust says of it."""


def fault_of(error: BaseException, shared: Path | None = None) -> Fault | None:
    """Whose fault the error is; None where it is the trial's own.

    `shared` is the folder that the trial writes to where all machines see it; None where it writes to a disk of its
    machine, as it does before an upload to an object store.

    >>> fault_of(RuntimeError("CUDA error: uncorrectable ECC error encountered"))
    <Fault.NODE: 'node'>
    >>> fault_of(RuntimeError("The size of tensor a (3) must match the size of tensor b (4)")) is None
    True
    """
    for one in _chain(error):
        found = _fault(one, shared)
        if found is not None:
            return found
    return None


def lacks_device_memory(error: BaseException) -> bool:
    """Whether the device had not enough memory for the step: torch's own error, or the one of a library below it."""
    return any(
        type(one).__name__ == "OutOfMemoryError" or "CUBLAS_STATUS_ALLOC_FAILED" in str(one) for one in _chain(error)
    )


def sizes(config: Mapping[str, Any]) -> str:
    """What a config says about the memory of a step.

    >>> sizes({"steps": 9, "batch_size": 32, "query": {"max_length": 24}})
    'batch_size=32, query.max_length=24'
    """
    return ", ".join(f"{key}={value}" for key, value in flat(config).items() if re.search(r"batch|length", key))


def _fault(error: BaseException, shared: Path | None) -> Fault | None:
    if isinstance(error, (NodeFault, MemoryError)):
        return Fault.NODE
    if isinstance(error, FileNotFoundError | PermissionError):
        return None
    place = Fault.NODE if shared is None else Fault.SHARED
    if isinstance(error, OSError):
        if error.errno in DISK:
            return place if error.filename is None or _inside(str(error.filename), shared) else Fault.NODE
        if error.errno in NETWORK or isinstance(error, ConnectionError | TimeoutError):
            return Fault.SHARED
    library = type(error).__module__.partition(".")[0]
    name = type(error).__name__
    if (library in REMOTE and isinstance(error, OSError)) or "Connection" in name or name in AWAY:
        return Fault.SHARED
    text = str(error)
    if any(int(number) in DISK for number in OS_ERROR.findall(text)) or "PytorchStreamWriter failed writing" in text:
        return place
    return Fault.NODE if DEVICE.search(one_line(text)) else None


def _inside(file: str, folder: Path | None) -> bool:
    return folder is not None and Path(file).absolute().is_relative_to(folder.absolute())


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was raised from."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = getattr(one, "cause", None) or one.__cause__
