"""What a trainer provides.

A trainer is the package `trainables/NAME` with two modules:

- `config.py`: `Config`, a frozen subclass of `trainables.config.TrainerConfig`, whose text keys have the types of
  `trainables.places`, which say whether they may hold a path; `metrics(config) -> dict[str, Metric]`,
  every evaluation metric that the recipe reports with this config, without the split prefix, with all that
  a report says of it (`trainables.report`), the one to judge by first; `prepare(config) -> Prepared`, which
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
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from trainables.config import Split
from trainables.evaluation.types import Evaluation

if TYPE_CHECKING:
    import torch

    from trainables.collapse import Rule
    from trainables.evaluation.retrieval import VectorStatistics
    from trainables.evaluation.scoring import Scorer


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
        """A recipe with the same model, but with only so many training texts and documents: the longest and the
        strangest."""
        ...

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """The groups of parameters for AdamW; a tied matrix appears once."""
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

    def initial(self) -> dict[str, float]:
        """The metrics of the model as training starts from it that `metrics` declares as `initial`; equal on all ranks.

        Called before the first step, in evaluation mode.
        """
        ...

    def evaluate(self, splits: Sequence[Split]) -> dict[Split, Evaluation]:
        """Measure the model as it is on each split, encoding shared documents once; equal on all ranks."""
        ...

    def export(self, folder: Path) -> None:
        """Write the model in Hugging Face format. Called on rank 0 only, at the end of each stage.

        With the files of sentence-transformers beside it (`encoders.export_modules`) its card says how it opens it.
        """
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
        """Vectors of queries on the device, of the kind that `scorer` knows: (texts, dim) for `scoring.DENSE`."""
        ...

    def documents(self, texts: list[str]) -> Any:
        """Vectors of documents on the device, of the same kind as those of `queries`."""
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
