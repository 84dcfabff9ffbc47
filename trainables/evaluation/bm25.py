"""BM25, the figure every trained retriever is put beside."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np
import regex

from trainables.data.config import StopWords
from trainables.data.types import Collection
from trainables.evaluation.metrics import evaluate
from trainables.evaluation.types import Evaluation

DEPTH = 100
K1, B = 1.2, 0.75
"""BM25's parameters k1 and b, at Lucene's defaults."""

_WORD = regex.compile(r"[\p{Han}\p{Hiragana}]\p{M}*|[[\p{L}\p{M}\p{N}]--[\p{Han}\p{Hiragana}]]+", regex.V1)
_CASE = regex.compile(r"(?<=[\p{Ll}\p{N}])(?=\p{Lu})|(?<=\p{Lu})(?=\p{Lu}\p{Ll})", regex.V1)
_INVISIBLE = regex.compile(r"\p{Default_Ignorable_Code_Point}+")
"""Soft hyphens, joiners and their like, which stand inside of words and are typed or left out at will."""


def tokens(text: str) -> list[str]:
    """Words in lower case; identifiers come apart at underscores and changes of case.

    A word is a run of letters, combining marks and digits, so that the vowel signs of Hindi and Bengali and the
    vowel points of Arabic part nothing; NFKC makes composed and decomposed accents, full and half width equal.
    Every character of Han and Hiragana is a word, as in Unicode's text segmentation (UAX #29) and so in Lucene's
    standard tokenizer. Thai, Lao, Khmer and Burmese come out as long runs, for which BM25's figure means little.

    >>> tokens("parse_HTMLString(x2) isn't naïve")
    ['parse', 'html', 'string', 'x2', 'isn', 't', 'naïve']
    >>> tokens("हिन्दी में, カタカナの漢字")
    ['हिन्दी', 'में', 'カタカナ', 'の', '漢', '字']
    """
    normal = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text))
    # Lower case can decompose again: the capital I with a dot is an i and a combining dot.
    return [part.lower() for word in _WORD.findall(normal) for part in _CASE.split(word)]


def bm25(
    collection: Collection, query_ids: Sequence[str], stop_words: StopWords = "english", drop_own_id: bool = False
) -> Evaluation:
    """`metrics.METRICS` of BM25 on the given queries (Robertson & Zaragoza 2009; Lucene's form and defaults).

    `stop_words` names one of the library's lists. Documents without a word of the query are not results, nor, with
    `drop_own_id`, one with the query's own id. Equal scores are ordered as the documents are.
    """
    import bm25s
    from bm25s.tokenization import Tokenizer

    left_out = None if stop_words == "none" else stop_words
    tokenizer = Tokenizer(splitter=tokens, lower=False, stopwords=left_out, stemmer=None)
    words = tokenizer.tokenize(
        list(collection.documents.values()), return_as="tuple", allow_empty=False, show_progress=False
    )
    asked = tokenizer.tokenize(
        [collection.queries[query] for query in query_ids], update_vocab=False, allow_empty=False, show_progress=False
    )
    index = bm25s.BM25(method="lucene", k1=K1, b=B)
    if words.vocab:
        index.index(words, show_progress=False)
    ids = list(collection.documents)
    run = {}
    for query, known in zip(query_ids, asked, strict=True):
        scores = index.get_scores(known) if known else np.zeros(len(ids), dtype=np.float32)
        matching = np.flatnonzero(scores)
        best = matching[np.argsort(-scores[matching], kind="stable")[: DEPTH + drop_own_id]]
        found = [(ids[position], float(scores[position])) for position in best]
        run[query] = [hit for hit in found if not (drop_own_id and hit[0] == query)]
    return evaluate(run, {query: collection.qrels[query] for query in query_ids})


def settings(stop_words: StopWords) -> str:
    """What a figure depends on besides the texts, for the record."""
    return (
        f"bm25s, Lucene's form, k1 {K1:g}, b {B:g}; Unicode words in lower case, identifiers in their parts; "
        f"stop words: {stop_words}; stemming: none"
    )
