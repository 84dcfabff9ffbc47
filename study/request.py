"""What a command line asks for: the options that `study.run` and `study.submit` share, and the study they name."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from study import profiles, spec
from study.ledger import inputs
from study.ledger.space import check_settings, explore
from trainables import overrides
from trainables.places import typed


def parser() -> argparse.ArgumentParser:
    """The command line; `study.submit` takes the same arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m study.run",
        description="Run a study, or carry on one that was interrupted: the same command does both.",
    )
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
    parser.add_argument("--ledger", metavar="URL", help="Optuna storage (default: $STUDY_LEDGER, else SQLite)")
    parser.add_argument(
        "--tracking-uri", metavar="URI",
        help="MLflow (default: $MLFLOW_TRACKING_URI, else studies/mlflow.db; with --address beside --storage)",
    )  # fmt: skip
    parser.add_argument(
        "--label", metavar="TEXT", help="the study's run in MLflow (default: NAME and the end of its id)"
    )
    parser.add_argument("--register", metavar="NAME", help="register the best model in MLflow under this name")
    parser.add_argument("--address", metavar="ADDR", help="Ray cluster (default: one on this machine)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a config value")
    parser.add_argument("--seed", type=int, metavar="N", help="seed of the sampler and of the first replicate")
    parser.add_argument("--fresh", action="store_true", help="begin anew and keep the old study beside it")
    parser.add_argument("--retry-failed", action="store_true", help="run failed trials once more")
    parser.add_argument("--dry-run", action="store_true", help="print what would be run, and run nothing")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON on standard output at the end")
    return parser


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
    study = spec.changed(found[profile], settings, _changes(options))
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


def _changes(options: argparse.Namespace) -> dict[str, Any]:
    """Options that change the study itself, as dotted keys of `Study`."""
    given = {
        "budget.trials": options.trials,
        "budget.gpu_hours": options.budget_gpu_hours,
        "resources.concurrency": options.concurrency,
        "resources.max_nodes": options.max_nodes,
        "resources.workers": options.workers_per_trial,
        "seed": options.seed,
    }
    return resource_changes(options.resources) | {key: value for key, value in given.items() if value is not None}


def unused(address: str | None) -> list[str]:
    """What is said of an environment that names a cluster where the command line names none."""
    if address is not None or "RAY_ADDRESS" not in os.environ:
        return []
    return ["RAY_ADDRESS is not used: everything runs on this machine; --address names a cluster"]


def listing() -> str:
    lines = []
    for name, path in spec.available().items():
        found = spec.profiles(path)
        lines.append(f"{name}  ({', '.join(found)})\n    {next(iter(found.values())).question}")
    return "\n".join(lines)
