"""The SPLADE recipe: InfoNCE on sparse vectors of a rescaled masked-LM head, with a sparsity regulariser."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import torch

from trainables import distributed, encoders
from trainables.data.order import indices, share
from trainables.data.sources import training_set
from trainables.data.types import Example, TrainingSet
from trainables.encoders import Tokens
from trainables.evaluation.retrieval import Retrieval, VectorStatistics
from trainables.recipe import Evaluation, Reach, Split, parameter_groups
from trainables.splade import losses
from trainables.splade.config import Config
from trainables.splade.losses import Document
from trainables.splade.model import SpladeEncoder, rescale_head
from trainables.splade.rules import rules

ENCODE_ROWS = 64
"""Texts per forward pass of an evaluation."""


def build(config: Config, context: Reach) -> SpladeRecipe:
    """ValueError where the backbone, the data or their combination with `config` cannot be used."""
    if config.batch_size % context.world_size:
        raise ValueError(f"batch_size is {config.batch_size}, which {context.world_size} workers cannot share evenly")
    cache = Path(config.cache) if config.cache else None
    data = training_set(config.train, cache)
    _check_data(config, data)
    mlm, tokenizer = encoders.load_masked_lm(config.backbone, trust_remote_code=config.trust_remote_code)
    longest = encoders.longest_input(mlm, tokenizer)
    for key, length in (("query_length", config.query_length), ("document_length", config.document_length)):
        if length > longest:
            raise ValueError(f"{key} is {length}, but backbone {config.backbone!r} takes at most {longest} tokens")
    rescale_head(mlm, config.k, config.rescale, config.rescale_bias)
    return SpladeRecipe(config, context, SpladeEncoder(mlm), tokenizer, data, Retrieval(config.evaluation, cache))


def _check_data(config: Config, data: TrainingSet) -> None:
    short = sum(len(example.negatives) < config.hard_negatives for example in data.examples)
    if short:
        raise ValueError(
            f"hard_negatives is {config.hard_negatives}, but {short} of {len(data.examples)} examples of {data.name} "
            f"have fewer; at most {min(len(example.negatives) for example in data.examples)} is possible"
        )
    if config.distillation != "none" and any(example.scores is None for example in data.examples):
        raise ValueError(f"distillation is {config.distillation!r}, but {data.name} has examples without scores")


@dataclass(frozen=True, slots=True)
class Batch:
    """This rank's texts, and what the loss must know of the global batch.

    Documents are example by example: the positive, then its hard negatives.
    """

    queries: Tokens
    documents: Tokens
    targets: torch.Tensor
    """(queries,) column of each query's positive among all documents."""
    excluded: torch.Tensor
    """(queries, documents), see `losses.false_negatives`."""
    candidates: float
    """Mean number of documents that a query is compared with."""
    teacher: torch.Tensor | None
    """(queries, 1 + hard negatives)."""


