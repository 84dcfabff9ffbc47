"""Settings of the Matryoshka AnglE recipe. Imports neither torch nor ray."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from trainables import inputs
from trainables.config import (
    Finite,
    Fraction,
    NonNegativeFinite,
    Optimiser,
    PositiveFinite,
    Prepared,
    Section,
    StepCost,
    TrainerConfig,
)
from trainables.data.config import PairData, RetrievalData
from trainables.evaluation.metrics import declared
from trainables.places import Text
from trainables.report import Correlation, Metric


class CollapseLimits(Section):
    """When the rules of `trainables.angle.rules` call a run hopeless."""

    window: PositiveInt = 10
    """Steps that are judged together; a tenth of all steps where that is more."""
    deadline: Fraction = 0.5
    """Share of all steps after which the ranking loss must be below chance or falling."""
    plateau: PositiveInt = 250
    """Steps after the warm-up in which a ranking loss may stay at chance, however short the run is: AnglE's first
    plateau was seen to take 100 to 220 steps."""
    at_chance: Fraction = 0.995
    """A ranking loss of at least this share of ln(1 + comparisons) counts as chance."""
    spread: PositiveFinite = 1e-4
    """Embeddings count as one point where their mean squared distance from their centre, each scaled to length 1, is
    below this."""


class Config(TrainerConfig):
    """Matryoshka AnglE: AnglE (arXiv 2309.12871) on prefixes of the embedding (MRL, arXiv 2205.13147).

    The defaults suit the embedded data, whose two sides, prose and code, are far apart at first: there AnglE alone
    draws all embeddings together for a hundred steps and more. The value of sentence-transformers is `scale=20`, and
    an encoder of sentences needs no in-batch term.
    """

    split: Literal["chunked", "interleaved"] = "chunked"
    """How a prefix is read as complex numbers: real and imaginary parts in halves, or in turns."""
    dims: Annotated[tuple[Annotated[int, Field(ge=2)], ...], Field(min_length=1)] = (8, 16, 32, 64, 128)
    """Lengths of the prefixes that are trained and measured: even, ascending."""
    dim_weights: Literal["equal", "short", "long"] | tuple[NonNegativeFinite, ...] = "equal"
    """Weights of the prefixes in the loss: 1 each, falling or rising with the square root of the length relative
    to the longest, or one number for each of `dims`."""

    optimiser: Optimiser = Optimiser(lr=2e-3)

    pooling: Literal["mean", "cls"] = "mean"
    """The embedding: the mean of the last layer's states, or the state of the first token."""
    length: Annotated[int, Field(ge=3)] = 32
    """Tokens that a text is cut to, special ones and those of the prefix included."""
    prefix: Text = ""
    """Text put before both sentences of every pair."""

    scale: PositiveFinite = 5.0
    """Similarities are multiplied by this before they are ranked; the inverse of a temperature."""
    angle_weight: NonNegativeFinite = 1.0
    """Weight of CoSENT on AnglE similarities."""
    cosine_weight: NonNegativeFinite = 0.0
    """Weight of CoSENT on cosines."""
    in_batch_weight: NonNegativeFinite = 1.0
    """Weight of the cross-entropy of alike pairs among the other second sentences of the batch."""
    in_batch_scale: PositiveFinite = 20.0
    """Cosines are multiplied by this in the in-batch term."""
    positive_label: Finite | None = None
    """Two sentences with at least this label are alike for the in-batch term; None is four fifths up the range of the
    labels, 4 where they go from 0 to 5."""

    data: PairData = PairData()
    retrieval: RetrievalData = RetrievalData()
    collapse_limits: CollapseLimits = CollapseLimits()

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        odd = [dim for dim in self.dims if dim % 2]
        if odd:
            raise ValueError(
                f"dims={list(self.dims)}: {odd[0]} is odd, and a prefix is read as pairs of real and imaginary parts; "
                "use even numbers"
            )
        if list(self.dims) != sorted(set(self.dims)):
            raise ValueError(f"dims={list(self.dims)}: prefixes must ascend, each once: {sorted(set(self.dims))}")
        if not isinstance(self.dim_weights, str):
            if len(self.dim_weights) != len(self.dims):
                raise ValueError(
                    f"dim_weights={list(self.dim_weights)}: {len(self.dims)} numbers are needed, one for each of "
                    f"dims={list(self.dims)}; 'equal', 'short' and 'long' are accepted too"
                )
            if not any(self.dim_weights):
                raise ValueError(f"dim_weights={list(self.dim_weights)}: at least one must be above 0")
        if not (self.angle_weight or self.cosine_weight or self.in_batch_weight):
            raise ValueError(
                "angle_weight, cosine_weight and in_batch_weight are all 0: nothing is left to learn from; "
                "at least one must be above 0"
            )
        lowest, highest, alike = self.data.lowest, self.data.highest, self.positive_label
        known = lowest is not None and highest is not None and alike is not None
        if self.in_batch_weight and known and not lowest <= alike <= highest:  # type: ignore[operator]
            raise ValueError(f"positive_label={alike:g} is outside the range of the labels, {lowest:g} to {highest:g}")
        return self

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.dims

    @property
    def step_costs(self) -> tuple[StepCost, ...]:
        return (StepCost(self.steps, 2 * self.batch_size * self.length),)

    @property
    def weights(self) -> tuple[float, ...]:
        """Weights of the prefixes in the loss, in the order of `dims`."""
        if not isinstance(self.dim_weights, str):
            return self.dim_weights
        power = {"equal": 0.0, "short": -0.5, "long": 0.5}[self.dim_weights]
        return tuple((dim / self.dims[-1]) ** power for dim in self.dims)


