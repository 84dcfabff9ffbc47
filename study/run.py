"""Run a study, or carry it on: `python -m study.run NAME`.

Exit codes: 0 finished, 1 the study failed, 2 the request is wrong, 130 interrupted.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from study import home, profiles, request, spec
from study.engine.input_check import InputCheck
from study.engine.processes import descendants, kill
from study.ledger import files, identity, inputs, lease, moved, optuna_study
from study.ledger.launch_options import LaunchOptions
from study.ledger.lock import Held, Lock
from study.ledger.on_record import OnRecord, on_record
from study.ledger.space import explore
from study.notify import VARIABLE, Notifier
from study.notify import check as check_target
from study.planning import cards, provenance
from study.planning.plan import plan
from study.protocol.destinations import Destinations, shared_tracking
from study.protocol.folder import StudyFolder
from study.protocol.messages import Conclusion
from study.protocol.states import StudyStatus, TrialState
from study.protocol.summary import StudySummary, read
from study.reporting.formatting import answers
from study.reporting.screen import Display, final_text, result
from study.terminal import View, forget, keep_screen, listen
from study.tracking.model_process import loadable
from study.tracking.probe import run_tags
from study.tracking.uri_check import check_uri
from study.uris import DEFAULT_TRACKING, absolute_uri, redacted, sqlite_path
from trainables.arguments import parsed
from trainables.errors import FAILED, FINISHED, INTERRUPTED, WRONG, failure, told
from trainables.object_store import check_uri as check_store
from trainables.object_store import fetched
from trainables.patience import answer

EXIT_CODES = {
    StudyStatus.FINISHED: FINISHED, StudyStatus.FAILED: FAILED, StudyStatus.INTERRUPTED: INTERRUPTED,
}  # fmt: skip
POLL_S = 0.4
SAME_SIGNAL_S = 0.3
"""A second signal counts from here on."""
MLFLOW_WAIT_S = 60.0
"""How long the end of a study waits for the tracking store; what is left is sent by the next launch."""
SCREEN_PACE = 100
"""Times that a summary took are waited before the next one is asked for."""
FETCH_WAIT_S = 60.0
"""How long the end of a study waits for an object store that has its best model."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    return request.parser()


def main(arguments: list[str] | None = None) -> int:
    options = parsed(parser(), arguments)
    try:
        if options.list:
            print(request.listing(), flush=True)
            return FINISHED
        return run(options)
    except BrokenPipeError:
        # The reader of a list or a plan has seen enough; Python would complain when it flushes at the end.
        forget(sys.stdout)
        return FINISHED
    except (ValueError, Held, OSError) as error:
        print(f"error: {told(error)}", file=View(sys.stderr))
        return WRONG
    except KeyboardInterrupt:
        return INTERRUPTED


def run(options: argparse.Namespace) -> int:
    """Check the request, then run the study; raises ValueError or Held for a request that cannot be met."""
    home.provide()
    if options.fresh and int(os.environ.get("SLURM_RESTART_COUNT", "0")):
        print("--fresh was for the first start of this Slurm job; started again, it carries on", file=sys.stderr)
        options.fresh = False
    launch = _launch(options)
    if options.dry_run:
        print(_plan(launch, options), flush=True)
        return FINISHED
    _check_folder(launch)
    check_uri(launch.tracking)
    tags = _recorded_tags(launch.storage, launch.tracking) if launch.found.carried_on else None
    _check_newest(launch, tags)
    summary = _complete(launch, options) if tags is not None else None
    if summary is not None:
        print(final_text(summary, launch.storage), file=sys.stderr if options.json else sys.stdout)
        _print_json(options, summary)
        return FINISHED
    if options.checkpoints:
        check_store(options.checkpoints, probe=True)
    lock = Lock(launch.storage.lock)
    try:
        lock = _make_way(launch, options, lock)
        session = Session(launch.name, launch.profile, launch.study, launch.destinations, options, launch.found.inputs)
        return session.run()
    finally:
        lock.release()


