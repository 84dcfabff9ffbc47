"""The ledger: which trials exist, what became of them, what to do next. The one source of truth.

Optuna's storage holds it (`study/stored.py` opens that). One Ray actor owns it
(`study/executor.py` starts it), but nothing here knows Ray. A trial is handed out by `ask`, taken over
by a gang with `begin`, followed through `report`, and ended by `finish`. Every event is on disk before
the call returns, so that a kill at any moment loses nothing that anyone was told.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import TrialState

from study.journal import Journal
from study.lock import Lock
from study.row import Row
from study.spec import Study
from study.stored import FINAL, control_of, default_url, flat, importances, open_study
from study.tracking import Tracker
from trainables import overrides
from trainables.checkpoints import write_text
from trainables.object_store import below

log = logging.getLogger(__name__)

STATUS = {"complete": "FINISHED", "pruned": "KILLED", "collapsed": "KILLED", "failed": "FAILED"}
"""How a trial ended -> status of its MLflow run."""


class Ledger:
    """One study's ledger. Not thread-safe: its actor serves one call at a time."""

    def __init__(
        self,
        name: str,
        profile: str,
        study: Study,
        storage: Path,
        url: str | None = None,
        tracking_uri: str | None = None,
        tags: Mapping[str, str] | None = None,
        retry_failed: bool = False,
        checkpoints: str | None = None,
    ) -> None:
        """Open or create the ledger, end what a kill left half-ended, and find what was interrupted.

        `tracking_uri` None keeps the study out of MLflow; `checkpoints` is the URI of an object store that keeps
        what trials write, in a folder with this study's id. Raises `Refused`, or `study.lock.Held` while another
        ledger of this storage is alive.
        """
        self.name, self.profile, self.spec, self.storage = name, profile, study, storage
        self.tags = dict(tags or {})
        # A SIGKILLed study leaves its actor alive for a moment.
        self._lock = Lock(storage / "ledger.lock", wait_s=20.0)
        for half_written in storage.glob(".summary.json.*"):
            half_written.unlink()
        try:
            self._study = open_study(url or default_url(storage), name, study, checkpoints)
        except Exception:
            self._lock.release()
            raise
        self.id: str = self._study.user_attrs["id"]
        self._kept = below(checkpoints, self.id) if checkpoints else None
        self.journal = Journal(storage / "journal.jsonl")
        self._tracker = (
            Tracker(self.journal, storage / "tracking.json", tracking_uri, name, self.id) if tracking_uri else None
        )
        self._started = time.time()
        self._elapsed_before: float = self._study.user_attrs.get("elapsed", 0.0)
        self._halt: str | None = None
        self._live: set[int] = set()
        self._baselines: dict[str, dict[str, float]] = self._study.user_attrs.get("baselines", {})
        self._facts: dict[str, str] = self._study.user_attrs.get("facts", {})
        self._importances: dict[str, float] = self._study.user_attrs.get("importances", {})
        self._rows = {t.number: self._load_row(t) for t in self._trials()}
        self._journal_study()
        self._recover()
        if retry_failed:
            self._enqueue_failed()
        self.status = "running"
        self._write_summary()
        if self._tracker:
            self._tracker.start()

    # --- handing out -----------------------------------------------------------------------------

    def ask(self) -> int | None:
        """Number of the next trial to run: an interrupted one first, then a new one; None for no more."""
        if self._halt or self._spent() or self._hopeless():
            return None
        waiting = [row.number for row in self._rows.values() if row.state not in FINAL and row.number not in self._live]
        if waiting:
            number = min(waiting)
            trial = optuna.Trial(self._study, self._trial_id(number))
        else:
            counted = sum(not self._retried(row) for row in self._rows.values())
            retries = any(t.state == TrialState.WAITING for t in self._study.get_trials(deepcopy=False))
            if counted >= self.spec.budget.trials and not retries:
                return None
            trial = self._study.ask()
            number = trial.number
        if number not in self._rows or not self._rows[number].params:
            self._suggest(trial)
        row = self._rows[number]
        row.launched = time.time()
        self._live.add(number)
        self._store(row)
        self.journal.append(
            {
                "op": "trial", "trial": number, "replicates": self.spec.replicates, "time": _now(),
                "params": flat(self._config(row).model_dump(exclude={"cache"})) | {"seed": self.spec.seed},
                "tags": self._run_tags() | {
                    "mlflow.runName": self._run_name(row), "control": str(row.control).lower()
                },
            }
        )  # fmt: skip
        self._changed()
        return number

    def _suggest(self, trial: optuna.Trial) -> None:
        """Sample the trial's parameters; a trial that was killed half-way gets the values it would have had."""
        control = control_of(self.spec, self._study, trial.number)
        if control is None:
            self.spec.space(trial)
        frozen = self._frozen(trial.number)
        row = self._rows.setdefault(trial.number, Row(trial.number, 0))
        row.control, row.params = control is not None, dict(control or frozen.params)
        row.retry_of = frozen.user_attrs.get("retry_of")
        row.planned_steps = self._config(row).total_steps * self.spec.replicates

    def begin(self, number: int) -> dict[str, Any]:
        """A gang takes the trial over: its config, seeds and folder, under a new attempt number.

        Reports of lower attempts are refused from now on. A trial that has already ended in the
        ledger comes back with `"state"` set: there is nothing to run.
        """
        row = self._rows[number]
        row.attempts += 1
        row.step = 0
        self._store(row)
        self._changed()
        return {
            "trainer": self.spec.trainer,
            "config": self._config(row).model_dump(),
            "attempt": row.attempts,
            "seeds": [self.spec.seed + r for r in range(self.spec.replicates)],
            "folder": str(self._folder(number)),
            "store": self._stored(number),
            "state": row.state if row.state in FINAL else None,
        }

    # --- following -------------------------------------------------------------------------------

    def describe(self, number: int, attempt: int, replicate: int, facts: dict[str, Any]) -> str | None:
        """Facts about a replicate, such as the identity of its data, as tags of its run.

        In a paired design the arms must agree, seed by seed, on initialisation and data order; returns a
        sentence if this one does not.
        """
        row = self._rows[number]
        if attempt != row.attempts:
            return f"superseded by attempt {row.attempts}"
        seed = self.spec.seed + replicate
        row.hashes[str(replicate)] = {key: value for key, value in facts.items() if key.startswith("hash.")}
        self._store(row)
        self.journal.append(
            {"op": "replicate", "trial": number, "replicate": replicate, "seed": seed,
             "tags": self.tags | {key: str(value) for key, value in facts.items()}, "time": _now()}
        )  # fmt: skip
        self._wake()
        if self.spec.design == "search":
            return None
        for other in self._rows.values():
            theirs = other.hashes.get(str(replicate), {})
            for key, value in row.hashes[str(replicate)].items():
                if theirs.get(key, value) != value:
                    return (
                        f"trials {other.number} and {number} are arms of a paired design, but differ in {key[5:]} "
                        f"for seed {seed} ({theirs[key]} and {value}); what the arms vary must not change either"
                    )
        return None

    def report(self, number: int, attempt: int, replicate: int, records: list[dict[str, Any]]) -> str | None:
        """Store records of one replicate and answer with a reason to stop, or None."""
        row = self._rows[number]
        if attempt != row.attempts or row.state in FINAL:
            return f"superseded by attempt {row.attempts}"
        for record in self.journal.append_records(number, replicate, records):
            row.step = record["step"]
            row.latest |= {k: v for k, v in record["metrics"].items() if k == "train.loss" or "." not in k}
            self._consider(row, replicate, record)
        if records:
            row.step = max(row.step, records[-1]["step"])
            self._wake()
        if self._spent():
            self._halt = self._halt or "budget spent"
        return row.stop or self._halt

    def _consider(self, row: Row, replicate: int, record: dict[str, Any]) -> None:
        """Tell Optuna an intermediate value, and let its pruner decide; the first replicate speaks for all."""
        objective = self.spec.objectives[0]
        value = record["metrics"].get(objective.name)
        if value is None:
            return
        row.checkpoint = self._newest_checkpoint(row.number)
        if len(self.spec.objectives) == 1 and replicate == 0 and not row.control and math.isfinite(value):
            trial = optuna.Trial(self._study, self._trial_id(row.number))
            trial.report(value, record["step"])
            last = record["step"] >= self._config(row).total_steps
            if not last and record["step"] > 0 and trial.should_prune():
                row.stop = f"pruned at step {record['step']}: {objective.name} {value:.4g} lags behind the other trials"
        self._store(row)
        self._changed()

    # --- ending ----------------------------------------------------------------------------------

    def replicate_ended(self, number: int, attempt: int, replicate: int, outcome: dict[str, Any]) -> bool:
        """Record how a replicate ended; True if the gang should go on with the next one."""
        row = self._rows[number]
        if attempt != row.attempts or row.state in FINAL:
            return False
        workers = self.spec.resources.workers
        row.step = 0
        if self._kept is not None:
            # The report reads what is in the storage folder.
            place = self._folder(number) / f"replicate-{replicate}" / "result.json"
            place.parent.mkdir(parents=True, exist_ok=True)
            write_text(place, json.dumps(outcome))
        if len(row.replicates) == replicate:
            row.trained += outcome["seconds"] * workers
            row.replicates.append(
                {
                    "seed": self.spec.seed + replicate, "values": outcome["values"], "steps": outcome["step"],
                    "state": outcome["state"], "reason": outcome["reason"], "pace": outcome["seconds_per_step"],
                }
            )  # fmt: skip
        self._store(row)
        if self.spec.replicates > 1:
            self._journal_end(
                row.number, replicate, outcome["state"], outcome["reason"], outcome["values"], outcome["step"]
            )
        self._changed()
        return outcome["state"] == "complete" and replicate + 1 < self.spec.replicates and not self._halt

    def finish(self, number: int, attempt: int, outcome: dict[str, Any] | None, error: str | None = None) -> str:
        """The gang is done: end the trial by what its replicates show; returns the trial's state.

        `outcome` is that of the last replicate, or None with `error`, the message of an exception. A
        trial that was only told to stop for now stays open and is handed out again by a later launch.
        """
        row = self._rows[number]
        if row.state in FINAL or attempt != row.attempts:
            return row.state
        self._settle_time(row)
        self._live.discard(number)
        pace = outcome["seconds_per_step"] if outcome else 0.0
        if error is not None:
            row.state, row.reason = "failed", error
        elif outcome is None or (outcome["state"] == "stopped" and row.stop is None):
            row.reason = (outcome or {}).get("reason") or self._halt
            row.step = outcome["step"] if outcome else 0
            row.checkpoint = self._newest_checkpoint(number)
            self._store(row)
            self._changed()
            return "interrupted"
        elif outcome["state"] == "stopped":
            row.state, row.reason = "pruned", row.stop
            row.step, row.values = outcome["step"], outcome["values"]
            row.trained += outcome["seconds"] * self.spec.resources.workers
        elif outcome["state"] == "collapsed":
            row.state, row.reason, row.values = "collapsed", outcome["reason"], outcome["values"]
        else:
            row.values = _mean([r["values"] for r in row.replicates])
            missing = [o.name for o in self.spec.objectives if not math.isfinite(row.values.get(o.name, math.nan))]
            row.state, row.reason = ("failed", f"{missing[0]} is not finite") if missing else ("complete", None)
        row.checkpoint = self._newest_checkpoint(number)
        row.saved = max(0, row.planned_steps - row.steps) * pace * self.spec.resources.workers
        self._store(row)
        self._end(row)
        self._changed()
        return row.state

    def abandon(self, number: int, error: str) -> str:
        """The engine lost the trial: its gang could not be started or kept. Ends it as failed."""
        row = self._rows[number]
        if number not in self._live:
            return row.state
        if self._halt:
            self._live.discard(number)
            self._changed()
            return "interrupted"
        return self.finish(number, row.attempts, None, error)

    def _end(self, row: Row) -> None:
        """Close the trial in the journal and in Optuna; each step is skipped if it is already done."""
        self._journal_end(row.number, None, row.state, row.reason, row.values, row.steps)
        trial = optuna.Trial(self._study, self._trial_id(row.number))
        if self._frozen(row.number).state.is_finished():
            return
        told = any(name.endswith(":collapse") for name in self._frozen(row.number).system_attrs)
        if row.state in ("complete", "collapsed", "pruned") and not told:
            trial.set_constraint("collapse", 1.0 if row.state == "collapsed" else -1.0)
        if row.state == "complete":
            self._study.tell(trial, [row.values[o.name] for o in self.spec.objectives])
        else:
            self._study.tell(trial, state=TrialState.FAIL if row.state == "failed" else TrialState.PRUNED)

    def _journal_end(
        self,
        trial: int | None,
        replicate: int | None,
        state: str,
        reason: str | None,
        values: dict[str, float],
        step: int,
    ) -> None:
        if self.journal.ended(trial, replicate):
            return
        row = self._rows.get(trial) if trial is not None else None
        tags = {"state": state}
        entries: list[dict[str, Any]] = []
        if reason:
            tags["stop.reason"] = reason
        values = dict(values)
        if row is not None and replicate is None:
            values |= {"worker_seconds.used": row.used, "worker_seconds.saved": row.saved, "steps": row.steps}
            tags["attempts"] = str(row.attempts)
        if values:
            # The last record has most of them already; with its time they are the same points to MLflow.
            last = self.journal.last_time(trial) if trial is not None else None
            entries.append({"op": "values", "trial": trial, "replicate": replicate, "values": values, "step": step,
                            "time": last or _now()})  # fmt: skip
        entries.append({"op": "end", "trial": trial, "replicate": replicate, "status": STATUS.get(state, "KILLED"),
                        "tags": tags, "time": _now()})  # fmt: skip
        self.journal.append(*entries)
        self._wake()

    # --- the study as a whole --------------------------------------------------------------------

    def prepared(self, facts: dict[str, str], baselines: dict[str, dict[str, float]]) -> None:
        """What reading the inputs brought: identities of the data, figures of untrained methods."""
        self._facts, self._baselines = facts, baselines
        self._study.set_user_attr("facts", facts)
        self._study.set_user_attr("baselines", baselines)
        values = {f"{name}.{metric}": value for name, found in baselines.items() for metric, value in found.items()}
        self.journal.append({"op": "study", "params": {}, "tags": facts, "time": _now()})
        if values:
            # The same time at every launch: MLflow keeps one point of what is equal in name, step, time and value.
            began = next(self.journal.read())[1]["time"]
            self.journal.append(
                {"op": "values", "trial": None, "replicate": None, "values": values, "step": 0, "time": began}
            )
        self._changed()

    def halt(self, reason: str) -> None:
        """Ask every running trial to stop at its next step, and hand out no more."""
        self._halt = self._halt or reason

    def halted(self) -> bool:
        """Whether no trial will be handed out any more, whatever room there is: asked to stop, or the budget spent."""
        return self._halt is not None or self._spent()

    def conclude(self) -> dict[str, Any]:
        """The engine has come to rest: set the study's status, and return the summary."""
        for number in sorted(self._live):
            self._settle_time(self._rows[number])
            self._store(self._rows[number])
        self._live.clear()
        states = [row.state for row in self._rows.values() if not self._retried(row)]
        if self._halt and self._halt != "budget spent":
            self.status = "interrupted"
        elif "failed" in states and "complete" not in states:
            self.status = "failed"
        else:
            self.status = "finished"
        self._study.set_user_attr("elapsed", self._elapsed())
        self._importances = importances(self._study, self.spec)
        self._study.set_user_attr("importances", self._importances)
        best = self.best()
        if best:
            row = self._rows[best[0]]
            values = {f"best.{name}": value for name, value in row.values.items()} | {"best.trial": best[0]}
            # Step and time are those of the newest end of a trial: a launch that ends none adds no point.
            ends = [t.datetime_complete.timestamp() for t in self._trials() if t.datetime_complete is not None]
            self.journal.append(
                {"op": "values", "trial": None, "replicate": None, "values": values, "step": len(ends),
                 "time": round(max(ends) * 1000)}
            )  # fmt: skip
        return self._write_summary()

    def close(self, artifacts: list[tuple[str, str]], timeout_s: float) -> bool:
        """Log (path, artifact path) pairs on the parent run, end it, and wait for MLflow to have it all.

        False if MLflow does not have everything: the rest is sent by the next launch.
        """
        for path, place in artifacts:
            self.journal.append({"op": "artifact", "path": path, "artifact_path": place, "time": _now()})
        state = {"finished": "complete", "failed": "failed"}.get(self.status, "interrupted")
        self._journal_end(None, None, state, self._halt, {}, 0)
        done = self._tracker.close(timeout_s) if self._tracker else True
        self._write_summary()
        self.journal.close()
        self._lock.release()
        return done

    def best(self) -> list[int]:
        """The best complete trial that is no control, or the Pareto front where there are several objectives."""
        searched = [n for n in sorted(self._rows) if self._rows[n].state == "complete" and not self._rows[n].control]
        if not searched:
            return []
        if len(self.spec.objectives) > 1:
            return sorted({t.number for t in self._study.best_trials} & set(searched))
        objective = self.spec.objectives[0]
        pick = max if objective.direction == "maximize" else min
        return [pick(searched, key=lambda number: self._rows[number].values[objective.name])]

    def summary(self) -> dict[str, Any]:
        """The study as `summary.json` shows it."""
        rows = [self._rows[number] for number in sorted(self._rows)]
        tracking = self._tracker.snapshot() if self._tracker else {}
        runs = tracking.get("runs", {})
        used = {row.number: row.used + self._held(row) for row in rows}
        return {
            "study": self.name,
            "profile": self.profile,
            "status": self.status,
            "question": self.spec.question,
            "design": self.spec.design,
            "parameter": self.spec.parameter,
            "plane": self.spec.plane,
            "signals": self.spec.signals,
            "importances": self._importances,
            "objectives": [o.model_dump() for o in self.spec.objectives],
            "best": self.best(),
            "planned_trials": self.spec.budget.trials,
            "trials": [
                row.shown(
                    live=row.number in self._live,
                    used=used[row.number],
                    gpu_hours=self._gpu_hours(used[row.number]),
                    run_id=runs.get(row.number),
                )
                for row in rows
            ],
            "worker_seconds": {
                "used": round(sum(used.values()), 3),
                "saved": round(sum(row.saved for row in rows), 3),
                "overhead": round(sum(max(0.0, row.used - row.trained) for row in rows if row.state in FINAL), 3),
            },
            "gpu_hours": {
                "used": round(self._gpu_hours(sum(used.values())), 4),
                "saved": round(self._gpu_hours(sum(row.saved for row in rows)), 4),
                "price": self.spec.resources.gpu_hour_price,
            },
            "wall_seconds": round(self._elapsed(), 3),
            "baselines": self._baselines,
            "dataset": self._facts,
            "mlflow": {key: tracking.get(key) for key in ("tracking_uri", "experiment", "parent_run_id", "pending")},
            "updated": datetime.now(UTC).isoformat(timespec="seconds"),
        }

    # --- inside ----------------------------------------------------------------------------------

    def _recover(self) -> None:
        """End the trials whose end a kill cut short, and account for the time of those it interrupted."""
        for row in self._rows.values():
            if row.state in FINAL:
                if not self._frozen(row.number).state.is_finished() or not self.journal.ended(row.number):
                    self._end(row)
            elif row.launched is not None:
                last = self.journal.last_time(row.number)
                if last is not None:
                    row.used += max(0.0, last / 1000 - row.launched) * self.spec.resources.workers
                row.launched = None
                self._store(row)

    def _enqueue_failed(self) -> None:
        """Put the parameters of failed trials back in the queue; the failed ones stay on record."""
        for row in list(self._rows.values()):
            if row.state == "failed" and not self._retried(row):
                self._study.enqueue_trial(row.params, user_attrs={"retry_of": row.number})

    def _retried(self, row: Row) -> bool:
        return row.state == "failed" and any(
            t.user_attrs.get("retry_of") == row.number for t in self._study.get_trials(deepcopy=False)
        )

    def _spent(self) -> bool:
        budget = self.spec.budget
        if budget.wall_clock_s is not None and self._elapsed() >= budget.wall_clock_s:
            return True
        used = sum(row.used + self._held(row) for row in self._rows.values())
        if budget.worker_hours is not None and used >= budget.worker_hours * 3600:
            return True
        return budget.gpu_hours is not None and self._gpu_hours(used) >= budget.gpu_hours

    def _gpu_hours(self, worker_seconds: float) -> float:
        return worker_seconds * self.spec.resources.gpus_per_worker / 3600

    def _hopeless(self) -> bool:
        """Three failed trials before anything else ended: the fault is not in the parameters."""
        ended = [row.state for row in self._rows.values() if row.state in FINAL and not self._retried(row)]
        return len(ended) >= 3 and set(ended) == {"failed"}

    def _elapsed(self) -> float:
        return self._elapsed_before + time.time() - self._started

    def _held(self, row: Row) -> float:
        live = row.number in self._live and row.launched is not None
        return (time.time() - row.launched) * self.spec.resources.workers if live and row.launched else 0.0

    def _settle_time(self, row: Row) -> None:
        row.used += self._held(row)
        row.launched = None

    def _config(self, row: Row):
        return overrides.apply(self.spec.config, row.params | {"cache": str(self.storage / "cache")})

    def _folder(self, number: int) -> Path:
        return self.storage / "trials" / f"{number:04d}"

    def _stored(self, number: int) -> str | None:
        """Where an object store keeps what the trial writes."""
        return below(self._kept, "trials", f"{number:04d}") if self._kept else None

    def _newest_checkpoint(self, number: int) -> str | None:
        stored = self._stored(number)
        if stored is not None:
            complete = [n for n, told in enumerate(self._rows[number].replicates) if told["state"] == "complete"]
            return below(stored, f"replicate-{complete[-1]}", "model") if complete else stored
        folders = [*self._folder(number).glob("replicate-*/model"), *self._folder(number).glob("replicate-*/step-*")]
        return (
            str(max(folders, key=lambda path: (path.parent.name, path.name != "model", path.name))) if folders else None
        )

    def _trials(self) -> list[optuna.trial.FrozenTrial]:
        return [t for t in self._study.get_trials(deepcopy=False) if t.state != TrialState.WAITING]

    def _frozen(self, number: int) -> optuna.trial.FrozenTrial:
        return self._study.get_trials(deepcopy=False)[number]

    def _trial_id(self, number: int) -> int:
        return self._frozen(number)._trial_id

    def _load_row(self, trial: optuna.trial.FrozenTrial) -> Row:
        stored = trial.user_attrs.get("row")
        # A trial without a row was killed between its creation and its last parameter.
        return Row(**stored) if stored else Row(trial.number, 0)

    def _store(self, row: Row) -> None:
        optuna.Trial(self._study, self._trial_id(row.number)).set_user_attr("row", _finite(asdict(row)))

    def _journal_study(self) -> None:
        config = flat(self.spec.config.model_dump(exclude={"cache"}))
        params = config | {"sampler": self.spec.sampler, "replicates": self.spec.replicates, "seed": self.spec.seed}
        tags = self._run_tags() | {"mlflow.runName": f"{self.name} ({self.profile})"}
        self.journal.append({"op": "study", "params": params, "tags": tags, "time": _now()})

    def _run_tags(self) -> dict[str, str]:
        return self.tags | self._facts | {"study.name": self.name, "study.profile": self.profile, "state": "running"}

    def _run_name(self, row: Row) -> str:
        if row.control:
            return f"trial {row.number} · control"
        shown = row.params.get(self.spec.parameter)
        value = f"{shown:.4g}" if isinstance(shown, float) else shown
        return f"trial {row.number}" if shown is None else f"trial {row.number} · {self.spec.parameter}={value}"

    def _changed(self) -> None:
        self._write_summary()
        self._wake()

    def _wake(self) -> None:
        if self._tracker:
            self._tracker.wake()

    def _write_summary(self) -> dict[str, Any]:
        summary = self.summary()
        write_text(self.storage / "summary.json", json.dumps(_finite(summary), indent=2))
        return summary


def _mean(values: list[dict[str, float]]) -> dict[str, float]:
    """Metric-wise mean over the replicates that report the metric."""
    names = {name: None for found in values for name in found}
    return {name: math.fsum(v[name] for v in values if name in v) / sum(name in v for v in values) for name in names}


def _finite(value: Any) -> Any:
    """JSON has no NaN: non-finite numbers become null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def _now() -> int:
    return time.time_ns() // 1_000_000
