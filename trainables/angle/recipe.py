"""The Matryoshka AnglE recipe: graded pairs, ranked by AnglE similarity at every prefix of the embedding."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

import torch
import torch.nn.functional as F

from trainables import distributed, encoders, vocabulary
from trainables.angle import losses
from trainables.angle.config import Config
from trainables.angle.grading import Grading, grading
from trainables.angle.model import SentenceEncoder, export
from trainables.angle.rules import rules
from trainables.config import Split
from trainables.data.order import indices, share
from trainables.data.pairs import pair_sets
from trainables.data.types import PairSet, Role
from trainables.encoders import Prefixes, Tokens
from trainables.evaluation import metrics, sts
from trainables.evaluation.retrieval import Retrieval
from trainables.evaluation.scoring import COSINE, Scorer
from trainables.evaluation.types import Evaluation
from trainables.probe import extremes, spaced
from trainables.recipe import RecipeContext, parameter_groups


def build(config: Config, context: RecipeContext) -> AngleRecipe:
    """ValueError where the backbone, the data or their combination with `config` cannot be used."""
    if config.batch_size % context.world_size:
        raise ValueError(f"batch_size is {config.batch_size}, which {context.world_size} workers cannot share evenly")
    folder = Path(config.cache) if config.cache else None
    sets = pair_sets(config.data, folder)
    backbone, tokenizer = encoders.load_encoder(config.backbone, trust_remote_code=config.trust_remote_code)
    if config.pooling == "cls":
        vocabulary.check_first(config.backbone, tokenizer)
    model = SentenceEncoder(backbone, config.pooling)
    if config.dims[-1] > model.size:
        raise ValueError(
            f"dims={list(config.dims)}: the embeddings of backbone {config.backbone!r} have {model.size} coordinates, "
            f"so no prefix can be longer than that"
        )
    encoders.check_lengths({"length": config.length}, config.backbone, backbone, tokenizer)
    collection = config.retrieval.data()
    retrieval = None if collection is None else Retrieval(collection, folder)
    graded = grading(sets, config.data, positive_label=config.positive_label, in_batch=config.in_batch_weight > 0)
    return AngleRecipe(config, context, model, tokenizer, sets, retrieval, graded)


@dataclass(frozen=True, slots=True)
class Encoder:
    """The recipe's `trainables.recipe.Encoder`: its vectors are the longest of the prefixes, compared by cosine."""

    scorer: ClassVar[Scorer] = COSINE
    statistics: ClassVar[None] = None
    model: SentenceEncoder
    tokenizer: Any
    config: Config
    device: torch.device

    @classmethod
    def open(cls, folder: Path, config: Config, device: torch.device) -> Encoder:
        backbone, tokenizer = encoders.load_encoder(str(folder), trust_remote_code=config.trust_remote_code)
        return cls(SentenceEncoder(backbone, config.pooling).to(device).eval(), tokenizer, config, device)

    @property
    def settings(self) -> dict[str, Any]:
        config = self.config
        return {
            "pooling": config.pooling,
            "length": config.length,
            "dim": config.dims[-1],
            "query_prefix": config.retrieval.query_prefix,
            "document_prefix": config.retrieval.document_prefix,
            "precision": encoders.computed_in(config.precision, self.device),
        }

    def queries(self, texts: list[str]) -> torch.Tensor:
        return self._direction(texts, self.config.retrieval.query_prefix)

    def documents(self, texts: list[str]) -> torch.Tensor:
        return self._direction(texts, self.config.retrieval.document_prefix)

    def encode(self, texts: list[str], prefix: str) -> torch.Tensor:
        """Whole embeddings as the model gives them, `prefix` before each text."""
        return encoders.encode(self.model, self.tokens, [prefix + text for text in texts], self.config.precision)

    def tokens(self, texts: Sequence[str]) -> Tokens:
        return encoders.tokenize(self.tokenizer, texts, self.config.length, self.device)

    def _direction(self, texts: list[str], prefix: str) -> torch.Tensor:
        return direction(self.encode(texts, prefix), self.config.dims[-1])


def direction(embeddings: torch.Tensor, dim: int) -> torch.Tensor:
    """The first `dim` coordinates of each embedding, scaled to length 1, (texts, dim)."""
    return F.normalize(embeddings[:, :dim], dim=1)


@dataclass(frozen=True, slots=True)
class Batch:
    """This rank's texts, and what the loss must know of the global batch."""

    first: Tokens
    second: Tokens
    labels: torch.Tensor
    """(pairs,) float64, so that equal labels stay equal."""
    excluded: torch.Tensor | None
    """(pairs, pairs) bool, true where a second text is no negative of a first one; None without the in-batch term or
    without alike pairs."""