@dataclass(frozen=True)
class Launch:
    """A study that is asked for, and what is there of it."""

    name: str
    """Its name in the ledger."""
    profile: str
    study: spec.Study
    destinations: Destinations
    tracking: str
    """URI of its tracking store."""
    found: OnRecord

    @property
    def storage(self) -> StudyFolder:
        return self.destinations.storage


def _launch(options: argparse.Namespace) -> Launch:
    """What the options ask for, checked against ledger and folder as far as that changes nothing."""
    asked = request.requested(options)
    name, study = asked.name, asked.study
    folder = (options.storage or profiles.default_folder(asked.file.stem, name, asked.profile, options.fresh)).resolve()
    storage = StudyFolder(folder)
    if not options.fresh:
        name = profiles.name_in(folder, asked.file.stem, name, asked.profile)
    ledger = _ledger(options, name)
    target = options.notify or os.environ.get(VARIABLE)
    if target:
        check_target(target)
    given = options.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
    tracking = absolute_uri(given or (DEFAULT_TRACKING if options.address is None else shared_tracking(storage)))
    destinations = Destinations(storage, ledger, tracking, options.checkpoints)
    if options.checkpoints:
        check_store(options.checkpoints, probe=False)
    if options.fresh:
        return Launch(name, asked.profile, study, destinations, tracking, OnRecord.nothing(study))
    found = on_record(destinations.ledger_url, name, study, options.checkpoints)
    if not options.dry_run:
        files.check(storage)
    identity.check(storage, found.id, name, redacted(destinations.ledger_url))
    return Launch(name, asked.profile, study, destinations, tracking, found)


def _ledger(options: argparse.Namespace, name: str) -> str | None:
    """URL of the database that is named for the ledger, checked; None where it is kept in the folder."""
    url = options.ledger or os.environ.get("STUDY_LEDGER")
    if not url:
        return None
    optuna_study.check_url(url)
    url = absolute_uri(url) if sqlite_path(url) is not None else url
    if options.fresh and optuna_study.holds(url, name):
        raise ValueError(
            f"--fresh: the ledger of --ledger already has a study '{name}', which would be carried on; "
            "name another database, or leave --fresh out"
        )
    return url


def _plan(launch: Launch, options: argparse.Namespace) -> str:
    found = launch.found
    here = cards.outlook(launch.study.resources, cards.visible()) if options.address is None else None
    return plan(
        launch.name, launch.profile, launch.study, launch.destinations, found.outlook, found.inputs.moves,
        found.fruitless, here, options.keep,
    )  # fmt: skip


def _check_folder(launch: Launch) -> None:
    """Raise ValueError where the folder cannot be written, or lacks the journal of trials that the ledger has."""
    storage = launch.storage
    _check_writable(storage)
    if launch.found.outlook.states and not storage.journal.exists():
        raise ValueError(
            f"--storage {storage}: the ledger has trials of {launch.name} whose journal is not there; name the folder "
            "that the study was begun in, or another ledger"
        )


def _check_newest(launch: Launch, tags: Mapping[str, str] | None) -> None:
    """Raise `Refused` where the study was last run in another folder, by the tags of its run."""
    if launch.found.carried_on and launch.found.id is not None:
        where = f"its run at {redacted(launch.tracking)}"
        lost = "; if that folder is lost, delete the tag study.launch of it"
        identity.check_launch(launch.storage, launch.found.id, identity.Launch.of(tags or {}), where, lost)


def _complete(launch: Launch, options: argparse.Namespace) -> StudySummary | None:
    """The summary of a study that has nothing left to run or to send; else None."""
    outlook = launch.found.outlook
    retries = options.retry_failed and outlook.states.get(TrialState.FAILED, 0)
    if not outlook.idle or retries or launch.found.inputs.moves or options.register:
        return None
    summary = _summary(launch.storage)
    if summary is None or summary.status != StudyStatus.FINISHED or summary.tracking.pending:
        return None
    return summary


