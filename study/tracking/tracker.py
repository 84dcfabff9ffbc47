"""The journal, replayed into MLflow in order: one parent run per study, one child per trial.

The tracker reads the journal from a thread of its own, so that nothing ever waits for MLflow. Its state
file holds the offset behind the last entry that MLflow has taken. Whatever is sent again after a crash
changes nothing: runs are searched by their tags before they are created, MLflow drops a metric whose
name, step, time and value it has already, and the rest is set, not added. So a lost or older state file
is not a fault, and a tracking store that has lost the runs is filled again from the start.

- A server that is away, slow, failing, or closed to us (401, 403) is asked again for ever.
- An item that MLflow refuses for good is logged, counted in `Snapshot.rejected` and left out.
- A run or an experiment that somebody deleted is restored when the journal has more for it.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from study.protocol.folder import StudyFolder
from study.protocol.journal import (
    Artifact,
    Ended,
    Entry,
    InputsRead,
    Metrics,
    Model,
    ReplicateBegun,
    StudyBegun,
    TrialBegun,
    Values,
)
from study.protocol.journal_reader import JournalReader
from study.protocol.summary import Tracking
from study.tracking.batches import Batches
from study.tracking.mlflow_runs import (
    STUDY,
    Happening,
    LostError,
    Runs,
    State,
    inherited,
    refusal,
    tag_items,
    tags_of,
)
from study.tracking.model_process import ModelProcess
from study.tracking.pages import Subject, inputs_of
from study.uris import redacted
from trainables.errors import first_line

if TYPE_CHECKING:
    from study.tracking.mlflow_runs import Item

log = logging.getLogger(__name__)
T = TypeVar("T")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0
TRIES = 5
"""How often something is sent whose failure may be its own fault or a passing one."""
LOOK_EVERY_S = 0.2
"""How often a process that sends a model is looked after."""


class _StoppedError(Exception):
    """The tracker was told to give up."""


class _RejectedError(Exception):
    """MLflow will never take this."""


@dataclass(frozen=True)
class Snapshot:
    """How far the records of a study are."""

    tracking: Tracking
    runs: dict[int, str]
    """Trial -> its run, for each that has one."""
    rejected: int
    """Items that MLflow refused for good."""


class Tracker:
    """Replays `journal` into the MLflow at `uri`, as an experiment named `experiment`.

    Where a trial has one replicate, its metrics go to the trial's own run and its end only adds tags; where it has
    several, each has a child run of the trial's. MLflow's own tags of the study are put on every run.
    """

    def __init__(
        self, journal: JournalReader, state: Path, uri: str, experiment: str, study_id: str, subject: Subject
    ) -> None:
        if not re.fullmatch(r"[\w.\-]+", study_id):
            raise ValueError(f"study id {study_id!r}: accepted are letters, digits and _ . -")
        self._journal = journal
        self._path = state
        self._uri = uri
        self._state = State.load(state, redacted(uri), experiment, study_id)
        if not journal.begins_at(self._state.offset):
            log.warning("%s goes beyond the journal, which is replayed from its start", state)
            self._state.offset = 0
        self._runs = Runs(uri, self._state, subject)
        self._error: str | None = None
        self._news = threading.Event()
        self._stop = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="tracking", daemon=True)

    def start(self) -> None:
        """Begin with what the journal holds already. Returns at once, whatever the server does."""
        self._news.set()
        self._thread.start()

    def wake(self) -> None:
        """Tell the tracker that there is something new in the journal."""
        self._news.set()

    def close(self, timeout_s: float) -> bool:
        """Replay to the journal's end, for at most `timeout_s`. False when something is left to send."""
        self._closing = True
        self._news.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        self._stop.set()
        return self._journal.pending(self._state.offset) == 0

    def snapshot(self) -> Snapshot:
        """How far the records are now."""
        runs = dict(self._state.runs)
        tracking = Tracking(
            uri=redacted(self._uri),
            experiment=self._state.experiment,
            run_id=runs.pop(STUDY, None),
            page=self._runs.page,
            pending=self._journal.pending(self._state.offset),
            error=self._error,
        )
        trials = {int(key): run_id for key, run_id in runs.items() if "/" not in key}
        return Snapshot(tracking, trials, self._state.rejected)

    # ---- the thread ----

    def _work(self) -> None:
        try:
            self._patiently(self._runs.connect, for_ever=True)
            while True:
                self._news.wait()
                self._news.clear()
                closing = self._closing
                self._replay()
                if closing:
                    return
        except _StoppedError:
            log.info("tracking stopped with %d entries to send", self._journal.pending(self._state.offset))
        except Exception as error:
            self._error = f"{type(error).__name__}: {error}"
            log.exception("tracking ended; the journal keeps the rest for the next launch")

    def _replay(self) -> None:
        while True:
            try:
                return self._replay_rest()
            except LostError as lost:
                self._problem(f"run {lost} is no longer in MLflow: everything is sent again")
                self._state.offset, self._state.rejected = 0, 0
                self._state.runs.clear()
                self._pause(FIRST_PAUSE_S)
                self._patiently(self._runs.connect, for_ever=True)

    def _replay_rest(self) -> None:
        """Figures are gathered until a run has a batch of them or news of another kind, or the journal ends."""
        batches, begin = Batches(), self._state.offset
        for end, entry in self._journal.read(begin):
            if isinstance(entry, (Metrics, Values)):
                try:
                    batches.add(self._runs.key(entry), self._runs.figures(entry), begin)
                except (KeyError, TypeError, ValueError) as error:
                    self._reject(entry, error)
                due = batches.due()
                self._flush(batches, due)
            else:
                due = batches.of(entry.trial)
                self._flush(batches, due)
                try:
                    self._handle(entry)
                except (_RejectedError, KeyError, TypeError, ValueError) as error:
                    self._reject(entry, error)
            begin = end
            if due or not isinstance(entry, (Metrics, Values)):
                self._advance(batches.begin(end))
        self._flush(batches, batches.of(None))
        self._advance(begin)

    def _flush(self, batches: Batches, keys: Sequence[str]) -> None:
        for key in keys:
            self._log(key, batches.take(key))

    def _advance(self, offset: int) -> None:
        if offset != self._state.offset:
            self._state.offset = offset
            self._patiently(lambda: self._state.save(self._path))

    def _handle(self, entry: Happening) -> None:
        key = self._runs.key(entry)
        match entry:
            case Artifact():
                return self._upload(key, entry)
            case Model():
                return self._keep_model(key, entry)
            case StudyBegun():
                self._state.tags |= inherited(tags_of(entry))
            case TrialBegun():
                self._state.replicates[key] = entry.replicates
        of_its_own = entry.replicate is None or "/" in key
        if of_its_own and isinstance(entry, (StudyBegun, TrialBegun, ReplicateBegun)):
            self._attempt(key, lambda: self._runs.open(key, entry))
        self._log(key, self._runs.facts(entry))
        if isinstance(entry, (InputsRead, TrialBegun)) and (found := inputs_of(entry.tags)):
            self._attempt(key, lambda: self._runs.inputs(key, found))
        if of_its_own and isinstance(entry, Ended):
            self._attempt(key, lambda: self._runs.end(key, entry.state, entry.time))
        return None

    def _log(self, key: str, items: Sequence[Item]) -> None:
        """What MLflow refuses is halved until only the items at fault are left out."""
        if not items:
            return
        try:
            self._attempt(key, lambda: self._runs.log(key, items))
        except _RejectedError as error:
            if len(items) == 1:
                self._reject(f"{dict(items[0])} of run {key}", error)
            else:
                middle = len(items) // 2
                self._log(key, items[:middle])
                self._log(key, items[middle:])

    def _upload(self, key: str, entry: Artifact) -> None:
        self._store(key, entry.path, entry.place, lambda path: self._runs.upload(key, path, entry.place))

    def _keep_model(self, key: str, entry: Model) -> None:
        """Have a process of its own make and send the model: what it imports has no place in a ledger."""

        def keep(path: Path) -> None:
            with ModelProcess(self._runs.model(key, entry, path)) as process:
                while not process.ended(within_s=LOOK_EVERY_S):
                    if self._stop.is_set():
                        raise _StoppedError

        self._store(key, entry.path, "model", keep)

    def _store(self, key: str, place: str, what: str, send: Callable[[Path], None]) -> None:
        """An artifact store that fails while the server answers (no credentials, say) holds nothing up."""
        path = Path(StudyFolder(self._journal.path.parent).resolved(place))
        problem: Exception = FileNotFoundError(f"{path} does not exist")
        for attempt in range(TRIES if path.exists() else 0):
            self._attempt(key, lambda: self._runs.alive(key))
            try:
                return send(path)
            except _StoppedError:
                raise
            except Exception as error:
                problem = error
                self._problem(self._told(error))
                self._pause(FIRST_PAUSE_S * 2**attempt)
        self._log(key, tag_items({"artifact.error": f"{what}: {self._told(problem)}"}))
        raise _RejectedError(self._told(problem))

    # ---- patience ----

    def _attempt(self, key: str, action: Callable[[], T]) -> T:
        """`action`, once more if the run was deleted and could be restored."""
        try:
            return self._patiently(action)
        except _RejectedError:
            if not self._patiently(lambda: self._runs.restore(key)):
                raise
            return self._patiently(action)

    def _patiently(self, action: Callable[[], T], for_ever: bool = False) -> T:
        """`action`, repeated until MLflow takes it. Raises _RejectedError when it never will."""
        pause, doubts = FIRST_PAUSE_S, 0
        while True:
            try:
                result = action()
                if self._error:
                    log.info("tracking goes on")
                self._error = None
                return result
            except (LostError, _StoppedError):
                raise
            except Exception as error:
                refused = refusal(error)
                doubts += refused is None
                if (refused or doubts == TRIES) and not for_ever:
                    raise _RejectedError(self._told(error)) from error
                self._problem(self._told(error))
            self._pause(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise _StoppedError

    def _problem(self, message: str) -> None:
        if not self._error:
            log.warning("tracking waits: %s", message)
        self._error = message

    def _reject(self, entry: Entry | str, error: Exception) -> None:
        self._state.rejected += 1
        log.warning("MLflow did not take %s: %s", str(entry)[:500], error)

    def _told(self, error: Exception) -> str:
        server = self._uri.rstrip("/")
        return f"{type(error).__name__}: {first_line(error)}".replace(server, redacted(server))[:1000]
