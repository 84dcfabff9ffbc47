"""Ranking metrics with trec_eval's definitions.

Own code because ranx, whose figures these equal, takes 7.5 s for its import and first metric in each fresh
process (79 s before numba's cache exists), against milliseconds here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from trainables.evaluation.types import Evaluation
from trainables.report import Metric

Run = Mapping[str, Sequence[tuple[str, float]]]
"""Query id -> (document id, score), best first. Metrics look at this order and never at the scores."""

Qrels = Mapping[str, Mapping[str, int]]
"""Query id -> document id -> grade; 1 and more is relevant, 0 and less is not."""

METRICS = ("ndcg_at_10", "mrr_at_10", "recall_at_100")


def evaluate(run: Run, qrels: Qrels, metrics: Sequence[str] = METRICS) -> Evaluation:
    """Each metric of each query of `qrels`, and their means. A query without results scores 0.

    A metric is `ndcg_at_K`, `mrr_at_K` or `recall_at_K`; ValueError for another name.
    """
    if not qrels:
        raise ValueError("no queries to evaluate")
    per_item = {}
    for metric in metrics:
        measure, k = _parse(metric)
        per_item[metric] = {
            query: measure([grades.get(document, 0) for document, _ in run.get(query, ())[:k]], grades, k)
            for query, grades in qrels.items()
        }
    values = {metric: math.fsum(items.values()) / len(items) for metric, items in per_item.items()}
    return Evaluation(values, per_item)


def at_size(metric: str, size: int) -> str:
    """The name of a metric that is measured with prefixes of vectors.

    >>> at_size("ndcg_at_10", 32)
    'ndcg_at_10_32'
    """
    return f"{metric}_{size}"


def declared(metrics: Sequence[str] = METRICS) -> dict[str, Metric]:
    """What a recipe that is measured by these says of them; ValueError as `evaluate`.

    >>> declared(["ndcg_at_10"])["ndcg_at_10"].label
    'nDCG@10'
    """
    found = {}
    for metric in metrics:
        _, k = _parse(metric)
        _, label, meaning = _MEASURES[metric.partition("_")[0]]
        found[metric] = Metric(label=f"{label}@{k}", meaning=meaning)
    return found


def _ndcg(found: Sequence[int], grades: Mapping[str, int], k: int) -> float:
    """Linear gain and log2 discount (Järvelin & Kekäläinen 2002 as in trec_eval's ndcg_cut)."""
    ideal = _dcg(sorted(grades.values(), reverse=True)[:k])
    return _dcg(found) / ideal if ideal else 0.0


def _dcg(grades: Sequence[int]) -> float:
    return math.fsum(grade / math.log2(rank + 1) for rank, grade in enumerate(grades, start=1) if grade > 0)


def _mrr(found: Sequence[int], grades: Mapping[str, int], k: int) -> float:
    return next((1.0 / rank for rank, grade in enumerate(found, start=1) if grade > 0), 0.0)


def _recall(found: Sequence[int], grades: Mapping[str, int], k: int) -> float:
    relevant = sum(grade > 0 for grade in grades.values())
    return sum(grade > 0 for grade in found) / relevant if relevant else 0.0


Measure = Callable[[Sequence[int], Mapping[str, int], int], float]
"""(grades of the documents found, those of all judged ones by id, how many are looked at) -> value of a query."""

_MEASURES: dict[str, tuple[Measure, str, str]] = {
    "ndcg": (
        _ndcg,
        "nDCG",
        "the gain of the documents found, discounted by their rank, as a share of the best possible",
    ),
    "mrr": (_mrr, "MRR", "one over the rank of the first relevant document, 0 where none is found so far up"),
    "recall": (_recall, "recall", "the share of the relevant documents that are found so far up"),
}
"""Name -> what computes it, its name for readers, what it is."""


def _parse(metric: str) -> tuple[Measure, int]:
    name, _, k = metric.partition("_at_")
    if name not in _MEASURES or not k.isdigit() or int(k) < 1:
        accepted = ", ".join(f"{name}_at_K" for name in _MEASURES)
        raise ValueError(f"metric {metric!r}; accepted are {accepted} with K from 1")
    return _MEASURES[name][0], int(k)
