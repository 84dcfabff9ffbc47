"""Read a retrieval study's inputs once before its first trial: what is wrong with them is said then."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from trainables.config import Prepared
from trainables.data.sources import evaluation_sets, training_set
from trainables.retrieval_config import RetrievalConfig


def retrieval(config: RetrievalConfig) -> Prepared:
    """Facts about both inputs and BM25's figures on the same queries; fills the cache for the workers.

    Raises ValueError as `training_set` and `evaluation_sets` do.
    """
    evaluation, folder = config.evaluation, Path(config.cache) if config.cache else None
    examples = training_set(config.train, folder)
    sets = evaluation_sets(evaluation, folder)
    facts = {
        "data.train": examples.name,
        "data.train.identity": examples.identity,
        "data.train.examples": str(len(examples.examples)),
    }
    notes = [*examples.notes]
    baselines: dict[str, float] = {}
    for split, part in sets.items():
        facts[f"data.{split}"] = part.collection.name
        facts[f"data.{split}.identity"] = part.collection.identity
        facts[f"data.{split}.documents"] = str(len(part.collection.documents))
        facts[f"data.{split}.queries"] = str(len(part.query_ids))
        notes += part.collection.notes
        if evaluation.bm25:
            from trainables.evaluation.bm25 import bm25, settings

            prefix = "" if split == "validation" else "test."
            measured = bm25(part.collection, part.query_ids, evaluation.bm25_stop_words, evaluation.drop_own_id).values
            facts["baseline.bm25"] = settings(evaluation.bm25_stop_words)
            baselines |= {prefix + name: value for name, value in measured.items()}
    return prepared(facts, {"bm25": baselines} if baselines else {}, notes)


def prepared(facts: dict[str, str], baselines: dict[str, dict[str, float]], notes: Iterable[str]) -> Prepared:
    """What was read of the inputs; each note is kept once, however many splits it comes from, and put among the
    facts."""
    once = tuple(dict.fromkeys(notes))
    return Prepared(facts | ({"data.notes": "; ".join(once)} if once else {}), baselines, once)
