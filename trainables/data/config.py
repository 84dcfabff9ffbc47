"""The config sections that say where data come from, which trainers share. Imports neither torch nor ray."""

from __future__ import annotations

from typing import Literal

from pydantic import NonNegativeInt, PositiveInt, model_validator

from trainables.config import Finite, OpenFraction, Section
from trainables.places import CollectionSource, ExampleSource, PairSource, Text, TextSource

StopWords = Literal[
    "none", "english", "german", "dutch", "french", "spanish", "portuguese", "italian", "russian", "swedish",
    "norwegian", "chinese", "turkish", "korean", "danish",
]  # fmt: skip


class TrainData(Section):
    """Where training examples come from.

    `source` is `embedded`, `ir_datasets:ID` (a docpairs id), `datasets:NAME` (a hub name, or a local
    data set that `datasets.load_dataset` opens) or a path to JSONL/TSV. The column names apply to
    files and to `datasets`.
    """

    source: ExampleSource = "embedded"
    """`embedded`, `ir_datasets:ID` (document pairs), `datasets:NAME[:CONFIG]` or a path to JSONL, JSON or TSV."""
    query: Text = "query"
    """Column of queries, in files and `datasets`."""
    positive: Text = "positive"
    """Column of relevant documents."""
    negatives: Text = "negatives"
    """Column of hard negatives, a text or a list; `NAME_1`, `NAME_2`, ... with a text each are read, too."""
    scores: Text = "scores"
    """Column of a teacher's scores, of the positive and of each negative."""
    split: Text = "train"
    """Split of a `datasets` source."""
    limit: PositiveInt | None = None
    """Read at most this many examples."""


class TextData(Section):
    """Where plain texts for pre-training come from; see `trainables.data.text`.

    `source` is `embedded`, `ir_datasets:ID` (its documents), `datasets:NAME[:CONFIG]`, or a path to .txt (a text is a
    paragraph: blank lines separate texts), .jsonl, .json or .tsv, with or without .gz.
    """

    source: TextSource = "embedded"
    """`embedded`, `ir_datasets:ID` (its documents), `datasets:NAME[:CONFIG]` or a path to .txt, .jsonl, .json or
    .tsv."""
    text: Text = "text"
    """Column of files other than .txt and of `datasets`."""
    split: Text = "train"
    """Split of a `datasets` source."""
    limit: PositiveInt | None = None
    """Read at most this many texts, from the start."""
    streaming: bool = False
    """Read an `ir_datasets` or `datasets` source in its own order while training, whatever the seed, and keep none of
    it."""
    packed: bool = False
    """Join short texts and cut long ones to pieces of the full `max_length`; otherwise a text is cut off there."""

    @model_validator(mode="after")
    def _streamed(self) -> TextData:
        if self.streaming and not self.source.startswith(("ir_datasets:", "datasets:")):
            raise ValueError(
                f"streaming is true, but source is {self.source!r}, which is held in memory; "
                "streaming needs ir_datasets:ID or datasets:NAME[:CONFIG], or false"
            )
        return self


class FurtherText(Section):
    """A source of texts that is mixed into another, with a share of each batch; none without `source`."""

    source: TextSource | None = None
    """As `source` of `TextData`."""
    share: OpenFraction = 0.25
    """Share of the texts of a batch that come from here, of pieces where they are packed."""
    text: Text = "text"
    """Column of files other than .txt and of `datasets`."""
    split: Text = "train"
    """Split of a `datasets` source."""
    limit: PositiveInt | None = None
    """Read at most this many texts, from the start."""
    streaming: bool = False
    """Read an `ir_datasets` or `datasets` source in its own order while training, whatever the seed, and keep none of
    it."""

    @model_validator(mode="after")
    def _readable(self) -> FurtherText:
        if self.source is not None:
            self.data(packed=False)
        return self

    def data(self, packed: bool) -> TextData:
        """The same as `TextData`; there must be a source."""
        return TextData.model_validate(self.model_dump(exclude={"share"}) | {"packed": packed})


class Pool(Section):
    """A part of a large collection, drawn by seed and ids: so many queries, the documents that are judged or hard for
    them, and others."""

    queries: PositiveInt
    """Queries with a relevant document; all where there are fewer."""
    documents: PositiveInt = 100_000
    """Documents in all."""
    hard: NonNegativeInt = 0
    """Of each query so many of the highest documents in the run that comes with the collection, such as the BM25
    candidates of MS MARCO."""
    seed: NonNegativeInt = 0
    """Another one draws other queries and documents."""


