"""Settings of the RetroMAE recipe. Imports neither torch nor ray."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from trainables import inputs
from trainables.config import (
    Fraction,
    OpenFraction,
    Optimiser,
    PositiveFinite,
    Prepared,
    Section,
    Stage,
    StepCost,
    TrainerConfig,
)
from trainables.data.config import FurtherText, TextData
from trainables.evaluation.metrics import declared
from trainables.report import Metric
from trainables.retrieval_config import RetrievalConfig


class CollapseLimits(Section):
    """When the rules of `trainables.retromae.rules` call a run hopeless. Shares are of the steps of the stage."""

    window: PositiveInt = 10
    """Steps that are judged together; a tenth of the stage's where that is more."""
    grace: Fraction = 0.2
    """Share of the stage's steps in which a loss at chance is no reason to stop; it lasts at least a window past the
    warm-up."""
    deadline: Fraction = 0.5
    """Share of the stage's steps after which a loss must be below chance, or falling fast enough to come below it by
    the end."""
    decoder_grace: PositiveInt = 500
    """Steps in which a decoder may do no better than token frequencies do, and ignore the embedding, however short the
    stage is: its layers are new. A basic decoder on small texts was seen to take 180 steps."""
    probes: PositiveInt = 5
    """Measurements in a row, a window's worth at least, at which the decoder must have ignored the embedding for the
    run to be stopped."""
    jump: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 1.5
    """A pre-training loss that is this many times what it was over the window before, and stays there, has diverged."""
    spread: PositiveFinite = 1e-5
    """Embeddings count as one point where their mean squared distance from their centre, each scaled to length 1, is
    below this."""


class Pretraining(Section):
    """The first stage: plain text, no queries."""

    objective: Literal["retromae", "mlm", "none"] = "retromae"
    """`mlm` goes on with masked-LM training of the encoder alone; `none` leaves the stage out, and fine-tuning then has
    the same steps and batches as after the other two."""
    share: OpenFraction = 0.4
    """Share of `steps` that this stage has; fine-tuning has the rest."""
    batch_size: Annotated[int, Field(ge=2)] = 32
    """Global batch, in texts."""
    max_length: Annotated[int, Field(ge=8)] = 64
    """Tokens that a text is cut to, special ones included."""
    optimiser: Optimiser = Optimiser()
    text: TextData = TextData()
    second_text: FurtherText = FurtherText()
    """A second source of texts; `text` has the share of a batch that the further ones leave, and says with `packed`
    whether all are packed."""
    third_text: FurtherText = FurtherText()
    """A third source of texts."""
    probe_every: PositiveInt = 10
    """Steps between two measurements of whether the decoder heeds the embedding: it is run on the embeddings of other
    texts, forward only."""

    @model_validator(mode="after")
    def _shared(self) -> Pretraining:
        shares = [share for _, share in self.further]
        if sum(shares) >= 1:
            raise ValueError(
                f"second_text.share and third_text.share add up to {sum(shares):g}, which leaves text.source nothing; "
                "together they must be less than 1"
            )
        return self

    @property
    def further(self) -> tuple[tuple[TextData, float], ...]:
        """The sources besides `text` and their shares of a batch."""
        given = (part for part in (self.second_text, self.third_text) if part.source is not None)
        return tuple((part.data(self.text.packed), part.share) for part in given)


class MaskingConfig(TrainerConfig):
    """What encoder and decoder do not see in pre-training."""

    encoder_mask_ratio: OpenFraction = 0.3
    """Share of the tokens that the encoder does not see, whole words where the tokenizer allows."""
    decoder_mask_ratio: OpenFraction = 0.5
    """Share of the tokens that the decoder does not see; enhanced decoding draws them anew for each position."""
    decoding: Literal["enhanced", "basic"] = "enhanced"
    """`enhanced` predicts all tokens, each from a context of its own; `basic` the masked ones from one context."""
    decoder_layers: PositiveInt = 1
    """Layers of the decoder; more than 1 needs `basic` decoding. As many as the backbone has make it symmetric."""
    chunk: PositiveInt = 512
    """Tokens whose logits over the vocabulary are held at a time."""
    pretraining: Pretraining = Pretraining()


# The order of the bases is that of the keys wherever a config is written.
class Config(RetrievalConfig, MaskingConfig):
    """RetroMAE pre-training (arXiv 2205.12035), then contrastive fine-tuning as a bi-encoder, in one run.

    `steps` are those of both stages; `batch_size` and `optimiser` are those of fine-tuning.
    """

    similarity: Literal["cosine", "dot"] = "cosine"
    """How two embeddings are compared in fine-tuning and search; `dot` is the paper's."""
    temperature: PositiveFinite = 0.05
    """Similarities are divided by this before the softmax."""

    collapse_limits: CollapseLimits = CollapseLimits()

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        if self.decoding == "enhanced" and self.decoder_layers != 1:
            raise ValueError(
                f"decoder_layers is {self.decoder_layers} and decoding is 'enhanced': its two streams have one layer, "
                "so decoder_layers must be 1, or decoding 'basic'"
            )
        if self.pretraining.objective != "none" and self.steps < 2:
            raise ValueError(
                f"steps is {self.steps} and pretraining.objective {self.pretraining.objective!r}: each stage needs a "
                "step, so steps must be at least 2, or pretraining.objective 'none'"
            )
        return self

    @property
    def stages(self) -> tuple[Stage, ...]:
        pretraining = min(max(1, round(self.pretraining.share * self.steps)), self.steps - 1)
        finetuning = Stage("finetune", self.steps - pretraining, self.optimiser)
        if self.pretraining.objective == "none":
            return (finetuning,)
        return (Stage("pretrain", pretraining, self.pretraining.optimiser, evaluated=False), finetuning)

    @property
    def step_costs(self) -> tuple[StepCost, ...]:
        *before, finetuning = self.stages
        tokens = self.pretraining.batch_size * self.pretraining.max_length
        share, layers = self.encoder_mask_ratio, 0
        if self.pretraining.objective == "retromae":
            layers = self.decoder_layers
            share += 1 if self.decoding == "enhanced" else self.decoder_mask_ratio
        return (
            *(StepCost(stage.steps, tokens, projected=round(share * tokens), layers=layers) for stage in before),
            StepCost(finetuning.steps, self.batch_tokens),
        )

    @property
    def pretraining_steps(self) -> int:
        return sum(stage.steps for stage in self.stages if stage.name == "pretrain")


def metrics(config: Config) -> dict[str, Metric]:
    """The metrics that the recipe reports with `config`, by name; the first is the one to judge by."""
    return declared()


def prepare(config: Config) -> Prepared:
    """Read the inputs once before the first trial; ValueError where they cannot be used."""
    found = inputs.retrieval(config)
    if config.pretraining.objective == "none":
        return found
    from trainables.data.text import mixture

    pretraining = config.pretraining
    text = mixture(pretraining.text, pretraining.further, Path(config.cache) if config.cache else None)
    facts = found.facts | {"data.text": text.name, "data.text.identity": text.identity}
    return inputs.prepared(facts, found.baselines, (*found.notes, *text.notes))
