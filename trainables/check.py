"""`python -m trainables.check NAME CONFIG [CHANGES]`: are these inputs usable? Asked before any trial starts.

Reads the data of the config and measures the baselines. CHANGES is a list of changes to the config, each a mapping of
dotted keys, that trials will make: for each of them that changes more than a number's size, the recipe is built,
makes one step on two texts and an evaluation on ten documents, and is let go before the next.

Prints lines that begin with `DOING` and say what is being done, and last {"facts": ..., "baselines": ...,
"notes": [...]} as JSON with exit code 0, or one sentence with exit code 2.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainables import overrides, trainers
from trainables.config import TrainerConfig
from trainables.data.once import read_once
from trainables.errors import FINISHED, WRONG, told

HERE = str(Path(__file__).resolve().parent)

DOING = "doing: "

TEXTS, DOCUMENTS = 2, 10
"""How many texts and documents are put through the model: the longest and the strangest ones."""
READ = 200
"""Texts of each input that the tokenizer is tried on."""
INDIFFERENT = ("steps", "evaluate_every", "checkpoint_every", "threads", "collapse")
"""Settings that have no bearing on whether a backbone can take its inputs; neither have settings that are real
numbers."""


def main(name: str, text: str, changes: str = "[{}]") -> int:
    try:
        module = trainers.module(name, "config")
        config = overrides.validate(module.Config, json.loads(text))
        with read_once():
            print(f"{DOING}reading the data", flush=True)
            prepared = asdict(module.prepare(config))
            configs = [overrides.apply(config, change) for change in json.loads(changes)]
            for place, one in enumerate(configs, start=1):
                print(f"{DOING}one step with backbone {one.backbone!r} ({place} of {len(configs)})", flush=True)
                prepared["notes"] = list(dict.fromkeys([*prepared["notes"], *step(name, one)]))
                gc.collect()
        if prepared["notes"]:
            prepared["facts"]["data.notes"] = "; ".join(prepared["notes"])
    except (ValueError, OSError) as error:
        print(told(error))
        return WRONG
    print(json.dumps(prepared))
    return FINISHED


def distinct(config: TrainerConfig, changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One change of each kind from `changes` to the config, those of one backbone together.

    Two are of a kind where they differ in real numbers and in `INDIFFERENT` settings only.
    """
    kinds: dict[str, dict[str, Any]] = {}
    backbones: dict[str, None] = {}
    for change in changes:
        changed = overrides.apply(config, change)
        settings = {key: value for key, value in overrides.flat(changed.model_dump()).items() if key not in INDIFFERENT}
        kinds.setdefault(repr({k: v for k, v in settings.items() if not isinstance(v, float)}), change)
        backbones[changed.backbone] = None
    order = list(backbones)
    return sorted(kinds.values(), key=lambda change: order.index(overrides.apply(config, change).backbone))


def step(name: str, config: TrainerConfig) -> list[str]:
    """Build the recipe, and make a step and an evaluation with a few texts; returns what should be said.

    Raises ValueError with one sentence, whatever a library raises.
    """
    import torch

    from trainables import vocabulary
    from trainables.context import Context

    torch.set_num_threads(max(1, (os.cpu_count() or 1) // 2))
    with tempfile.TemporaryDirectory() as folder:
        context = Context(seed=0, folder=Path(folder), device=torch.device("cpu"))
        module = trainers.module(name, "recipe")
        told_by = HERE, str(trainers.folder_of(name))
        backbone = f"backbone {config.backbone!r}"
        recipe = _told(told_by, f"{backbone} cannot be made ready", module.build, config, context)
        samples = recipe.sample(READ)
        said = vocabulary.remarks(config.backbone, recipe.tokenizer, samples)
        what = f"{backbone} cannot take the longest and the strangest texts of {', '.join(samples)}"
        _told(told_by, what, _run, recipe.reduced(TEXTS, DOCUMENTS), config)
    return said


def _run(recipe: Any, config: TrainerConfig) -> None:
    """A first step of every stage, forward and backward, and an evaluation."""
    import torch

    first = 0
    for stage in config.stages:
        recipe.model.train()
        loss, _ = recipe.loss(recipe.batch(first), first)
        loss.backward()
        recipe.model.zero_grad(set_to_none=True)
        first += stage.steps
    recipe.model.eval()
    with torch.inference_mode():
        recipe.evaluate(("validation", "test"))


def _told(told_by: tuple[str, ...], what: str, do: Callable[..., Any], *arguments: Any) -> Any:
    """What `do` returns; ValueError that begins with `what` where anything but a refusal by code in the folders
    `told_by` is raised."""
    try:
        return do(*arguments)
    except MemoryError:
        raise
    except Exception as error:
        if isinstance(error, ValueError) and traceback.extract_tb(error.__traceback__)[-1].filename.startswith(told_by):
            raise
        raise ValueError(f"{what}: {type(error).__name__}: {error}") from error


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