def _make_way(launch: Launch, options: argparse.Namespace, lock: Lock) -> Lock:
    """Wait until no other head runs the study, and put aside what is not carried on; returns the folder's lock."""
    name, url, fruitless = launch.name, launch.destinations.ledger_url, launch.found.fruitless
    if launch.found.carried_on or fruitless:
        lease.await_free(url, name, lambda message: print(message, file=sys.stderr, flush=True))
    if (options.fresh or fruitless) and launch.storage.traces():
        lock = _set_aside(launch.storage, lock)
    if fruitless:
        optuna_study.forget(url, name)
        print(f"{name}: begun again; all of its {fruitless} trial(s) failed before their first step", file=sys.stderr)
    return lock


class Notices:
    """What `--notify` is told of a study."""

    def __init__(self, target: str | None, study: str, say: Callable[[str], None]) -> None:
        """Without a target nobody is told anything."""
        self.study = study
        self.best: tuple[int, ...] | None = None
        self.notifier = Notifier(target, say) if target else None

    def tell(self, event: str, message: str) -> None:
        if self.notifier is not None:
            self.notifier.send(event, self.study, message)

    def update(self, summary: StudySummary) -> None:
        """Tell of a best trial that is not that of the summary before."""
        if self.best is not None and summary.best and summary.best != self.best:
            self.tell("best", result(summary))
        self.best = summary.best

    def close(self) -> None:
        if self.notifier is not None:
            self.notifier.close()


