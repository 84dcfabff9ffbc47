"""The RetroMAE recipe: pre-train on plain text, fine-tune as a bi-encoder, measured by dense retrieval."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from trainables import distributed, encoders, overrides, vocabulary
from trainables.contrastive import BatchSampler, info_nce, ranking_signals
from trainables.data.masking import FREE_STREAM, MaskableTokens, Masker, draws, text_seeds, unigram_entropy
from trainables.data.order import share
from trainables.data.sources import training_set
from trainables.data.text import HeldTexts, TextSet, mixture
from trainables.encoders import Tokens
from trainables.evaluation.retrieval import Retrieval
from trainables.probe import SAMPLE, extremes
from trainables.recipe import RecipeContext
from trainables.retrieval_recipe import RetrievalBatch, RetrievalRecipe
from trainables.retromae.config import Config
from trainables.retromae.decoder import Decoder
from trainables.retromae.masking import visible_sets
from trainables.retromae.model import RetroMAE
from trainables.retromae.rules import rules

Signals = dict[str, torch.Tensor | float]


def build(config: Config, context: RecipeContext) -> RetroMAERecipe:
    """ValueError where the backbone, the data or their combination with `config` cannot be used."""
    cache, pretraining = Path(config.cache) if config.cache else None, config.pretraining
    lengths = config.lengths
    text, decoder = None, None
    if pretraining.objective != "none":
        if pretraining.batch_size % context.world_size:
            raise ValueError(
                f"pretraining.batch_size is {pretraining.batch_size}, which {context.world_size} workers cannot share "
                "evenly"
            )
        text = mixture(pretraining.text, pretraining.further, cache)
        lengths["pretraining.max_length"] = pretraining.max_length
    sampler = BatchSampler(training_set(config.train, cache), config.batch_size, config.hard_negatives, context)
    mlm, tokenizer = encoders.load_masked_lm(config.backbone, trust_remote_code=config.trust_remote_code)
    encoders.check_lengths(lengths, config.backbone, mlm, tokenizer)
    vocabulary.check_first(config.backbone, tokenizer)
    if text is not None and pretraining.text.packed:
        text = text.packed(tokenizer, pretraining.max_length)
    if pretraining.objective == "retromae":
        decoder = Decoder(mlm.base_model, config.decoder_layers)
    model = RetroMAE(mlm, decoder)
    encoder = Encoder(model.to(context.device), tokenizer, config, context.device)
    return RetroMAERecipe(config, context, encoder, sampler, Retrieval(config.evaluation, cache), text)


class Encoder(encoders.TextEncoder):
    """The recipe's `trainables.recipe.Encoder`, with which it is also fine-tuned and evaluated."""

    @classmethod
    def open(cls, folder: Path, config: Config, device: torch.device) -> Encoder:
        mlm, tokenizer = encoders.load_masked_lm(str(folder), trust_remote_code=config.trust_remote_code)
        return cls(RetroMAE(mlm, None).to(device).eval(), tokenizer, config, device)

    @property
    def settings(self) -> dict[str, Any]:
        return {"similarity": self.config.similarity, **super().settings}

    def vectors(self, tokens: Tokens) -> torch.Tensor:
        embeddings = self.model(tokens)
        return F.normalize(embeddings, dim=1) if self.config.similarity == "cosine" else embeddings


@dataclass(frozen=True, slots=True)
class PretrainingBatch:
    """This rank's texts."""

    tokens: MaskableTokens
    seeds: torch.Tensor
    """(texts,) int64: what each text's masks are drawn from."""