class AngleRecipe:
    """The Matryoshka AnglE recipe as a `trainables.recipe.Recipe`."""

    def __init__(
        self,
        config: Config,
        context: RecipeContext,
        model: SentenceEncoder,
        tokenizer: Any,
        sets: dict[Role, PairSet],
        retrieval: Retrieval | None,
        grading: Grading,
    ) -> None:
        self.config, self.context, self.tokenizer, self.retrieval = config, context, tokenizer, retrieval
        self.data, self.sets, self.alike = sets["train"], sets, grading.alike
        self.model = model.to(context.device)
        self.encoder = Encoder(self.model, tokenizer, config, context.device)
        self.weights = torch.tensor(config.weights, device=context.device)
        self.rules = rules(config)
        self.description = {
            f"{split}.{key}": value
            for split, part in sets.items()
            for key, value in (("data", part.name), ("identity", part.identity), ("pairs", len(part.pairs)))
        } | {
            "labels": grading.facts["data.labels"],
            "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
            "embedding": model.size,
        }
        if retrieval is not None:
            self.description |= {f"retrieval.{key}": value for key, value in retrieval.description.items()}

    def sample(self, count: int) -> dict[str, list[str]]:
        found = {} if self.retrieval is None else self.retrieval.sample(count)
        for part in self.sets.values():
            found[part.name] = [text for pair in spaced(part.pairs, count) for text in (pair.first, pair.second)]
        return found

    def reduced(self, texts: int, documents: int) -> AngleRecipe:
        def few(part: PairSet, count: int) -> PairSet:
            longer = [max(pair.first, pair.second, key=len) for pair in part.pairs]
            return replace(part, pairs=[part.pairs[place] for place in extremes(longer, count)])

        made = copy.copy(self)
        made.config = self.config.model_copy(update={"batch_size": texts})
        made.sets = {role: few(part, texts if role == "train" else documents) for role, part in self.sets.items()}
        made.data = made.sets["train"]
        if self.retrieval is not None:
            made.retrieval = self.retrieval.reduced(texts, documents)
        return made

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        return parameter_groups(self.model.named_parameters(), weight_decay)

    def batch(self, step: int) -> Batch:
        config, context = self.config, self.context
        # Every rank holds all the data, so the labels of the global batch need no communication.
        pairs = [self.data.pairs[i] for i in indices(step, config.batch_size, len(self.data.pairs), context.seed)]
        mine = share(pairs, context.rank, context.world_size)
        excluded = None
        if config.in_batch_weight and any(pair.label >= self.alike for pair in pairs):
            excluded = torch.tensor(
                [
                    [i != j and one.second == other.second for j, other in enumerate(pairs)]
                    for i, one in enumerate(pairs)
                ],
                device=context.device,
            )
        return Batch(
            self.encoder.tokens([config.prefix + pair.first for pair in mine]),
            self.encoder.tokens([config.prefix + pair.second for pair in mine]),
            torch.tensor([pair.label for pair in pairs], dtype=torch.float64, device=context.device),
            excluded,
        )

    def loss(self, batch: Batch, step: int) -> tuple[torch.Tensor, dict[str, torch.Tensor | float]]:
        config, labels = self.config, batch.labels
        with encoders.autocast(config.precision, self.context.device):
            local = self.model(batch.first), self.model(batch.second)
        x, y = (distributed.gather(vectors) for vectors in local)
        terms: dict[str, tuple[float, torch.Tensor]] = {}
        if config.angle_weight:
            similarity = losses.angle(x, y, config.dims, config.split)
            terms["angle"] = config.angle_weight, losses.cosent(similarity, labels, config.scale)
        if config.cosine_weight:
            similarity = losses.cosine(x, y, config.dims)
            terms["cosine"] = config.cosine_weight, losses.cosent(similarity, labels, config.scale)
        if batch.excluded is not None:
            term = losses.in_batch(x, y, labels >= self.alike, batch.excluded, config.dims, config.in_batch_scale)
            terms["in_batch"] = config.in_batch_weight, term
        weights = self.weights.to(x.dtype)
        # A batch without alike pairs may leave no term at all; its gradient is 0 then.
        parts = [weight * (weights * term).sum() for weight, term in terms.values()] or [0 * (x.sum() + y.sum())]
        total = torch.stack(parts).sum()
        with torch.no_grad():
            signals: dict[str, torch.Tensor | float] = {
                name: (weights * term).sum() / weights.sum() for name, (_, term) in terms.items()
            }
            ranking = signals.get("angle", signals.get("cosine"))
            if ranking is not None:
                signals |= {"ranking": ranking, "comparisons": losses.comparisons(labels)}
            directions = F.normalize(torch.cat([x, y])[:, : config.dims[-1]], dim=1)
            signals["spread"] = 1 - directions.mean(0).square().sum()
        return total, signals

    def initial(self) -> dict[str, float]:
        return {}

    def evaluate(self, splits: Sequence[Split]) -> dict[Split, Evaluation]:
        config = self.config
        asked: dict[Split, PairSet] = {split: self.sets[split] for split in splits}
        results = sts.evaluate(asked, partial(self.encoder.encode, prefix=config.prefix), config.dims)
        if self.retrieval is not None:
            for split, found in self._retrieve(self.retrieval, splits).items():
                results[split].values.update(found.values)
                results[split].per_item.update(found.per_item)
        return results

    def export(self, folder: Path) -> None:
        config, asked = self.config, self.config.retrieval
        prefixes = Prefixes(asked.query_prefix, asked.document_prefix, config.prefix)
        export(self.model, self.tokenizer, folder, config.length, prefixes, config.dims)

    def _retrieve(self, retrieval: Retrieval, splits: Sequence[Split]) -> dict[Split, Evaluation]:
        """Retrieval metrics by cosine at every prefix, `ndcg_at_10_32`, and their means; texts are encoded once."""
        data = self.config.retrieval

        @cache
        def encoded(texts: tuple[str, ...], prefix: str) -> torch.Tensor:
            return self.encoder.encode(list(texts), prefix)

        def cut(prefix: str, dim: int) -> Any:
            return lambda texts: direction(encoded(tuple(texts), prefix), dim)

        results: dict[Split, Evaluation] = {split: Evaluation({}) for split in splits}
        for dim in self.config.dims:
            measured = retrieval.evaluate(splits, cut(data.query_prefix, dim), cut(data.document_prefix, dim))
            for split, found in measured.items():
                results[split].values.update({f"{name}_{dim}": value for name, value in found.values.items()})
                results[split].per_item.update({f"{name}_{dim}": items for name, items in found.per_item.items()})
        for result in results.values():
            for name in metrics.METRICS:
                result.values[name] = fmean(result.values[f"{name}_{dim}"] for dim in self.config.dims)
        return results
