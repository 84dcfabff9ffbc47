"""Settings of the SPLADE recipe. Imports neither torch nor ray."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt, model_validator

from trainables import inputs
from trainables.config import (
    Fraction,
    NonNegativeFinite,
    PositiveFinite,
    Prepared,
    Section,
    StepCost,
    TrainerConfig,
)
from trainables.evaluation.metrics import declared
from trainables.report import Metric
from trainables.retrieval_config import RetrievalConfig


class CollapseLimits(Section):
    """When the rules of `trainables.splade.rules` call a run hopeless."""

    window: PositiveInt = 10
    """Steps that are judged together; a tenth of all steps where that is more."""
    grace: Fraction = 0.2
    """Share of all steps in which a loss at chance is no reason to stop; it lasts at least a window past the
    warm-up."""
    deadline: Fraction = 0.5
    """Share of all steps after which the loss must be below chance, or falling fast enough to come below it by the end,
    and the vectors sparse or getting sparser. Vectors have at least two windows past warm-up and ramp for that."""
    dense_share: Fraction = 0.5
    """A document vector with more than this share of the vocabulary active is dense."""
    explosion: PositiveFinite = 10.0
    """Scores that have grown by this factor since the start, with a loss above chance, count as exploding."""
    high_start: PositiveFinite = 20.0
    """A loss that starts above this many times chance, as with a head of large weights, comes down before anything
    ranks or gets sparse: until the deadline its fall is progress, and that of FLOPS is while all terms are active."""


class HeadConfig(TrainerConfig):
    """What is done to the masked-LM head before step 0."""

    k: PositiveFinite = 1.0
    """The decoder's weights are divided by this once, before step 0."""
    rescale: Literal["tied", "untied"] = "tied"
    """`tied` rescales the matrix that the head shares with the input embeddings, which shrinks the inputs too;
    `untied` gives the head a copy of its own first."""
    rescale_bias: bool = False
    """Divide the decoder's bias by k as well."""


# The order of the bases is that of the keys wherever a config is written.
class Config(RetrievalConfig, HeadConfig):
    """SPLADE with a rescaled masked-LM head (arXiv 2606.18811; SPLADE v2, arXiv 2109.10086)."""

    contrastive_weight: NonNegativeFinite = 1.0
    """Weight of InfoNCE; 0 leaves distillation alone."""
    distillation: Literal["none", "margin_mse", "kl"] = "none"
    """Loss that learns from the teacher's scores of the positive and the hard negatives, which are used on the
    teacher's own scale."""
    distillation_weight: PositiveFinite = 1.0
    """Weight of the distillation loss."""

    lambda_query: NonNegativeFinite = 3e-4
    """Weight of the regulariser of query vectors at the end of the ramp; 0 leaves it out."""
    lambda_document: NonNegativeFinite = 1e-4
    """Weight of the FLOPS regulariser of document vectors at the end of the ramp; 0 leaves it out."""
    query_regulariser: Literal["flops", "l1"] = "flops"
    """`flops` presses on words that many queries have, `l1` on every query alike."""
    ramp: Fraction = 0.5
    """Share of all steps over which both lambdas rise quadratically from 0."""

    collapse_limits: CollapseLimits = CollapseLimits()

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        if self.distillation != "none" and self.hard_negatives == 0:
            raise ValueError(
                f"distillation is {self.distillation!r} and hard_negatives is 0: a teacher compares the positive "
                "with hard negatives, so hard_negatives must be at least 1"
            )
        if self.distillation == "none" and self.contrastive_weight == 0:
            raise ValueError("contrastive_weight is 0 and distillation is 'none': nothing is left to learn from")
        return self

    @property
    def step_costs(self) -> tuple[StepCost, ...]:
        return (StepCost(self.steps, self.batch_tokens, projected=self.batch_tokens),)


def metrics(config: Config) -> dict[str, Metric]:
    """The metrics that the recipe reports with `config`, by name; the first is the one to judge by."""
    flops = Metric(
        label="FLOPS",
        meaning="multiplications per query and document scored: the sum over all terms of the share of queries that "
        "have the term times the share of documents that have it",
        direction="minimize",
        cost=True,
    )
    active = {
        f"active_{side}": Metric(
            label=f"active {side}",
            meaning="terms of a vector that are not 0, on average",
            direction="minimize",
            column=True,
        )
        for side in ("document", "query")
    }
    return {**declared(), "flops": flops, **active, **_initial()}


def _initial() -> dict[str, Metric]:
    """What k changes before the first step: how large the head's matrix is, and how far the first scores spread."""
    sizes = {
        "frobenius": ("Frobenius norm", "root of the sum of all squares"),
        "row": ("row norm", "root of the mean squared length of a row"),
        "spectral": ("spectral norm", "largest singular value"),
    }
    heads = {"backbone_head": ("backbone's head", "as the backbone has it"), "head": ("head", "divided by k")}
    found = {
        f"{head}_{size}": Metric(
            label=f"{label} of the {whose}",
            meaning=f"{meaning} of the masked-LM head's matrix, {state}",
            initial=True,
            explains=(head, size) == ("backbone_head", "row"),
        )
        for head, (whose, state) in heads.items()
        for size, (label, meaning) in sizes.items()
    }
    spread = "standard deviation of the scores of the first batch's queries with its documents, before training"
    return found | {"score_spread": Metric(label="spread of the first scores", meaning=spread, initial=True)}


def prepare(config: Config) -> Prepared:
    """Read the inputs once before the first trial; ValueError where they cannot be used."""
    return inputs.retrieval(config)
