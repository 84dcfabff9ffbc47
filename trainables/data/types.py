"""What data sources hand to recipes and to evaluation, whatever they were read from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Role = Literal["train", "validation", "test"]
ROLES: tuple[Role, ...] = ("train", "validation", "test")


@dataclass(frozen=True, slots=True)
class Example:
    """One training query with its positive and, where the source has them, hard negatives."""

    query: str
    positive: str
    negatives: tuple[str, ...] = ()
    scores: tuple[float, ...] | None = None
    """Teacher scores of (positive, *negatives), on the teacher's own scale."""
    positive_id: str | None = None
    negative_ids: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Collection:
    """A test collection: what is searched, what is asked, what is relevant.

    `queries` holds only queries with at least one relevant document in `documents`; their order is
    the source's own.
    """

    name: str
    identity: str
    """sha256 over ids, texts and judgements: two equal identities mean equal inputs."""
    documents: dict[str, str]
    queries: dict[str, str]
    qrels: dict[str, dict[str, int]] = field(repr=False)
    notes: tuple[str, ...] = ()
    """What was found empty or left out while reading, a sentence each."""


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """Examples that stay in memory; `identity` and `notes` as in `Collection`."""

    name: str
    identity: str
    examples: list[Example] = field(repr=False)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GradedPair:
    """Two sentences; a higher label means more alike. `id` is unique within its set."""

    id: str
    first: str
    second: str
    label: float


@dataclass(frozen=True, slots=True)
class PairSet:
    """Pairs of one split in the source's order; equal identities mean equal ids, texts and labels."""

    name: str
    identity: str
    pairs: list[GradedPair] = field(repr=False)
    notes: tuple[str, ...] = ()
    """What was left out, a sentence each."""