class EvaluationData(Section):
    """The collection that validation and test queries come from.

    `source` is `embedded`, `ir_datasets:ID` or a folder in BEIR layout. `test_source`, where given,
    is a second collection whose queries are the test queries; all queries of `source` are then
    validation queries. Otherwise the queries of `source` are split by a hash of their ids, so that a
    query stays on its side whatever else changes.
    """

    source: CollectionSource = "embedded"
    """`embedded`, `ir_datasets:ID` or a folder in BEIR layout."""
    test_source: CollectionSource | None = None
    """A second collection, whose queries are the test queries; without one those of `source` are split."""
    qrels_split: Text = "test"
    """Which qrels file of a BEIR folder: `qrels/<qrels_split>.tsv`."""
    drop_own_id: bool = False
    """A document with the query's own id is no result, as in BEIR's own scripts: for collections such as ArguAna, whose
    queries are documents too. Elsewhere equal ids may mean nothing."""
    validation_fraction: OpenFraction = 0.35
    """Share of the queries of `source` that are validation queries, where there is no `test_source`."""
    bm25: bool = True
    """Measure BM25 on the same queries for comparison; its index is held in memory."""
    bm25_stop_words: StopWords = "english"
    """Words that BM25 leaves out: the list of the package `bm25s` for this language."""
    pool: Pool | None = None
    """Take a part of `source`, which must be an `ir_datasets:ID`; None takes all of it."""
    max_documents: PositiveInt | None = None
    """Keep the judged documents and fill up to this many with others, in the source's order."""

    @model_validator(mode="after")
    def _pooled(self) -> EvaluationData:
        if self.pool is None:
            return self
        if not self.source.startswith("ir_datasets:"):
            raise ValueError(f"pool is given, but source is {self.source!r}; a pool is drawn of ir_datasets:ID")
        if self.max_documents is not None:
            raise ValueError(f"max_documents={self.max_documents} beside a pool, which has pool.documents; give one")
        return self


class PairData(Section):
    """Graded pairs: two sentences and a label that grows with their likeness.

    Sources are `embedded`, `stsb:FILE` (STS-Benchmark's own files), `datasets:NAME[:CONFIG]` or a path to
    .jsonl, .json or .tsv. The three splits are three sources; `validation` and `test` may be left out where
    `train` names data that have these splits themselves, that is for `embedded` and `datasets:`.
    """

    train: PairSource = "embedded"
    """`embedded`, `stsb:FILE`, `datasets:NAME[:CONFIG]` or a path to .jsonl, .json or .tsv."""
    validation: PairSource | None = None
    """Pairs to validate on, in one of the same forms; none where `train` has this split itself."""
    test: PairSource | None = None
    """Pairs to test on, in one of the same forms; none where `train` has this split itself."""
    sentence1: Text = "sentence1"
    """Column of the first sentence, in files and `datasets`."""
    sentence2: Text = "sentence2"
    """Column of the second sentence."""
    label: Text = "label"
    """Column of the label, which grows with likeness."""
    lowest: Finite | None = None
    """A label below this or above `highest` is an error in the data. None takes both from the source: 0 to 5 for
    `stsb:`, otherwise the narrowest of 0 to 1, 1 to 5 and 0 to 5 that holds all labels."""
    highest: Finite | None = None
    """A label above this is an error in the data; see `lowest`."""
    label_words: tuple[Text, ...] = ()
    """Labels that are words, the least alike first, at equal distances from 0 to 1. Words such as yes and no, and those
    of entailment data, need no such list."""

    @model_validator(mode="after")
    def _range(self) -> PairData:
        if (self.lowest is None) != (self.highest is None):
            raise ValueError(
                f"lowest is {self.lowest} and highest {self.highest}: a range is declared with both, or left to the "
                "source with neither"
            )
        if self.lowest is not None and self.highest is not None and self.lowest >= self.highest:
            raise ValueError(f"lowest is {self.lowest:g} and highest {self.highest:g}: lowest must be smaller")
        if len(self.label_words) == 1 or len({word.lower() for word in self.label_words}) < len(self.label_words):
            raise ValueError(f"label_words={list(self.label_words)}: at least two different words are needed")
        return self


class RetrievalData(Section):
    """A collection on which every prefix of the embedding is also measured; `EvaluationData` says how its queries are
    split."""

    source: CollectionSource | None = None
    """None for no retrieval, else `embedded`, `ir_datasets:ID` or a folder in BEIR layout."""
    qrels_split: Text = "test"
    """Which qrels file of a BEIR folder: `qrels/<qrels_split>.tsv`."""
    drop_own_id: bool = False
    """A document with the query's own id is no result, as in BEIR's own scripts: for collections such as ArguAna, whose
    queries are documents too. Elsewhere equal ids may mean nothing."""
    validation_fraction: OpenFraction = 0.35
    """Share of the queries that are validation queries."""
    max_documents: PositiveInt | None = None
    """Keep the judged documents and fill up to this many with others."""
    query_prefix: Text = ""
    """Text put before every query."""
    document_prefix: Text = ""
    """Text put before every document."""

    def data(self) -> EvaluationData | None:
        if self.source is None:
            return None
        return EvaluationData(
            source=self.source,
            qrels_split=self.qrels_split,
            drop_own_id=self.drop_own_id,
            validation_fraction=self.validation_fraction,
            max_documents=self.max_documents,
            bm25=False,
        )
