"""What a full evaluation measures: one exported model on one whole collection. Imports no torch."""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from trainables.data.corpora import STRIDE, Corpus, Topics
from trainables.digests import file_digest, json_digest

Precision = Literal["float32", "float16"]

SHARDS = 64
"""Number of shards aimed at: enough for many workers, few enough that each is worth its files."""
FEWEST, MOST = 4 * STRIDE, 256 * STRIDE
"""The fewest and the most documents of a shard; the last shard may have fewer."""
MOST_BYTES = 2**28
"""Bytes that the texts of a shard have at most, estimated from the mean size of a document."""


@dataclass(frozen=True, slots=True)
class Counting:
    """How results become metrics."""

    metrics: tuple[str, ...]
    """Names of metrics of `trainables.evaluation.metrics`, such as `ndcg_at_10`."""
    own_id: bool = True
    """Whether a document with the query's own id can be a result."""
    relevant: int = 1
    """The lowest grade that MRR and recall call relevant; nDCG has its gains from all grades."""
    sizes: tuple[int, ...] = ()
    """Prefixes of the vectors that are measured too, ascending; the last one is the whole vector."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """A finished replicate's model, a collection, and how results are counted."""

    trainer: str
    config: dict[str, Any] = field(repr=False)
    """The trainer's config as JSON values."""
    model: Path
    model_identity: str
    corpus: Corpus
    topics: Topics
    counting: Counting
    precision: Precision
    """Precision in which the documents' vectors are kept."""
    cache: Path

    @property
    def depth(self) -> int:
        """Documents kept for each query; one more where the document with the query's own id may have to be left
        out."""
        deepest = max(int(metric.rpartition("_")[2]) for metric in self.counting.metrics)
        return deepest + (not self.counting.own_id)

    @property
    def shard_rows(self) -> int:
        """Documents of every shard but the last, which has the rest."""
        corpus = self.corpus
        rows = min(max(math.ceil(corpus.size / SHARDS), FEWEST), MOST)
        rows = min(rows, max(STRIDE, int(MOST_BYTES / corpus.document_bytes)))
        return math.ceil(rows / STRIDE) * STRIDE

    @property
    def shards(self) -> int:
        return math.ceil(self.corpus.size / self.shard_rows)

    def bounds(self, shard: int) -> tuple[int, int]:
        """Positions of the shard's first document and of the one behind its last."""
        return shard * self.shard_rows, min((shard + 1) * self.shard_rows, self.corpus.size)

    @property
    def identity(self) -> str:
        """sha256 of everything that the result depends on, but for the machine that computes it."""
        counting = self.counting
        return json_digest(
            [self.trainer, self.config, self.model_identity, self.corpus.identity, self.topics.identity,
             counting.metrics, counting.own_id, counting.relevant, self.precision, *counting.sizes]
        )  # fmt: skip


def model_identity(folder: Path) -> str:
    """sha256 over names and contents of an exported model's files."""
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return json_digest([[name, file_digest(folder / name)] for name in names])


def remove_leftovers(cache: Path) -> None:
    """Clear what killed workers left half-written. Nobody else may be at work in the cache."""
    for leftover in [*cache.glob("*/*/.writing-*"), *cache.glob("*/*/hits-*/.*")]:
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)
