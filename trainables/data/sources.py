"""One string says where data come from: `embedded`, `ir_datasets:ID`, `datasets:NAME[:CONFIG]` or a path."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from trainables.config import Split
from trainables.data import assemble
from trainables.data.config import EvaluationData, TrainData
from trainables.data.once import once
from trainables.data.types import Collection, TrainingSet
from trainables.places import COLLECTION, EXAMPLES, Parts, Place


@dataclass(frozen=True, slots=True)
class EvaluationSet:
    """A split: the collection that is searched, and which of its queries are asked, in its order."""

    collection: Collection
    query_ids: tuple[str, ...]


@once
def training_set(data: TrainData, cache: Path | None = None) -> TrainingSet:
    """The examples that `data` names. ValueError where they cannot be read, with what to change."""
    kind, rest = source_kind(data.source, EXAMPLES)
    if kind == "embedded":
        from trainables.data.embedded import embedded_training_set

        whole = embedded_training_set(cache=cache)
        if data.limit is None:
            return whole
        return assemble.training_set(whole.name, whole.examples[: data.limit])
    if kind == "ir_datasets":
        from trainables.data.hub import ir_datasets_examples

        return ir_datasets_examples(rest, data, cache)
    if kind == "datasets":
        from trainables.data.hub import datasets_examples

        return datasets_examples(rest, data)
    from trainables.data.local import read_examples

    return read_examples(Path(rest), data)


@once
def evaluation_sets(data: EvaluationData, cache: Path | None = None) -> dict[Split, EvaluationSet]:
    """Validation and test; both have the same `collection` object unless there is a `test_source`.

    ValueError where a source cannot be read or a split would have no queries.
    """
    default = EvaluationData.model_fields["validation_fraction"].default
    if data.source == "embedded" and data.validation_fraction != default:
        raise ValueError(
            f"validation_fraction is {data.validation_fraction}, but embedded queries are split by module; "
            f"leave it at {default}"
        )
    first = _collection(data.source, data, cache)
    if data.test_source is not None:
        second = _collection(data.test_source, data, cache)
        return {
            "validation": EvaluationSet(first, tuple(first.queries)),
            "test": EvaluationSet(second, tuple(second.queries)),
        }
    if data.source == "embedded":
        from trainables.data.embedded import embedded_query_split

        validation, test = embedded_query_split(first)
    else:
        validation, test = split_queries(list(first.queries), data.validation_fraction)
    for split, ids in (("validation", validation), ("test", test)):
        if not ids:
            raise ValueError(
                f"{first.name}: none of its {len(first.queries)} queries falls into {split} with "
                f"validation_fraction {data.validation_fraction}; change it or name a test_source"
            )
    return {"validation": EvaluationSet(first, tuple(validation)), "test": EvaluationSet(first, tuple(test))}


def split_queries(ids: list[str], validation_fraction: float) -> tuple[list[str], list[str]]:
    """(validation, test): a query's side depends on its id and the fraction only.

    >>> split_queries(["q1", "q2", "q3"], 0.5), split_queries(["q4", "q3"], 0.5)
    ((['q3'], ['q1', 'q2']), (['q4', 'q3'], []))
    """
    sides: tuple[list[str], list[str]] = ([], [])
    for id in ids:
        place = int.from_bytes(hashlib.sha256(id.encode()).digest()[:8], "big") / 2**64
        sides[place >= validation_fraction].append(id)
    return sides


def _collection(source: str, data: EvaluationData, cache: Path | None) -> Collection:
    kind, rest = source_kind(source, COLLECTION)
    if kind == "embedded":
        from trainables.data.embedded import embedded_collection

        if data.max_documents is None:
            return embedded_collection(cache)
        return embedded_collection(cache, documents=data.max_documents)
    if kind == "ir_datasets":
        from trainables.data.hub import ir_datasets_collection

        return ir_datasets_collection(rest, data, cache, pooled=source == data.source)
    from trainables.data.local import read_beir

    return read_beir(Path(rest), data)


def source_kind(source: str, place: Place) -> tuple[str, str]:
    """(kind, what follows the colon), or ("path", an absolute path) where something is there.

    ValueError for anything else, which says what `place` accepts.
    """
    prefix, _, rest = source.partition(":")
    if source in place.keywords or (rest and prefix in place.kinds):
        return prefix, rest
    try:
        path = place.located(source, Path.cwd())
        place.find(path, Parts("", path, ""))
    except ValueError as error:
        raise ValueError(f"source {error}") from None
    return "path", path
