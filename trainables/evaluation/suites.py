"""Suites of published collections: what is evaluated together, and how results are counted. Imports no torch.

| suite | collections | convention |
|---|---|---|
| `beir13` | the 13 of BEIR that are free and that SPLADE reports (Thakur et al. 2021) | BEIR's |
| `beir18` | those, CQADupStack's 12 forums as one, and the four that must be licensed, as folders | BEIR's |
| `nanobeir` | the 13 samples of about 50 queries each | BEIR's |
| `nanobeir-st` | the same | that of sentence-transformers' NanoBEIREvaluator |
| `msmarco-dev` | MS MARCO passages, the 6,980 queries of dev/small | MRR@10 first |
| `trec-dl-2019` | MS MARCO passages, 43 judged queries of TREC DL 2019 | grade 2 is relevant but for nDCG |

BEIR's convention: a document with the query's own id is no result (in ArguAna and Quora the queries are
documents too). sentence-transformers' has no such rule, and recall@10 in place of recall@100.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from trainables.evaluation.metrics import METRICS


@dataclass(frozen=True, slots=True)
class Dataset:
    """One collection of a suite, and how results on it are counted."""

    name: str
    source: str
    """`ir_datasets:ID` or a folder in BEIR layout."""
    own_id: bool = True
    """Whether a document with the query's own id can be a result."""
    relevant: int = 1
    """The lowest grade that MRR and recall call relevant; nDCG has its gains from all grades."""
    part_of: str | None = None
    """Collections that are parts of the same one count as one in the suite's mean: that of the parts."""
    qrels_split: str = "test"
    """Of a folder: which file of judgements."""


@dataclass(frozen=True, slots=True)
class Suite:
    """Collections that are evaluated and reported together."""

    name: str
    metrics: tuple[str, ...]
    """The first one is what trials are compared by."""
    datasets: tuple[Dataset, ...]
    convention: str
    """How results are counted, for the record."""
    licensed: tuple[str, ...] = ()
    """Names of the folders that whoever asks for the suite has to bring."""

    @property
    def depth(self) -> int:
        """Documents that the metrics look at."""
        return max(int(metric.rpartition("_")[2]) for metric in self.metrics)


OWN_ID_DROPPED = "BEIR's: a document with the query's own id is no result"
OWN_ID_KEPT = "a document with the query's own id is a result like any other"


def means(values: Mapping[str, float], datasets: Sequence[Dataset]) -> dict[str, float]:
    """Name of each collection -> its value, where parts of one collection are that one, with their mean.

    >>> parts = [Dataset(name, "", part_of="forums") for name in ("android", "unix")]
    >>> means({"nq": 0.5, "android": 0.25, "unix": 0.5}, [Dataset("nq", ""), *parts])
    {'nq': 0.5, 'forums': 0.375}
    """
    found: dict[str, list[float]] = {}
    for dataset in datasets:
        found.setdefault(dataset.part_of or dataset.name, []).append(values[dataset.name])
    return {name: fmean(parts) for name, parts in found.items()}


def shares(datasets: Sequence[Dataset]) -> dict[str, float]:
    """Name of each collection -> its share of the suite's mean; they add up to 1."""
    whole = Counter(dataset.part_of or dataset.name for dataset in datasets)
    return {one.name: 1 / len(whole) / whole[one.part_of or one.name] for one in datasets}


def _free(ids: Mapping[str, str], own_id: bool = False) -> tuple[Dataset, ...]:
    return tuple(Dataset(key, f"ir_datasets:{id}", own_id) for key, id in ids.items())


def _msmarco(name: str, id: str, metrics: tuple[str, ...], relevant: int = 1) -> Suite:
    counted = "" if relevant == 1 else f"; grade {relevant} and more is relevant for MRR and recall"
    return Suite(name, metrics, (Dataset(name, f"ir_datasets:{id}", relevant=relevant),), OWN_ID_KEPT + counted)


_NAMES = (
    "arguana", "climate-fever", "dbpedia-entity", "fever", "fiqa", "hotpotqa", "nfcorpus", "nq", "quora", "scidocs",
    "scifact", "trec-covid", "webis-touche2020",
)  # fmt: skip
_WITH_TEST = ("dbpedia-entity", "fever", "fiqa", "hotpotqa", "nfcorpus", "quora", "scifact")
"""Collections whose ids in `ir_datasets` end in `/test`; the other ids have test queries only."""
_NANO = (
    "arguana", "climate-fever", "dbpedia-entity", "fever", "fiqa", "hotpotqa", "msmarco", "nfcorpus", "nq", "quora",
    "scidocs", "scifact", "webis-touche2020",
)  # fmt: skip

_FORUMS = (
    "android", "english", "gaming", "gis", "mathematica", "physics", "programmers", "stats", "tex", "unix",
    "webmasters", "wordpress",
)  # fmt: skip
"""CQADupStack's."""
_LICENSED = ("bioasq", "robust04", "signal1m", "trec-news")
_BEIR13 = _free(
    {name: f"beir/{name}{'/test' if name in _WITH_TEST else ''}" for name in _NAMES}
    # The second version is the one with the 49 queries that BEIR reports.
    | {"webis-touche2020": "beir/webis-touche2020/v2"}
)
_CQADUPSTACK = tuple(
    Dataset(f"cqadupstack-{forum}", f"ir_datasets:beir/cqadupstack/{forum}", own_id=False, part_of="cqadupstack")
    for forum in _FORUMS
)

SUITES = {
    suite.name: suite
    for suite in (
        Suite("beir13", METRICS, _BEIR13, OWN_ID_DROPPED),
        Suite("beir18", METRICS, (*_BEIR13, *_CQADUPSTACK), OWN_ID_DROPPED, licensed=_LICENSED),
        Suite("nanobeir", METRICS, _free({name: f"nano-beir/{name}" for name in _NANO}), OWN_ID_DROPPED),
        Suite(
            "nanobeir-st",
            ("ndcg_at_10", "mrr_at_10", "recall_at_10"),
            _free({name: f"nano-beir/{name}" for name in _NANO}, own_id=True),
            f"that of sentence-transformers' NanoBEIREvaluator: {OWN_ID_KEPT}",
        ),
        _msmarco("msmarco-dev", "msmarco-passage/dev/small", ("mrr_at_10", "ndcg_at_10", "recall_at_1000")),
        _msmarco(
            "trec-dl-2019",
            "msmarco-passage/trec-dl-2019/judged",
            ("ndcg_at_10", "mrr_at_10", "recall_at_1000"),
            relevant=2,
        ),
    )
}
