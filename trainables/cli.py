"""`python -m trainables.NAME`: train one configuration in this process, without Ray and without a study.

Under `torchrun` every process is one worker of the gang.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from trainables import overrides, paths
from trainables.arguments import parsed
from trainables.checkpoints import newest_attempt
from trainables.errors import failure, told
from trainables.places import typed


def main(name: str, arguments: list[str] | None = None) -> int:
    """Exit code: 0 trained, 1 the training failed, 2 the request is wrong."""
    module = importlib.import_module(f"trainables.{name}.config")
    base = module.Config()
    parser = argparse.ArgumentParser(
        prog=f"python -m trainables.{name}",
        description=f"Train one {name} configuration in this process. The same command carries on.",
        epilog="keys of --set: " + ", ".join(overrides.keys(base)),
    )
    parser.add_argument("--folder", type=typed, default=Path("runs") / name, help="checkpoints, result and model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a config value")
    options = parsed(parser, arguments)
    try:
        if options.seed < 0:
            raise ValueError(f"--seed {options.seed}: at least 0 is needed")
        values = {"cache": str(options.folder / "cache")} | overrides.parse(options.set)
        config = paths.located(overrides.apply(base, values), Path.cwd())
        paths.check(config)
        attempt = _next_attempt(options.folder)
    except (ValueError, OSError) as error:
        print(f"error: {told(error)}", file=sys.stderr)
        return 2
    try:
        outcome = _train(name, config, options.folder, options.seed, attempt)
    except ValueError as error:
        print(f"error: {told(error)}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: the training failed: {failure(error)}", file=sys.stderr)
        return 1
    if int(os.environ.get("RANK", "0")) == 0:
        print(json.dumps({"state": outcome.state, "reason": outcome.reason, "values": outcome.values}, indent=2))
    return 0


def _train(name, config, folder: Path, seed: int, attempt: int):
    import torch.distributed as dist

    from trainables import loop
    from trainables.context import Context, local_device, use_threads

    use_threads(config.threads or len(os.sched_getaffinity(0)))
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    device = local_device(int(os.environ.get("LOCAL_RANK", "0")))
    if world_size > 1:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    started = time.monotonic()

    def show(records) -> None:
        for record in records:
            shown = {k: v for k, v in record["metrics"].items() if k == "train.loss" or "." not in k}
            text = "  ".join(f"{key} {value:.4g}" for key, value in shown.items())
            print(f"{time.monotonic() - started:7.1f}s  step {record['step']:>6}  {text}", file=sys.stderr, flush=True)

    context = Context(
        seed=seed, folder=folder, device=device, world_size=world_size, on_records=show,
        rank=int(os.environ.get("RANK", "0")), attempt=attempt,
    )  # fmt: skip
    try:
        return loop.run(importlib.import_module(f"trainables.{name}.recipe"), config, context)
    finally:
        if world_size > 1:
            dist.destroy_process_group()


def _next_attempt(folder: Path) -> int:
    """Makes the folder, and the number of this attempt in it."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        return newest_attempt(folder) + 1
