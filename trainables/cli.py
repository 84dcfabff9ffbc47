"""`python -m trainables.NAME`: train one configuration in this process, without Ray and without a study.

Under `torchrun` every process is one worker of the gang.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainables import again, overrides, paths, trainers
from trainables.arguments import command, parsed
from trainables.checkpoints import newest_attempt
from trainables.config import TrainerConfig
from trainables.errors import FAILED, FINISHED, INTERRUPTED, WRONG, failure, told
from trainables.files import write_whole
from trainables.places import typed
from trainables.training_record import TrainingRecord


def parser(name: str) -> argparse.ArgumentParser:
    """The command line of `trainables.NAME`."""
    config = trainers.module(name, "config").Config
    parser = command(
        trainers.package_of(name),
        f"Train one {name} configuration in this process. Ctrl-C checkpoints and ends it, the same command "
        "carries on; another configuration needs another --folder.",
        "",
        "--folder runs/slow --set steps=500 --set optimiser.lr=2e-4",
        "--from models/taken_away",
    )
    parser.epilog = f"{parser.epilog}\n\n" + textwrap.fill("keys of --set: " + ", ".join(overrides.keys(config)), 100)
    parser.add_argument(
        "--folder", type=typed, metavar="DIR",
        help=f"checkpoints, result and model (default: runs/{name}, with --from runs/{name}-again)",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, help="of initialisation, data order and masks (default: 0)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a config value")
    parser.add_argument(
        "--from", dest="origin", type=typed, metavar="FOLDER",
        help="train the exported model in FOLDER again, with the settings, data and seed that are on record there; "
        "--set says where its inputs are now",
    )  # fmt: skip
    return parser


def main(name: str, arguments: list[str] | None = None) -> int:
    """Exit code: 0 trained, 1 the training failed, 2 the request is wrong, 130 interrupted."""
    base = trainers.module(name, "config").Config()
    options = parsed(parser(name), arguments)
    workers = int(os.environ.get("WORLD_SIZE", "1"))
    try:
        run = _asked(name, base, options)
        attempt = _next_attempt(run.folder)
        _check_same(run.folder, _settings(name, run.seed, run.config))
    except (ValueError, OSError) as error:
        print(f"error: {told(error)}", file=sys.stderr)
        return WRONG
    first = int(os.environ.get("RANK", "0")) == 0
    if run.record is not None and first:
        for note in again.notes(run.record, workers):
            print(note, file=sys.stderr)
    try:
        result = _train(name, run, workers, attempt)
    except ValueError as error:
        print(f"error: {told(error)}", file=sys.stderr)
        return WRONG
    except OSError as error:
        print(f"error: the training failed: {failure(error)}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("stopped at once; the same command carries on from the newest checkpoint", file=sys.stderr)
        return INTERRUPTED
    if result.state == "stopped":
        print(f"{result.reason} at step {result.step}; the same command carries on", file=sys.stderr)
        return INTERRUPTED
    if first:
        print(json.dumps({"state": result.state, "reason": result.reason, "values": result.values}, indent=2))
    if run.record is not None and first and result.state == "complete":
        stage = f"-{run.record.stage}" if run.record.stage else ""
        print(again.compared(options.origin, run.folder / f"model{stage}"), file=sys.stderr)
    return FINISHED


@dataclass(frozen=True)
class _Asked:
    """What is to be trained, and where."""

    config: TrainerConfig
    seed: int
    folder: Path
    record: TrainingRecord | None
    """The record of the model that is trained again, or None for a new training."""


def _asked(name: str, base: TrainerConfig, options: argparse.Namespace) -> _Asked:
    """ValueError where the options do not go together, or name what is not there."""
    values = overrides.parse(options.set)
    origin: Path | None = options.origin
    folder = options.folder or typed(f"runs/{name}" if origin is None else f"runs/{name}-again")
    cache = {"cache": str(folder / "cache")}
    if origin is None:
        record, seed = None, options.seed or 0
        config = overrides.apply(base, cache | values)
    else:
        record = TrainingRecord.read(origin)
        if record.trainer != name:
            command = f"python -m {trainers.package_of(record.trainer)}"
            raise ValueError(f"--from {origin} was trained by {record.trainer}: {command}")
        if options.seed is not None:
            raise ValueError(f"--seed {options.seed}: --from {origin} trains with the seed on record, {record.seed}")
        if origin.resolve().parent == folder.resolve():
            raise ValueError(f"--folder {folder}: there the model was trained that --from names; name another folder")
        seed = record.seed
        config = again.config_of(record, type(base), origin, cache | values)
    if seed < 0:
        raise ValueError(f"--seed {seed}: at least 0 is needed")
    config = paths.located(config, Path.cwd())
    paths.check(config)
    return _Asked(config, seed, folder, record)


def _train(name: str, run: _Asked, world_size: int, attempt: int):
    import torch.distributed as dist

    from trainables import loop
    from trainables.context import Context, local_device, use_threads

    use_threads(run.config.threads or len(os.sched_getaffinity(0)))
    device = local_device(int(os.environ.get("LOCAL_RANK", "0")))
    if world_size > 1:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    started = time.monotonic()

    def show(records) -> None:
        for record in records:
            shown = {k: v for k, v in record["metrics"].items() if k == "train.loss" or "." not in k}
            text = "  ".join(f"{key} {value:.4g}" for key, value in shown.items())
            print(f"{time.monotonic() - started:7.1f}s  step {record['step']:>6}  {text}", file=sys.stderr, flush=True)

    asked_to_stop: list[str] = []

    def stop(number: int, frame: object) -> None:
        if asked_to_stop:
            raise KeyboardInterrupt
        asked_to_stop.append(f"stopped by {signal.Signals(number).name}")

    class Stoppable(Context):
        def report(self, records, wait):
            super().report(records, wait)
            return asked_to_stop[0] if asked_to_stop else None

        def describe(self, facts):
            if run.record is not None:
                again.check(run.record, facts, world_size)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    context = Stoppable(
        seed=run.seed, folder=run.folder, device=device, world_size=world_size, on_records=show,
        rank=int(os.environ.get("RANK", "0")), attempt=attempt,
    )  # fmt: skip
    try:
        return loop.run(trainers.module(name, "recipe"), run.config, context)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if world_size > 1:
            dist.destroy_process_group()


def _next_attempt(folder: Path) -> int:
    """Make the folder, and return the number of this attempt in it."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        return newest_attempt(folder) + 1


