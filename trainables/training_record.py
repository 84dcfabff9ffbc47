"""What trained an exported model, in a file beside its weights: enough to train it again and to tell people.

FOLDER/training.json
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables.errors import told

if TYPE_CHECKING:
    import torch

    from trainables.config import TrainerConfig
    from trainables.context import Context

FILE = "training.json"
PACKAGES = ("torch", "transformers", "tokenizers", "numpy")
"""Packages whose versions may change a result."""


@dataclass(frozen=True)
class TrainingRecord:
    """One replicate's training, as JSON values."""

    trainer: str
    config: dict[str, Any]
    """The whole config but for the cache; paths are absolute."""
    seed: int
    stage: str | None
    """The stage that ends with this model; None for the last one."""
    step: int
    workers: int
    threads: int
    """Threads of torch in each worker."""
    device: str
    precision: str
    """The precision of the forward passes, those of the evaluation included; the weights are float32."""
    versions: dict[str, str]
    facts: dict[str, Any]
    """What the recipe said of its inputs, their identities first of all, and the loop of the model before its first
    step (`hash.initialisation`) and of the first batches (`hash.data_order`)."""
    values: dict[str, float]
    """Final metrics: validation plain, `test.` for the test split, `untrained.` for those before the first step."""
    study: str | None
    """Id of the study that it was a replicate of, if any."""

    @classmethod
    def of(
        cls,
        config: TrainerConfig,
        context: Context,
        facts: Mapping[str, Any],
        values: Mapping[str, float],
        step: int,
        stage: str | None,
    ) -> TrainingRecord:
        """The record of the replicate that is trained in this process just now."""
        import torch

        from trainables.encoders import computed_in

        versions = {package: importlib.metadata.version(package) for package in PACKAGES}
        return cls(
            trainer=trainer_of(config),
            config=config.model_dump(mode="json", exclude={"cache"}),
            seed=context.seed,
            stage=stage,
            step=step,
            workers=context.world_size,
            threads=torch.get_num_threads(),
            device=_name(context.device),
            precision=computed_in(config.precision, context.device),
            versions={"python": platform.python_version(), **versions},
            facts=dict(facts),
            values=dict(values),
            study=context.study,
        )

    @classmethod
    def read(cls, folder: Path) -> TrainingRecord:
        """The record of an exported model; ValueError where the folder has none that can be read."""
        path = folder / FILE
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            return cls(**{field.name: found[field.name] for field in fields(cls)})
        except (FileNotFoundError, NotADirectoryError):
            raise ValueError(
                f"{folder} has no {FILE}: it is no exported model, or one that does not say how it was trained"
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is not a record of a training that can be read ({told(error)})") from None

    def write(self, folder: Path) -> None:
        (folder / FILE).write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")


def trainer_of(config: TrainerConfig) -> str:
    """What `trainers.module` calls the package whose `config.py` has the config's class; empty where none does."""
    package, _, module = type(config).__module__.rpartition(".")
    # `trainables.config` has what trainers share, and is none itself.
    return package.removeprefix("trainables.") if module == "config" and package != "trainables" else ""


def _name(device: torch.device) -> str:
    """Name of the hardware that computes, as far as results depend on it: the GPU, or the kind of CPU."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {torch.backends.cpu.get_cpu_capability()}"
