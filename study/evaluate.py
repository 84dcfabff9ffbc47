"""Full evaluation of finished trials: `python -m study.evaluate NAME --suite SUITE --trials best|N,...`.

The search is led by something cheap; what is published is measured here, on all documents of each collection.
The same command carries on after whatever happened, and encodes no document twice.

Exit codes: 0 finished, 1 the evaluation failed, 2 the request is wrong, 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from study import home, spec
from study.ledger.lock import Held, Lock
from study.profiles import existing
from study.protocol.folder import (
    EvaluationFolder,
    ReplicateFolder,
    StudyFolder,
    TrialFolder,
    WorkFolder,
    stored_model,
    trial_of,
)
from study.protocol.journal import TrialBegun
from study.protocol.states import TrialState
from study.protocol.summary import StudySummary, TrialSummary, read
from study.reporting.suite_tables import Measured, tabled, write
from study.request import resource_changes, unused
from study.suites.suites import resolve
from study.terminal import View, keep_screen, listen
from study.tracking.uri_check import check_uri
from study.uris import absolute_uri, redacted
from trainables import overrides, trainers
from trainables.arguments import parsed
from trainables.data.corpora import open_corpus
from trainables.digests import json_digest
from trainables.errors import FAILED, FINISHED, INTERRUPTED, WRONG, failure, told
from trainables.evaluation.measurement import (
    Counting,
    Measurement,
    Precision,
    model_identity,
    remove_leftovers,
)
from trainables.evaluation.suites import SUITES, Dataset, Suite
from trainables.files import write_whole
from trainables.object_store import fetched
from trainables.places import typed

SAY_EVERY_S = 10.0
STORE_WAIT_S = 60.0
"""How long an object store may be away."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m study.evaluate",
        description="Measure finished trials on whole collections, or carry on where that was interrupted.",
    )
    parser.add_argument("name", metavar="NAME", help="a study of search_spaces/, or the path of a .py file")
    parser.add_argument(
        "--suite", required=True, metavar="SUITE", help=f"{', '.join(SUITES)}, or a folder in BEIR layout"
    )
    parser.add_argument("--trials", required=True, metavar="best|N,...", help="the study's best trial, or numbers")
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


@dataclass(frozen=True)
class Planned:
    """A measurement, and what it is called."""

    trial: int
    replicate: int
    dataset: Dataset
    measurement: Measurement
    path: Path
    """Where its result goes."""

    @property
    def title(self) -> str:
        return f"{self.dataset.name}, trial {self.trial}, replicate {self.replicate}"


def run(options: argparse.Namespace, screen: Screen) -> int:
    """Check the request, then measure; raises ValueError or Held for a request that cannot be met."""
    if options.workers is not None and options.workers < 1:
        raise ValueError(f"--workers {options.workers}: at least 1 is needed")
    home.provide()
    suite = resolve(options.suite)
    name, path = spec.find(options.name)
    storage = StudyFolder(existing(name, options.profile, options.storage).resolve())
    summary = read(storage.summary)
    _, study = spec.load(path, summary.profile, {}, resource_changes(options.resources))
    trials = chosen(summary, options.trials)
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
    measured_at = {one.trial: (read_result(one) or {})["time"] for one in planned}
    _record(uri, summary, trials, suite.name, measured_at, results, page, screen)
    print(page.read_text(), end="", file=screen.out, flush=True)
    screen.say(f"{page}, with all figures in {page.with_suffix('.json')}")
    return FINISHED


def chosen(summary: StudySummary, asked: str) -> list[TrialSummary]:
    """The entries of the trials that `--trials` names; ValueError for one that is not there or not finished."""
    trials = {trial.number: trial for trial in summary.trials}
    complete = [number for number, trial in trials.items() if trial.state == TrialState.COMPLETE]
    finished = f"finished are {', '.join(map(str, complete))}" if complete else "no trial is finished"
    if asked == "best":
        numbers = list(summary.best)
        if not numbers:
            raise ValueError(f"--trials best: {summary.study} has no best trial yet; {finished}")
    else:
        parts = [part.strip() for part in asked.split(",")]
        if not all(part.isdecimal() for part in parts):
            raise ValueError(f"--trials {asked}: give 'best', or numbers of trials such as 0,3; {finished}")
        numbers = list(dict.fromkeys(map(int, parts)))
    for number in numbers:
        if number not in trials:
            raise ValueError(f"--trials {asked}: {summary.study} has no trial {number}; {finished}")
        if number not in complete:
            raise ValueError(f"--trials {asked}: trial {number} is {trials[number].state}; {finished}")
    return [trials[number] for number in numbers]


def plan(
    trainer: str,
    storage: StudyFolder,
    trials: Sequence[TrialSummary],
    suite: Suite,
    vectors: Precision,
    cache: Path,
    say: Callable[[str], None],
) -> list[Planned]:
    """All measurements of a suite, model after model, so that a worker seldom changes its encoder.

    Opens every collection: ValueError where one cannot be read or a trial has no exported model.
    """
    models = []
    configs = trial_configs(trainer, storage, {trial.number for trial in trials})
    for trial in trials:
        number = trial.number
        folders = exported(storage, trial, cache)
        if number not in configs:
            raise ValueError(f"{storage.journal} has no trial {number}: it is not the journal of this study")
        if not folders:
            where = storage.inside(storage.trial(number).every_replicate)
            raise ValueError(f"trial {number} of {storage} has no exported model in {where}/")
        models += [(number, found.number, found.model, model_identity(found.model)) for found in folders]
    opened = []
    for dataset in suite.datasets:
        say(f"{dataset.name}: reading {dataset.source}")
        corpus, topics = open_corpus(dataset.source, cache)
        for note in topics.notes:
            say(note)
        opened.append((dataset, corpus, topics))
    return [
        Planned(
            number, replicate, dataset,
            Measurement(
                trainer, configs[number], folder, identity, corpus, topics,
                Counting(suite.metrics, dataset.own_id, dataset.relevant), vectors, cache,
            ),
            storage.evaluation.result(suite.name, dataset.name, number, replicate),
        )
        for number, replicate, folder, identity in models
        for dataset, corpus, topics in opened
    ]  # fmt: skip


