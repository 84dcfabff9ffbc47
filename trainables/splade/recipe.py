"""The SPLADE recipe: InfoNCE on sparse vectors of a rescaled masked-LM head, with a sparsity regulariser."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import torch

from trainables import distributed, encoders
from trainables.collapse import Rule
from trainables.contrastive import BatchSampler, info_nce, ranking_signals
from trainables.data.sources import training_set
from trainables.evaluation.retrieval import Retrieval, VectorStatistics
from trainables.evaluation.scoring import SPARSE
from trainables.recipe import RecipeContext
from trainables.retrieval_recipe import RetrievalBatch, RetrievalRecipe
from trainables.splade import losses
from trainables.splade.config import Config
from trainables.splade.model import HeadNorms, SpladeEncoder, export, rescale_head
from trainables.splade.rules import rules


def build(config: Config, context: RecipeContext) -> SpladeRecipe:
    """ValueError where the backbone, the data or their combination with `config` cannot be used."""
    cache = Path(config.cache) if config.cache else None
    data = training_set(config.train, cache)
    sampler = BatchSampler(data, config.batch_size, config.hard_negatives, context)
    if config.distillation != "none" and any(example.scores is None for example in data.examples):
        raise ValueError(f"distillation is {config.distillation!r}, but {data.name} has examples without scores")
    if config.distillation != "none" and all(len(set(example.scores or ())) < 2 for example in data.examples):
        raise ValueError(
            f"distillation is {config.distillation!r}, but every example of {data.name} has the same score for its "
            "positive and its negatives: there is nothing to learn from them"
        )
    mlm, tokenizer = encoders.load_masked_lm(config.backbone, trust_remote_code=config.trust_remote_code)
    encoders.check_lengths(config.lengths, config.backbone, mlm, tokenizer)
    model = SpladeEncoder(mlm, tokenizer)
    rescale_head(mlm, config.k, config.rescale, config.rescale_bias)
    encoder = Encoder(model.to(context.device), tokenizer, config, context.device)
    return SpladeRecipe(config, context, encoder, sampler, Retrieval(config.evaluation, cache))


class Encoder(encoders.TextEncoder):
    """The recipe's `trainables.recipe.Encoder`, with which it is also evaluated."""

    scorer = SPARSE
    statistics = VectorStatistics(lambda v: (v > 0).sum(0), lambda q, d: _sparsity(q, d))

    @classmethod
    def open(cls, folder: Path, config: Config, device: torch.device) -> Encoder:
        mlm, tokenizer = encoders.load_masked_lm(str(folder), trust_remote_code=config.trust_remote_code)
        return cls(SpladeEncoder(mlm, tokenizer).to(device).eval(), tokenizer, config, device)


@dataclass(frozen=True, slots=True)
class Batch(RetrievalBatch):
    teacher: torch.Tensor | None
    """The teacher's scores (queries, 1 + hard negatives), the positive's first; None without distillation."""


class SpladeRecipe(RetrievalRecipe):
    """The SPLADE recipe as a `trainables.recipe.Recipe`."""

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        return rules(self.config, self.model.terms)

    @property
    def description(self) -> dict[str, Any]:
        facts = super().description | {"vocabulary": self.model.terms}
        if self.config.distillation != "none":
            given = [example.scores for example in self.sampler.data.examples if example.scores is not None]
            margins = [scores[0] - other for scores in given for other in scores[1:]]
            facts |= {"teacher.margin_mean": fmean(margins), "teacher.margin_deviation": pstdev(margins)}
        return facts

    def batch(self, step: int) -> Batch:
        texts, teacher = super().batch(step), None
        if self.config.distillation != "none":
            teacher = torch.tensor([example.scores for example in texts.sampled.examples], device=self.context.device)
        return Batch(texts.queries, texts.documents, texts.sampled, teacher)

    def loss(self, batch: Batch, step: int) -> tuple[torch.Tensor, dict[str, torch.Tensor | float]]:
        config, sampled = self.config, batch.sampled
        queries, documents = self._vectors(batch)
        scores = queries @ documents.T
        contrastive = info_nce(scores, sampled.targets, sampled.excluded)
        flops_query, flops_document = losses.flops(queries), losses.flops(documents)
        query_penalty = flops_query if config.query_regulariser == "flops" else losses.l1(queries)
        regulariser = losses.ramp(step, config.ramp * config.steps) * (
            config.lambda_query * query_penalty + config.lambda_document * flops_document
        )
        total = config.contrastive_weight * contrastive + regulariser
        signals: dict[str, torch.Tensor | float] = {}
        if batch.teacher is not None:
            own = sampled.targets.unsqueeze(1) + torch.arange(1 + config.hard_negatives, device=scores.device)
            distil = losses.margin_mse if config.distillation == "margin_mse" else losses.kl
            signals["distillation"] = distil(scores.gather(1, own), batch.teacher)
            total = total + config.distillation_weight * signals["distillation"]
        with torch.no_grad():
            signals |= {
                "contrastive": contrastive,
                **ranking_signals(scores, sampled),
                "regulariser": regulariser,
                "flops_query": flops_query,
                "flops_document": flops_document,
                "active_query": (queries > 0).sum(1).float().mean(),
                "active_document": (documents > 0).sum(1).float().mean(),
            }
        return total, signals

    def initial(self) -> dict[str, float]:
        queries, documents = self._vectors(self.batch(0))
        head = asdict(HeadNorms.of(self.model))
        # The matrix was divided by k, and so was each of its norms.
        found = {f"backbone_head_{name}": self.config.k * value for name, value in head.items()}
        return (
            found
            | {f"head_{name}": value for name, value in head.items()}
            | {"score_spread": float((queries @ documents.T).std(correction=0))}
        )

    def _vectors(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Vectors (queries, V) and (documents, V) of the global batch."""
        with encoders.autocast(self.config.precision, self.context.device):
            local = self.model(batch.queries), self.model(batch.documents)
        queries, documents = (distributed.gather(vectors) for vectors in local)
        return queries, documents

    def export(self, folder: Path) -> None:
        export(self.model, self.tokenizer, folder, self.config.lengths)


def _sparsity(query: torch.Tensor, document: torch.Tensor) -> dict[str, float]:
    """Metrics of sparsity, from how often each term is active in queries and in documents, both (V,) in float64."""
    return {
        "flops": float(query @ document),
        "active_query": float(query.sum()),
        "active_document": float(document.sum()),
    }