def metrics(config: Config) -> dict[str, Metric]:
    """The metrics that the recipe reports with `config`, by name. `spearman` is the mean over `dims`, `spearman_32`
    that of the prefix of 32."""
    whole = {
        "spearman": Metric(label="Spearman", meaning="rank correlation of the cosine with the labels"),
        "pearson": Metric(label="Pearson", meaning="linear correlation of the cosine with the labels"),
        **(declared() if config.retrieval.source is not None else {}),
    }
    kinds: dict[str, Literal["linear", "rank"]] = {"spearman": "rank", "pearson": "linear"}
    found = {}
    for name, metric in whole.items():
        found[name] = metric
        for dim in config.dims:
            correlation = None
            if name in kinds:
                correlation = Correlation(kind=kinds[name], one=f"cosine_{dim}", other="label")
            part = {"label": f"{metric.label} {dim}", "of": name, "size": dim, "correlation": correlation}
            found[f"{name}_{dim}"] = metric.model_copy(update=part)
    return found


def prepare(config: Config) -> Prepared:
    """Read the inputs once before the first trial; ValueError where they cannot be used."""
    from trainables.angle.grading import grading
    from trainables.data.pairs import pair_sets

    cache = Path(config.cache) if config.cache else None
    sets = pair_sets(config.data, cache)
    graded = grading(sets, config.data, positive_label=config.positive_label, in_batch=config.in_batch_weight > 0)
    facts, notes = dict(graded.facts), list(graded.notes)
    for split, part in sets.items():
        facts |= {
            f"data.{split}": part.name,
            f"data.{split}.identity": part.identity,
            f"data.{split}.pairs": str(len(part.pairs)),
        }
        notes += part.notes
    evaluation = config.retrieval.data()
    if evaluation is not None:
        from trainables.data.sources import evaluation_sets

        for split, asked in evaluation_sets(evaluation, cache).items():
            facts |= {
                f"retrieval.{split}": asked.collection.name,
                f"retrieval.{split}.identity": asked.collection.identity,
                f"retrieval.{split}.queries": str(len(asked.query_ids)),
            }
            notes += asked.collection.notes
    return inputs.prepared(facts, {}, notes)
