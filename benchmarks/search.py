"""Exact top-k search over sparse and dense vectors, against what people would use: time, peak memory, equal results.

    python -m benchmarks.search [--documents 100000] [--queries 1000] [--threads 1] [--json FILE]

Sparse vectors are as SPLADE's: about 200 terms of a document and 30 of a query, of a vocabulary of 30,522 whose
frequencies are Zipf's. Dense ones have 128 coordinates.

- `ours`: what `study.evaluate` does with the vectors that it has kept, block after block
- `evaluator`: the search of sentence-transformers' evaluator of sparse, or of dense models
- `semantic_search`: `sentence_transformers.util.semantic_search`
- `splade-index`: the inverted index of that package with its numba backend, sparse only (`pip install splade-index`)

Everybody starts from vectors in memory in the form that they want them in and gives 100 documents for each query.
Times are the best of interleaved rounds in one process; building an index is not counted. Memory is what a process of
its own needs at most beyond its vectors. Results are equal where the scores of each query's 100 documents are, to 1e-4
of the largest.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix

from benchmarks.memory import peak
from trainables.evaluation.retrieval import BLOCK
from trainables.evaluation.scoring import DENSE, SPARSE
from trainables.evaluation.search import best_of

VOCABULARY, OF_DOCUMENT, OF_QUERY, DIM, DEPTH = 30_522, 200, 30, 128, 100
BARS = {("sparse", "evaluator"): 3.0, ("sparse", "semantic_search"): 3.0, ("sparse", "splade-index"): 1.0}
"""How many times faster ours has to be."""
Search = Callable[[], np.ndarray]


def zipf(texts: int, active: int, seed: int) -> csr_matrix:
    """(texts, VOCABULARY) float32: each text draws `active` terms, the n-th most frequent with weight 1 / (n + 10)."""
    generator = np.random.default_rng(seed)
    shares = 1 / (np.arange(VOCABULARY) + 10)
    # The largest of log(share) + Gumbel noise are a draw without replacement.
    rows = [
        np.argpartition(-(np.log(shares) + generator.gumbel(size=VOCABULARY)), active)[:active] for _ in range(texts)
    ]
    columns = np.sort(np.stack(rows), axis=1).ravel().astype(np.int32)
    values = generator.gamma(2.0, 0.4, size=texts * active).astype(np.float32) + 0.01
    return csr_matrix((values, columns, np.arange(texts + 1) * active), shape=(texts, VOCABULARY))


@dataclass(frozen=True)
class Vectors:
    kind: str
    documents: int
    queries: int

    @cached_property
    def pair(self) -> tuple[Any, Any]:
        """Vectors of the documents and of the queries."""
        if self.kind == "sparse":
            return zipf(self.documents, OF_DOCUMENT, 0), zipf(self.queries, OF_QUERY, 1)
        generator = torch.Generator().manual_seed(0)
        return tuple(torch.randn(count, DIM, generator=generator) for count in (self.documents, self.queries))

    @cached_property
    def tensors(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The same as torch has them: COO where they are sparse."""
        if self.kind == "dense":
            return self.pair
        documents, queries = (_coo(one) for one in self.pair)
        return documents, queries

    @cached_property
    def blocks(self) -> tuple[list[tuple[range, Any]], Any]:
        """The same as a measurement reads them: documents in blocks, and queries."""
        documents, queries = self.pair
        starts = range(0, self.documents, BLOCK)
        if self.kind == "dense":
            return [(range(s, min(s + BLOCK, self.documents)), documents[s : s + BLOCK]) for s in starts], queries
        parts = [
            (range(s, min(s + BLOCK, self.documents)), documents[s : s + BLOCK].astype(np.float64)) for s in starts
        ]
        return parts, queries.astype(np.float64)


def _coo(matrix: csr_matrix) -> torch.Tensor:
    coo = matrix.tocoo()
    places = torch.from_numpy(np.stack([coo.row, coo.col]).astype(np.int64))
    return torch.sparse_coo_tensor(places, torch.from_numpy(coo.data), coo.shape, is_coalesced=True)


class _Stub:
    """Stands in for a model: its vectors are there already."""

    def __init__(self, vectors: Vectors) -> None:
        self.documents, self.queries = vectors.tensors
        self.tokenizer = self

    def get_vocab(self) -> dict[str, int]:
        return {}

    def sparsity(self, embeddings: torch.Tensor) -> dict[str, float]:
        return {}

    def encode_query(self, texts: list[str], convert_to_tensor: bool = True, **options: Any) -> Any:
        queries = self.queries if len(texts) == len(self.queries) else self.queries.index_select(0, torch.arange(1))
        return queries if convert_to_tensor else list(queries)

    def encode_document(self, texts: list[str], **options: Any) -> torch.Tensor:
        return self.documents