class SpladeRecipe:
    """See `trainables.recipe.Recipe`."""

    def __init__(
        self,
        config: Config,
        context: Reach,
        model: SpladeEncoder,
        tokenizer: Any,
        data: TrainingSet,
        retrieval: Retrieval,
    ) -> None:
        self.config, self.context, self.tokenizer, self.data, self.retrieval = (
            config,
            context,
            tokenizer,
            data,
            retrieval,
        )
        self.model = model.to(context.device)
        self.rules = rules(config, model.decoder.weight.shape[0])
        self.relevant: dict[str, list[Document]] = {}
        for example in data.examples:
            self.relevant.setdefault(example.query, []).append((example.positive, example.positive_id))
        self.description = _describe(self)

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        return parameter_groups(self.model.named_parameters(), weight_decay)

    def batch(self, step: int) -> Batch:
        config, context = self.config, self.context
        rows = indices(step, config.batch_size, len(self.data.examples), context.seed)
        draw = random.Random(f"{context.seed} {step}")
        examples = [_with_negatives(self.data.examples[row], config.hard_negatives, draw) for row in rows]
        # Every rank holds all the data, so the masks of the global batch need no communication.
        documents = [document for example in examples for document in _documents(example)]
        targets = list(range(0, len(documents), 1 + config.hard_negatives))
        excluded = losses.false_negatives(documents, [self.relevant[example.query] for example in examples], targets)
        mine = share(examples, context.rank, context.world_size)
        teacher = None
        if config.distillation != "none":
            teacher = torch.tensor([example.scores for example in examples], device=context.device)
        return Batch(
            self._tokens([example.query for example in mine], config.query_length),
            self._tokens([text for example in mine for text, _ in _documents(example)], config.document_length),
            torch.tensor(targets, device=context.device),
            excluded.to(context.device, non_blocking=True),
            (excluded.numel() - int(excluded.sum())) / len(examples),
            teacher,
        )

    def loss(self, batch: Batch, step: int) -> tuple[torch.Tensor, dict[str, torch.Tensor | float]]:
        config = self.config
        with encoders.autocast(config.precision, self.context.device):
            local = self.model(batch.queries), self.model(batch.documents)
        queries, documents = (distributed.gather(vectors) for vectors in local)
        scores = queries @ documents.T
        contrastive = losses.info_nce(scores, batch.targets, batch.excluded)
        flops_query, flops_document = losses.flops(queries), losses.flops(documents)
        query_penalty = flops_query if config.query_regulariser == "flops" else losses.l1(queries)
        regulariser = losses.ramp(step, config.ramp * config.steps) * (
            config.lambda_query * query_penalty + config.lambda_document * flops_document
        )
        total = config.contrastive_weight * contrastive + regulariser
        signals: dict[str, torch.Tensor | float] = {}
        if batch.teacher is not None:
            own = batch.targets.unsqueeze(1) + torch.arange(1 + config.hard_negatives, device=scores.device)
            distil = losses.margin_mse if config.distillation == "margin_mse" else losses.kl
            signals["distillation"] = distil(scores.gather(1, own), batch.teacher)
            total = total + config.distillation_weight * signals["distillation"]
        with torch.no_grad():
            best, first = losses.masked(scores, batch.excluded).max(1)
            signals |= {
                "contrastive": contrastive,
                "accuracy": (first == batch.targets).float().mean(),
                "candidates": batch.candidates,
                "score_scale": best.mean(),
                "regulariser": regulariser,
                "flops_query": flops_query,
                "flops_document": flops_document,
                "active_query": (queries > 0).sum(1).float().mean(),
                "active_document": (documents > 0).sum(1).float().mean(),
            }
        return total, signals

    def evaluate(self, splits: Sequence[Split]) -> dict[Split, Evaluation]:
        return self.retrieval.evaluate(
            splits,
            lambda texts: self._encode(texts, self.config.query_length),
            lambda texts: self._encode(texts, self.config.document_length),
            VectorStatistics(lambda vectors: (vectors > 0).sum(0), _sparsity),
            matching_only=True,
        )

    def export(self, folder: Path) -> None:
        encoders.export(self.model.mlm, self.tokenizer, folder)

    def _encode(self, texts: list[str], length: int) -> torch.Tensor:
        parts = []
        for start in range(0, len(texts), ENCODE_ROWS):
            tokens = self._tokens(texts[start : start + ENCODE_ROWS], length)
            with encoders.autocast(self.config.precision, self.context.device):
                parts.append(self.model(tokens))
        return torch.cat(parts)

    def _tokens(self, texts: Sequence[str], length: int) -> Tokens:
        return encoders.tokenize(self.tokenizer, texts, length, self.context.device)


def _with_negatives(example: Example, count: int, draw: random.Random) -> Example:
    """The example with `count` of its negatives, and their scores."""
    chosen = range(count) if len(example.negatives) == count else draw.sample(range(len(example.negatives)), count)
    ids, scores = example.negative_ids, example.scores
    return Example(
        example.query,
        example.positive,
        tuple(example.negatives[i] for i in chosen),
        None if scores is None else (scores[0], *(scores[1 + i] for i in chosen)),
        example.positive_id,
        None if ids is None else tuple(ids[i] for i in chosen),
    )


def _documents(example: Example) -> list[Document]:
    """The positive, then the negatives."""
    ids = example.negative_ids or (None,) * len(example.negatives)
    return [(example.positive, example.positive_id), *zip(example.negatives, ids, strict=True)]


def _sparsity(query: torch.Tensor, document: torch.Tensor) -> dict[str, float]:
    """From how often each term is active in queries and in documents, both (V,), float64."""
    return {
        "flops": float(query @ document),
        "active_query": float(query.sum()),
        "active_document": float(document.sum()),
    }


def _describe(recipe: SpladeRecipe) -> dict[str, Any]:
    config, data = recipe.config, recipe.data
    source = "none: in-batch only"
    if config.hard_negatives:
        source = f"{config.hard_negatives} of {config.train.source}, column {config.train.negatives}"
    facts = {
        "train.data": data.name,
        "train.identity": data.identity,
        "train.examples": len(data.examples),
        "hard_negatives.source": source,
        "parameters": sum(parameter.numel() for parameter in recipe.model.parameters()),
        "vocabulary": recipe.model.decoder.weight.shape[0],
        **recipe.retrieval.description,
    }
    if config.distillation != "none":
        margins = [s[0] - other for s in (e.scores for e in data.examples) if s is not None for other in s[1:]]
        facts |= {"teacher.margin_mean": fmean(margins), "teacher.margin_deviation": pstdev(margins)}
    return facts