class RetroMAERecipe(RetrievalRecipe):
    """The RetroMAE recipe as a `trainables.recipe.Recipe`."""

    def __init__(
        self,
        config: Config,
        context: RecipeContext,
        encoder: Encoder,
        sampler: BatchSampler,
        retrieval: Retrieval,
        text: TextSet | None,
    ) -> None:
        """Take the parts of the recipe; `text` is None where there is no pre-training."""
        super().__init__(config, context, encoder, sampler, retrieval)
        self.text, self.masker = text, Masker(self.tokenizer)
        self.entropy = None if text is None else unigram_entropy(text, self.masker, config.pretraining.max_length)
        self.rules = rules(config, self.entropy)

    @property
    def description(self) -> dict[str, Any]:
        model, text = self.model, self.text
        facts = super().description | {"parameters": sum(parameter.numel() for parameter in model.mlm.parameters())}
        if text is not None:
            facts |= {
                "text.data": text.name,
                "text.identity": text.identity,
                "text.unigram_entropy": self.entropy,
                "text.whole_words": self.masker.whole_words,
            }
            if text.size is not None:
                facts["text.size"] = text.size
        if model.decoder is not None:
            facts["decoder.parameters"] = sum(parameter.numel() for parameter in model.decoder.parameters())
        return facts

    def sample(self, count: int) -> dict[str, list[str]]:
        text = {} if self.text is None else {self.text.name: self.text.sample(count)}
        return text | super().sample(count)

    def reduced(self, texts: int, documents: int) -> RetroMAERecipe:
        made = super().reduced(texts, documents)
        made.config = overrides.apply(self.config, {"batch_size": texts, "pretraining.batch_size": texts})
        if self.text is not None:
            held = self.text.sample(SAMPLE)
            made.text = HeldTexts(self.text.name, self.text.identity, [held[at] for at in extremes(held, texts)])
        return made

    def batch(self, step: int) -> PretrainingBatch | RetrievalBatch:
        config, context = self.config, self.context
        stage, place = config.stage_of(step)
        if stage.name == "pretrain":
            assert self.text is not None
            size = config.pretraining.batch_size
            texts = share(self.text.texts(place, size, context.seed), context.rank, context.world_size)
            seeds = text_seeds(context.seed, place, size).view(context.world_size, -1)[context.rank]
            return PretrainingBatch(
                self.masker.encode(texts, config.pretraining.max_length, context.device), seeds.to(context.device)
            )
        # Batches follow the place in the stage, so that runs with and without pre-training are fine-tuned on the same.
        return super().batch(place)

    def loss(self, batch: PretrainingBatch | RetrievalBatch, step: int) -> tuple[torch.Tensor, Signals]:
        pretraining = isinstance(batch, PretrainingBatch)
        # A gang counts a missing gradient as zero, and a zero still decays: only what is frozen is left alone.
        for parameter in self.model.unused_in_finetuning():
            parameter.requires_grad_(pretraining)
        if isinstance(batch, PretrainingBatch):
            return self._pretrain(batch, self.config.stage_of(step)[1])
        return self._finetune(batch)

    def _pretrain(self, batch: PretrainingBatch, place: int) -> tuple[torch.Tensor, Signals]:
        """Encoder loss + decoder loss (arXiv 2205.12035, eq. 9), each the mean over its tokens of all ranks."""
        config, model, tokens = self.config, self.model, batch.tokens
        hidden = self.masker.mask(tokens, config.encoder_mask_ratio, batch.seeds)
        with encoders.autocast(config.precision, self.context.device):
            states = model.states(self.masker.corrupt(tokens, hidden, batch.seeds), tokens.mask)
            embedding = model.embedding(states)
            encoder_sum = model.cross_entropy(states[hidden], tokens.ids[hidden], config.chunk)
        encoder_loss = _mean(encoder_sum, hidden)
        directions = distributed.gather(embedding.detach())
        signals: Signals = {"encoder_loss": encoder_loss, "spread": _spread(directions)}
        if model.decoder is None:
            return encoder_loss, signals
        decode = self._decoder(model.decoder, batch)
        decoder_loss = signals["decoder_loss"] = decode(embedding)
        if place % config.pretraining.probe_every == 0:
            others = directions.roll(1, 0).view(self.context.world_size, *embedding.shape)[self.context.rank]
            with torch.no_grad():
                signals["embedding_gain"] = decode(others) - decoder_loss
        return encoder_loss + decoder_loss, signals

    def _decoder(self, decoder: Decoder, batch: PretrainingBatch) -> Callable[[torch.Tensor], torch.Tensor]:
        """A function from embeddings (B, D) to the decoder's loss, all calls of which use the same masks."""
        config, model, tokens = self.config, self.model, batch.tokens
        seeds = draws(batch.seeds, 1, FREE_STREAM)[:, 0]
        if config.decoding == "enhanced":
            visible = visible_sets(tokens.mask, config.decoder_mask_ratio, seeds)
            wanted, targets = ~tokens.special[:, 1:], tokens.ids[:, 1:]
        else:
            wanted, targets = self.masker.mask(tokens, config.decoder_mask_ratio, seeds), tokens.ids
            # The decoder is shown nothing but the mask token: it is given away afterwards.
            shown = tokens.ids.masked_fill(wanted, self.masker.mask_id)

        def loss(embedding: torch.Tensor) -> torch.Tensor:
            with encoders.autocast(config.precision, self.context.device):
                if config.decoding == "enhanced":
                    states = decoder.enhanced(model.backbone, embedding, tokens.ids, visible)
                else:
                    states = decoder.basic(model.backbone, embedding, shown, tokens.mask)
                return _mean(model.cross_entropy(states[wanted], targets[wanted], config.chunk), wanted)

        return loss

    def _finetune(self, batch: RetrievalBatch) -> tuple[torch.Tensor, Signals]:
        config, sampled = self.config, batch.sampled
        with encoders.autocast(config.precision, self.context.device):
            local = self.encoder.vectors(batch.queries), self.encoder.vectors(batch.documents)
        queries, documents = (distributed.gather(vectors) for vectors in local)
        scores = queries @ documents.T / config.temperature
        loss = info_nce(scores, sampled.targets, sampled.excluded)
        with torch.no_grad():
            signals: Signals = {
                "contrastive": loss,
                **ranking_signals(scores, sampled),
                "spread": _spread(documents),
            }
        return loss, signals

    def export(self, folder: Path) -> None:
        config = self.config
        encoders.export(self.model.mlm, self.tokenizer, folder)
        encoders.export_pooling(
            folder,
            size=self.model.backbone.config.hidden_size,
            lengths={"max_seq_length": config.document_length, **config.lengths},
            pooling="cls",
            similarity=config.similarity,
            normalise=config.similarity == "cosine",
        )


def _mean(total: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    """Mean over the tokens of all ranks, 0 without any: `total` is the sum over this rank's tokens, `counted` is true
    for each of them."""
    return distributed.gather(total.view(1)).sum() / distributed.gather(counted.sum().view(1)).sum().clamp(min=1)


def _spread(vectors: torch.Tensor) -> torch.Tensor:
    """Mean squared distance of vectors (N, D) from their centre, each scaled to length 1 first: from 0, all alike, to
    1."""
    return 1 - F.normalize(vectors, dim=1).mean(0).square().sum()
