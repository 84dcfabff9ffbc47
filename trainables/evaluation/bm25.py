"""BM25, the figure every trained retriever is put beside."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from trainables.data.types import Collection
from trainables.evaluation.metrics import evaluate
from trainables.recipe import Evaluation

DEPTH = 100

_RUN = re.compile(r"[^\W_]+")
_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def tokens(text: str) -> list[str]:
    """Lower-cased runs of letters and digits; identifiers come apart at underscores and changes of case.

    No stemming and no stop words. Scripts without spaces between words (Japanese, Chinese) come out as long
    runs, for which BM25's figure means little.

    >>> tokens("parse_HTMLString(x2) isn't naïve")
    ['parse', 'html', 'string', 'x2', 'isn', 't', 'naïve']
    """
    return [part.lower() for run in _RUN.findall(text) for part in _CASE.split(run)]


def bm25(collection: Collection, query_ids: Sequence[str], k1: float = 1.2, b: float = 0.75) -> Evaluation:
    """`metrics.METRICS` of BM25 on the given queries (Robertson & Zaragoza 2009; Lucene's form and defaults).

    Documents without a word of the query are not results. Equal scores are ordered as the documents are.
    """
    import bm25s

    index = bm25s.BM25(method="lucene", k1=k1, b=b)
    index.index([tokens(text) for text in collection.documents.values()], show_progress=False)
    ids = list(collection.documents)
    run = {}
    for query in query_ids:
        known = [token for token in tokens(collection.queries[query]) if token in index.vocab_dict]
        scores = index.get_scores(known) if known else np.zeros(len(ids), dtype=np.float32)
        matching = np.flatnonzero(scores)
        best = matching[np.argsort(-scores[matching], kind="stable")[:DEPTH]]
        run[query] = [(ids[position], float(scores[position])) for position in best]
    return evaluate(run, {query: collection.qrels[query] for query in query_ids})
