"""What recipes that train on queries and documents have in common."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from trainables.config import Split
from trainables.contrastive import BatchSampler, ContrastiveBatch
from trainables.encoders import TextEncoder, Tokens
from trainables.evaluation.retrieval import Retrieval
from trainables.evaluation.types import Evaluation
from trainables.recipe import RecipeContext, parameter_groups


@dataclass(frozen=True, slots=True)
class RetrievalBatch:
    """This rank's tokens, and what the loss must know of the global batch; see `contrastive.ContrastiveBatch`."""

    queries: Tokens
    documents: Tokens
    sampled: ContrastiveBatch


class RetrievalRecipe:
    """The part of `trainables.recipe.Recipe` that follows from a `RetrievalConfig`: a recipe adds `rules`, `loss` and
    `export`."""

    def __init__(
        self, config: Any, context: RecipeContext, encoder: TextEncoder, sampler: BatchSampler, retrieval: Retrieval
    ) -> None:
        """Take the parts of the recipe; `encoder` encodes with the very model that is trained."""
        self.config, self.context, self.encoder = config, context, encoder
        self.model: Any = encoder.model
        self.tokenizer = encoder.tokenizer
        self.sampler, self.retrieval = sampler, retrieval

    @property
    def description(self) -> dict[str, Any]:
        return {
            **self.sampler.description,
            "hard_negatives.source": self.config.negatives_source,
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()),
            **self.retrieval.description,
        }

    def sample(self, count: int) -> dict[str, list[str]]:
        return {self.sampler.data.name: self.sampler.sample(count), **self.retrieval.sample(count)}

    def reduced(self, texts: int, documents: int) -> Self:
        made = copy.copy(self)
        made.sampler = self.sampler.reduced(texts)
        made.retrieval = self.retrieval.reduced(texts, documents)
        return made

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        return parameter_groups(self.model.named_parameters(), weight_decay)

    def batch(self, step: int) -> Any:
        sampled = self.sampler.batch(step)
        return RetrievalBatch(
            self.encoder.tokens(sampled.queries, self.config.query_length),
            self.encoder.tokens(sampled.documents, self.config.document_length),
            sampled,
        )

    def initial(self) -> dict[str, float]:
        return {}

    def evaluate(self, splits: Sequence[Split]) -> dict[Split, Evaluation]:
        encoder = self.encoder
        return self.retrieval.evaluate(splits, encoder.queries, encoder.documents, encoder.statistics, encoder.scorer)
