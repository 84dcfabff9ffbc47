"""The ledger: which trials exist, what became of them, what to do next. The one source of truth.

Optuna's storage holds it (`study/ledger/optuna_study.py` opens that). One Ray actor owns it
(`study/engine/executor.py` starts it), but nothing here knows Ray. A trial is handed out by `hand_out`, taken
over by a gang with `begin`, followed through `report`, and ended by `finish`. Every event is on disk before
the call returns, so that a kill at any moment loses nothing that anyone was told.
"""

from __future__ import annotations

import copy
import json
import logging
import math
import socket
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import Any

from study.ledger import identity
from study.ledger.budget import Account
from study.ledger.faults import TRIAL_NODES, Faults
from study.ledger.journal import Journal
from study.ledger.launch_options import LaunchOptions
from study.ledger.lease import Deposed, Holder, Lease
from study.ledger.lock import Lock
from study.ledger.moved import as_now
from study.ledger.optuna_study import open_study
from study.ledger.queue import Queue
from study.ledger.records import Records
from study.ledger.retention import Retention
from study.ledger.silence import Silence
from study.ledger.summaries import Summaries
from study.ledger.trial_record import Replicate, TrialRecord
from study.ledger.trials import Trials
from study.ledger.view import View
from study.protocol.destinations import Destinations
from study.protocol.messages import Assignment, Conclusion, HandOut, Leftover, Outcome, Standing, Trouble
from study.protocol.states import ReplicateState, StudyStatus, TrialState
from study.protocol.summary import StudySummary, Tracking
from study.spec import Study
from study.tracking.pages import Subject
from study.tracking.tracker import Snapshot, Tracker
from study.uris import redacted
from trainables.context import Phase, Record
from trainables.faults import Fault
from trainables.files import remove_asides, write_whole

log = logging.getLogger(__name__)

FAILED_IN_A_ROW = 5
"""Failed trials, one after the other, that end a study whatever ended before; or twice those that run at a time, where
that is more."""
NO_OPTIONS = LaunchOptions()


