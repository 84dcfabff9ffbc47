"""Full evaluation of finished trials: `python -m study.evaluate NAME --suite SUITE --trials best|N,...`.

The search is led by something cheap; what is published is measured here, on all documents of each collection.
The same command carries on after whatever happened, and encodes no document twice.

Exit codes: 0 finished, 1 the evaluation failed, 2 the request is wrong, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from study import home, spec
from study.ledger.lock import Held, Lock
from study.profiles import existing
from study.protocol.folder import EvaluationFolder, StudyFolder, WorkFolder
from study.protocol.measured import Measured
from study.protocol.summary import StudySummary, TrialSummary, read
from study.reporting.suite_tables import tabled, write
from study.request import resource_changes, unused
from study.selection import finished_trials
from study.suites.measurements import Planned, measure, measured, plan, read_result
from study.suites.suites import resolve
from study.terminal import View, keep_screen, listen
from study.tracking.uri_check import check_uri
from study.uris import absolute_uri, redacted
from trainables.arguments import command, parsed
from trainables.errors import FAILED, FINISHED, INTERRUPTED, WRONG, failure, told
from trainables.evaluation.suites import SUITES
from trainables.places import typed


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = command(
        "study.evaluate", "Measure finished trials on whole collections, or carry on where that was interrupted.",
        "splade_k_search --suite nanobeir --trials best",
        "my_study.py --suite my_collection --trials 0,3",
    )  # fmt: skip
    parser.add_argument("name", metavar="NAME", help="a study of search_spaces/, or the path of a .py file")
    parser.add_argument(
        "--suite", required=True, metavar="SUITE", help=f"{', '.join(SUITES)}, or a folder in BEIR layout"
    )
    parser.add_argument("--trials", required=True, metavar="best|N,...", help="the study's best trial, or numbers")
    parser.add_argument(
        "--qrels-split", metavar="NAME", help="of a folder: judgements of qrels/NAME.tsv (default: test)"
    )
    parser.add_argument(
        "--drop-own-id", action="store_true",
        help="of a folder: a document with the query's own id is no result, as in BEIR's scripts",
    )  # fmt: skip
    parser.add_argument(
        "--licensed",
        type=typed,
        metavar="DIR",
        help="of beir18: folder with those of its collections that are not free",
    )
    parser.add_argument("--profile", help="variant of the study (default: its default one)")
    parser.add_argument(
        "--storage", type=typed, metavar="DIR", help="folder of the study (default: where study.run keeps the profile)"
    )
    parser.add_argument("--tracking-uri", metavar="URI", help="MLflow of the study, where its URI has a password")
    parser.add_argument("--address", metavar="ADDR", help="Ray cluster (default: one on this machine)")
    parser.add_argument(
        "--resources", action="append", default=[], metavar="KEY=VALUE",
        help="of a worker, where it takes others than the study's: " + ", ".join(spec.Resources.model_fields),
    )  # fmt: skip
    parser.add_argument("--workers", type=int, metavar="N", help="workers (default: as many as there is room for)")
    parser.add_argument(
        "--cache", type=typed, metavar="DIR", help="folder for vectors, seen by all nodes (default: in the storage)"
    )
    parser.add_argument(
        "--vectors", choices=("float32", "float16"), default="float32", help="what documents' vectors are kept in"
    )
    return parser


def main(arguments: list[str] | None = None) -> int:
    options = parsed(parser(), arguments)
    screen = Screen()
    try:
        return run(options, screen)
    except (ValueError, Held) as error:
        screen.say(f"error: {told(error)}")
        return WRONG
    except KeyboardInterrupt:
        screen.say("interrupted; the same command carries on")
        return INTERRUPTED
    except Exception as error:
        if isinstance(error, OSError) and screen.log is None:
            screen.say(f"error: {told(error)}")
            return WRONG
        traceback.print_exc()
        screen.say(f"error: the evaluation failed: {failure(error, screen.log)}")
        return FAILED


class Screen:
    """Standard output for the result, standard error for what happens meanwhile."""

    def __init__(self) -> None:
        self.out, self.err = View(sys.stdout), View(sys.stderr)
        self.log: Path | None = None

    def keep(self, log: Path) -> None:
        """Whatever libraries print goes to `log` from now on."""
        self.out, self.err = keep_screen(log)
        self.log = log

    def say(self, message: str) -> None:
        print(message, file=self.err, flush=True)


def run(options: argparse.Namespace, screen: Screen) -> int:
    """Check the request, then measure; raises ValueError or Held for a request that cannot be met."""
    if options.workers is not None and options.workers < 1:
        raise ValueError(f"--workers {options.workers}: at least 1 is needed")
    home.provide()
    suite = resolve(
        options.suite, qrels_split=options.qrels_split, drop_own_id=options.drop_own_id, licensed=options.licensed
    )
    name, path = spec.find(options.name)
    storage = StudyFolder(existing(name, options.profile, options.storage).resolve())
    summary = read(storage.summary)
    _, study = spec.load(path, summary.profile, {}, resource_changes(options.resources))
    trials = finished_trials(summary, "--trials", options.trials, several=True)
    uri = tracking_uri(options.tracking_uri, summary)
    place = storage.evaluation
    cache = (options.cache or place.cache).resolve()
    locks = [Lock(place.lock), Lock(WorkFolder(cache).lock)]
    try:
        planned = plan(study.trainer, storage, trials, suite, options.vectors, cache, screen.say)
        missing = [one for one in planned if read_result(one) is None]
        if missing:
            _measure(missing, study.resources, options, place, screen)
        results = [measured(one) for one in planned]
        page = write(place, suite, summary, trials, results)
    finally:
        for lock in locks:
            lock.release()
    _record(uri, summary, trials, suite.name, results, page, screen)
    print(page.read_text(), end="", file=screen.out, flush=True)
    screen.say(f"{page}, with all figures in {page.with_suffix('.json')}")
    return FINISHED


def tracking_uri(given: str | None, summary: StudySummary) -> str | None:
    """Where the study's runs are; ValueError where a `given` place is another one.

    On record is the URI without a password that it may have; that is then `given`, or MLFLOW_TRACKING_URI.
    """
    recorded = summary.tracking.uri
    uri = absolute_uri(given or os.environ.get("MLFLOW_TRACKING_URI") or "")
    if redacted(uri) == absolute_uri(recorded or ""):
        return uri
    if given:
        raise ValueError(f"--tracking-uri {redacted(given)}: the runs of {summary.study} are at {recorded}")
    return recorded


def _record(
    uri: str | None,
    summary: StudySummary,
    trials: Sequence[TrialSummary],
    suite: str,
    results: Sequence[Measured],
    page: Path,
    screen: Screen,
) -> None:
    """Put what was measured into MLflow, beside the trials' other metrics; it stays in the storage if that fails."""
    run_id, runs = summary.tracking.run_id, {trial.run_id: trial for trial in trials if trial.run_id is not None}
    if uri is None or run_id is None or len(runs) < len(trials):
        screen.say("not recorded in MLflow: the study's own records are not there yet; the same command tries again")
        return
    from study.tracking.suite_results import record

    tables = (page, page.with_suffix(".json"))
    try:
        check_uri(uri)
        record(uri, run_id, runs, suite, tabled(results), tables)
    except Exception as error:
        screen.say(f"not recorded in MLflow: {redacted(told(error, 300))}; the same command tries again")


def _measure(
    planned: Sequence[Planned],
    resources: spec.Resources,
    options: argparse.Namespace,
    place: EvaluationFolder,
    screen: Screen,
) -> None:
    shards = sum(one.measurement.shards for one in planned)
    documents = sum(one.measurement.corpus.size for one in planned)
    screen.say(f"{len(planned)} measurement(s), {documents:,} documents in {shards} shard(s); starting Ray")
    for line in unused(options.address):
        screen.say(line)
    screen.keep(place.driver_log)
    from study.engine.executor import Engine

    engine = Engine(place, options.address)
    listen(signal.default_int_handler)
    try:
        engine.start()
        # Ray has put a handler of its own for SIGTERM in place.
        listen(signal.default_int_handler)
        measure(planned, resources, options.workers, screen.say)
    finally:
        engine.stop()


if __name__ == "__main__":
    sys.exit(main())
