"""Run a study, or carry it on: `python -m study.run NAME`.

Exit codes: 0 finished, 1 the study failed, 2 the request is wrong, 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from study import cards, files, home, identity, inputs, lease, moved, profiles, provenance, spec, stored
from study.display import Display, final_text
from study.lock import Held, Lock
from study.plan import plan
from study.processes import descendants, kill
from study.protocol.folder import StudyFolder
from study.protocol.states import StudyStatus, TrialState
from study.protocol.summary import StudySummary, read
from study.screen import View, forget, keep_screen, listen
from study.space import check_settings, explore
from study.tracking_probe import run_tags
from study.tracking_uri import check_uri
from study.uris import absolute_uri, redacted, sqlite_path, sqlite_uri
from study.variants import variants
from trainables import overrides
from trainables.arguments import parsed
from trainables.check import DOING, distinct
from trainables.errors import FAILED, FINISHED, INTERRUPTED, WRONG, failure, told
from trainables.object_store import check_uri as check_store
from trainables.object_store import fetched
from trainables.places import typed

EXIT_CODES = {
    StudyStatus.FINISHED: FINISHED, StudyStatus.FAILED: FAILED, StudyStatus.INTERRUPTED: INTERRUPTED,
}  # fmt: skip
DEFAULT_TRACKING = "sqlite:///studies/mlflow.db"
POLL_S = 0.4
PATIENCE_S = 10.0
"""The check of the inputs says what it is doing when it takes longer."""
SAME_SIGNAL_S = 0.3
"""A second signal counts from here on."""
MLFLOW_WAIT_S = 60.0
"""How long the end of a study waits for the tracking store; what is left is sent by the next launch."""


def parser() -> argparse.ArgumentParser:
    """The command line; `study.submit` takes the same arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m study.run",
        description="Run a study, or carry on one that was interrupted: the same command does both.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="a study of search_spaces/, or the path of a .py file")
    parser.add_argument("--list", action="store_true", help="list the studies and their profiles")
    parser.add_argument("--profile", help="variant of the study (default: embedded)")
    parser.add_argument("--trials", type=int, metavar="N", help="number of trials in all")
    parser.add_argument("--concurrency", type=int, metavar="N", help="trials at a time")
    parser.add_argument(
        "--budget-gpu-hours", type=float, metavar="H", help="stop as Ctrl-C does when trials have held GPUs so long"
    )
    parser.add_argument("--max-nodes", type=int, metavar="N", help="let the cluster's autoscaler go up to N nodes")
    parser.add_argument(
        "--resources", action="append", default=[], metavar="KEY=VALUE",
        help="of a trial's gang: " + ", ".join(spec.Resources.model_fields),
    )  # fmt: skip
    parser.add_argument("--workers-per-trial", type=int, metavar="N", help="workers in the gang of a trial")
    parser.add_argument(
        "--storage", type=typed, metavar="DIR",
        help="folder of the study (default: studies/NAME, or studies/NAME.PROFILE)",
    )  # fmt: skip
    parser.add_argument(
        "--checkpoints", metavar="URI", help="object store for checkpoints, s3://... (default: in the storage folder)"
    )
    parser.add_argument("--ledger", metavar="URL", help="Optuna storage (default: $STUDY_LEDGER, else SQLite)")
    parser.add_argument(
        "--tracking-uri", metavar="URI",
        help="MLflow (default: $MLFLOW_TRACKING_URI, else studies/mlflow.db; with --address beside --storage)",
    )  # fmt: skip
    parser.add_argument("--address", metavar="ADDR", help="Ray cluster (default: one on this machine)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a config value")
    parser.add_argument("--seed", type=int, metavar="N", help="seed of the sampler and of the first replicate")
    parser.add_argument("--fresh", action="store_true", help="begin anew and keep the old study beside it")
    parser.add_argument("--retry-failed", action="store_true", help="run failed trials once more")
    parser.add_argument("--dry-run", action="store_true", help="print what would be run, and run nothing")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON on standard output at the end")
    return parser


