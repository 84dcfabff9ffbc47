"""The config of a recipe that trains on queries and documents. Imports neither torch nor ray."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from trainables.config import TrainerConfig
from trainables.data.config import EvaluationData, TrainData


class RetrievalConfig(TrainerConfig):
    """Examples of queries with their documents, and the collection that the trained encoder is measured on."""

    query_length: Annotated[int, Field(ge=3)] = 24
    """Tokens that a query is cut to, special ones included."""
    document_length: Annotated[int, Field(ge=3)] = 48
    """Tokens that a document is cut to, special ones included."""

    train: TrainData = TrainData()
    evaluation: EvaluationData = EvaluationData()
    hard_negatives: Annotated[int, Field(ge=0)] = 0
    """Negatives of the source per query, drawn anew each time where it has more."""

    @property
    def lengths(self) -> dict[str, int]:
        """Key -> tokens that a text is cut to."""
        return {"query_length": self.query_length, "document_length": self.document_length}

    @property
    def batch_tokens(self) -> int:
        """Most tokens that a global batch may have: queries, positives and hard negatives."""
        return self.batch_size * (self.query_length + self.document_length * (1 + self.hard_negatives))

    @property
    def negatives_source(self) -> str:
        """Where hard negatives come from, for the record."""
        if not self.hard_negatives:
            return "none: in-batch only"
        return f"{self.hard_negatives} of {self.train.source}, column {self.train.negatives}"
