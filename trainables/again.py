"""An exported model trained again, from what its folder records: `python -m trainables.NAME --from FOLDER`."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables import overrides, paths
from trainables.config import TrainerConfig
from trainables.training_record import PACKAGES, TrainingRecord

if TYPE_CHECKING:
    import torch


def config_of(
    record: TrainingRecord, model: type[TrainerConfig], folder: Path, values: Mapping[str, Any]
) -> TrainerConfig:
    """The config to train the model in `folder` with, whose inputs are where `values` say.

    ValueError where `values` name anything else, or where this version has no such config.
    """
    known = paths.places(model)
    for key in values:
        if key not in known:
            raise ValueError(
                f"--set {key}: --from trains {folder} as it was trained; with it, --set only says where inputs are "
                f"now: {', '.join(known)}"
            )
    try:
        config = overrides.validate(model, record.config | {"threads": record.threads})
    except ValueError as error:
        raise ValueError(f"--from {folder}: this version cannot train what is recorded there: {error}") from None
    return overrides.apply(config, values)


def check(record: TrainingRecord, facts: Mapping[str, Any], workers: int) -> None:
    """ValueError unless the replicate with these `facts` begins as the recorded one did: same data, same weights."""
    changed = [
        f"{_name(key, record.facts)} was {str(then)[:12]}, now {str(facts.get(key))[:12]}"
        for key, then in record.facts.items()
        if key.endswith(".identity") and facts.get(key) != then
    ]
    if changed:
        raise ValueError(
            f"the data are not those that the model was trained on: {'; '.join(changed)}; --set KEY=PATH says where "
            "the same data are now"
        )
    # What else a model begins with: its backbone, and how texts become tokens.
    if facts.get("hash.initialisation") != record.facts["hash.initialisation"]:
        raise ValueError(
            f"backbone {record.config.get('backbone')!r} gives other weights to begin with than the model was trained "
            "from; --set backbone=PATH says where the same backbone is now"
        )
    if workers == record.workers and facts.get("hash.data_order") != record.facts["hash.data_order"]:
        raise ValueError(
            "the first batches have other tokens than the model was trained on: the backbone's tokenizer has changed"
        )


def notes(record: TrainingRecord, workers: int) -> list[str]:
    """The reasons why the result may differ from the recorded one in its last bits, a sentence each."""
    now = {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in PACKAGES}
    told = [
        f"{name} was {then}, now {now.get(name)}: figures may differ by rounding"
        for name, then in record.versions.items()
        if now.get(name) != then
    ]
    if workers != record.workers:
        told.append(f"it was trained by {record.workers} workers, now by {workers}: dropout and rounding differ")
    return told


def compared(folder: Path, again: Path) -> str:
    """Whether both folders hold the same weights, in a sentence."""
    import torch

    before, after = weights(folder), weights(again)
    if before.keys() != after.keys():
        return f"{again} has other tensors than {folder}"
    furthest = 0.0
    different = 0
    for name, tensor in before.items():
        if not torch.equal(_bits(tensor), _bits(after[name])):
            different += 1
            furthest = max(furthest, float((tensor.double() - after[name].double()).abs().max()))
    if not different:
        return f"{again} has the weights of {folder} to the last bit"
    return f"{again} differs from {folder} in {different} of {len(before)} tensors, by {furthest:.2g} at most"


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of an exported model, by their names."""
    from safetensors.torch import load_file

    return {name: tensor for file in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(file).items()}


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    return tensor.contiguous().flatten().view(torch.uint8)


def _name(key: str, facts: Mapping[str, Any]) -> str:
    """The name of an input for people, such as `train (pairs.jsonl)`."""
    part = key.removesuffix(".identity")
    called = next((facts[f"{part}.{kind}"] for kind in ("data", "collection") if f"{part}.{kind}" in facts), None)
    return f"{part} ({called})" if called else part
