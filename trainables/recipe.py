"""What a trainer provides, and the config sections that trainers share.

A trainer is the package `trainables/NAME` with two modules:

- `config.py`: `Config`, a frozen subclass of `TrainerConfig`, whose text keys have the types of
  `trainables.places`, which say whether they may hold a path; `metrics(config) -> dict[str, Direction]`,
  every evaluation metric that the recipe reports with this config, without the split prefix, and which
  way is better, the one to judge by first; `prepare(config) -> Prepared`, which
  reads the inputs once, so that what is wrong with them is said before any trial starts. Imports
  neither torch nor ray, so that a study can be checked and planned in a second. A key that is added to a
  config has a default with which a trial runs as it did before there was the key: studies that were begun
  without it are carried on with that.
- `recipe.py`: `build(config, context) -> Recipe`, and `Encoder`, a class as below, which opens what
  `Recipe.export` has written.

Nothing registers anything: path = name. `trainables/loop.py` runs any recipe.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationInfo, field_validator, model_validator

from trainables.places import Backbone, CollectionSource, ExampleSource, Folder, Text, TextSource

if TYPE_CHECKING:
    import torch

    from trainables.collapse import Rule
    from trainables.evaluation.retrieval import VectorStatistics
    from trainables.evaluation.scoring import Scorer

PositiveFinite = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegativeFinite = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
OpenFraction = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]

Split = Literal["validation", "test"]
StopWords = Literal[
    "none", "english", "german", "dutch", "french", "spanish", "portuguese", "italian", "russian", "swedish",
    "norwegian", "chinese", "turkish", "korean", "danish",
]  # fmt: skip
Direction = Literal["maximize", "minimize"]


class Section(BaseModel):
    """A frozen group of settings; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    @field_validator("*", mode="before")
    @classmethod
    def _truth_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        """`true` for a number would be 1 without a word."""
        if isinstance(value, bool) and cls.model_fields[info.field_name or ""].annotation is not bool:
            raise ValueError("true and false are for keys that are on or off")
        return value


class Optimiser(Section):
    """AdamW with a learning rate that is a pure function of the step."""

    lr: PositiveFinite = 1e-3
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    warmup: Fraction = 0.1
    """Share of all steps over which the learning rate rises linearly from 0."""
    weight_decay: NonNegativeFinite = 0.01
    beta1: OpenFraction = 0.9
    beta2: OpenFraction = 0.999
    epsilon: PositiveFinite = 1e-8
    max_grad_norm: PositiveFinite = 1.0


class TrainData(Section):
    """Where training examples come from.

    `source` is `embedded`, `ir_datasets:ID` (a docpairs id), `datasets:NAME` (a hub name, or a local
    data set that `datasets.load_dataset` opens) or a path to JSONL/TSV. The column names apply to
    files and to `datasets`.
    """

    source: ExampleSource = "embedded"
    query: Text = "query"
    positive: Text = "positive"
    negatives: Text = "negatives"
    scores: Text = "scores"
    split: Text = "train"
    limit: PositiveInt | None = None
    """Read at most this many examples."""


class TextData(Section):
    """Where plain texts for pre-training come from; see `trainables.data.text`.

    `source` is `embedded`, `datasets:NAME[:CONFIG]`, or a path to .txt (a text is a paragraph: blank lines
    separate texts), .jsonl, .json or .tsv, with or without .gz.
    """

    source: TextSource = "embedded"
    text: Text = "text"
    """Column of files other than .txt and of `datasets`."""
    split: Text = "train"
    limit: PositiveInt | None = None
    """Read at most this many texts, from the start."""
    streaming: bool = False
    """Read a `datasets` source in its own order while training, whatever the seed, and keep none of it."""
    packed: bool = False
    """Join short texts and cut long ones to pieces of the full `max_length`; otherwise a text is cut off there."""

    @model_validator(mode="after")
    def _streamed(self) -> TextData:
        if self.streaming and not self.source.startswith("datasets:"):
            raise ValueError(
                f"streaming is true, but source is {self.source!r}, which is held in memory; "
                "streaming needs datasets:NAME[:CONFIG], or false"
            )
        return self


class EvaluationData(Section):
    """The collection that validation and test queries come from.

    `source` is `embedded`, `ir_datasets:ID` or a folder in BEIR layout. `test_source`, where given,
    is a second collection whose queries are the test queries; all queries of `source` are then
    validation queries. Otherwise the queries of `source` are split by a hash of their ids, so that a
    query stays on its side whatever else changes.
    """

    source: CollectionSource = "embedded"
    test_source: CollectionSource | None = None
    qrels_split: Text = "test"
    """Which qrels file of a BEIR folder: `qrels/<qrels_split>.tsv`."""
    validation_fraction: OpenFraction = 0.35
    bm25: bool = True
    """Measure BM25 on the same queries for comparison; its index is held in memory."""
    bm25_stop_words: StopWords = "english"
    """Words that BM25 leaves out: a list of bm25s, by its language."""
    max_documents: PositiveInt | None = None
    """Keep the judged documents and fill up to this many with others, in the source's order."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Steps with an optimiser of their own. A stage begins with fresh moments and ends with a checkpoint."""

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
    """Of these, those whose states are projected onto the vocabulary."""