class Ledger:
    """One study's ledger. Not thread-safe: its actor serves one call at a time."""

    def __init__(
        self,
        name: str,
        profile: str,
        study: Study,
        destinations: Destinations,
        options: LaunchOptions = NO_OPTIONS,
    ) -> None:
        """Open or create the ledger, end what a kill left half-ended, and find what was interrupted.

        `study` has the names that it was begun with. Raises `Refused`, or `Held` while another ledger of this storage,
        or another head of this study, is alive.
        """
        storage, url = destinations.storage, destinations.ledger_url
        self.name, self.profile, self.spec, self.storage = name, profile, study, storage
        # A SIGKILLed study leaves its actor alive for a moment.
        self._lock = Lock(storage.ledger_lock, wait_s=20.0)
        for written in (storage.summary, storage.tracking, storage.identity, storage.marks):
            remove_asides(written)
        with ExitStack() as opened:
            opened.callback(self._lock.release)
            self._lease = Lease(url, name, options.head or Holder.this(storage.path))
            opened.callback(self._lease.release)
            admit = partial(identity.check, storage, name=name, ledger=redacted(url))
            self._optuna = open_study(url, name, study, destinations.checkpoints, self._lease.check, admit)
            self.id: str = self._optuna.user_attrs["id"]
            last = identity.Launch.of(self._optuna.user_attrs)
            identity.check_launch(storage, self.id, last, f"the ledger {redacted(url)}")
            self._trials = Trials(self._optuna, study, destinations)
            self._rows = self._trials.rows
            self._queue = Queue(self._optuna, study, self._trials)
            self._retention = Retention(study, self._trials, storage, options.keep)
            identity.take(storage, self.id, self._rows)
            self.journal = Journal(storage.journal, storage.marks)
            # From here on they stay until `close`.
            opened.pop_all()
        self._checkpoints, self._moves = destinations.checkpoints, options.moves
        self._system_metrics = options.system_metrics
        self._tracker: Tracker | None = None
        if destinations.tracking is not None:
            about = Subject(study.question, study.parameter, {o.name: o.direction for o in study.objectives})
            self._tracker = Tracker(self.journal, storage.tracking, destinations.tracking, name, self.id, about)
        self._account = Account(study, self._optuna.user_attrs.get("elapsed", 0.0))
        self._summaries = Summaries(name, self.id, profile, study, self._account)
        self._halt: str | None = None
        self._gave_up: str | None = None
        """Why the study is halted though nobody asked for it, where machines are at fault."""
        self._live: set[int] = set()
        self._seated: set[int] = set()
        """Those of `_live` whose gangs have taken them over."""
        self._most_live = 0
        self._failed = 0
        """Trials that have failed in this launch since one ended otherwise."""
        self._last_failure = ""
        self._faults = Faults()
        self._silence = Silence(options.silence_s)
        self._workers: dict[int, dict[Any, str]] = {}
        """Trial -> workers of its gang, and the node of each."""
        self._precision: str | None = self._optuna.user_attrs.get("precision")
        self._notices: list[str] = []
        self._view = View(storage.summary, self._notices.append)
        self._tickets: dict[int, int] = {}
        self._baselines: dict[str, dict[str, float]] = self._optuna.user_attrs.get("baselines", {})
        self._facts: dict[str, str] = self._optuna.user_attrs.get("facts", {})
        self._importances = self._trials.stored_importances()
        launch = identity.Launch(uuid.uuid4().hex, socket.gethostname(), str(storage))
        tags = dict(options.tags) | ({"precision": self._precision} if self._precision else {})
        self._records = Records(self.journal, name, profile, study, tags, self._facts)
        self._records.study(self.id, launch, self._label(options.label))
        # After the journal: a launch that the ledger knows of must be in it.
        for key, value in launch.tags.items():
            self._optuna.set_user_attr(key, value)
        self._recover()
        if options.retry_failed:
            self._trials.enqueue_failed()
        self.status = StudyStatus.RUNNING
        self._write_summary()
        if self._tracker:
            self._tracker.start()

    # --- handing out -----------------------------------------------------------------------------

    def ask(self) -> int | None:
        """Number of the next trial to run: an interrupted one first, then a new one; None for no more.

        A trial whose parameters cannot be run ends here as failed, and the next one is looked at.
        """
        while not (self._deposed() or self.halted() or self._failing()):
            row = self._queue.next(self._live, not self._search_spent())
            if row is None:
                return None
            refusal = self._queue.suggest(row)
            if refusal is None:
                return self._open(row.number)
            self._refuse(row, refusal)
        return None

    def _refuse(self, row: TrialRecord, reason: str) -> None:
        """End a trial that cannot run with its parameters: a failure of its own, from which the sampler learns."""
        row.state, row.reason, row.refused = TrialState.FAILED, reason, True
        self._records.trial(row, None, self._trials.seeds(row))
        self._trials.store(row)
        self._end(row)
        self._changed()

    def _open(self, number: int) -> int:
        row = self._rows[number]
        self._account.open(row)
        self._live.add(number)
        self._most_live = max(self._most_live, len(self._live))
        self._trials.store(row)
        self._records.trial(row, self._trials.config(row), self._trials.seeds(row))
        self._changed()
        return number

    def hand_out(self) -> HandOut | None:
        """`ask`, with a ticket by which a gang of this handing-out is told from one of an earlier or later one."""
        number = self.ask()
        if number is None:
            return None
        self._tickets[number] = self._tickets.get(number, 0) + 1
        return HandOut(number, self._tickets[number], self._faults.tried(number))

    def begin(self, number: int, ticket: int | None = None) -> Assignment | None:
        """A gang takes the trial over: its config, seeds and folder, under a new attempt number.

        Reports of lower attempts are refused from now on. None where there is nothing to run: the trial has already
        ended in the ledger, or was given back under this ticket.
        """
        row = copy.deepcopy(self._rows[number])
        if self._deposed() or row.state.ended or self._given_back(number, ticket):
            return None
        row.attempts += 1
        row.step = 0
        self._keep(row)
        self._seated.add(number)
        self._workers[number] = {}
        self._silence.begins(number)
        self._changed()
        return Assignment(
            trainer=self.spec.trainer,
            config=as_now(self._trials.config(row), self._moves).model_dump(),
            attempt=row.attempts,
            study=self.id,
            seeds=self._trials.seeds(row),
            folder=str(self.storage.trial(number).path),
            store=self._trials.place(number),
            system_metrics=self._system_metrics,
        )

    def compute_in(self, auto: str) -> str:
        """What `precision=auto` stands for in every trial of the study; `auto` is what it would be on the worker that
        asks, and the first one's counts."""
        if self._precision is None and not self._deposed():
            self._optuna.set_user_attr("precision", auto)
            self._records.precision(auto)
            self._precision = auto
            self._wake()
        return self._precision or auto

    def seat(self, number: int, attempt: int, worker: Any, node: str) -> None:
        """A worker of the trial's gang, and the node that it is on. The ledger only hands it back, from `silent`."""
        if attempt == self._rows[number].attempts and number in self._workers:
            self._workers[number][worker] = node

    # --- following -------------------------------------------------------------------------------

    def alive(self, number: int, attempt: int, phase: Phase) -> None:
        """The trial's gang tells what it does from now on."""
        if attempt == self._rows[number].attempts:
            self._silence.hear(number, phase)

    def describe(self, number: int, attempt: int, replicate: int, facts: dict[str, Any]) -> str | None:
        """Facts about a replicate, such as the identity of its data, as tags of its run.

        In a paired design the arms must agree, seed by seed, on initialisation and data order; returns a
        sentence if this one does not.
        """
        row = self._rows[number]
        if attempt != row.attempts:
            return f"superseded by attempt {row.attempts}"
        self._silence.hear(number)
        if self._deposed():
            return self._halt
        seed = self._trials.seeds(row)[replicate]
        row.hashes[str(replicate)] = {key: value for key, value in facts.items() if key.startswith("hash.")}
        self._trials.store(row)
        self._records.replicate(number, replicate, seed, facts)
        self._wake()
        if self.spec.design == "search":
            return None
        for other in self._trials.peers(row):
            theirs = other.hashes.get(str(replicate), {})
            for key, value in row.hashes[str(replicate)].items():
                if theirs.get(key, value) != value:
                    return (
                        f"trials {other.number} and {number} are arms of a paired design, but differ in {key[5:]} "
                        f"for seed {seed} ({theirs[key]} and {value}); what the arms vary must not change either"
                    )
        return None

    def report(self, number: int, attempt: int, replicate: int, records: list[Record]) -> str | None:
        """Store records of one replicate and answer with a reason to stop, or None.

        Raises `Deposed` where a replicate would end without them.
        """
        row = self._rows[number]
        if attempt != row.attempts or row.state.ended:
            return f"superseded by attempt {row.attempts}"
        self._silence.hear(number)
        if self._deposed():
            if records and records[-1]["step"] >= self._trials.config(row).total_steps:
                # It would end with its last steps on no record; the next head has it repeat them.
                raise Deposed(self._lease.lost)
            return self._halt
        if (elapsed := self._account.to_be_kept()) is not None:
            self._optuna.set_user_attr("elapsed", elapsed)
        mark = self.journal.high_water(number, replicate)
        fresh = [record for record in records if record["step"] > mark]
        for record in fresh:
            row.step = record["step"]
            if record["step"] == 0:
                # A new model: what the last replicate showed is not its own.
                row.latest = {}
            row.latest |= {k: v for k, v in record["metrics"].items() if k == "train.loss" or "." not in k}
            self._consider(row, replicate, record)
        # At the end: where Optuna's storage is away, all of it is reported again, which changes nothing there.
        self.journal.append_records(number, replicate, fresh)
        if records:
            row.step = max(row.step, records[-1]["step"])
            self._faults.well(number)
            self._wake()
            if self._view.old:
                self._write_summary()
        if self._account.spent(self._rows.values()):
            self._halt = self._halt or "budget spent"
        if row.confirms is None and self._search_spent():
            return row.stop or self._halt or "the search's share of the budget is spent"
        return row.stop or self._halt

    def _consider(self, row: TrialRecord, replicate: int, record: Record) -> None:
        """Tell Optuna an intermediate value, and let its pruner decide; the first replicate speaks for all."""
        objective = self.spec.objectives[0]
        value = record["metrics"].get(objective.name)
        if value is None:
            return
        row.checkpoint = self._trials.newest_checkpoint(row.number)
        if len(self.spec.objectives) == 1 and replicate == 0 and self._is_searched(row) and math.isfinite(value):
            trial = self._trials.searched(row)
            trial.report(value, record["step"])
            last = record["step"] >= self._trials.config(row).total_steps
            if not last and record["step"] > 0 and trial.should_prune():
                row.stop = f"pruned at step {record['step']}: {objective.name} {value:.4g} lags behind the other trials"
        self._trials.store(row)
        self._changed()

    # --- ending ----------------------------------------------------------------------------------

    def replicate_ended(self, number: int, attempt: int, replicate: int, outcome: Outcome) -> bool:
        """Record how a replicate ended; True if the gang should go on with the next one."""
        row = copy.deepcopy(self._rows[number])
        if attempt != row.attempts or row.state.ended or self._deposed():
            return False
        workers = self.spec.resources.workers
        row.step = 0
        if self._checkpoints is not None:
            # The report reads what is in the storage folder.
            place = self.storage.replicate(number, replicate).result
            place.parent.mkdir(parents=True, exist_ok=True)
            write_whole(place, json.dumps(asdict(outcome) | {"study": self.id}))
        seeds = self._trials.seeds(row)
        if len(row.replicates) == replicate:
            row.trained += outcome.seconds * workers
            row.replicates.append(Replicate.of(outcome, seeds[replicate]))
        self._keep(row)
        self._records.replicate_ended(row, replicate, seeds, outcome)
        self._changed()
        return outcome.state == ReplicateState.COMPLETE and replicate + 1 < len(seeds) and not self._halt

    def finish(self, number: int, attempt: int, outcome: Outcome | None, error: str | None = None) -> TrialState:
        """The gang is done: end the trial by what its replicates show; returns the trial's state.

        `outcome` is that of the last replicate, or None with `error`, the message of an exception. A
        trial is complete when every planned replicate is: one that was only told to stop for now, be it in the last
        evaluation of a replicate, stays open and is handed out again by a later launch.
        """
        row = copy.deepcopy(self._rows[number])
        if row.state.ended or attempt != row.attempts:
            return row.state
        if self._deposed():
            return TrialState.INTERRUPTED
        self._account.settle(row)
        pace = outcome.seconds_per_step if outcome else 0.0
        if error is not None:
            row.state, row.reason = TrialState.FAILED, error
        elif outcome is None or self._unfinished(row, outcome):
            row.reason = (outcome and outcome.reason) or self._halt
            # The steps of a replicate that has ended are on record with it.
            row.step = outcome.step if outcome and outcome.state == ReplicateState.STOPPED else 0
            row.checkpoint = self._trials.newest_checkpoint(number)
            return self._leave_open(row)
        elif outcome.state == ReplicateState.STOPPED:
            row.state, row.reason = TrialState.PRUNED, row.stop
            row.step, row.values = outcome.step, outcome.values
            row.trained += outcome.seconds * self.spec.resources.workers
        elif outcome.state == ReplicateState.COLLAPSED:
            row.state, row.reason, row.values = TrialState.COLLAPSED, outcome.reason, outcome.values
        else:
            row.values = _mean([told.values for told in row.replicates])
            missing = [o.name for o in self.spec.objectives if not math.isfinite(row.values.get(o.name, math.nan))]
            row.state, row.reason = (
                (TrialState.FAILED, f"{missing[0]} is not finite") if missing else (TrialState.COMPLETE, None)
            )
        row.checkpoint = self._trials.newest_checkpoint(number)
        row.saved = max(0, row.planned_steps - row.steps) * pace * self.spec.resources.workers
        self._trials.store(row)
        self._end(row)
        self._leave(row)
        failed = row.state == TrialState.FAILED
        self._failed, self._last_failure = (self._failed + 1 if failed else 0), f"trial {number}: {row.reason}"
        self._changed()
        return row.state

    def surplus(self) -> list[Leftover]:
        """What trials that have ended have left and the study does not keep, for the gang that asks to remove."""
        return [] if self._deposed() else self._retention.surplus()

    def emptied(self, number: int) -> None:
        """A gang has removed what `surplus` named of a trial."""
        if not self._deposed():
            self._trials.empty(number)
            self._changed()

    def _leave_open(self, row: TrialRecord) -> TrialState:
        """The trial's gang is gone, and it can be handed out again."""
        self._keep(row)
        self._leave(row)
        self._changed()
        return TrialState.INTERRUPTED

    def _leave(self, row: TrialRecord) -> None:
        """The settled record is stored: nothing runs for the trial any more."""
        self._rows[row.number] = row
        self._account.release(row.number)
        self._live.discard(row.number)
        self._seated.discard(row.number)
        self._silence.leaves(row.number)
        self._workers.pop(row.number, None)

    def _keep(self, row: TrialRecord) -> None:
        """Store a changed copy of a trial's record; where that fails nothing has changed, and it can be tried again."""
        self._trials.store(row)
        self._rows[row.number] = row

    def _unfinished(self, row: TrialRecord, outcome: Outcome) -> bool:
        """Whether the trial was told to stop for now: within a replicate, or between two of them."""
        if outcome.state == ReplicateState.STOPPED:
            return row.stop is None
        return outcome.state == ReplicateState.COMPLETE and len(row.replicates) < len(self._trials.seeds(row))

    def abandon(self, number: int, error: str, ticket: int | None = None) -> TrialState:
        """The engine lost the trial: its gang could not be kept. Ends it as failed."""
        row = self._rows[number]
        if number not in self._live or self._given_back(number, ticket):
            return row.state
        if self._deposed():
            return TrialState.INTERRUPTED
        if self._halt:
            return self._set_back(number, self._halt)
        return self.finish(number, row.attempts, None, error)

    def give_back(self, number: int, ticket: int, reason: str, lacked_room: bool) -> TrialState:
        """The trial's gang did not start: it is handed out again. For room it waits however long that takes; where
        there is room, it may start in vain `faults.STARTS` times."""
        if number not in self._live or self._given_back(number, ticket):
            return self._rows[number].state
        if self._deposed():
            return TrialState.INTERRUPTED
        if not lacked_room and self._faults.started_in_vain(number):
            return self.abandon(number, reason, ticket)
        self._notices.append(f"trial {number} waits: {reason}")
        return self._set_back(number, reason)

    def trouble(self, number: int, attempt: int | None, trouble: Trouble, ticket: int | None = None) -> TrialState:
        """A fault of machines has ended the trial's gang: it is handed out again, elsewhere or later, and carried on
        from its checkpoint. `attempt` is that of the gang, or None where the engine tells of it."""
        row = self._rows[number]
        stale = attempt is not None and attempt != row.attempts
        if stale or number not in self._live or self._given_back(number, ticket):
            return row.state
        if self._deposed():
            return TrialState.INTERRUPTED
        if trouble.kind == Fault.NODE:
            self._records.trial(row, self._trials.config(row), self._trials.seeds(row), trouble.reason)
        said = self._faults.note(number, trouble)
        if self._faults.own(number):
            return self.finish(number, row.attempts, None, f"failed on {TRIAL_NODES} nodes: {trouble.reason}")
        self._notices += [f"trial {number} goes on elsewhere or later: {trouble.reason}", *filter(None, [said])]
        if self._faults.out_of_patience():
            self.give_up(f"waited in vain for what all trials need: {trouble.reason}")
        return self._set_back(number, trouble.reason)

    def silent(self) -> list[Any]:
        """Set the trials back whose gangs hang, to be carried on from their checkpoints; returns the workers of these
        gangs, which have to be ended."""
        ended: list[Any] = []
        hung = {} if self._deposed() else self._silence.hung()
        for number, reason in hung.items():
            row, workers = self._rows[number], self._workers[number]
            self._records.trial(row, self._trials.config(row), self._trials.seeds(row), reason)
            said = self._faults.hung(number, set(workers.values()), reason)
            if self._faults.own(number):
                self.finish(number, row.attempts, None, f"{reason}, as it has several times")
            else:
                self._notices += [f"trial {number} is carried on: {reason}", *filter(None, [said])]
                self._set_back(number, reason)
            ended += workers
        return ended

    def wait_for(self, reason: str) -> None:
        """The engine lacks what all trials need: none is handed out for a while, and in the end the study is
        interrupted."""
        said = self._faults.wait(reason)
        if said is not None:
            self._notices.append(said)
        if self._faults.out_of_patience():
            self.give_up(f"waited in vain for what all trials need: {reason}")

    def _set_back(self, number: int, reason: str) -> TrialState:
        row = copy.deepcopy(self._rows[number])
        row.reason = reason
        row.checkpoint = self._trials.newest_checkpoint(number)
        self._account.settle(row)
        return self._leave_open(row)

    def _given_back(self, number: int, ticket: int | None) -> bool:
        """Whether what was handed out with this ticket has left its nodes; Train may start its gang once more."""
        return ticket is not None and (number not in self._live or ticket != self._tickets.get(number))

    def _end(self, row: TrialRecord) -> None:
        """Close the trial in the journal and in Optuna; each step is skipped if it is already done."""
        self._records.trial_ended(row)
        self._wake()
        self._trials.tell(row)

    # --- the study as a whole --------------------------------------------------------------------

    def prepared(
        self, facts: dict[str, str], baselines: dict[str, dict[str, float]], contents: Mapping[str, str]
    ) -> None:
        """What reading the inputs brought: identities of the data, figures of untrained methods; and `contents`, the
        digests of the files that the inputs are, by the names of now."""
        if self._deposed():
            return
        self._facts, self._baselines = facts, baselines
        begun = {new: old for names in self._moves.values() for old, new in names.items()}
        named = {begun.get(value, value): digest for value, digest in contents.items()}
        self._optuna.set_user_attr("contents", named)
        self._optuna.set_user_attr("facts", facts)
        self._optuna.set_user_attr("baselines", baselines)
        self._records.inputs(facts, baselines)
        self._changed()

    def give_up(self, reason: str) -> None:
        """Halt because of machines: the study is interrupted, and the same command carries on."""
        self._gave_up = self._gave_up or reason
        self.halt(reason)

    def standing(self) -> Standing:
        """What the engine has to know before it asks for a trial."""
        return Standing(self.halted(), self._faults.pausing(), self._faults.left(), len(self._seated))

    def notices(self) -> list[str]:
        """Sentences for the screen that have not been handed over yet."""
        said = self._notices.copy()
        self._notices.clear()
        return said

    def halt(self, reason: str) -> None:
        """Ask every running trial to stop at its next step, and hand out no more."""
        self._halt = self._halt or reason

    def halted(self) -> bool:
        """Whether no trial will be handed out any more, whatever room there is: asked to stop, or the budget spent."""
        return bool(self._halt or self._lease.lost) or self._account.spent(self._rows.values())

    def predecessor(self) -> str | None:
        """From whom this head has taken the study over, in a sentence, if it did not end by itself."""
        return self._lease.predecessor

    def lost(self) -> str | None:
        """Why this head had to stop before it was asked to, or None."""
        return self._lease.lost or self._gave_up

    def _search_spent(self) -> bool:
        """Whether the search has taken all of the budget but what it leaves to its confirmation."""
        undecided = self.spec.confirm is not None and self._trials.decision is None
        return undecided and self._account.spent(self._rows.values(), 1 - self.spec.reserved)

    def _is_searched(self, row: TrialRecord) -> bool:
        """Whether sampler and pruner take the trial into account."""
        return not row.control and row.confirms is None

    def _deposed(self) -> bool:
        """Whether this head must not write any more, because its lease is lost; the study is halted then."""
        try:
            self._lease.check()
        except Deposed as lost:
            self._halt = str(lost)
            return True
        return False

    def conclude(self) -> StudySummary:
        """The engine has come to rest: set the study's status, and return the summary."""
        if self._deposed():
            self._live.clear()
            self._seated.clear()
            self.status = StudyStatus.INTERRUPTED
            return self._write_summary()
        for number in sorted(self._live):
            row = copy.deepcopy(self._rows[number])
            self._account.settle(row)
            self._keep(row)
            self._leave(row)
        states = [{row.state for row in self._trials.of(group)} for group in self._trials.groups]
        fruitless = any(TrialState.FAILED in found and TrialState.COMPLETE not in found for found in states)
        if self._halt and self._halt != "budget spent":
            self.status = StudyStatus.INTERRUPTED
        elif self._failing() or self._queue.futile() or fruitless:
            self.status = StudyStatus.FAILED
        else:
            self.status = StudyStatus.FINISHED
        self._optuna.set_user_attr("elapsed", self._account.elapsed())
        self._importances = self._trials.importances()
        best = {group: self._rows[found[0]] for group in self._trials.groups if (found := self._trials.best(group))}
        if best:
            # Step and time are those of the newest end of a trial: a launch that ends none adds no point.
            ends = [t.datetime_complete.timestamp() for t in self._trials.begun() if t.datetime_complete is not None]
            step, when = len(ends), round(max(ends) * 1000)
            self._records.best(best.values(), step, when)
            won = {self._trials.winner(one) for one in (self._trials.decision.groups if self._trials.decision else ())}
            confirmed = [row for row in self._trials.confirming() if row.confirms in won]
            if confirmed:
                self._records.best(confirmed, step, when, "confirmed")
        return self._write_summary()

    def found(self, conclusion: Conclusion) -> None:
        """Put on record what the study has found so far."""
        if self._deposed():
            return
        if conclusion.answer is not None:
            self._records.answered(conclusion.answer, conclusion.report)
        for number, path in conclusion.models:
            self._records.model(self._rows[number], path, conclusion.register)
        self._wake()

    def close(self, artifacts: list[tuple[str, str]], timeout_s: float) -> bool:
        """Put files of the study on record, end it, and wait for the tracker to have sent everything.

        `artifacts` are pairs (path in the folder, place among the study's records). False if something was
        not sent: the next launch sends it.
        """
        if not self._deposed():
            for path, place in artifacts:
                self._records.artifact(path, place)
            status = StudyStatus.INTERRUPTED if self.status == StudyStatus.RUNNING else self.status
            self._records.study_ended(status, self._halt or self._failing() or self._queue.futile())
        self._wake()
        done = self._tracker.close(timeout_s) if self._tracker else True
        self._write_summary()
        self.journal.close()
        self._lease.release()
        self._lock.release()
        return done

    def best(self) -> list[int]:
        """The best complete trial of each group that is no control, or the Pareto fronts where there are several
        objectives."""
        return [number for group in self._trials.groups for number in self._trials.best(group)]

    def summary(self) -> StudySummary:
        """The study as `summary.json` shows it."""
        return self._write_summary() if self._view.stale and self._view.due else self._summary()

    def _summary(self) -> StudySummary:
        return self._summaries.of(
            self._trials,
            status=self.status,
            reason=self._failing() or self._queue.futile(),
            live=self._live,
            recorded=self._tracker.snapshot() if self._tracker else Snapshot(Tracking(), {}, 0),
            importances=self._importances,
            baselines=self._baselines,
            facts=self._facts,
        )

    # --- inside ----------------------------------------------------------------------------------

    def _label(self, asked: str | None) -> str:
        """What people call the study: what was asked for last, or its name and what tells it from others so named."""
        if asked is not None:
            self._optuna.set_user_attr("label", asked)
        folder = self.storage.path.name
        marks = [folder] * (folder != self.name) + [self.id[-4:]]
        return self._optuna.user_attrs.get("label") or f"{self.name} ({', '.join(marks)})"

    def _recover(self) -> None:
        """End the trials whose end a kill cut short, and account for the time of those it interrupted."""
        told = {trial.number for trial in self._trials.begun() if trial.state.is_finished()}
        for row in self._rows.values():
            if row.state.ended:
                if row.number not in told or not self.journal.ended(row.number):
                    self._end(row)
            elif row.launched is not None:
                # What is known of its last moment is its newest record.
                last = self.journal.last_time(row.number)
                self._account.settle_lost(row, row.launched if last is None else last / 1000)
                self._trials.store(row)

    def _failing(self) -> str | None:
        """Why this launch runs no more trials though there are some left, where too many have failed; or None."""
        if self._failed < max(FAILED_IN_A_ROW, 2 * self._most_live):
            return None
        return f"the last {self._failed} trials failed, one after the other, at last {self._last_failure}"

    def _changed(self) -> None:
        """Something happened that `summary.json` shows and the tracker sends."""
        self._view.stale = True
        if self._view.due:
            self._write_summary()
        self._wake()

    def _wake(self) -> None:
        if self._tracker:
            self._tracker.wake()

    def _write_summary(self) -> StudySummary:
        return self._view.write(self._summary)


def _mean(values: list[dict[str, float]]) -> dict[str, float]:
    """Metric-wise mean over the replicates that report the metric."""
    names = {name: None for found in values for name in found}
    return {name: math.fsum(v[name] for v in values if name in v) / sum(name in v for v in values) for name in names}