def exported(storage: StudyFolder, trial: TrialSummary, cache: Path) -> list[ReplicateFolder]:
    """Replicates of a trial that have a model; where an object store has it, copies that all workers see."""
    place = trial.checkpoint or ""
    if "://" not in place:
        return [found for found in storage.trial(trial.number).replicates() if found.model.is_dir()]
    stored = trial_of(place)
    copies = TrialFolder(cache / "models" / json_digest(stored)[:16])
    found = [copies.replicate(replicate) for replicate in range(len(trial.replicates))]
    for replicate in found:
        fetched(stored_model(stored, replicate.number), replicate.path, STORE_WAIT_S)
    return found


def trial_configs(trainer: str, storage: StudyFolder, numbers: Container[int]) -> dict[int, dict[str, Any]]:
    """Number -> config of each of these trials, as it was begun, from the study's journal."""
    model = trainers.module(trainer, "config").Config
    configs: dict[int, dict[str, Any]] = {}
    for begun in storage.entries(TrialBegun):
        if begun.trial not in numbers:
            continue
        tree: dict[str, Any] = {}
        for key, value in begun.params.items():
            *sections, leaf = key.split(".")
            node = tree
            for section in sections:
                node = node.setdefault(section, {})
            node[leaf] = value
        # The study's seed is written beside the config.
        tree.pop("seed")
        configs[begun.trial] = overrides.validate(model, tree).model_dump(mode="json", exclude={"cache"})
    return configs


def read_result(planned: Planned) -> dict[str, Any] | None:
    """What an earlier launch measured; None where it did not, or measured something else."""
    if not planned.path.exists():
        return None
    try:
        result = json.loads(planned.path.read_bytes())
        whole = all(key in result for key in ("values", "per_item", "time"))
        return result if whole and result["identity"] == planned.measurement.identity else None
    except (ValueError, KeyError, TypeError):
        # It is measured again.
        return None


def measured(planned: Planned) -> Measured:
    """The result that is there now."""
    result = read_result(planned)
    assert result is not None
    return Measured(planned.trial, planned.replicate, planned.dataset.name, result["values"], result["per_item"])


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
    measured_at: dict[int, int],
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
        record(uri, run_id, runs, suite, tabled(results), measured_at, tables)
    except Exception as error:
        screen.say(f"not recorded in MLflow: {redacted(told(error, 300))}; the same command tries again")


def _measure(
    planned: Sequence[Planned],
    resources: spec.Resources,
    options: argparse.Namespace,
    place: EvaluationFolder,
    screen: Screen,
) -> None:
    remove_leftovers(planned[0].measurement.cache)
    shards = sum(one.measurement.shards for one in planned)
    documents = sum(one.measurement.corpus.size for one in planned)
    screen.say(f"{len(planned)} measurement(s), {documents:,} documents in {shards} shard(s); starting Ray")
    for line in unused(options.address):
        screen.say(line)
    screen.keep(place.driver_log)
    from study.engine.executor import Engine
    from study.suites import worker_pool

    engine = Engine(place, options.address)
    listen(signal.default_int_handler)
    try:
        engine.start()
        # Ray has put a handler of its own for SIGTERM in place.
        listen(signal.default_int_handler)
        said = began = time.monotonic()
        done = encoded = 0
        for event in worker_pool.run([one.measurement for one in planned], resources, options.workers):
            one = planned[event.measurement]
            if isinstance(event, worker_pool.Finished):
                _keep(one, event)
                metric = one.measurement.counting.metrics[0]
                screen.say(f"{one.title}: {metric} {event.result.values[metric]:.4f}")
                continue
            done += 1
            if done == 1:
                # The workers' start is no part of their pace.
                began = time.monotonic()
                continue
            encoded += event.documents if event.encoded else 0
            if time.monotonic() - said > SAY_EVERY_S:
                said = time.monotonic()
                pace = f", {encoded / (said - began):,.0f} documents/s" if said - began > 1 else ""
                screen.say(f"{done} of {shards} shards{pace}; {one.title}")
    finally:
        engine.stop()


def _keep(planned: Planned, event: Any) -> None:
    planned.path.parent.mkdir(parents=True, exist_ok=True)
    measurement = planned.measurement
    result = {
        "identity": measurement.identity,
        "time": time.time_ns() // 1_000_000,
        "model": measurement.model_identity,
        "collection": measurement.corpus.identity,
        "documents": measurement.corpus.size,
        "queries": len(measurement.topics.queries),
        "settings": event.settings | {"vectors": measurement.precision},
        "values": event.result.values,
        "per_item": event.result.per_item,
    }
    write_whole(planned.path, json.dumps(result))


if __name__ == "__main__":
    sys.exit(main())
