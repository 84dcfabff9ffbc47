"""What a launch brings to its study's ledger that is no part of the study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from study.ledger.lease import Holder
from study.ledger.moved import Moves
from study.ledger.silence import FLOOR_S


@dataclass(frozen=True)
class LaunchOptions:
    """What differs from one launch of a study to the next."""

    tags: Mapping[str, str] = field(default_factory=dict)
    """Provenance of the launch, as tags of the study's record."""
    retry_failed: bool = False
    """Whether the parameters of failed trials are run again, each as a new trial."""
    moves: Moves = field(default_factory=dict)
    """Where inputs are now that the study was begun with elsewhere."""
    system_metrics: bool = False
    """Whether trials report what they take of their machines."""
    keep: int | None = None
    """Best trials of each group that keep their models, see `ledger/retention.py`; None keeps those of all trials."""
    label: str | None = None
    """What people call the study; None keeps what it was called, or makes a name that no other study has."""
    silence_s: float = FLOOR_S
    """A silence of a gang that is never too long."""
    head: Holder | None = None
    """The process that the study ends with; None is the one that opens the ledger."""
