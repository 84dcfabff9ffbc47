"""From the best documents of every shard to the metrics of a whole collection."""

from __future__ import annotations

import math
from pathlib import Path

from trainables import trainers
from trainables.data.corpora import Topics
from trainables.evaluation import shards
from trainables.evaluation.measurement import Counting, Measurement
from trainables.evaluation.metrics import at_size, evaluate
from trainables.evaluation.search import TopK
from trainables.evaluation.types import Evaluation

_AT_ONCE = 256
"""Queries whose results are Python objects at a time."""


def merge_hits(measurement: Measurement, folder: Path) -> Evaluation:
    """The metrics, mean and per query, and the encoder's statistics.

    `folder` is that of the measurement, all shards of which have been searched. A query without results scores 0.
    Where prefixes of the vectors are measured, their metrics are called as `metrics.at_size` says; those without a size
    are of whole vectors.
    """
    topics, counting = measurement.topics, measurement.counting
    encoder = trainers.module(measurement.trainer, "recipe").Encoder
    # Metrics ask for judged documents only, so the ids of all others need not be held.
    watched = {document for row in topics.qrels.values() for document in row}
    if not counting.own_id:
        watched |= topics.queries.keys()
    ids = enumerate(shards.ids(folder, measurement.shards))
    names = {position: id for position, id in ids if id in watched}
    per_item: dict[str, dict[str, float]] = {}
    for size in shards.searched(measurement):
        found = _merged(measurement, folder, size, names, encoder.scorer.matching_only)
        sizes = [size] if size is not None else [None, *counting.sizes[-1:]]
        for metric, items in found.items():
            per_item |= {metric if of is None else at_size(metric, of): items for of in sizes}
    values = {metric: math.fsum(items.values()) / len(items) for metric, items in per_item.items()}
    statistics = encoder.statistics
    if statistics is not None:
        asked = shards.query_statistics(folder, topics.queries) / len(topics.queries)
        documents = shards.document_statistics(folder, measurement.shards) / measurement.corpus.size
        values |= statistics.values(asked, documents)
    return Evaluation(values, per_item)


def _merged(
    measurement: Measurement, folder: Path, size: int | None, names: dict[int, str], matching_only: bool
) -> dict[str, dict[str, float]]:
    """Metric -> query -> value of what whole vectors found, or their prefixes of a `size`; `names` has the ids of the
    documents that matter, by position."""
    topics, counting = measurement.topics, measurement.counting
    queries = list(topics.queries)
    best = TopK(len(queries), measurement.depth)
    for shard in range(measurement.shards):
        keys = shards.read_hits(shards.hits_file(folder, measurement, shard, size), len(queries))
        if keys is None:
            raise FileNotFoundError(f"{folder}: the hits of shard {shard} are gone; run the same command again")
        best.merge(keys)
    scores, positions = best.result()
    per_item: dict[str, dict[str, float]] = {metric: {} for metric in counting.metrics}
    for start in range(0, len(queries), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        run: dict[str, list[tuple[str, float]]] = {}
        for query, row, found in zip(queries[part], scores[part].tolist(), positions[part].tolist(), strict=True):
            ranked = [(names.get(p, f"position {p}"), s) for p, s in zip(found, row, strict=True)]
            run[query] = [
                (document, score)
                for document, score in ranked
                if (score > 0 or not matching_only) and (counting.own_id or document != query)
            ]
        for metric, items in _counted(run, topics, counting).items():
            per_item[metric] |= items
    return per_item


def _counted(
    run: dict[str, list[tuple[str, float]]], topics: Topics, counting: Counting
) -> dict[str, dict[str, float]]:
    graded = {query: topics.qrels[query] for query in run}
    binary = {
        query: {document: int(grade >= counting.relevant) for document, grade in row.items()}
        for query, row in graded.items()
    }
    return {
        metric: evaluate(run, graded if metric.startswith("ndcg") else binary, (metric,)).per_item[metric]
        for metric in counting.metrics
    }
