"""What a command line asks for: the options that `study.run` and `study.submit` share, and the study they name."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from study import confirmation, profiles, spec
from study.ledger import inputs
from study.ledger.retention import FEW
from study.ledger.silence import FLOOR_S
from study.ledger.space import check_settings, explore
from trainables import overrides
from trainables.arguments import command
from trainables.places import typed


def parser() -> argparse.ArgumentParser:
    """The command line; `study.submit` takes the same arguments."""
    parser = command(
        "study.run", "Run a study, or carry on one that was interrupted: the same command does both.",
        "--list",
        "splade_k_search --dry-run",
        "splade_k_search --trials 20 --set optimiser.lr=2e-3",
        "my_study.py --profile again --notify https://example.org/hook",
    )  # fmt: skip
    parser.add_argument("name", nargs="?", metavar="NAME", help="a study of search_spaces/, or the path of a .py file")
    parser.add_argument("--list", action="store_true", help="list the studies and their profiles")
    parser.add_argument("--profile", help="variant of the study (default: embedded)")
    parser.add_argument("--trials", type=int, metavar="N", help="number of trials in all")
    parser.add_argument("--concurrency", type=int, metavar="N", help="trials at a time")
    parser.add_argument(
        "--budget-gpu-hours", type=float, metavar="H", help="stop as Ctrl-C does when trials have held GPUs so long"
    )
    parser.add_argument("--max-nodes", type=int, metavar="N", help="let the cluster's autoscaler go up to N nodes")
    parser.add_argument(
        "--resources", action="append", default=[], metavar="KEY=VALUE",
        help="of a trial's gang: " + ", ".join(spec.Resources.model_fields),
    )  # fmt: skip
    parser.add_argument("--workers-per-trial", type=int, metavar="N", help="workers in the gang of a trial")
    parser.add_argument(
        "--storage", type=typed, metavar="DIR",
        help="folder of the study (default: studies/NAME, or studies/NAME.PROFILE)",
    )  # fmt: skip
    parser.add_argument(
        "--checkpoints", metavar="URI", help="object store for checkpoints, s3://... (default: in the storage folder)"
    )
    parser.add_argument(
        "--silence", type=float, default=FLOOR_S, metavar="SECONDS",
        help=f"a trial that is silent for less is never ended as one that hangs (default: {FLOOR_S:g})",
    )  # fmt: skip
    parser.add_argument(
        "--keep", type=kept, default=FEW, metavar="N",
        help=f"keep the models of the N best trials of each group (default: {FEW}), of those that nothing surpasses at "
        "their cost, of controls, of arms of a paired design and of what confirms; 'all' removes nothing. Results and "
        "logs stay anyway",
    )  # fmt: skip
    parser.add_argument("--ledger", metavar="URL", help="Optuna storage (default: $STUDY_LEDGER, else SQLite)")
    parser.add_argument(
        "--tracking-uri", metavar="URI",
        help="MLflow (default: $MLFLOW_TRACKING_URI, else studies/mlflow.db; with --address beside --storage)",
    )  # fmt: skip
    parser.add_argument(
        "--label", metavar="TEXT", help="the study's run in MLflow (default: NAME and the end of its id)"
    )
    parser.add_argument("--system-metrics", action="store_true", help="record CPU and memory of trials in MLflow, too")
    parser.add_argument("--register", metavar="NAME", help="register the best model in MLflow under this name")
    parser.add_argument("--address", metavar="ADDR", help="Ray cluster (default: one on this machine)")
    parser.add_argument(
        "--confirm", metavar="MxS",
        help="when the search is over, run its best M trials and the controls again with S fresh seeds; none: do not",
    )  # fmt: skip
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a config value")
    parser.add_argument(
        "--notify", metavar="COMMAND_OR_URL",
        help="tell of the study's end, its failure and each new best trial (default: $STUDY_NOTIFY)",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, metavar="N", help="seed of the sampler and of the first replicate")
    parser.add_argument("--fresh", action="store_true", help="begin anew and keep the old study beside it")
    parser.add_argument("--retry-failed", action="store_true", help="run failed trials once more")
    parser.add_argument("--dry-run", action="store_true", help="print what would be run, and run nothing")
    parser.add_argument(
        "--power", action="append", default=[], metavar="KEY=VALUE",
        help="what --dry-run judges by what the study can show: " + ", ".join(spec.Power.model_fields),
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the summary as JSON on standard output at the end")
    return parser


def kept(given: str) -> int | None:
    """The value of `--keep`: a number of trials, or None for all of them; ValueError for anything else."""
    if given == "all":
        return None
    if not given.isdecimal() or not int(given):
        raise argparse.ArgumentTypeError(f"{given!r} is no number of trials from 1 on; 'all' keeps the models of all")
    return int(given)


@dataclass(frozen=True)
class Requested:
    """The study that a command line names."""

    name: str
    """The title of its profile: what ledger and MLflow call a study that begins."""
    file: Path
    profile: str
    study: spec.Study


def requested(options: argparse.Namespace, elsewhere: bool = False) -> Requested:
    """The study that the command line asks for; raises ValueError.

    Paths are relative to the working folder, and absolute in what is returned. A study that will run `elsewhere` must
    have absolute ones.
    """
    if options.name is None:
        raise ValueError(f"which study? There are: {', '.join(spec.available())} (or give the path of a .py file)")
    name, path = spec.find(options.name)
    if options.fresh and options.retry_failed:
        raise ValueError("--retry-failed with --fresh: a study that begins anew has no failed trials; leave one out")
    found = spec.profiles(path)
    profile, default = spec.chosen(found, path, options.profile)
    name = profiles.title(name, profile, default)
    settings = overrides.parse(options.set)
    if "cache" in settings:
        raise ValueError("--set cache: a study keeps its cache in its own folder; name that one with --storage")
    try:
        study = spec.changed(found[profile], settings, changes(options))
    except ValueError as error:
        raise ValueError(_by_options(str(error), _own_changes(options))) from None
    check_settings(study, settings)
    if elsewhere:
        inputs.check_elsewhere(study, explore(study), settings)
        return Requested(name, path, profile, study)
    study = inputs.located(study, Path.cwd())
    inputs.check(study, explore(study))
    return Requested(name, path, profile, study)


def resource_changes(given: list[str]) -> dict[str, Any]:
    """What `--resources` changes, as dotted keys of `Study`."""
    return {f"resources.{key}": value for key, value in overrides.parse(given, "--resources").items()}


def changes(options: argparse.Namespace) -> dict[str, Any]:
    """What the options change of the study itself, as dotted keys of `Study`."""
    power = {f"power.{key}": value for key, value in overrides.parse(options.power, "--power").items()}
    return resource_changes(options.resources) | power | _confirm(options.confirm) | _own_changes(options)


def _confirm(given: str | None) -> dict[str, Any]:
    if given is None:
        return {}
    try:
        return {"confirm": None if given == "none" else confirmation.parse(given).model_dump()}
    except ValueError as error:
        raise ValueError(f"--confirm {error}; none confirms nothing") from None


CHANGES = {
    "budget.trials": "--trials",
    "budget.gpu_hours": "--budget-gpu-hours",
    "resources.concurrency": "--concurrency",
    "resources.max_nodes": "--max-nodes",
    "resources.workers": "--workers-per-trial",
    "seed": "--seed",
}
"""Dotted key of `Study` -> the option that changes it."""


def _by_options(message: str, keys: Iterable[str]) -> str:
    """What is wrong with a changed study, with their options for these keys."""
    for key in keys:
        message = re.sub(rf"(?<![\w.]){re.escape(key)}=", f"{CHANGES[key]} ", message)
    return message


def _own_changes(options: argparse.Namespace) -> dict[str, Any]:
    """What options that are for one key alone change."""
    given = {key: getattr(options, option.removeprefix("--").replace("-", "_")) for key, option in CHANGES.items()}
    return {key: value for key, value in given.items() if value is not None}


def unused(address: str | None) -> list[str]:
    """What is said of an environment that names a cluster where the command line names none."""
    if address is not None or "RAY_ADDRESS" not in os.environ:
        return []
    return ["RAY_ADDRESS is not used: everything runs on this machine; --address names a cluster"]


def listing() -> str:
    """The studies that come with the project, what each asks, and what each of their profiles is for."""
    lines = []
    for name, path in spec.available().items():
        found = spec.profiles(path)
        _, default = spec.chosen(found, path, None)
        lines += [name, f"    {found[default].question}"]
        width = max(map(len, found))
        lines += [f"    {profile:<{width}}  {_purpose(study, profile == default)}" for profile, study in found.items()]
    return "\n".join(lines)


def _purpose(study: spec.Study, default: bool) -> str:
    steps = f"{study.budget.trials * len(study.groups)} trials of {study.replicates * study.config.total_steps:,} steps"
    gpus = ", on GPUs" if study.resources.gpus_per_worker else ""
    return "; ".join(filter(None, ("the default" if default else "", study.purpose, steps + gpus)))
