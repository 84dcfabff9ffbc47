"""Suites of published collections: what is evaluated together, and how results are counted. Imports no torch.

| suite | collections | convention |
|---|---|---|
| `beir13` | the 13 of BEIR that are free and that SPLADE reports (Thakur et al. 2021) | BEIR's |
| `nanobeir` | the 13 samples of about 50 queries each | BEIR's |
| `msmarco-dev` | MS MARCO passages, the 6,980 queries of dev/small | MRR@10 first |
| `trec-dl-2019` | MS MARCO passages, 43 judged queries of TREC DL 2019 | grade 2 is relevant but for nDCG |

BEIR's convention: a document with the query's own id is no result (in ArguAna and Quora the queries are
documents too).
"""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Suite:
    """Collections that are evaluated and reported together."""

    name: str
    metrics: tuple[str, ...]
    """The first one is what trials are compared by."""
    datasets: tuple[Dataset, ...]

    @property
    def depth(self) -> int:
        """Documents that the metrics look at."""
        return max(int(metric.rpartition("_")[2]) for metric in self.metrics)


def _beir(name: str, ids: dict[str, str]) -> Suite:
    return Suite(name, METRICS, tuple(Dataset(key, f"ir_datasets:{id}", own_id=False) for key, id in ids.items()))


def _msmarco(name: str, id: str, metrics: tuple[str, ...], relevant: int = 1) -> Suite:
    return Suite(name, metrics, (Dataset(name, f"ir_datasets:{id}", relevant=relevant),))


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

SUITES = {
    suite.name: suite
    for suite in (
        _beir(
            "beir13",
            {name: f"beir/{name}{'/test' if name in _WITH_TEST else ''}" for name in _NAMES}
            # The second version is the one with the 49 queries that BEIR reports.
            | {"webis-touche2020": "beir/webis-touche2020/v2"},
        ),
        _beir("nanobeir", {name: f"nano-beir/{name}" for name in _NANO}),
        _msmarco("msmarco-dev", "msmarco-passage/dev/small", ("mrr_at_10", "ndcg_at_10", "recall_at_1000")),
        _msmarco(
            "trec-dl-2019",
            "msmarco-passage/trec-dl-2019/judged",
            ("ndcg_at_10", "mrr_at_10", "recall_at_1000"),
            relevant=2,
        ),
    )
}