class Session:
    """One launch of a study on this terminal."""

    def __init__(
        self, name: str, profile: str, study: spec.Study, destinations: Destinations, options: Any, before: moved.Begun
    ) -> None:
        self.name, self.profile, self.study, self.before = name, profile, study, before
        self.destinations, self.storage, self.options = destinations, destinations.storage, options
        self.signals, self.told = 0, False
        self.signalled, self.signalled_at = "", -math.inf
        self.engine: Any = None
        self.begun = False
        """Whether the ledger is open: from then on nothing is the request's fault."""
        self.failure: BaseException | None = None
        self.next_look = -math.inf

    def run(self) -> int:
        out, err = keep_screen(self.storage.driver_log)
        screen = err if self.options.json else out
        display = Display(screen, self.study.parameter, self.study.objectives[0].name, self.study.trials)
        listen(self._on_signal)
        display.message(f"{self.name}: checking the inputs, starting Ray; files in {_short(self.storage.path)}")
        for line in request.unused(self.options.address):
            display.message(line)
        self.notices = Notices(self.options.notify or os.environ.get(VARIABLE), self.name, display.message)
        # The inputs are read on one core while Ray is imported and started on the other.
        check = InputCheck(self.study, self.storage)
        try:
            from study.engine.executor import Engine

            check.raise_if_refused()
            self.engine = Engine(self.storage, self.options.address)
            with display.waiting(lambda: "checking the inputs" if check.at_work() else "starting Ray"):
                self.engine.start()
                # Ray has put a handler of its own for SIGTERM in place.
                listen(self._on_signal)
                # What does not fit need not wait for the inputs.
                self.engine.check_room(self.study)
                space = explore(self.study)
                contents = inputs.contents(self.study, space)
                try:
                    found = check.result(display.message, lambda: self.signals > 0)
                except RuntimeError as error:
                    # A stop of a Ray job signals every process of it, the check's too.
                    if self.signals:
                        raise KeyboardInterrupt from error
                    raise
            if self.signals:
                raise KeyboardInterrupt
            self.before.check(self.name, self.study, space, found["facts"], contents)
            return self._conduct(self.engine, found, contents, display, out)
        except KeyboardInterrupt:
            display.close(None)
            display.message("interrupted before anything was begun")
            return INTERRUPTED
        except Exception as error:
            display.close(None)
            if isinstance(error, (ValueError, Held)) and not self.begun:
                print(f"error: {told(error)}", file=err, flush=True)
                return WRONG
            # The log may be on the disk that is full.
            traceback.print_exc(file=View(sys.stderr))
            said = f"the study failed: {failure(error, self.storage.logs)}"
            print(f"error: {said}", file=err, flush=True)
            self.notices.tell("failed", said)
            return FAILED
        finally:
            check.stop()
            if self.engine is not None:
                self.engine.stop()
            self.notices.close()

    def _conduct(self, engine: Any, found: Any, contents: Any, display: Display, out: View) -> int:
        import ray

        options = LaunchOptions(
            tags=provenance.tags()
            | provenance.source(spec.find(self.options.name)[1], self.options.notify)
            | {"cluster": engine.cluster},
            retry_failed=self.options.retry_failed,
            moves=self.before.moves,
            label=self.options.label,
            system_metrics=self.options.system_metrics,
            silence_s=self.options.silence,
            keep=self.options.keep,
        )
        known = moved.as_begun(self.study, self.before)
        actor = engine.open_ledger(self.name, self.profile, known, self.destinations, options)
        self.begun = True
        for note in found["notes"]:
            display.message(note)
        predecessor = answer(actor.predecessor.remote)
        if predecessor:
            display.message(f"{self.name}: {predecessor}")
        answer(lambda: actor.prepared.remote(found["facts"], found["baselines"], contents))
        fitting = threading.Thread(target=self._fit, args=(engine,), daemon=True)
        # A signal that came during the start: no trial is handed out any more.
        self._heed(actor, display)
        fitting.start()
        while fitting.is_alive():
            fitting.join(POLL_S)
            self._heed(actor, display)
        if self.failure is not None:
            why = engine.away(self.failure)
            if why is None:
                raise self.failure
            ray.get(actor.give_up.remote(why))
        self._patient(display, actor.conclude.remote)
        lost = ray.get(actor.lost.remote())
        artifacts, verdict = self._reported(display)
        best = self._best(display)
        models = [(number, self.storage.inside(folder)) for number, folder in best.items() if loadable(folder)]
        if self.options.register and not models:
            display.message(f"--register {self.options.register}: there is no model that sentence-transformers opens")
        report = "/".join(reversed(artifacts[0])) if artifacts else None
        artifacts += [(self.storage.inside(folder), "best") for folder in best.values() if not loadable(folder)]
        conclusion = Conclusion(verdict, report, tuple(models), self.options.register)
        self._patient(display, lambda: actor.found.remote(conclusion))
        complete = self._patient(display, lambda: actor.close.remote(artifacts, MLFLOW_WAIT_S))
        summary = read(self.storage.summary)
        if not complete:
            place, waits = summary.tracking.uri, summary.tracking.error
            when = f" ({waits}); when it takes records again," if waits else ";"
            display.message(f"{place} does not have everything yet{when} the same command sends the rest")
        display.close(summary, self.storage)
        self.notices.tell(summary.status, f"{summary.status}. {result(summary)}")
        if summary.status == StudyStatus.INTERRUPTED:
            display.message(f"{lost or 'interrupted'}; the same command carries on")
        elif summary.status == StudyStatus.FAILED:
            more = f"logs: {_short(self.storage.every_trial_log)}; --retry-failed runs failed trials again"
            display.message(f"the study failed: {summary.reason or more}")
        _print_json(self.options, summary, out)
        return EXIT_CODES[summary.status]

    def _heed(self, actor: Any, display: Display) -> None:
        """Pass the first signal on to the ledger, and show how the study stands."""
        import ray

        if self.signals and not self.told:
            self.told = True
            ray.get(actor.halt.remote(f"stopped by {self.signalled}"))
            display.message("interrupted: trials stop at their next step; once more to stop at once")
        answer(actor.end_silent.remote)
        for notice in ray.get(actor.notices.remote()):
            display.message(notice)
        began = time.monotonic()
        if began < self.next_look:
            return
        summary = ray.get(actor.summary.remote())
        display.update(summary)
        self.notices.update(summary)
        # A long study's summary takes a while to make: the screen takes a small share of the ledger's time.
        self.next_look = began + SCREEN_PACE * (time.monotonic() - began)

    def _patient(self, display: Display, ask: Callable[[], Any]) -> Any:
        """The answer to a call of the study's end, and a word where that has to wait."""
        return answer(ask, say=lambda why: display.message(f"the end of the study waits for its storage: {why}"))

    def _fit(self, engine: Any) -> None:
        try:
            engine.fit(self.study)
        except BaseException as error:
            # Raised again by the main thread, which waits for this one.
            self.failure = error

    def _reported(self, display: Display) -> tuple[list[tuple[str, str]], str | None]:
        """Write the report: (path in the folder, place on the study's run) of its files, and the answer in words."""
        from study.reporting import page

        try:
            written = page.write(self.storage)
            files = [(path.name, "report") for path in (written, *self.storage.figures())]
            return files, page.answer_of(self.storage)
        except (ValueError, OSError) as error:
            display.message(f"the report is not written: {told(error)}")
            return [], None

    def _best(self, display: Display) -> dict[int, Path]:
        """Trial -> folder of its finished model, copied here where an object store has it: the one that answers the
        study's question, or that of each group."""
        summary, found = read(self.storage.summary), {}
        for best in answers(summary):
            if best.checkpoint is None:
                continue
            try:
                place = self.storage.resolved(best.checkpoint)
                found[best.number] = Path(fetched(place, self.storage.best(best.number), FETCH_WAIT_S))
            except OSError as error:
                display.message(f"the best model is not copied to MLflow: {error}")
        return found

    def _on_signal(self, number: int, frame: object) -> None:
        now = time.monotonic()
        # `timeout` and some process managers send the same signal to the process and to its group.
        if now - self.signalled_at < SAME_SIGNAL_S:
            return
        # A shell passes the end of its terminal on, in its own time; nobody has asked twice.
        if self.signals and number == signal.SIGHUP:
            return
        self.signalled_at = now
        self.signals += 1
        self.signalled = signal.Signals(number).name
        if self.signals > 1:
            kill(descendants())
            if self.engine is not None:
                self.engine.remove_temporary()
            os._exit(INTERRUPTED)