def ours(vectors: Vectors) -> Search:
    blocks, queries = vectors.blocks
    scorer = SPARSE if vectors.kind == "sparse" else DENSE

    def run() -> np.ndarray:
        scored = ((positions, scorer.kept_scores(queries, block)) for positions, block in blocks)
        return best_of(scored, vectors.queries, DEPTH).result()[0].numpy()

    return run


def evaluator(vectors: Vectors) -> Search:
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
    from sentence_transformers.sparse_encoder.evaluation import SparseInformationRetrievalEvaluator
    from sentence_transformers.util import dot_score

    base: Any = SparseInformationRetrievalEvaluator if vectors.kind == "sparse" else InformationRetrievalEvaluator

    class Searching(base):
        """The evaluator up to its metrics."""

        def compute_metrics(self, queries_result_list: list[Any]) -> dict[str, float]:
            self.found = queries_result_list
            return {}

        def output_scores(self, scores: dict[str, float]) -> None:
            pass

    names = {str(n): str(n) for n in range(vectors.documents)}
    asked = {f"q{n}": str(n) for n in range(vectors.queries)}
    search = Searching(
        asked, names, {name: {"0"} for name in asked}, write_csv=False, score_functions={"dot": dot_score},
        mrr_at_k=[DEPTH], ndcg_at_k=[DEPTH], accuracy_at_k=[DEPTH], precision_recall_at_k=[DEPTH], map_at_k=[DEPTH],
    )  # fmt: skip
    model, corpus = _Stub(vectors), vectors.tensors[0]

    def run() -> np.ndarray:
        search.compute_all_metrics(model, corpus_embeddings=corpus)
        return np.array([[hit["score"] for hit in hits] for hits in search.found])

    return run


def semantic_search(vectors: Vectors) -> Search:
    from sentence_transformers.util import dot_score
    from sentence_transformers.util import semantic_search as theirs

    documents, queries = vectors.tensors

    def run() -> np.ndarray:
        found = theirs(queries, documents, top_k=DEPTH, score_function=dot_score)
        return np.array([[hit["score"] for hit in hits] for hits in found])

    return run


def splade_index(vectors: Vectors) -> Search:
    from splade_index import SPLADE

    index = SPLADE(backend="numba")
    index.index(_Stub(vectors), [""] * vectors.documents, show_progress=False)
    asked = [str(n) for n in range(vectors.queries)]
    return lambda: index.retrieve(asked, k=DEPTH, show_progress=False).scores


VARIANTS: dict[str, Callable[[Vectors], Search]] = {
    "ours": ours, "evaluator": evaluator, "semantic_search": semantic_search, "splade-index": splade_index,
}  # fmt: skip


def peak_of(kind: str, documents: int, queries: int, variant: str, threads: int) -> float:
    """MiB that a search needs at most, in a process of its own."""
    torch.set_num_threads(threads)
    run, small = (VARIANTS[variant](Vectors(kind, *size)) for size in ((documents, queries), (300, 10)))
    return peak(run, small, "cpu")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = []
    print(f"{options.documents:,} documents, {options.queries:,} queries, {options.threads} thread(s), best {DEPTH}")
    print(f"{'vectors':8} {'variant':16} {'s':>8} {'times ours':>10} {'bar':>5} {'MiB':>8} {'equal':>6}")
    for kind in ("sparse", "dense"):
        vectors = Vectors(kind, options.documents, options.queries)
        searches = {
            name: make(vectors) for name, make in VARIANTS.items() if kind == "sparse" or name != "splade-index"
        }
        best = dict.fromkeys(searches, float("inf"))
        results = {}
        for round_ in range(options.rounds + 1):
            for name, run in searches.items():
                began = time.perf_counter()
                results[name] = np.sort(run(), axis=1)
                if round_:
                    best[name] = min(best[name], time.perf_counter() - began)
        with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
            asked = [(kind, options.documents, options.queries, name, options.threads) for name in searches]
            memory = dict(zip(searches, pool.starmap(peak_of, asked, chunksize=1), strict=True))
        for name, seconds in best.items():
            gap = np.abs(results[name] - results["ours"]).max() / np.abs(results["ours"]).max()
            row = {
                "vectors": kind, "variant": name, "seconds": seconds, "ratio": seconds / best["ours"],
                "bar": BARS.get((kind, name)), "mib": memory[name], "equal": bool(gap < 1e-4),
            }  # fmt: skip
            rows.append(row)
            print(
                f"{kind:8} {name:16} {seconds:8.2f} {row['ratio']:10.2f} {row['bar'] or '':>5} {memory[name]:8.0f} "
                f"{'yes' if row['equal'] else 'NO':>6}",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps({"threads": options.threads, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
