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
from typing import Any, TextIO

from study import files, inputs, moved, provenance, spec, stored
from study.display import Display, final_text
from study.lock import Held, Lock
from study.plan import plan
from study.processes import descendants, kill
from study.space import explore
from study.tracking_uri import SQLITE, absolute_uri, check_uri, masked
from study.variants import variants
from trainables import overrides
from trainables.arguments import parsed
from trainables.check import distinct
from trainables.errors import failure, told
from trainables.object_store import check_uri as check_store
from trainables.object_store import fetched
from trainables.places import typed

FINISHED, FAILED, WRONG, INTERRUPTED = 0, 1, 2, 130
DEFAULT_TRACKING = "sqlite:///studies/mlflow.db"
POLL_S = 0.4
PATIENCE_S = 10.0
"""The check of the inputs says what it is doing when it takes longer."""
SAME_SIGNAL_S = 0.3
"""A second signal counts from here on."""
BEGUN = ("ledger.db", "journal.jsonl", "summary.json")
"""Any of them shows that a study was begun in a folder."""
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
    parser.add_argument("--storage", type=typed, metavar="DIR", help="folder of the study (default: studies/NAME)")
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
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINISHED
    except (ValueError, Held, OSError) as error:
        print(f"error: {told(error)}", file=sys.stderr)
        return WRONG
    except KeyboardInterrupt:
        return INTERRUPTED


def run(options: argparse.Namespace) -> int:
    """Check the request, then run the study; raises ValueError or Held for a request that cannot be met."""
    name, _, profile, study = requested(options)
    storage = (options.storage or Path("studies") / name).resolve()
    ledger = options.ledger or os.environ.get("STUDY_LEDGER")
    if ledger:
        stored.check_url(ledger)
        ledger = absolute_uri(ledger) if ledger.startswith(SQLITE) else ledger
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
    begun, before, fruitless = _in_ledger(url, name, study, options)
    outlook = stored.outlook(begun, study)
    if options.dry_run:
        shown = plan(name, profile, study, storage, options.checkpoints, tracking_uri, outlook, before.moves, fruitless)
        print(shown, flush=True)
        return FINISHED
    _check_writable(storage)
    if not options.fresh:
        files.check(storage)
    if outlook.states and not (storage / "journal.jsonl").exists():
        raise ValueError(
            f"--storage {storage}: the ledger has trials of {name} whose journal is not there; name the folder that "
            "the study was begun in, or another ledger"
        )
    check_uri(tracking_uri)
    retries = options.retry_failed and outlook.states.get("failed", 0)
    if begun is not None and outlook.idle and not retries and not before.moves:
        summary = _whole_summary(storage)
        if summary and summary["status"] == "finished" and not summary["mlflow"].get("pending"):
            print(final_text(summary, storage / "report.html"), file=sys.stderr if options.json else sys.stdout)
            _print_json(options, summary)
            return FINISHED
    if options.checkpoints:
        check_store(options.checkpoints, probe=True)
    lock = Lock(storage / "lock")
    try:
        if (options.fresh or fruitless) and any(os.path.lexists(storage / name) for name in BEGUN):
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


def _in_ledger(url: str, name: str, study: spec.Study, options: argparse.Namespace) -> tuple[Any, moved.Begun, int]:
    """(the study that is carried on, or None, the inputs it was begun with, 0).

    Where another study of this name is there, whose trials all failed before their first step, nothing was learnt
    from it that the change would spoil: (None, no inputs, the number of those trials).
    """
    if options.fresh:
        return None, moved.Begun(), 0
    before = stored.begun(url, name, study)
    try:
        known = moved.as_begun(study, before)
        return stored.existing_study(url, name, known, options.checkpoints), before, 0
    except stored.Different:
        fruitless = stored.fruitless(url, name)
        if not fruitless:
            raise
        return None, moved.Begun(), fruitless


def beside(storage: Path) -> str:
    """SQLite beside the study's folder, shared by the studies there: on a cluster only that folder is sure to stay."""
    return f"{SQLITE}{storage.parent / 'mlflow.db'}"


