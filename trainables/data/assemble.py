"""From rows and texts to a `TrainingSet` or a `Collection`: the checks and identities all sources share."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from trainables.data.config import TrainData
from trainables.data.types import Collection, Example, TrainingSet
from trainables.digests import rows_digest

Lookup = Callable[[list[str]], Iterable[tuple[str, str]]]
"""Document ids -> (id, text) of those that exist."""


def example(row: Mapping[str, Any], data: TrainData, where: str) -> Example | None:
    """The example in one row, None for a row whose query or positive is null or blank; `where` names file and line.

    `negatives` is a text or a list of texts, or there are columns `negative_1`, `negative_2`, ... with one each;
    `scores` is a list with one number for the positive and one for each negative. Both may be absent or null, but
    a name that was asked for must be a column. ValueError otherwise, and for what is no text.
    """
    for key in ("query", "positive", "scores"):
        asked = key in ("query", "positive") or getattr(data, key) != TrainData.model_fields[key].default
        if asked and getattr(data, key) not in row:
            raise no_column(row, getattr(data, key), key, where)
    query, positive = (optional(row[name], f"{where}: column {name!r}") for name in (data.query, data.positive))
    negatives = _negatives(row, data, where)
    scores = row.get(data.scores)
    numbers = None if scores is None else _scores(scores, negatives, data, where)
    return Example(query, positive, negatives, numbers) if query.strip() and positive.strip() else None


def no_column(row: Mapping[str, Any], name: str, key: str, where: str) -> ValueError:
    """The ValueError for a missing column `name`, which the configuration calls `key`."""
    return ValueError(f"{where}: no column {name!r} (for {key}); found are: {', '.join(map(str, row))}")


def _negatives(row: Mapping[str, Any], data: TrainData, where: str) -> tuple[str, ...]:
    """The negatives in the column `name`; where there is none, those of its numbered columns that are not blank, by
    their numbers."""
    found = row.get(data.negatives)
    if isinstance(found, str):
        found = [found]
    elif found is not None and not isinstance(found, (list, tuple)):
        raise ValueError(f"{where}: column {data.negatives!r} is {found!r:.80}, not a text or a list of texts")
    if found is not None:
        return tuple(text(item, f"{where}: column {data.negatives!r}") for item in found)
    numbered = _numbered(tuple(row), data.negatives)
    if not numbered and data.negatives not in row and data.negatives != TrainData.model_fields["negatives"].default:
        raise no_column(row, data.negatives, "negatives", where)
    texts = (optional(row[name], f"{where}: column {name!r}") for name in numbered)
    return tuple(found for found in texts if found.strip())


@cache
def _numbered(columns: tuple[str, ...], name: str) -> tuple[str, ...]:
    """The columns that are called `name`, or as one of many, with a number.

    >>> _numbered(("query", "negative_10", "negative_2", "negatives_a"), "negatives")
    ('negative_2', 'negative_10')
    """
    pattern = re.compile(rf"{re.escape(name.removesuffix('s'))}s?(?:_?(\d+))?")
    found = [(int(match[1] or 0), column) for column in columns if (match := pattern.fullmatch(column))]
    return tuple(column for _, column in sorted(found))


def text(value: Any, where: str) -> str:
    """`value` if it is a text, which may be blank; ValueError otherwise."""
    if not isinstance(value, str):
        raise ValueError(f"{where} is {value!r:.80}, not a text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        broken = f"{value[error.start]!r} at character {error.start + 1}"
        raise ValueError(f"{where} is no valid Unicode: {broken} is half of a character") from None
    return value


def optional(value: Any, where: str) -> str:
    """The text of a value; an empty one for null."""
    return "" if value is None else text(value, where)


def _scores(scores: Any, negatives: tuple[str, ...], data: TrainData, where: str) -> tuple[float, ...]:
    wanted = 1 + len(negatives)
    numbers = isinstance(scores, (list, tuple)) and all(
        isinstance(score, (int, float)) and not isinstance(score, bool) and math.isfinite(score) for score in scores
    )
    if not numbers or len(scores) != wanted:
        raise ValueError(
            f"{where}: column {data.scores!r} is {scores!r}; expected {counted(wanted, 'finite number')}, "
            "one for the positive and one for each negative"
        )
    return tuple(map(float, scores))


def training_set(name: str, rows: Iterable[Example | None]) -> TrainingSet:
    """Examples with their identity, None among them left out and counted; ValueError where there are none."""
    found = list(rows)
    examples = [example for example in found if example is not None]
    left_out = len(found) - len(examples)
    if not examples:
        blank = f"; {counted(left_out, 'row')} without a query or a positive" if left_out else ""
        raise ValueError(f"{name}: no examples{blank}")
    notes = []
    if left_out:
        notes.append(f"{name}: {counted(left_out, 'row')} of {len(found)} left out, without a query or a positive")
    empty = sum(not negative.strip() for example in examples for negative in example.negatives)
    if empty:
        notes.append(f"{name}: {counted(empty, 'negative')} without any text")
    identity = rows_digest(
        [e.query, e.positive, e.negatives, e.scores, e.positive_id, e.negative_ids] for e in examples
    )
    return TrainingSet(name, identity, examples, tuple(notes))


def counted(number: int, noun: str) -> str:
    """
    >>> counted(1, "row"), counted(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{number:,} {noun if number == 1 else noun.removesuffix('y') + ('ies' if noun[-1] == 'y' else 's')}"


def collection(
    name: str,
    documents: Iterable[tuple[str, str]],
    queries: dict[str, str],
    qrels: dict[str, dict[str, int]],
    max_documents: int | None = None,
    lookup: Lookup | None = None,
    notes: tuple[str, ...] = (),
) -> Collection:
    """A checked collection that keeps the source's order of documents and queries.

    Kept are queries with a relevant document (judged 1 or more) among the documents, and documents without any
    text, which the published figures were measured with. Judgements are kept whole, as trec_eval has them: a
    relevant document that the source lacks counts as not found. With `max_documents` the judged documents stay and
    others fill up to that many; `lookup` spares reading on to the end for the judged ones. ValueError where nothing
    is left to evaluate.
    """
    judged = relevant_rows(name, queries, qrels)
    once = _once(name, documents)
    if max_documents is None:
        kept = dict(once)
    else:
        kept = _some(once, {document for row in judged.values() for document in row}, max_documents, lookup)
    if not kept:
        raise ValueError(f"{name}: no documents")
    kept_queries = answerable(name, queries, judged, kept, next(iter(kept)))
    kept_qrels = {query: judged[query] for query in kept_queries}
    rows = (list(items) for part in (kept, kept_queries) for items in (["part"], *part.items()))
    identity = rows_digest([*rows, *([query, sorted(row.items())] for query, row in kept_qrels.items())])
    empty = sum(not body.strip() for body in kept.values())
    notes += collection_notes(name, queries, qrels, kept_queries, empty)
    return Collection(name, identity, kept, kept_queries, kept_qrels, notes)


def relevant_rows(
    name: str, queries: Mapping[str, str], qrels: Mapping[str, dict[str, int]]
) -> dict[str, dict[str, int]]:
    """The judgements of queries with a document judged 1 or more.

    ValueError where there is none, and for such a query without any text.
    """
    judged = {query: row for query, row in qrels.items() if query in queries and max(row.values(), default=0) > 0}
    if not judged:
        raise ValueError(f"{name}: none of {len(queries)} queries has a relevant document in the qrels")
    blank = next((query for query in judged if not queries[query].strip()), None)
    if blank is not None:
        raise ValueError(f"{name}: query {blank!r} is empty, but the qrels name relevant documents for it")
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


def collection_notes(
    name: str, queries: Mapping[str, str], qrels: Mapping[str, dict[str, int]], kept: Container[str], empty: int
) -> tuple[str, ...]:
    """What of a collection is empty, and which of its judged queries are not asked."""
    unknown = sum(query not in queries for query in qrels)
    hopeless = sum(query in queries and max(row.values(), default=0) <= 0 for query, row in qrels.items())
    missing = sum(query not in kept for query in qrels) - unknown - hopeless
    reasons = (
        (missing, "no document that is judged relevant to them is in the collection"),
        (hopeless, "no document is judged relevant to them"),
        (unknown, "the qrels name them, and there is no such query"),
    )
    notes = [
        f"{name}: {number:,} of {counted(len(qrels), 'judged query')} left out: {reason}"
        for number, reason in reasons
        if number
    ]
    if empty:
        notes.append(f"{name}: {counted(empty, 'document')} without any text, searched like the others")
    return tuple(notes)


def _once(name: str, documents: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The documents; ValueError where an id comes a second time."""
    seen = set()
    for id, body in documents:
        if id in seen:
            raise ValueError(f"{name}: document {id!r} comes a second time")
        seen.add(id)
        yield id, body


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