def _settings(name: str, seed: int, config: TrainerConfig) -> dict[str, Any]:
    """What the run in a folder must have in common with one that carries it on, as JSON values."""
    keys = (key for key in overrides.keys(config) if key not in ("cache", "threads"))
    found = {"trainer": name, "seed": seed} | {key: paths.value_of(config, key) for key in keys}
    return json.loads(json.dumps(found))


def _check_same(folder: Path, settings: dict[str, Any]) -> None:
    """Put the settings on record in the folder; ValueError where a run with others has been begun there."""
    record = folder / "run.json"
    if not (folder / "result.json").exists() and not any(folder.glob("step-*")):
        if int(os.environ.get("RANK", "0")) == 0:
            write_whole(record, json.dumps(settings, indent=2))
        return
    if not record.exists():
        raise ValueError(f"--folder {folder}: a run whose settings are not on record is there; name another folder")
    try:
        before = json.loads(record.read_text())
        changed = [f"{k} was {before.get(k)!r}, now {v!r}" for k, v in settings.items() if before.get(k) != v]
    except (ValueError, AttributeError) as error:
        raise ValueError(f"{record} cannot be read ({told(error)}); name another --folder") from None
    if changed:
        raise ValueError(
            f"--folder {folder}: the run there was begun differently: {'; '.join(changed[:5])}. Undo the change, or "
            "name another folder"
        )
