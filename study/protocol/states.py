"""The states of a study and of its trials: the words that every other part uses."""

from __future__ import annotations

from enum import StrEnum


class TrialState(StrEnum):
    """What has become of a trial."""

    RUNNING = "running"
    INTERRUPTED = "interrupted"
    """Neither ended nor at work: a launch carries it on from its checkpoint."""
    COMPLETE = "complete"
    """Every planned replicate ran to its last step."""
    PRUNED = "pruned"
    """Ended by the pruner: it lags behind the other trials."""
    COLLAPSED = "collapsed"
    """Ended by a rule on its own training signals."""
    FAILED = "failed"
    """Ended by an error, or cannot be run with its parameters."""

    @property
    def ended(self) -> bool:
        """Whether nothing will change it any more."""
        return self not in (TrialState.RUNNING, TrialState.INTERRUPTED)


class ReplicateState(StrEnum):
    """How the loop of one replicate came to its end."""

    COMPLETE = "complete"
    COLLAPSED = "collapsed"
    STOPPED = "stopped"
    """Told to stop; it can be resumed. Whether its trial was pruned or interrupted the ledger knows."""


class StudyStatus(StrEnum):
    """What has become of a study."""

    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
