"""In-batch contrastive learning, whatever the vectors: which documents a query is compared with, and InfoNCE."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F

from trainables.data.order import indices, share
from trainables.data.types import Example, TrainingSet
from trainables.probe import extremes, spaced
from trainables.recipe import RecipeContext

Document = tuple[str, str | None]
"""(text, id or None)."""


@dataclass(frozen=True, slots=True)
class ContrastiveBatch:
    """The global batch of a step, and this rank's share of its texts.

    Documents are example by example: the positive, then its hard negatives.
    """

    examples: list[Example]
    """The examples of the global batch, each with as many negatives as were asked for."""
    queries: list[str]
    """The queries of this rank."""
    documents: list[str]
    targets: torch.Tensor
    """(queries,) column of each query's positive among all documents."""
    excluded: torch.Tensor
    """Documents that are no negatives of a query, (queries, documents) bool; see `false_negatives`."""
    candidates: float
    """Mean number of documents that a query is compared with."""


class BatchSampler:
    """Batches of examples, a pure function of seed and step."""

    def __init__(self, data: TrainingSet, batch_size: int, hard_negatives: int, context: RecipeContext) -> None:
        """ValueError where an example has fewer negatives than `hard_negatives`, no query would have any negative, or
        the gang cannot share a batch."""
        if batch_size % context.world_size:
            raise ValueError(f"batch_size is {batch_size}, which {context.world_size} workers cannot share evenly")
        fewest = min(len(example.negatives) for example in data.examples)
        if fewest < hard_negatives:
            short = sum(len(example.negatives) < hard_negatives for example in data.examples)
            raise ValueError(
                f"hard_negatives is {hard_negatives}, but {short} of {len(data.examples)} examples of {data.name} "
                f"have fewer; at most {fewest} is possible"
            )
        if not hard_negatives and len({example.positive for example in data.examples}) == 1:
            raise ValueError(
                f"{data.name}: all {len(data.examples)} positives are the same text, so that no query has another "
                "document in its batch to be told from; other positives or hard_negatives are needed"
            )
        self.data, self.batch_size, self.hard_negatives, self.context = data, batch_size, hard_negatives, context
        self._relevant: dict[str, list[Document]] = {}
        for example in data.examples:
            self._relevant.setdefault(example.query, []).append((example.positive, example.positive_id))

    @property
    def description(self) -> dict[str, Any]:
        """Name, identity and size of the data, for the record."""
        return {
            "train.data": self.data.name,
            "train.identity": self.data.identity,
            "train.examples": len(self.data.examples),
        }

    def sample(self, count: int) -> list[str]:
        """Queries and documents of at most `count` examples."""
        return [text for e in spaced(self.data.examples, count) for text in (e.query, e.positive, *e.negatives[:1])]

    def reduced(self, count: int) -> BatchSampler:
        """Batches of `count` examples, those whose positives are the longest and the strangest."""
        examples = self.data.examples
        kept = [examples[place] for place in extremes([example.positive for example in examples], count)]
        return BatchSampler(replace(self.data, examples=kept), count, self.hard_negatives, self.context)

    def batch(self, step: int) -> ContrastiveBatch:
        """The batch of `step` (from 0)."""
        context = self.context
        rows = indices(step, self.batch_size, len(self.data.examples), context.seed)
        stream = random.Random(f"{context.seed} {step}")
        examples = [_with_negatives(self.data.examples[row], self.hard_negatives, stream) for row in rows]
        # Every rank holds all the data, so what is excluded from the global batch needs no communication.
        documents = [document for example in examples for document in _documents(example)]
        targets = list(range(0, len(documents), 1 + self.hard_negatives))
        excluded = false_negatives(documents, [self._relevant[example.query] for example in examples], targets)
        mine = share(examples, context.rank, context.world_size)
        return ContrastiveBatch(
            examples,
            [example.query for example in mine],
            [text for example in mine for text, _ in _documents(example)],
            torch.tensor(targets, device=context.device),
            excluded.to(context.device, non_blocking=True),
            (excluded.numel() - int(excluded.sum())) / len(examples),
        )


def info_nce(scores: torch.Tensor, targets: torch.Tensor, excluded: torch.Tensor | None = None) -> torch.Tensor:
    """Mean cross-entropy of each query's own positive among all candidates that are not excluded.

    scores (queries, candidates), targets (queries,) the column of the own positive, excluded (queries,
    candidates) true where a candidate is no negative of that query.

    >>> scores = torch.tensor([[2.0, 2.0, 9.0]])
    >>> round(info_nce(scores, torch.tensor([0]), torch.tensor([[False, False, True]])).item(), 4)
    0.6931
    """
    return F.cross_entropy(_without(scores, excluded), targets)


def ranking_signals(scores: torch.Tensor, batch: ContrastiveBatch) -> dict[str, torch.Tensor | float]:
    """How the documents of a global batch rank by `scores` (queries, documents): `accuracy`, the share of queries whose
    positive comes first; `candidates`, the mean number of documents; `score_scale`, the mean of the best scores."""
    best, first = _without(scores, batch.excluded).max(1)
    return {
        "accuracy": (first == batch.targets).float().mean(),
        "candidates": batch.candidates,
        "score_scale": best.mean(),
    }


def _without(scores: torch.Tensor, excluded: torch.Tensor | None) -> torch.Tensor:
    """The scores with -inf where a candidate is excluded."""
    return scores if excluded is None else scores.masked_fill(excluded, float("-inf"))


def false_negatives(
    candidates: Sequence[Document], relevant: Sequence[Sequence[Document]], targets: Sequence[int]
) -> torch.Tensor:
    """Which candidates are no negatives of a query, (queries, candidates): same text or same id as a document
    that is relevant to it. `relevant` lists those per query, its own positive among them; `targets` is the
    column of that positive, which stays a candidate.

    >>> candidates = [("a", "1"), ("b", "2"), ("a", "3"), ("c", "2")]
    >>> false_negatives(candidates, [[("a", "1")], [("b", "2")]], targets=[0, 1]).int()
    tensor([[0, 0, 1, 0],
            [0, 0, 0, 1]], dtype=torch.int32)
    """
    by_text: dict[str, list[int]] = {}
    by_id: dict[str, list[int]] = {}
    for column, (text, id) in enumerate(candidates):
        by_text.setdefault(text, []).append(column)
        if id is not None:
            by_id.setdefault(id, []).append(column)
    excluded = torch.zeros(len(relevant), len(candidates), dtype=torch.bool)
    for row, (documents, target) in enumerate(zip(relevant, targets, strict=True)):
        for text, id in documents:
            excluded[row, by_text.get(text, []) + (by_id.get(id, []) if id is not None else [])] = True
        excluded[row, target] = False
    return excluded


def _with_negatives(example: Example, count: int, draw: random.Random) -> Example:
    """The example with `count` of its negatives, and their scores."""
    chosen = range(count) if len(example.negatives) == count else draw.sample(range(len(example.negatives)), count)
    ids, scores = example.negative_ids, example.scores
    return Example(
        example.query,
        example.positive,
        tuple(example.negatives[i] for i in chosen),
        None if scores is None else (scores[0], *(scores[1 + i] for i in chosen)),
        example.positive_id,
        None if ids is None else tuple(ids[i] for i in chosen),
    )


def _documents(example: Example) -> list[Document]:
    """The positive, then the negatives."""
    ids = example.negative_ids or (None,) * len(example.negatives)
    return [(example.positive, example.positive_id), *zip(example.negatives, ids, strict=True)]