def requested(options: argparse.Namespace, elsewhere: bool = False) -> tuple[str, Path, str, spec.Study]:
    """(name, file, profile, study) that the command line asks for; raises ValueError.

    Paths are relative to the working folder, and absolute in what is returned. A study that will run `elsewhere` must
    have absolute ones.
    """
    if options.name is None:
        raise ValueError(f"which study? There are: {', '.join(spec.available())} (or give the path of a .py file)")
    name, path = spec.find(options.name)
    if options.fresh and options.retry_failed:
        raise ValueError("--retry-failed with --fresh: a study that begins anew has no failed trials; leave one out")
    settings = overrides.parse(options.set)
    if "cache" in settings:
        raise ValueError("--set cache: a study keeps its cache in its own folder; name that one with --storage")
    profile, study = spec.load(path, options.profile, settings, _changes(options))
    if elsewhere:
        inputs.check_elsewhere(study, explore(study), settings)
        return name, path, profile, study
    study = inputs.located(study, Path.cwd())
    inputs.check(study, explore(study))
    return name, path, profile, study


class InputCheck:
    """Reads a study's inputs and puts a few texts through its models, in a process of its own, before any trial."""

    def __init__(self, study: spec.Study, storage: Path) -> None:
        self.log = storage / "logs" / "check.log"
        config = overrides.apply(study.config, {"cache": str(storage / "cache")})
        changes = json.dumps(distinct(study.config, variants(study)))
        self.began = time.monotonic()
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "trainables.check", study.trainer, config.model_dump_json(), changes],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
            )  # fmt: skip
        self.doing = ""
        """The newest line that the process has printed: the last one is its result."""
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.doing = line.strip()

    def raise_if_refused(self) -> None:
        """Raise the refusal if there already is one; does not wait."""
        if self.process.poll() not in (None, 0):
            self.result(lambda _: None)

    def result(self, say: Callable[[str], None]) -> dict[str, Any]:
        """{"facts": ..., "baselines": ..., "notes": [...]}; ValueError with the refusal. Says what takes long."""
        said = ""
        while self.process.poll() is None:
            if self.doing != said and time.monotonic() - self.began > PATIENCE_S:
                said = self.doing
                say(f"checking the inputs: {said}")
            time.sleep(POLL_S / 4)
        self.reader.join()
        if self.process.returncode == WRONG and self.doing:
            raise ValueError(self.doing)
        if self.process.returncode != 0:
            raise RuntimeError(f"the inputs could not be checked, see {self.log}")
        return json.loads(self.doing)

    def stop(self) -> None:
        """End the process if it is still at work."""
        self.process.kill()
        self.process.wait()