def main(arguments: list[str] | None = None) -> int:
    options = parsed(parser(), arguments)
    try:
        if options.list:
            print(_listing(), flush=True)
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
    name, file, profile, study = requested(options)
    folder = (options.storage or profiles.default_folder(file.stem, name, profile, options.fresh)).resolve()
    storage = StudyFolder(folder)
    if not options.fresh:
        name = profiles.name_in(folder, file.stem, name, profile)
    ledger = options.ledger or os.environ.get("STUDY_LEDGER")
    if ledger:
        stored.check_url(ledger)
        ledger = absolute_uri(ledger) if sqlite_path(ledger) is not None else ledger
        if options.fresh and stored.holds(ledger, name):
            raise ValueError(
                f"--fresh: the ledger of --ledger already has a study '{name}', which would be carried on; "
                "name another database, or leave --fresh out"
            )
    url = ledger or stored.default_url(storage)
    given = options.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
    tracking_uri = absolute_uri(given or (DEFAULT_TRACKING if options.address is None else beside(storage)))
    if options.checkpoints:
        check_store(options.checkpoints, probe=False)
    begun, before, fruitless, study_id = _in_ledger(url, name, study, options)
    outlook = stored.outlook(begun, study)
    if not (options.fresh or options.dry_run):
        files.check(storage)
    if not options.fresh:
        identity.check(storage, study_id, name, redacted(url))
    if options.dry_run:
        here = cards.outlook(study.resources, cards.visible()) if options.address is None else None
        shown = plan(
            name, profile, study, storage, options.checkpoints, tracking_uri, outlook, before.moves, fruitless, here
        )
        print(shown, flush=True)
        return FINISHED
    _check_writable(storage)
    if outlook.states and not storage.journal.exists():
        raise ValueError(
            f"--storage {storage}: the ledger has trials of {name} whose journal is not there; name the folder that "
            "the study was begun in, or another ledger"
        )
    check_uri(tracking_uri)
    tags = _recorded_tags(storage, tracking_uri) if begun is not None else None
    if begun is not None and study_id is not None:
        where, lost = (
            f"its run at {redacted(tracking_uri)}",
            "; if that folder is lost, delete the tag study.launch of it",
        )
        identity.check_launch(storage, study_id, identity.Launch.of(tags or {}), where, lost)
    retries = options.retry_failed and outlook.states.get(TrialState.FAILED, 0)
    if begun is not None and outlook.idle and not retries and not before.moves:
        summary = _summary(storage)
        whole = summary is not None and summary.status == StudyStatus.FINISHED and not summary.tracking.pending
        if summary is not None and whole and tags is not None:
            print(final_text(summary, storage), file=sys.stderr if options.json else sys.stdout)
            _print_json(options, summary)
            return FINISHED
    if options.checkpoints:
        check_store(options.checkpoints, probe=True)
    lock = Lock(storage.lock)
    try:
        if begun is not None or fruitless:
            lease.await_free(url, name, lambda message: print(message, file=sys.stderr, flush=True))
        if (options.fresh or fruitless) and storage.traces():
            lock = _set_aside(storage, lock)
        if fruitless:
            stored.forget(url, name)
            print(
                f"{name}: begun again; all of its {fruitless} trial(s) failed before their first step", file=sys.stderr
            )
        session = Session(name, profile, study, storage, url, tracking_uri, options, before)
        return session.run()
    finally:
        lock.release()


def _in_ledger(
    url: str, name: str, study: spec.Study, options: argparse.Namespace
) -> tuple[Any, moved.Begun, int, str | None]:
    """(the study that is carried on, or None, the inputs it was begun with, 0, its id).

    Where another study of this name is there, whose trials all failed before their first step, nothing was learnt
    from it that the change would spoil: (None, no inputs, the number of those trials, that study's id).
    """
    if options.fresh:
        return None, moved.Begun(), 0, None
    before = stored.begun(url, name, study)
    try:
        known = moved.as_begun(study, before)
        found = stored.existing_study(url, name, known, options.checkpoints)
        return found, before, 0, found.user_attrs.get("id") if found is not None else None
    except stored.Different:
        fruitless = stored.fruitless(url, name)
        if not fruitless:
            raise
        return None, moved.Begun(), fruitless, stored.id_of(url, name)


def beside(storage: StudyFolder) -> str:
    """SQLite beside the study's folder, shared by the studies there: on a cluster only that folder is sure to stay."""
    return sqlite_uri(storage.shared_tracking)


