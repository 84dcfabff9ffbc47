"""A smaller collection of a large one that stays as hard for the queries that are kept: their judged documents and
those that another system ranks high, among others drawn at random.

What is drawn depends on the seed and on ids alone, not on the order of a file: each id has a place of its own, the
digest of seed and id, and the first ones are taken.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Iterator, Mapping

from trainables.data.assemble import relevant_rows
from trainables.data.config import Pool

Qrels = dict[str, dict[str, int]]
Ranked = Iterable[tuple[str, str, float]]
"""(query, document, score) of another system's run, in any order."""


def place(seed: int, id: str) -> bytes:
    """Where an id stands in the order of a draw."""
    return hashlib.sha256(f"{seed} {id}".encode()).digest()


def drawn_queries(name: str, queries: Mapping[str, str], qrels: Qrels, pool: Pool) -> dict[str, str]:
    """`pool.queries` of the queries with a relevant document, all where there are fewer, in the order of `queries`."""
    judged = relevant_rows(name, queries, qrels)
    chosen = set(heapq.nsmallest(pool.queries, judged, key=lambda id: place(pool.seed, id)))
    return {id: text for id, text in queries.items() if id in chosen}


def hard_documents(ranked: Ranked, queries: Mapping[str, str], pool: Pool) -> set[str]:
    """The `pool.hard` documents that the run scores highest for each query; of equal scores those that the draw has
    first, because some runs come without any."""
    found: dict[str, list[tuple[float, bytes, str]]] = {}
    for query, document, score in ranked:
        if query in queries:
            heap = found.setdefault(query, [])
            # The digest as a whole number turned round: first in the draw is largest in the heap.
            entry = (score, bytes(255 - byte for byte in place(pool.seed, document)), document)
            (heapq.heappush if len(heap) < pool.hard else heapq.heappushpop)(heap, entry)
    return {document for heap in found.values() for _, _, document in heap}


def drawn_documents(
    name: str, documents: Iterable[tuple[str, str]], kept: set[str], pool: Pool
) -> Iterator[tuple[str, str]]:
    """The documents in `kept`, which are the judged and the hard ones, and others up to `pool.documents`, in the order
    of `documents`.

    ValueError where `kept` alone are more.
    """
    if len(kept) > pool.documents:
        raise ValueError(
            f"{name}: pool.documents={pool.documents}, but {len(kept):,} documents are judged or hard for its "
            f"{pool.queries} queries; take more, or fewer hard ones"
        )
    own: list[tuple[int, str, str]] = []

    def others() -> Iterator[tuple[bytes, int, str, str]]:
        for position, (id, body) in enumerate(documents):
            if id in kept:
                own.append((position, id, body))
            else:
                yield place(pool.seed, id), position, id, body

    drawn = heapq.nsmallest(pool.documents - len(kept), others())
    for _, id, body in sorted([*own, *((position, id, body) for _, position, id, body in drawn)]):
        yield id, body