class TrainerConfig(Section):
    """What every trainer is given, whatever it trains."""

    backbone: Backbone = "embedded"
    """`embedded`, a local folder in Hugging Face format, or a hub name."""
    trust_remote_code: bool = False
    cache: Folder | None = None
    """Folder for extracted and downloaded inputs; the study sets it, None keeps them in memory."""
    steps: PositiveInt = 100
    batch_size: Annotated[int, Field(ge=2)] = 32
    """Global batch: examples per optimiser step over all workers of the gang."""
    optimiser: Optimiser = Optimiser()
    precision: Literal["auto", "float32", "bf16"] = "auto"
    """`auto` is bf16 autocast on a GPU that has it, float32 elsewhere."""
    threads: PositiveInt | None = None
    """torch intra-op threads of a worker; None takes as many as it was given CPUs."""
    evaluate_every: PositiveInt = 50
    checkpoint_every: PositiveInt = 50
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
    def total_steps(self) -> int:
        """Steps of all stages."""
        return sum(stage.steps for stage in self.stages)

    def stage_of(self, step: int) -> tuple[Stage, int]:
        """(the stage that step `step`, from 0, belongs to, its place in that stage)."""
        for stage in self.stages:
            if step < stage.steps:
                return stage, step
            step -= stage.steps
        raise IndexError(f"step is {step} past the end of the last stage")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What one split measured: metric -> value, and metric -> query or pair id -> value."""

    values: dict[str, float]
    per_item: dict[str, dict[str, float]] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Prepared:
    """What reading the inputs before the first trial brought."""

    facts: dict[str, str]
    """Names, sizes and identities of the data, for the record."""
    baselines: dict[str, dict[str, float]]
    """Name of an untrained method, such as `bm25` -> metric (`test.` before those of the test split) -> value."""
    notes: tuple[str, ...] = ()
    """What whoever starts the study should know of the inputs, a sentence each: what is empty or was left out."""


class RecipeContext(Protocol):
    """The part of `trainables.context.Context` that a recipe may use."""

    rank: int
    world_size: int
    device: torch.device
    seed: int
    """Seed of the replicate: initialisation, data order and masking are functions of it."""


class Recipe(Protocol):
    """One trainer, ready to step. All methods are called on every rank, in the same order."""

    model: torch.nn.Module
    """Holds every parameter that any stage trains; what a checkpoint saves."""
    rules: tuple[Rule, ...]
    """Collapse rules over the signals that `loss` returns."""
    description: Mapping[str, Any]
    """Facts for the record: identity of the data, number of parameters, source of negatives, ..."""
    tokenizer: Any

    def sample(self, count: int) -> dict[str, list[str]]:
        """Name of each input -> about `count` of its texts."""
        ...

    def reduced(self, texts: int, documents: int) -> Recipe:
        """The same model on so many of its training texts and documents only, the longest and the strangest."""
        ...

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """AdamW groups; a tied matrix appears once."""
        ...

    def batch(self, step: int) -> Any:
        """This rank's share of the global batch of `step` (from 0): a pure function of seed and step."""
        ...

    def loss(self, batch: Any, step: int) -> tuple[torch.Tensor, dict[str, torch.Tensor | float]]:
        """The loss of the **global** batch and its signals, equal on all ranks.

        Representations of the other ranks come from `distributed.gather`, whose backward keeps this
        rank's slice, so that the *sum* of parameter gradients over ranks is the gradient of the
        global loss; the loop does that sum.
        """
        ...

    def evaluate(self, splits: Sequence[Split]) -> dict[Split, Evaluation]:
        """Measure the model as it is on each split, encoding shared documents once; equal on all ranks."""
        ...

    def export(self, folder: Path) -> None:
        """Write the model in Hugging Face format. Called on rank 0 only, at the end of each stage."""
        ...


class Encoder(Protocol):
    """A retriever made of an exported model: its vectors are those that the recipe is evaluated with."""

    scorer: ClassVar[Scorer]
    """How its vectors are scored and kept, such as `scoring.DENSE`."""
    statistics: ClassVar[VectorStatistics | None]
    """Metrics of the vectors themselves."""

    @classmethod
    def open(cls, folder: Path, config: Any, device: torch.device) -> Encoder:
        """The model in `folder`, which a trial with this `Config` has exported, ready to encode on `device`."""
        ...

    @property
    def settings(self) -> dict[str, Any]:
        """All that decides a text's vector besides the files of the model, as JSON values: lengths, prefixes,
        the precision that is computed in."""
        ...

    def queries(self, texts: list[str]) -> Any:
        """On the device, of the kind that `scorer` knows: (texts, dim) for `scoring.DENSE`."""
        ...

    def documents(self, texts: list[str]) -> Any:
        """As `queries`."""
        ...


def parameter_groups(named: Iterable[tuple[str, torch.nn.Parameter]], weight_decay: float) -> list[dict[str, Any]]:
    """Two AdamW groups: matrices decay, vectors (biases, norms) do not.

    `named` is `model.named_parameters()`, which yields a tied matrix once.
    """
    decayed: list[torch.nn.Parameter] = []
    kept: list[torch.nn.Parameter] = []
    for _, parameter in named:
        if parameter.requires_grad:
            (decayed if parameter.ndim >= 2 else kept).append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": kept, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]
