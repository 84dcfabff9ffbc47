"""What a full evaluation measures: planned model after model, done by a pool of workers, kept, and read again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from study.protocol.folder import ReplicateFolder, StudyFolder, TrialFolder, stored_model, trial_of
from study.protocol.journal import TrialBegun
from study.protocol.measured import Measured
from study.protocol.summary import TrialSummary
from study.spec import Resources
from trainables import overrides, trainers
from trainables.data.corpora import open_corpus
from trainables.digests import json_digest
from trainables.evaluation.measurement import Counting, Measurement, Precision, model_identity, remove_leftovers
from trainables.evaluation.suites import Dataset, Suite
from trainables.files import write_whole
from trainables.object_store import fetched

if TYPE_CHECKING:
    from study.suites.worker_pool import Finished

SAY_EVERY_S = 10.0
STORE_WAIT_S = 60.0
"""How long an object store may be away."""


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
            raise ValueError(
                f"trial {number} of {storage} has no exported model in {where}/: it made none, or --keep left it out"
            )
        models += [(number, found.number, found.model, model_identity(found.model)) for found in folders]
    kind = trainers.module(trainer, "config").Config
    sizes = {trial.number: kind(**configs[trial.number]).sizes for trial in trials}
    opened = []
    for dataset in suite.datasets:
        say(f"{dataset.name}: reading {dataset.source}")
        corpus, topics = open_corpus(dataset.source, cache, dataset.qrels_split)
        for note in topics.notes:
            say(note)
        opened.append((dataset, corpus, topics))
    return [
        Planned(
            number, replicate, dataset,
            Measurement(
                trainer, configs[number], folder, identity, corpus, topics,
                Counting(suite.metrics, dataset.own_id, dataset.relevant, sizes[number]), vectors, cache,
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


def read_result(planned: Planned) -> Measured | None:
    """What an earlier launch measured; None where it did not, or measured something else."""
    if not planned.path.exists():
        return None
    try:
        result = json.loads(planned.path.read_bytes())
        if result["identity"] != planned.measurement.identity:
            return None
        found = result["values"], result["per_item"], result["time"]
    except (ValueError, KeyError, TypeError):
        # It is measured again.
        return None
    return Measured(planned.trial, planned.replicate, planned.dataset.name, *found)


def measured(planned: Planned) -> Measured:
    """The result that is there now that all have been measured."""
    result = read_result(planned)
    assert result is not None
    return result


def measure(planned: Sequence[Planned], resources: Resources, workers: int | None, say: Callable[[str], None]) -> None:
    """Do these measurements on the Ray that is started, with `workers` workers or as many as there is room for.

    Each result is kept as soon as it is there. Raises as `study.suites.worker_pool.run`.
    """
    from study.suites import worker_pool

    remove_leftovers(planned[0].measurement.cache)
    shards = sum(one.measurement.shards for one in planned)
    said = began = time.monotonic()
    done = encoded = 0
    for event in worker_pool.run([one.measurement for one in planned], resources, workers):
        one = planned[event.measurement]
        if isinstance(event, worker_pool.Finished):
            _keep(one, event)
            metric = one.measurement.counting.metrics[0]
            say(f"{one.title}: {metric} {event.result.values[metric]:.4f}")
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
            say(f"{done} of {shards} shards{pace}; {one.title}")


def _keep(planned: Planned, event: Finished) -> None:
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
