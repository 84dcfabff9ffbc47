"""Graded pairs: how well the cosine of every embedding prefix orders them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np
import torch
import torch.nn.functional as F

from trainables import distributed
from trainables.config import Split
from trainables.data.types import PairSet
from trainables.evaluation.retrieval import BLOCK, Encode
from trainables.evaluation.types import Evaluation

METRICS = ("spearman", "pearson")


@torch.inference_mode()
def evaluate(sets: Mapping[Split, PairSet], encode: Encode, dims: Sequence[int]) -> dict[Split, Evaluation]:
    """Spearman's and Pearson's correlation of cosine with the labels, at every prefix length and on average.

    Values are `spearman_32`, `pearson_32` for each of `dims` and their means `spearman`, `pearson`. Per pair id
    there are `label` and the cosines `cosine_32`, from which all of them follow. The gang shares the encoding;
    the result is the same on all ranks and does not depend on their number.
    """
    return {split: _evaluate(part, encode, dims) for split, part in sets.items()}


def _evaluate(part: PairSet, encode: Encode, dims: Sequence[int]) -> Evaluation:
    texts = list(dict.fromkeys(text for pair in part.pairs for text in (pair.first, pair.second)))
    vectors = _encode(texts, encode).double()
    place = {text: position for position, text in enumerate(texts)}
    first, second = (
        vectors[[place[text] for text in side]]
        for side in ([pair.first for pair in part.pairs], [pair.second for pair in part.pairs])
    )
    ids = [pair.id for pair in part.pairs]
    labels = np.array([pair.label for pair in part.pairs])
    values: dict[str, float] = {}
    per_item = {"label": dict(zip(ids, labels.tolist(), strict=True))}
    for dim in dims:
        cosines = F.cosine_similarity(first[:, :dim], second[:, :dim]).numpy()
        values[f"spearman_{dim}"] = pearson(ranks(cosines), ranks(labels))
        values[f"pearson_{dim}"] = pearson(cosines, labels)
        per_item[f"cosine_{dim}"] = dict(zip(ids, cosines.tolist(), strict=True))
    means = {name: fmean(values[f"{name}_{dim}"] for dim in dims) for name in METRICS}
    return Evaluation(means | values, per_item)


def _encode(texts: list[str], encode: Encode) -> torch.Tensor:
    """Vectors of all texts on the CPU, in their own order; each rank encodes every n-th block."""
    order = sorted(range(len(texts)), key=lambda position: len(texts[position]), reverse=True)
    blocks = [order[start : start + BLOCK] for start in range(0, len(order), BLOCK)]
    mine = blocks[distributed.rank() :: distributed.world_size()]
    parts = distributed.gather_objects([(b, encode([texts[position] for position in b]).float().cpu()) for b in mine])
    encoded = [item for part in parts for item in part]
    positions = torch.tensor([position for block, _ in encoded for position in block])
    return torch.cat([vectors for _, vectors in encoded])[positions.argsort()]


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1; equal values share the mean of theirs. NaN where any value is.

    >>> ranks(np.array([10.0, 30.0, 10.0])).tolist()
    [1.5, 3.0, 1.5]
    """
    if np.isnan(values).any():
        return np.full(len(values), np.nan)
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (counts.cumsum() - (counts - 1) / 2)[place]


def pearson(one: np.ndarray, other: np.ndarray) -> float:
    """Correlation; 0 where one side is constant, because a model that says nothing orders nothing.

    >>> pearson(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0])), pearson(np.ones(3), np.arange(3.0))
    (1.0, 0.0)
    """
    one, other = one - one.mean(), other - other.mean()
    size = np.sqrt((one @ one) * (other @ other))
    return 0.0 if size == 0 else float(np.clip(one @ other / size, -1, 1))
