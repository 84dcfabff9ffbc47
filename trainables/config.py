"""The config sections that every trainer has. Imports neither torch nor ray."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationInfo, field_validator

from trainables.places import Backbone, Folder

Finite = Annotated[float, Field(allow_inf_nan=False)]
PositiveFinite = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegativeFinite = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
OpenFraction = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]

MOST_RECORDS = 2000
"""Records of the training steps of a run that does not say how many steps one has."""

Split = Literal["validation", "test"]
Direction = Literal["maximize", "minimize"]


class Section(BaseModel):
    """A frozen group of settings; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    @field_validator("*", mode="before")
    @classmethod
    def _truth_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse `true` where a number is wanted, which would silently become 1."""
        if isinstance(value, bool) and cls.model_fields[info.field_name or ""].annotation is not bool:
            raise ValueError("true and false are for keys that are on or off")
        return value


class Optimiser(Section):
    """AdamW with a learning rate that is a pure function of the step."""

    lr: PositiveFinite = 1e-3
    """The highest learning rate, which warm-up ends at."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """How the learning rate falls from its highest value to the last step: linearly to 0, as half a cosine to 0, or not
    at all."""
    warmup: Fraction = 0.1
    """Share of all steps over which the learning rate rises linearly from 0."""
    weight_decay: NonNegativeFinite = 0.01
    """Weight decay of matrices; biases and norms have none."""
    beta1: OpenFraction = 0.9
    """AdamW's decay of the mean gradient."""
    beta2: OpenFraction = 0.999
    """AdamW's decay of the mean squared gradient."""
    epsilon: PositiveFinite = 1e-8
    """AdamW's bound for the denominator."""
    max_grad_norm: PositiveFinite = 1.0
    """The longest that the gradient of all parameters together may be (L2 norm); a longer one is scaled down."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Steps with an optimiser of their own. A stage begins with an optimiser without moments and ends with a
    checkpoint."""

    name: str
    steps: int
    optimiser: Optimiser
    evaluated: bool = True
    """Whether the model is measured every `evaluate_every` steps; it always is before the first step of all and
    after the last."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """What each of so many steps puts through the model, at most: texts are padded to the longest allowed."""

    steps: int
    tokens: int
    projected: int = 0
    """Tokens of the step whose states are projected onto the vocabulary."""
    layers: int = 0
    """Layers besides the backbone's, each as large as one of its own, that the tokens go through."""


class TrainerConfig(Section):
    """What every trainer is given, whatever it trains."""

    backbone: Backbone = "embedded"
    """`embedded`, a local folder in Hugging Face format, or a hub name."""
    trust_remote_code: bool = False
    """Run Python code that comes with a backbone of the hub."""
    cache: Folder | None = None
    """Folder for extracted and downloaded inputs; the study sets it, None keeps them in memory."""
    steps: PositiveInt = 100
    """Optimiser steps of a replicate, all stages together."""
    batch_size: Annotated[int, Field(ge=2)] = 32
    """Global batch: examples per optimiser step over all workers of the gang."""
    optimiser: Optimiser = Optimiser()
    precision: Literal["auto", "float32", "bf16"] = "auto"
    """`auto` is bf16 autocast on a GPU that has it, float32 elsewhere; what the first trial of a study computed in, all
    others do."""
    threads: PositiveInt | None = None
    """torch intra-op threads of a worker; None takes as many as it was given CPUs."""
    evaluate_every: PositiveInt = 50
    """Steps between two measurements on validation data; the last step is always measured."""
    checkpoint_every: PositiveInt = 50
    """Steps between two checkpoints, the most training that a kill can cost."""
    log_every: PositiveInt | None = None
    """Steps of one record, which has mean, minimum and maximum of each signal; None records every step of a run of up
    to 2,000, and at most so many bins of a longer one. Every measurement is on record, and collapse is judged by all
    steps, however many a record has."""
    collapse: bool = True
    """Stop a run that the recipe's collapse rules find hopeless."""

    @property
    def stages(self) -> tuple[Stage, ...]:
        """What a replicate goes through, in this order; each has at least one step."""
        return (Stage("train", self.steps, self.optimiser),)

    @property
    def step_costs(self) -> tuple[StepCost, ...]:
        """What training computes, for a plan's estimate of its cost; empty where the trainer does not say."""
        return ()

    @property
    def sizes(self) -> tuple[int, ...]:
        """Lengths of the prefixes of its vectors that a full evaluation measures, ascending, the last one being the
        whole vector; empty where prefixes mean nothing."""
        return ()

    @property
    def total_steps(self) -> int:
        """Steps of all stages."""
        return sum(stage.steps for stage in self.stages)

    @property
    def recorded_together(self) -> int:
        """Steps of one record."""
        return self.log_every or math.ceil(self.total_steps / MOST_RECORDS)

    def stage_of(self, step: int) -> tuple[Stage, int]:
        """(the stage that step `step`, from 0, belongs to, its place in that stage)."""
        for stage in self.stages:
            if step < stage.steps:
                return stage, step
            step -= stage.steps
        raise IndexError(f"step is {step} past the end of the last stage")


@dataclass(frozen=True, slots=True)
class Prepared:
    """What reading the inputs before the first trial brought."""

    facts: dict[str, str]
    """Names, sizes and identities of the data, for the record."""
    baselines: dict[str, dict[str, float]]
    """Name of an untrained method, such as `bm25` -> metric (`test.` before those of the test split) -> value."""
    notes: tuple[str, ...] = ()
    """What whoever starts the study should know of the inputs, a sentence each: what is empty or was left out."""
