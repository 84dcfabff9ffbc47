"""From the best documents of every shard to the metrics of a whole collection."""

from __future__ import annotations

import math
from pathlib import Path

from trainables import trainers
from trainables.data.corpora import Topics
from trainables.evaluation import shards
from trainables.evaluation.measurement import Counting, Measurement
from trainables.evaluation.metrics import evaluate
from trainables.evaluation.search import TopK
from trainables.evaluation.types import Evaluation

_AT_ONCE = 256
"""Queries whose results are Python objects at a time."""


def merge_hits(measurement: Measurement, folder: Path) -> Evaluation:
    """The metrics, mean and per query, and the encoder's statistics.

    `folder` is that of the measurement, all shards of which have been searched. A query without results scores 0.
    """
    topics, counting = measurement.topics, measurement.counting
    encoder = trainers.module(measurement.trainer, "recipe").Encoder
    best = TopK(len(topics.queries), measurement.depth)
    for shard in range(measurement.shards):
        keys = shards.read_hits(shards.hits_file(folder, measurement, shard), len(topics.queries))
        if keys is None:
            raise FileNotFoundError(f"{folder}: the hits of shard {shard} are gone; run the same command again")
        best.merge(keys)
    scores, positions = best.result()
    # Metrics ask for judged documents only, so the ids of all others need not be held.
    watched = {document for row in topics.qrels.values() for document in row}
    if not counting.own_id:
        watched |= topics.queries.keys()
    ids = enumerate(shards.ids(folder, measurement.shards))
    names = {position: id for position, id in ids if id in watched}
    queries = list(topics.queries)
    per_item: dict[str, dict[str, float]] = {metric: {} for metric in counting.metrics}
    for start in range(0, len(queries), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        run: dict[str, list[tuple[str, float]]] = {}
        for query, row, found in zip(queries[part], scores[part].tolist(), positions[part].tolist(), strict=True):
            ranked = [(names.get(p, f"position {p}"), s) for p, s in zip(found, row, strict=True)]
            run[query] = [
                (document, score)
                for document, score in ranked
                if (score > 0 or not encoder.scorer.matching_only) and (counting.own_id or document != query)
            ]
        for metric, items in _counted(run, topics, counting).items():
            per_item[metric] |= items
    values = {metric: math.fsum(items.values()) / len(items) for metric, items in per_item.items()}
    statistics = encoder.statistics
    if statistics is not None:
        asked = shards.query_statistics(folder, topics.queries) / len(queries)
        documents = shards.document_statistics(folder, measurement.shards) / measurement.corpus.size
        values |= statistics.values(asked, documents)
    return Evaluation(values, per_item)


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
