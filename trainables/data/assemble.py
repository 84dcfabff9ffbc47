"""From rows and texts to a `TrainingSet` or a `Collection`: the checks and identities all sources share."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

from trainables.data.types import Collection, Example, TrainingSet
from trainables.recipe import TrainData

Lookup = Callable[[list[str]], Iterable[tuple[str, str]]]
"""Document ids -> (id, text) of those that exist."""


def example(row: Mapping[str, Any], data: TrainData, where: str) -> Example:
    """The example in one row; `where` names file and line in errors.

    `negatives` is a text or a list of texts, `scores` a list with one number for the positive and one for
    each negative. Both columns may be absent or null unless the configuration renames them: a name that
    was asked for must be there. ValueError otherwise, and for texts that are missing, empty or no text.
    """
    for key in ("query", "positive", "negatives", "scores"):
        asked = key in ("query", "positive") or getattr(data, key) != TrainData.model_fields[key].default
        if asked and row.get(getattr(data, key)) is None:
            found = ", ".join(name for name in row if row[name] is not None)
            raise ValueError(f"{where}: no column {getattr(data, key)!r} (for {key}); found are: {found}")
    query, positive = (text(row[name], f"{where}: column {name!r}") for name in (data.query, data.positive))
    negatives = row.get(data.negatives)
    if negatives is None:
        negatives = []
    elif isinstance(negatives, str):
        negatives = [negatives]
    elif not isinstance(negatives, (list, tuple)):
        raise ValueError(f"{where}: column {data.negatives!r} is {negatives!r}, not a text or a list of texts")
    negatives = tuple(text(item, f"{where}: column {data.negatives!r}") for item in negatives)
    scores = row.get(data.scores)
    return Example(query, positive, negatives, None if scores is None else _scores(scores, negatives, data, where))


def text(value: Any, where: str) -> str:
    """`value` if it is a text with something in it; ValueError otherwise."""
    if not isinstance(value, str):
        raise ValueError(f"{where} is {value!r}, not a text")
    if not value.strip():
        raise ValueError(f"{where} is empty")
    return value


def _scores(scores: Any, negatives: tuple[str, ...], data: TrainData, where: str) -> tuple[float, ...]:
    wanted = 1 + len(negatives)
    numbers = isinstance(scores, (list, tuple)) and all(
        isinstance(score, (int, float)) and not isinstance(score, bool) and math.isfinite(score) for score in scores
    )
    if not numbers or len(scores) != wanted:
        raise ValueError(
            f"{where}: column {data.scores!r} is {scores!r}; expected {wanted} finite numbers, "
            "one for the positive and one for each negative"
        )
    return tuple(map(float, scores))


def training_set(name: str, examples: list[Example]) -> TrainingSet:
    """Examples with their identity; ValueError where there are none."""
    if not examples:
        raise ValueError(f"{name}: no examples")
    identity = _sha256([e.query, e.positive, e.negatives, e.scores, e.positive_id, e.negative_ids] for e in examples)
    return TrainingSet(name, identity, examples)


def collection(
    name: str,
    documents: Iterable[tuple[str, str]],
    queries: dict[str, str],
    qrels: dict[str, dict[str, int]],
    max_documents: int | None = None,
    lookup: Lookup | None = None,
) -> Collection:
    """A checked collection that keeps the source's order of documents and queries.

    Kept are queries with a relevant document (judged 1 or more) among the documents. Their judgements are
    kept whole, as trec_eval has them: a relevant document that the source lacks counts as not found. With
    `max_documents` the judged documents stay and others fill up to that many; `lookup` spares reading on
    to the end for the judged ones. ValueError where nothing is left to evaluate.
    """
    judged = relevant_rows(name, queries, qrels)
    if max_documents is None:
        kept = dict(documents)
    else:
        kept = _some(documents, {document for row in judged.values() for document in row}, max_documents, lookup)
    if not kept:
        raise ValueError(f"{name}: no documents")
    kept_queries = answerable(name, queries, judged, kept, next(iter(kept)))
    kept_qrels = {query: judged[query] for query in kept_queries}
    rows = (list(items) for part in (kept, kept_queries) for items in (["part"], *part.items()))
    identity = _sha256([*rows, *([query, sorted(row.items())] for query, row in kept_qrels.items())])
    return Collection(name, identity, kept, kept_queries, kept_qrels)


def relevant_rows(
    name: str, queries: Mapping[str, str], qrels: Mapping[str, dict[str, int]]
) -> dict[str, dict[str, int]]:
    """The judgements of queries with a document judged 1 or more; ValueError where there is none."""
    judged = {query: row for query, row in qrels.items() if query in queries and max(row.values(), default=0) > 0}
    if not judged:
        raise ValueError(f"{name}: none of {len(queries)} queries has a relevant document in the qrels")
    return judged


def answerable(
    name: str,
    queries: Mapping[str, str],
    judged: Mapping[str, dict[str, int]],
    present: Container[str],
    corpus_id: str,
) -> dict[str, str]:
    """The queries, in their order, with a relevant document in `present`; ValueError where there is none.

    `corpus_id` is any id of the corpus, for the error.
    """
    kept = {
        query: asked
        for query, asked in queries.items()
        if any(grade > 0 and document in present for document, grade in judged.get(query, {}).items())
    }
    if not kept:
        judged_id = next(iter(next(iter(judged.values()))))
        raise ValueError(
            f"{name}: the qrels name no document of the corpus: they judge {judged_id!r}, say, "
            f"and the corpus has ids such as {corpus_id!r}"
        )
    return kept


def _some(
    documents: Iterable[tuple[str, str]], judged: set[str], maximum: int, lookup: Lookup | None
) -> dict[str, str]:
    """All judged documents and, up to `maximum` in all, the first others.

    Judged ones stay where the source has them: were they put first, a model that scores everything alike
    would find them first, because ties are broken by this order.
    """
    kept: dict[str, str] = {}
    missing, room = set(judged), max(0, maximum - len(judged))
    for id, body in documents:
        if id in missing:
            missing.remove(id)
        elif room:
            room -= 1
        else:
            if not missing or lookup is not None:
                break
            continue
        kept[id] = body
    if missing and lookup is not None:
        kept.update(lookup(sorted(missing)))
    return kept


def _sha256(rows: Iterable[list[Any]]) -> str:
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps(row, separators=(",", ":")).encode() + b"\n")
    return digest.hexdigest()