def requested(options: argparse.Namespace, elsewhere: bool = False) -> tuple[str, Path, str, spec.Study]:
    """(title of the profile, file, profile, study) that the command line asks for; raises ValueError.

    Paths are relative to the working folder, and absolute in what is returned. A study that will run `elsewhere` must
    have absolute ones.
    """
    if options.name is None:
        raise ValueError(f"which study? There are: {', '.join(spec.available())} (or give the path of a .py file)")
    name, path = spec.find(options.name)
    if options.fresh and options.retry_failed:
        raise ValueError("--retry-failed with --fresh: a study that begins anew has no failed trials; leave one out")
    found = spec.profiles(path)
    profile, default = spec.chosen(found, path, options.profile)
    name = profiles.title(name, profile, default)
    settings = overrides.parse(options.set)
    if "cache" in settings:
        raise ValueError("--set cache: a study keeps its cache in its own folder; name that one with --storage")
    study = spec.changed(found[profile], settings, _changes(options))
    check_settings(study, settings)
    if elsewhere:
        inputs.check_elsewhere(study, explore(study), settings)
        return name, path, profile, study
    study = inputs.located(study, Path.cwd())
    inputs.check(study, explore(study))
    return name, path, profile, study


class InputCheck:
    """Reads a study's inputs and puts a few texts through its models, in a process of its own, before any trial."""

    def __init__(self, study: spec.Study, storage: StudyFolder) -> None:
        self.log = storage.check_log
        config = overrides.apply(study.config, {"cache": str(storage.cache)})
        changes = json.dumps(distinct(study.config, variants(study)))
        self.began = time.monotonic()
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "trainables.check", study.trainer, config.model_dump_json(), changes],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
            )  # fmt: skip
        self.doing, self.found = "", ""
        """What the process says it is doing, and its last word."""
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in map(str.strip, self.process.stdout):
            if line.startswith(DOING):
                self.doing = line.removeprefix(DOING)
            else:
                self.found = line

    def raise_if_refused(self) -> None:
        """Raise the refusal if there already is one; does not wait."""
        if self.process.poll() not in (None, 0):
            self.result(lambda _: None)

    def at_work(self) -> bool:
        return self.process.poll() is None

    def result(self, say: Callable[[str], None], stopped: Callable[[], bool] = lambda: False) -> dict[str, Any]:
        """{"facts": ..., "baselines": ..., "notes": [...]}; ValueError with the refusal. Says what takes long.

        Raises KeyboardInterrupt as soon as it is `stopped`.
        """
        said = ""
        while self.process.poll() is None:
            if stopped():
                raise KeyboardInterrupt
            if self.doing != said and time.monotonic() - self.began > PATIENCE_S:
                said = self.doing
                say(f"checking the inputs: {said}")
            time.sleep(POLL_S / 4)
        self.reader.join()
        if self.process.returncode == WRONG and self.found:
            raise ValueError(self.found)
        if self.process.returncode != 0:
            raise RuntimeError(f"the inputs could not be checked, see {self.log}")
        return json.loads(self.found)

    def stop(self) -> None:
        """End the process if it is still at work."""
        self.process.kill()
        self.process.wait()


