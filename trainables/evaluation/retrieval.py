"""Encode -> exact search -> metrics, for the validation and the test queries of a study."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from trainables import distributed
from trainables.config import Split
from trainables.data.config import EvaluationData
from trainables.data.sources import EvaluationSet, evaluation_sets
from trainables.data.types import Collection
from trainables.evaluation.metrics import evaluate
from trainables.evaluation.scoring import DENSE, Scorer
from trainables.evaluation.search import top_k
from trainables.evaluation.types import Evaluation
from trainables.probe import extremes, spaced

Encode = Callable[[list[str]], Any]
"""Texts -> vectors that a scorer knows, such as (texts, dim), on the device of the model. It makes its own
mini-batches."""

BLOCK = 256
"""Texts per call of an encoder. Fixed, and never across splits: the same texts meet in the same block, so
that a score depends neither on the number of workers nor on what else is evaluated."""

DEPTH = 100
"""Documents that the metrics look at."""


@dataclass(frozen=True, slots=True)
class VectorStatistics:
    """Metrics of the vectors themselves, from means over all queries and over all documents of a split.

    `sums` maps the vectors of some texts, as encoded, to a statistic summed over the texts, such as how many are
    non-zero in each dimension; `values` maps its (mean over queries, mean over documents), float64 on the CPU, to
    metrics.
    """

    sums: Callable[[Any], torch.Tensor]
    values: Callable[[torch.Tensor, torch.Tensor], dict[str, float]]


class Retrieval:
    """The collections of a study in memory, ready to measure any model on them."""

    def __init__(self, data: EvaluationData, cache: Path | None = None) -> None:
        """Read the collections that `data` names; ValueError where one cannot be read, as `evaluation_sets` raises
        it."""
        self.sets = evaluation_sets(data, cache)
        self.drop_own_id = data.drop_own_id

    @property
    def description(self) -> dict[str, Any]:
        """Name, identity and size of what each split is measured on."""
        return {
            f"{split}.{key}": value
            for split, part in self.sets.items()
            for key, value in {
                "collection": part.collection.name,
                "identity": part.collection.identity,
                "documents": len(part.collection.documents),
                "queries": len(part.query_ids),
            }.items()
        }

    def sample(self, count: int) -> dict[str, list[str]]:
        """Name of each collection -> at most `count` of its documents, and as many queries."""
        found = {part.collection.name: part.collection for part in self.sets.values()}
        return {
            name: [*spaced(list(one.documents.values()), count), *spaced(list(one.queries.values()), count)]
            for name, one in found.items()
        }

    def reduced(self, queries: int, documents: int) -> Retrieval:
        """A copy whose splits have only `count` of their queries and documents, the longest and the strangest."""
        made = copy.copy(self)
        made.sets = {}
        for group in _sharing_documents(self.sets):
            whole = next(iter(group.values())).collection
            texts = list(whole.documents.values())
            ids = list(whole.documents)
            kept = {ids[place]: texts[place] for place in extremes(texts, documents)}
            few = replace(whole, documents=kept)
            for split, part in group.items():
                places = extremes([whole.queries[id] for id in part.query_ids], queries)
                made.sets[split] = EvaluationSet(few, tuple(part.query_ids[place] for place in places))
        return made

    @torch.inference_mode()
    def evaluate(
        self,
        splits: Sequence[Split],
        encode_queries: Encode,
        encode_documents: Encode,
        statistics: VectorStatistics | None = None,
        scorer: Scorer = DENSE,
    ) -> dict[Split, Evaluation]:
        """`metrics.METRICS` of each split, mean and per query, with those of `statistics`; same on all ranks.

        Documents that two splits share are encoded once. Each rank encodes all queries and its share of the
        documents. Every rank must call this with the same splits.
        """
        results: dict[Split, Evaluation] = {}
        for group in _sharing_documents({split: self.sets[split] for split in splits}):
            results |= _evaluate(group, encode_queries, encode_documents, statistics, scorer, self.drop_own_id)
        return {split: results[split] for split in splits}


def _sharing_documents(sets: dict[Split, EvaluationSet]) -> list[dict[Split, EvaluationSet]]:
    groups: dict[int, dict[Split, EvaluationSet]] = {}
    for split, part in sets.items():
        groups.setdefault(id(part.collection), {})[split] = part
    return list(groups.values())


def _evaluate(
    sets: dict[Split, EvaluationSet],
    encode_queries: Encode,
    encode_documents: Encode,
    statistics: VectorStatistics | None,
    scorer: Scorer,
    drop_own_id: bool,
) -> dict[Split, Evaluation]:
    """Metrics of the splits that share one collection."""
    collection: Collection = next(iter(sets.values())).collection
    vectors = {
        split: _in_order([collection.queries[id] for id in part.query_ids], encode_queries, scorer)
        for split, part in sets.items()
    }
    totals: list[torch.Tensor] = []

    def blocks() -> Iterator[tuple[list[int], Any]]:
        texts = list(collection.documents.values())
        mine = length_blocks(texts)[distributed.rank() :: distributed.world_size()]
        for positions in mine:
            encoded = encode_documents([texts[position] for position in positions])
            if statistics is not None:
                totals.append(total(statistics, encoded))
            yield positions, encoded

    scores, positions = top_k(scorer.joined(list(vectors.values())), blocks(), DEPTH + drop_own_id, scorer)
    ids = list(collection.documents)
    ranked = iter(zip(scores.tolist(), positions.tolist(), strict=True))
    runs = {
        split: {
            query: [
                (ids[p], s)
                for s, p in zip(*next(ranked), strict=True)
                if (s > 0 or not scorer.matching_only) and not (drop_own_id and ids[p] == query)
            ]
            for query in part.query_ids
        }
        for split, part in sets.items()
    }
    results = {
        split: evaluate(runs[split], {query: collection.qrels[query] for query in runs[split]}) for split in sets
    }
    if statistics is not None:
        everywhere = [part for totals in distributed.gather_objects(totals) for part in totals]
        documents = torch.stack(everywhere).sum(0) / len(ids)
        for split, result in results.items():
            result.values.update(statistics.values(total(statistics, vectors[split]) / len(runs[split]), documents))
    return results


def total(statistics: VectorStatistics, vectors: Any) -> torch.Tensor:
    """The statistic summed over the texts of `vectors`, float64 on the CPU."""
    return statistics.sums(vectors).double().cpu()


def _in_order(texts: list[str], encode: Encode, scorer: Scorer) -> Any:
    """Vectors of all texts, in their own order."""
    blocks = length_blocks(texts)
    order = torch.tensor([position for block in blocks for position in block]).argsort().tolist()
    return scorer.ordered([encode([texts[position] for position in block]) for block in blocks], order)


def length_blocks(texts: Sequence[str]) -> list[list[int]]:
    """Positions in blocks of `BLOCK` texts of about the same length, which spares the encoder padding."""
    order = sorted(range(len(texts)), key=lambda position: len(texts[position]), reverse=True)
    return [order[start : start + BLOCK] for start in range(0, len(order), BLOCK)]
