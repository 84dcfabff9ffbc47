"""Graded pairs of the packages that are installed anyway: how close in the code are a sentence and a function?

A pair is the docstring of one function and the code of one. Its label says how close the two functions are: 4 the
same, 3 another one of the same class, 2 of the same module, 1 of the same package, 0 of an unrelated one. The texts
are those of `trainables.data.embedded`, and so is the split: no module is in two of the three.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainables.data.embedded import embedded_collection, embedded_query_split, embedded_training_set
from trainables.data.types import GradedPair, Role
from trainables.digests import text_digest

SAME, CLASS, MODULE, PACKAGE, UNRELATED = 4.0, 3.0, 2.0, 1.0, 0.0

VALIDATION_PAIRS, TEST_PAIRS = 500, 1_500

_DRAWS = 50
"""Partners drawn at random until one has the grade."""

_ALL = 1_000_000
"""A size that takes every function of a collection: more than any has."""


@dataclass(frozen=True, slots=True)
class Function:
    """A documented function; `id` is `module:qualified name`."""

    id: str
    docstring: str
    code: str

    @property
    def module(self) -> str:
        return self.id.partition(":")[0]

    @property
    def scope(self) -> str | None:
        """Module and class of a method, None for a function outside of classes."""
        owner, dot, _ = self.id.rpartition(".")
        return owner if dot and ":" in owner else None

    @property
    def package(self) -> str:
        """The package that holds the module: `json` for `json.decoder`, and for `json` itself.

        >>> Function("json.decoder:JSONDecoder.decode", "", "").package
        'json'
        """
        return self.module.rpartition(".")[0] or self.module

    @property
    def root(self) -> str:
        return self.module.partition(".")[0]


def embedded_pairs(cache: Path | None = None) -> dict[Role, tuple[str, list[GradedPair]]]:
    """Name and pairs of training, validation and test from the default packages; a function of their versions.

    Each function's docstring meets one code of every grade that its split offers. Of validation and test pairs
    as many as VALIDATION_PAIRS and TEST_PAIRS are kept, by a hash of their ids.
    """
    trained = embedded_training_set(cache=cache)
    held_out = embedded_collection(cache, documents=_ALL, validation_queries=_ALL, test_queries=_ALL)
    functions: dict[Role, list[Function]] = {
        "train": [Function(str(e.positive_id), e.query, e.positive) for e in trained.examples]
    }
    for role, ids in zip(("validation", "test"), embedded_query_split(held_out), strict=True):
        functions[role] = [Function(id, held_out.queries[id], held_out.documents[id]) for id in ids]  # type: ignore[index]
    return {
        "train": (trained.name, graded(functions["train"])),
        "validation": (held_out.name, _some(graded(functions["validation"]), VALIDATION_PAIRS)),
        "test": (held_out.name, _some(graded(functions["test"]), TEST_PAIRS)),
    }


def closeness(one: Function, other: Function) -> float | None:
    """The grade of two functions; None for different packages under one root, which are neither near nor unrelated."""
    if one.id == other.id:
        return SAME
    if one.scope is not None and one.scope == other.scope:
        return CLASS
    if one.module == other.module:
        return MODULE
    if one.package == other.package:
        return PACKAGE
    return UNRELATED if one.root != other.root else None


def graded(functions: Sequence[Function]) -> list[GradedPair]:
    """One pair of each grade for every function that has a partner of that grade; its id draws the partners."""
    groups: dict[tuple[float, str | None], list[Function]] = defaultdict(list)
    for function in functions:
        for grade, owner in _owners(function):
            groups[grade, owner].append(function)
    found = []
    for function in functions:
        draw = random.Random(function.id)
        partners = {SAME: function}
        for grade, owner in _owners(function):
            drawn = draw.choices(groups[grade, owner], k=_DRAWS)
            fitting = next((other for other in drawn if closeness(function, other) == grade), None)
            if fitting is not None:
                partners[grade] = fitting
        found += [
            GradedPair(_id(function, partner), function.docstring, partner.code, grade)
            for grade, partner in partners.items()
        ]
    return found


def _owners(function: Function) -> list[tuple[float, str | None]]:
    """Groups of functions in which the partners of each grade are looked for."""
    inside = [(CLASS, function.scope)] if function.scope is not None else []
    return [*inside, (MODULE, function.module), (PACKAGE, function.package), (UNRELATED, None)]


def _id(one: Function, other: Function) -> str:
    return text_digest(f"{one.id} {other.id}")[:12]


def _some(pairs: list[GradedPair], count: int) -> list[GradedPair]:
    kept = set(sorted(pair.id for pair in pairs)[:count])
    return [pair for pair in pairs if pair.id in kept]
