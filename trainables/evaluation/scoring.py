"""How the vectors of an encoder are scored, and how they lie on disk: what `Encoder.scorer` is.

| scorer | vectors as encoded | score | on disk |
|---|---|---|---|
| `DENSE` | tensor (texts, dim) | inner product | the matrix, row after row |
| `COSINE` | tensor (texts, dim) of length 1, whose prefixes are vectors too | inner product | as `DENSE` |
| `SPARSE` | tensor (texts, dim), most of it 0 | inner product; only above 0 is a result | CSR |
| `MAX_SIM` | `Ragged`, any number for a text | sum of the query's largest inner products | one after the other |

Scores are float32 whatever autocast says. An encoder whose vectors are of another kind brings a `Scorer` of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from scipy.sparse import csr_matrix, vstack

from trainables.evaluation.measurement import Precision

DOCUMENT_TOKENS, QUERY_TOKENS = 2**13, 2**10
"""Vectors of documents and of queries that MaxSim compares at a time, or those of one text where it has more: at most
32 MiB of inner products."""
QUERIES = 1024
"""Queries that are scored against a block at a time where vectors are sparse."""


Padded = tuple[torch.Tensor, torch.Tensor]
"""Vectors (texts, longest, dim), 0 where a text has none, and (texts, longest) bool, true where it has one."""


@dataclass(frozen=True, slots=True)
class Ragged:
    """Any number of vectors for each of several texts, one text's after the other's."""

    values: torch.Tensor
    """The vectors of all texts, one text after the other: (number of vectors, dim)."""
    lengths: torch.Tensor
    """(texts,) int64 on the device of `values`: vectors of each text."""

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of texts and size of a vector, as (texts, dim)."""
        return len(self.lengths), self.values.shape[1]

    def __getitem__(self, texts: slice | Sequence[int]) -> Ragged:
        """The vectors of these texts, in the order of `texts`."""
        starts = self.lengths.cumsum(0) - self.lengths
        if isinstance(texts, slice):
            first, *_ = texts.indices(len(self))
            begin = int(starts[first]) if first < len(self) else len(self.values)
            return Ragged(self.values[begin : begin + int(self.lengths[texts].sum())], self.lengths[texts])
        places = torch.as_tensor(texts, dtype=torch.long, device=self.lengths.device)
        lengths = self.lengths[places]
        within = torch.arange(int(lengths.sum()), device=lengths.device)
        within -= (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
        return Ragged(self.values[starts[places].repeat_interleave(lengths) + within], lengths)

    def padded(self, longest: int | None = None) -> Padded:
        """The vectors padded to `longest` for each text, or, without it, to the most that one of the texts has."""
        longest = max(1, int(self.lengths.max())) if longest is None else longest
        there = torch.arange(longest, device=self.lengths.device) < self.lengths.unsqueeze(1)
        full = self.values.new_zeros(len(self), longest, self.values.shape[1])
        full[there] = self.values
        return full, there

    def to(self, device: torch.device) -> Ragged:
        return Ragged(self.values.to(device), self.lengths.to(device))


Vectors = TypeVar("Vectors")
"""Vectors of several texts, as an encoder returns them; `len` is the number of texts."""
Take = Callable[[str, str, int], np.ndarray]
"""(file, type, count) -> the next so many numbers of a file that is read from start to end."""


class Scorer(Generic[Vectors]):
    """Scores vectors of queries and documents, and knows how they are kept. It has no state."""

    name: ClassVar[str]
    """Part of the identity of what is kept."""
    matching_only: ClassVar[bool] = False
    """Whether a document is a result only if its score is above 0, as in an inverted index, which never meets a
    document that shares no term with the query."""
    files: ClassVar[tuple[str, ...]]
    """Names of the files that `arrays` fills."""

    def joined(self, parts: Sequence[Vectors]) -> Vectors:
        """Vectors of the texts of all parts, one part after the other."""
        raise NotImplementedError

    def ordered(self, parts: Sequence[Vectors], order: Sequence[int]) -> Vectors:
        """`joined`, of which the text at `order[n]` comes at place n."""
        raise NotImplementedError

    def scores(self, queries: Vectors, documents: Vectors) -> torch.Tensor:
        """Scores of every query and document, (queries, documents) float32, on the device of the vectors."""
        raise NotImplementedError

    def prefix(self, vectors: Vectors, size: int) -> Vectors:
        """The vectors that the first `size` coordinates are; TypeError where vectors are not made for that."""
        raise TypeError(f"vectors of the kind {self.name!r} have no prefixes that mean anything")

    def arrays(self, vectors: Vectors, precision: Precision) -> dict[str, np.ndarray]:
        """File -> what is appended to it; ValueError where a finite number is too large for float16."""
        raise NotImplementedError

    def block(self, take: Take, rows: int, dim: int, precision: Precision) -> Any:
        """The next `rows` texts' vectors of what `arrays` gave, as `kept` and `kept_scores` want them."""
        raise NotImplementedError

    def kept(self, blocks: Sequence[Any], order: Sequence[int], device: torch.device) -> Any:
        """Blocks of queries that were kept, ordered as `ordered` does and ready to be searched for on `device`."""
        return self.ordered(blocks, order).to(device)  # type: ignore[attr-defined]

    def kept_scores(self, queries: Any, documents: Any) -> torch.Tensor:
        """`scores` of what `kept` has made ready and a `block` of documents."""
        return self.scores(queries, documents.to(queries.device))


class InnerProduct(Scorer[torch.Tensor]):
    """One vector for each text."""

    name = "dense"
    files: ClassVar[tuple[str, ...]] = ("values.bin",)

    def joined(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        return torch.cat(list(parts))

    def ordered(self, parts: Sequence[torch.Tensor], order: Sequence[int]) -> torch.Tensor:
        vectors = self.joined(parts)
        return vectors[torch.as_tensor(order, device=vectors.device)]

    def scores(self, queries: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
        with torch.autocast(queries.device.type, enabled=False):
            return queries.float() @ documents.float().T

    def arrays(self, vectors: torch.Tensor, precision: Precision) -> dict[str, np.ndarray]:
        return {"values.bin": _numbers(_rounded(vectors, precision))}

    def block(self, take: Take, rows: int, dim: int, precision: Precision) -> torch.Tensor:
        return _float32(take("values.bin", _type(precision), rows * dim)).view(rows, dim)


class Cosine(InnerProduct):
    """Vectors of length 1 from an encoder that was trained on prefixes as well (MRL, arXiv 2205.13147)."""

    def prefix(self, vectors: torch.Tensor, size: int) -> torch.Tensor:
        return torch.nn.functional.normalize(vectors[:, :size], dim=1)


class SparseInnerProduct(InnerProduct):
    """As `InnerProduct` in memory; what is kept is scored on the CPU, whose work is the terms that two texts share.

    There sums are taken in float64 and rounded once: the score does not depend on the order of the terms. A SPLADE
    vector with 150 of 30,522 terms takes 900 bytes in float32 (600 in float16) where a dense row would take 122,088.
    """

    name = "sparse"
    matching_only = True
    files = ("values.bin", "columns.bin", "lengths.bin")

    def arrays(self, vectors: torch.Tensor, precision: Precision) -> dict[str, np.ndarray]:
        values = _rounded(vectors, precision)
        there = values != 0
        return {
            "values.bin": _numbers(values[there]),
            "columns.bin": there.nonzero()[:, 1].cpu().numpy().astype(_column_type(vectors.shape[1])),
            "lengths.bin": there.sum(1).cpu().numpy().astype("<i4"),
        }

    def block(self, take: Take, rows: int, dim: int, precision: Precision) -> csr_matrix:
        """A block of documents as a sparse matrix (rows, dim) in float64."""
        ends = take("lengths.bin", "<i4", rows).cumsum(dtype=np.int64)
        values = take("values.bin", _type(precision), ends[-1]).astype(np.float64)
        columns = take("columns.bin", _column_type(dim), ends[-1]).astype(np.int32)
        return csr_matrix((values, columns, np.concatenate([[0], ends])), shape=(rows, dim))

    def kept(self, blocks: Sequence[csr_matrix], order: Sequence[int], device: torch.device) -> csr_matrix:
        return vstack(blocks, format="csr")[np.asarray(order)]

    def kept_scores(self, queries: csr_matrix, documents: csr_matrix) -> torch.Tensor:
        # Of the documents only the terms that a query has are written out: a row of (terms, documents) for each.
        asked, places = np.unique(queries.indices, return_inverse=True)
        row_of = np.full(documents.shape[1], -1, dtype=np.int32)
        row_of[asked] = np.arange(len(asked), dtype=np.int32)
        rows, columns = row_of[documents.indices], np.repeat(np.arange(documents.shape[0]), np.diff(documents.indptr))
        there = rows >= 0
        terms = np.zeros((len(asked), documents.shape[0]))
        terms[rows[there], columns[there]] = documents.data[there]
        narrow = csr_matrix((queries.data, places, queries.indptr), (queries.shape[0], len(asked)))
        starts = range(0, queries.shape[0], QUERIES)
        return torch.from_numpy(np.concatenate([(narrow[s : s + QUERIES] @ terms).astype(np.float32) for s in starts]))


class MaxSim(Scorer[Ragged]):
    """Late interaction (ColBERT, arXiv 2004.12832): the largest inner product that each vector of the query has with a
    vector of the document, summed over the query.

    A document without vectors scores -inf, and so ranks below all others; a query without any scores 0 everywhere.
    """

    name = "ragged"
    files = ("values.bin", "lengths.bin")

    def joined(self, parts: Sequence[Ragged]) -> Ragged:
        return Ragged(torch.cat([part.values for part in parts]), torch.cat([part.lengths for part in parts]))

    def ordered(self, parts: Sequence[Ragged], order: Sequence[int]) -> Ragged:
        return self.joined(parts)[order]

    def scores(self, queries: Ragged, documents: Ragged) -> torch.Tensor:
        found = queries.values.new_zeros(len(queries), len(documents), dtype=torch.float32)
        asked = [(rows, few.padded()) for rows, few in _pieces(queries, QUERY_TOKENS)]
        for columns, some in _pieces(documents, DOCUMENT_TOKENS):
            padded = some.padded()
            for rows, few in asked:
                found[rows, columns] = max_sim(few, padded)
        return found

    def arrays(self, vectors: Ragged, precision: Precision) -> dict[str, np.ndarray]:
        return {
            "values.bin": _numbers(_rounded(vectors.values, precision)),
            "lengths.bin": vectors.lengths.cpu().numpy().astype("<i4"),
        }

    def block(self, take: Take, rows: int, dim: int, precision: Precision) -> Ragged:
        lengths = take("lengths.bin", "<i4", rows).astype(np.int64)
        values = take("values.bin", _type(precision), int(lengths.sum()) * dim)
        return Ragged(_float32(values).view(-1, dim), torch.from_numpy(lengths))

    def kept_scores(self, queries: Ragged, documents: Ragged) -> torch.Tensor:
        return self.scores(queries, documents.to(queries.values.device))


DENSE, COSINE, SPARSE, MAX_SIM = InnerProduct(), Cosine(), SparseInnerProduct(), MaxSim()


def _pieces(vectors: Ragged, limit: int) -> Iterator[tuple[slice, Ragged]]:
    """Neighbouring texts whose vectors, padded to the longest, are at most `limit`; one text where it has more."""
    lengths, start = vectors.lengths.tolist(), 0
    while start < len(lengths):
        stop, longest = start + 1, max(1, lengths[start])
        while stop < len(lengths) and (stop + 1 - start) * max(longest, lengths[stop]) <= limit:
            longest, stop = max(longest, lengths[stop]), stop + 1
        yield slice(start, stop), vectors[start:stop]
        start = stop


def max_sim(queries: Padded, documents: Padded) -> torch.Tensor:
    """(queries, documents) float32 of `Ragged.padded` vectors, all pairs at once and with a gradient."""
    (asked, of_query), (found, of_document) = queries, documents
    with torch.autocast(asked.device.type, enabled=False):
        products = asked.flatten(0, 1).float() @ found.flatten(0, 1).float().T
    products = products.view(*of_query.shape, *of_document.shape).masked_fill_(~of_document, -torch.inf)
    return products.amax(3).masked_fill(~of_query.unsqueeze(2), 0).sum(1)


def _rounded(values: torch.Tensor, precision: Precision) -> torch.Tensor:
    rounded = values.float()
    if precision == "float16":
        rounded = rounded.half()
        if (rounded.isinf() & values.isfinite()).any():
            raise ValueError(f"a vector has a number of {values.abs().max():g}, too large for float16; use float32")
    return rounded


def _numbers(values: torch.Tensor) -> np.ndarray:
    return values.cpu().contiguous().numpy()


def _float32(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.float32))


def _type(precision: Precision) -> str:
    return "<f2" if precision == "float16" else "<f4"


def _column_type(dim: int) -> str:
    return "<u2" if dim <= 2**16 else "<i4"