def _summary(storage: StudyFolder) -> StudySummary | None:
    """The summary, or None where a launch has to write it again."""
    try:
        return read(storage.summary)
    except ValueError:
        return None


def _set_aside(storage: StudyFolder, lock: Lock) -> Lock:
    """Move a study's folder beside itself, say where it is, and take the lock of the new one."""
    newest = max(path.lstat().st_mtime for path in storage.traces())
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(newest))
    lock.release()
    aside = storage.path.rename(storage.path.with_name(f"{storage.path.name}.{stamp}"))
    print(f"the study that was there is kept in {_short(aside)}", file=sys.stderr, flush=True)
    return Lock(storage.lock)


def _recorded_tags(storage: StudyFolder, tracking: str) -> dict[str, str] | None:
    """Tags of the study's run in this tracking store; None where the store does not have what the folder says."""
    summary = _summary(storage)
    if summary is None or summary.tracking.uri != redacted(tracking) or not summary.tracking.run_id:
        return None
    return run_tags(tracking, summary.tracking.run_id)


def _check_writable(storage: StudyFolder) -> None:
    try:
        storage.path.mkdir(parents=True, exist_ok=True)
        probe = storage.path / f".write-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ValueError(
            f"--storage {storage}: cannot write there ({error.strerror}); name a folder you own"
        ) from error
    if shutil.disk_usage(storage.path).free < 2**28:
        raise ValueError(f"--storage {storage}: less than 256 MiB are free there")


def _short(path: Path) -> str:
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def _print_json(options: argparse.Namespace, summary: StudySummary, out: View | None = None) -> None:
    if options.json:
        print(summary.text(), file=out or sys.stdout, flush=True)


if __name__ == "__main__":
    sys.exit(main())