class Session:
    """One launch of a study on this terminal."""

    def __init__(
        self, name: str, profile: str, study: spec.Study, storage: StudyFolder, url: str, tracking_uri: str,
        options: Any, before: moved.Begun,
    ) -> None:  # fmt: skip
        self.name, self.profile, self.study, self.storage, self.before = name, profile, study, storage, before
        self.url, self.tracking_uri, self.options = url, tracking_uri, options
        self.signals, self.told = 0, False
        self.signalled, self.signalled_at = "", -math.inf
        self.engine: Any = None
        self.begun = False
        """Whether the ledger is open: from then on nothing is the request's fault."""
        self.failure: BaseException | None = None

    def run(self) -> int:
        out, err = keep_screen(self.storage.driver_log)
        screen = err if self.options.json else out
        display = Display(screen, self.study.parameter, self.study.objectives[0].name, self.study.budget.trials)
        listen(self._on_signal)
        display.message(f"{self.name}: checking the inputs, starting Ray; files in {_short(self.storage.path)}")
        for line in unused(self.options.address):
            display.message(line)
        # The inputs are read on one core while Ray is imported and started on the other.
        check = InputCheck(self.study, self.storage)
        try:
            from study.executor import Engine

            check.raise_if_refused()
            self.engine = Engine(self.storage, self.options.address)
            with display.waiting(lambda: "checking the inputs" if check.at_work() else "starting Ray"):
                self.engine.start()
                # Ray has put a handler of its own for SIGTERM in place.
                listen(self._on_signal)
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
            traceback.print_exc()
            print(f"error: the study failed: {failure(error, self.storage.logs)}", file=err, flush=True)
            return FAILED
        finally:
            check.stop()
            if self.engine is not None:
                self.engine.stop()

    def _conduct(self, engine: Any, found: Any, contents: Any, display: Display, out: View) -> int:
        import ray

        engine.check_room(self.study)
        actor = engine.open_ledger(
            name=self.name, profile=self.profile, study=moved.as_begun(self.study, self.before), storage=self.storage,
            url=self.url, tracking_uri=self.tracking_uri, tags=provenance.tags() | {"command": provenance.command()},
            retry_failed=self.options.retry_failed, checkpoints=self.options.checkpoints, moves=self.before.moves,
        )  # fmt: skip
        self.begun = True
        for note in found["notes"]:
            display.message(note)
        predecessor = ray.get(actor.predecessor.remote())
        if predecessor:
            display.message(f"{self.name}: {predecessor}")
        ray.get(actor.prepared.remote(found["facts"], found["baselines"], contents))
        fitting = threading.Thread(target=self._fit, args=(engine,), daemon=True)
        # A signal that came during the start: no trial is handed out any more.
        self._heed(actor, display)
        fitting.start()
        while fitting.is_alive():
            fitting.join(POLL_S)
            self._heed(actor, display)
        if self.failure is not None:
            raise self.failure
        ray.get(actor.conclude.remote())
        lost = ray.get(actor.lost.remote())
        artifacts = self._artifacts(display)
        complete = ray.get(actor.close.remote(artifacts, MLFLOW_WAIT_S))
        summary = read(self.storage.summary)
        if not complete:
            place, waits = redacted(self.tracking_uri), summary.tracking.error
            when = f" ({waits}); when it takes records again," if waits else ";"
            display.message(f"{place} does not have everything yet{when} the same command sends the rest")
        display.close(summary, self.storage)
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
        display.update(ray.get(actor.summary.remote()))

    def _fit(self, engine: Any) -> None:
        try:
            engine.fit(self.study)
        except BaseException as error:
            # Raised again by the main thread, which waits for this one.
            self.failure = error

    def _artifacts(self, display: Display) -> list[tuple[str, str]]:
        """Write the report; what goes on the parent run, as paths in the folder: report, plots and the best model."""
        from study import report

        found = []
        try:
            written = report.write(self.storage)
            found += [(path.name, "report") for path in (written, *self.storage.figures())]
        except (ValueError, OSError) as error:
            display.message(f"the report is not written: {told(error)}")
        summary = read(self.storage.summary)
        for number in summary.best[:1]:
            checkpoint = summary.trials[number].checkpoint
            if checkpoint is None:
                continue
            try:
                place = self.storage.resolved(checkpoint)
                best = fetched(place, self.storage.best(number), MLFLOW_WAIT_S)
                found.append((self.storage.inside(best), "best"))
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


def _changes(options: argparse.Namespace) -> dict[str, Any]:
    """Options that change the study itself, as dotted keys of `Study`."""
    given = {
        "budget.trials": options.trials,
        "budget.gpu_hours": options.budget_gpu_hours,
        "resources.concurrency": options.concurrency,
        "resources.max_nodes": options.max_nodes,
        "resources.workers": options.workers_per_trial,
        "seed": options.seed,
    }
    return resource_changes(options.resources) | {key: value for key, value in given.items() if value is not None}


def unused(address: str | None) -> list[str]:
    """What is said of an environment that names a cluster where the command line names none."""
    if address is not None or "RAY_ADDRESS" not in os.environ:
        return []
    return ["RAY_ADDRESS is not used: everything runs on this machine; --address names a cluster"]


def resource_changes(given: list[str]) -> dict[str, Any]:
    """What `--resources` changes, as dotted keys of `Study`."""
    return {f"resources.{key}": value for key, value in overrides.parse(given, "--resources").items()}


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


def _recorded_tags(storage: StudyFolder, tracking_uri: str) -> dict[str, str] | None:
    """Tags of the study's run in this tracking store; None where the store does not have what the folder says."""
    summary = _summary(storage)
    if summary is None or summary.tracking.uri != redacted(tracking_uri) or not summary.tracking.run_id:
        return None
    return run_tags(tracking_uri, summary.tracking.run_id)


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


def _listing() -> str:
    lines = []
    for name, path in spec.available().items():
        found = spec.profiles(path)
        lines.append(f"{name}  ({', '.join(found)})\n    {next(iter(found.values())).question}")
    return "\n".join(lines)


def _short(path: Path) -> str:
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def _print_json(options: argparse.Namespace, summary: StudySummary, out: View | None = None) -> None:
    if options.json:
        print(summary.text(), file=out or sys.stdout, flush=True)


if __name__ == "__main__":
    sys.exit(main())