class Session:
    """One launch of a study on this terminal."""

    def __init__(
        self, name: str, profile: str, study: spec.Study, storage: Path, url: str, tracking_uri: str, options: Any,
        before: moved.Begun,
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
        out, err = keep_screen(self.storage / "logs" / "driver.log")
        screen = err if self.options.json else out
        display = Display(screen, self.study.parameter, self.study.objectives[0].name, self.study.budget.trials)
        self._listen()
        display.message(f"{self.name}: checking the inputs, starting Ray; files in {_short(self.storage)}")
        # The inputs are read on one core while Ray is imported and started on the other.
        check = InputCheck(self.study, self.storage)
        try:
            from study.executor import Engine

            check.raise_if_refused()
            self.engine = Engine(self.storage, self.options.address)
            self.engine.start()
            # Ray has put a handler of its own for SIGTERM in place.
            self._listen()
            space = explore(self.study)
            contents = inputs.contents(self.study, space)
            try:
                found = check.result(display.message)
            except RuntimeError:
                # A stop of a Ray job signals every process of it, the check's too.
                if self.signals:
                    display.message("interrupted; the same command carries on")
                    return INTERRUPTED
                raise
            self.before.check(self.name, self.study, space, found["facts"], contents)
            return self._conduct(self.engine, found, contents, display, out)
        except Exception as error:
            display.close(None)
            if isinstance(error, (ValueError, Held)) and not self.begun:
                print(f"error: {told(error)}", file=err, flush=True)
                return WRONG
            traceback.print_exc()
            print(f"error: the study failed: {failure(error, self.storage / 'logs')}", file=err, flush=True)
            return FAILED
        finally:
            check.stop()
            if self.engine is not None:
                self.engine.stop()

    def _conduct(self, engine: Any, found: Any, contents: Any, display: Display, out: TextIO) -> int:
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
        artifacts = self._artifacts(display)
        complete = ray.get(actor.close.remote(artifacts, MLFLOW_WAIT_S))
        summary = json.loads((self.storage / "summary.json").read_text())
        if not complete:
            place, waits = masked(self.tracking_uri), summary["mlflow"]["error"]
            when = f" ({waits}); when it takes records again," if waits else ";"
            display.message(f"{place} does not have everything yet{when} the same command sends the rest")
        display.close(summary, self.storage / "report.html")
        if summary["status"] == "interrupted":
            display.message("interrupted; the same command carries on")
        elif summary["status"] == "failed":
            logs = _short(self.storage / "logs")
            more = f"logs: {logs}/trial-*.log; --retry-failed runs failed trials again"
            display.message(f"the study failed: {summary['reason'] or more}")
        _print_json(self.options, summary, out)
        return {"finished": FINISHED, "failed": FAILED, "interrupted": INTERRUPTED}[summary["status"]]

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
        """Write the report; what goes on the parent run: report, plots, summary and the best model."""
        from study import report

        found = []
        try:
            written = report.write(self.storage)
            found += [(str(path), "report") for path in (written, *sorted(self.storage.glob("*.png")))]
        except (ValueError, OSError) as error:
            display.message(f"the report is not written: {told(error)}")
        summary = json.loads((self.storage / "summary.json").read_text())
        for number in summary["best"][:1]:
            checkpoint = summary["trials"][number]["checkpoint"]
            if checkpoint is None:
                continue
            try:
                best = fetched(checkpoint, self.storage / "best" / f"trial-{number:04d}", MLFLOW_WAIT_S)
                found.append((str(best), "best"))
            except OSError as error:
                display.message(f"the best model is not copied to MLflow: {error}")
        return found

    def _listen(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: object) -> None:
        now = time.monotonic()
        # `timeout` and some process managers send the same signal to the process and to its group.
        if now - self.signalled_at < SAME_SIGNAL_S:
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
    resources = overrides.parse(options.resources, "--resources")
    return {f"resources.{key}": value for key, value in resources.items()} | {
        key: value for key, value in given.items() if value is not None
    }


def keep_screen(log: Path) -> tuple[TextIO, TextIO]:
    """Keep this process's screen for itself: whatever libraries print goes to a file from now on."""
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    out, err = (os.fdopen(os.dup(number), "w", buffering=1) for number in (1, 2))
    with log.open("a") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    return out, err


def _whole_summary(storage: Path) -> dict[str, Any] | None:
    """The summary, or None where a launch has to write it again."""
    try:
        summary = files.read_summary(storage / "summary.json")
    except ValueError:
        return None
    return summary if isinstance(summary.get("mlflow"), dict) else None


def _set_aside(storage: Path, lock: Lock) -> Lock:
    """Move a study's folder beside itself, and take the lock of the new one."""
    newest = max(os.lstat(storage / name).st_mtime for name in BEGUN if os.path.lexists(storage / name))
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(newest))
    lock.release()
    storage.rename(storage.with_name(f"{storage.name}.{stamp}"))
    return Lock(storage / "lock")


def _check_writable(storage: Path) -> None:
    try:
        storage.mkdir(parents=True, exist_ok=True)
        probe = storage / f".write-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ValueError(
            f"--storage {storage}: cannot write there ({error.strerror}); name a folder you own"
        ) from error
    if shutil.disk_usage(storage).free < 2**28:
        raise ValueError(f"--storage {storage}: less than 256 MiB are free there")


def _listing() -> str:
    lines = []
    for name, path in spec.available().items():
        found = spec.profiles(path)
        lines.append(f"{name}  ({', '.join(found)})\n    {next(iter(found.values())).question}")
    return "\n".join(lines)


def _short(path: Path) -> str:
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def _print_json(options: argparse.Namespace, summary: dict[str, Any], out: TextIO | None = None) -> None:
    if options.json:
        print(json.dumps(summary, indent=2), file=out or sys.stdout, flush=True)


if __name__ == "__main__":
    sys.exit(main())
