"""Begin a study of one's own: `python -m study.new NAME --trainer TRAINER` writes NAME.py, which runs as it is.

Each line that one may want to change says what it does. What is searched is what the project's own study of that
trainer is about; for another trainer it is the learning rate.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from study import spec
from study.ledger.space import explore
from study.terminal import View
from trainables import trainers
from trainables.arguments import command, parsed
from trainables.config import TrainerConfig
from trainables.errors import FINISHED, WRONG, told
from trainables.places import typed

TRIALS = 6
RATE = "optimiser.lr"
"""A key of every trainer."""

PAGE = '''"""Which {parameter} is best? Trains with `{trainer}`; every key and its meaning: docs/settings.md."""

from study.spec import Budget, Objective, Pruner, Resources, Study
from trainables.config import Optimiser
from {package}.config import Config


def space(trial):
    # What trials differ in. Each name is a key of the config; the calls are Optuna's:
    # suggest_float(KEY, LOW, HIGH, log=...), suggest_int(KEY, LOW, HIGH), suggest_categorical(KEY, CHOICES).
    {suggestion}


FIRST = Study(
    question="Which {parameter} is best?",
    trainer="{trainer}",
    parameter="{parameter}",  # the key that tables and figures put first
    # What all trials have in common. Keys that are left out have the trainer's defaults; --dry-run prints them all.
    config=Config(
        backbone="{backbone}",  # "embedded" comes with the project; or a folder, or a name of the hub
        steps={steps},
        batch_size={batch_size},
        evaluate_every={evaluate_every},  # steps between two measurements on validation data
        checkpoint_every={checkpoint_every},  # steps that an interruption costs at most
        optimiser=Optimiser(lr={lr}),
    ),
    space=space,
    points=(),  # parameter sets that are tried first, such as {{"{parameter}": ...}}
    controls=(),  # parameter sets to compare with, outside the search
    # What trials are judged by{others}.
    objectives=(Objective(name="{objective}", direction="{direction}"),),
    pruner=Pruner(kind="none"),  # "median", "successive_halving" and "hyperband" stop trials that lag behind
    replicates=1,  # seeds of each trial: one to search, three to five to be sure
    budget=Budget(trials={trials}),
    resources=Resources(workers=1, cpus_per_worker=1, gpus_per_worker=0),  # of each trial
)

STUDY = {{
    # The first profile is the default. Another one is a changed copy, run with --profile again.
    "first": FIRST,
    "again": FIRST.model_copy(update={{"replicates": 3}}),
}}
'''


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = command(
        "study.new", "Write a study file to begin with: it runs as it is, and says what may be changed.",
        "my_study --trainer splade",
        "studies_of_mine/rates.py --trainer my_package.my_trainer",
    )  # fmt: skip
    parser.add_argument("name", metavar="NAME", help="what the study is called, or the file to write")
    parser.add_argument(
        "--trainer", required=True, metavar="TRAINER",
        help=f"{', '.join(trainers.names())}, or the dotted name of a package of your own",
    )  # fmt: skip
    return parser


def main(arguments: list[str] | None = None) -> int:
    options = parsed(parser(), arguments)
    try:
        path = write(options.name, options.trainer)
    except (ValueError, OSError) as error:
        print(f"error: {told(error)}", file=View(sys.stderr))
        return WRONG
    shown = shlex.quote(str(path))
    print(f"{path}\npython -m study.run {shown} --dry-run\npython -m study.run {shown}", file=View(sys.stdout))
    return FINISHED


def write(name: str, trainer: str) -> Path:
    """Write the file of a study with this name, and return its path as it was given; ValueError where that is refused.

    The file is there only where it is a study that can be run.
    """
    path = Path(name if name.endswith(".py") else f"{name}.py")
    place = typed(str(path))
    sys.path.insert(0, str(Path.cwd()))
    text = page(trainer)
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        with place.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ValueError(f"{path} is there already; name another file, or change that one") from None
    try:
        explore(spec.profiles(place)["first"])
    except ValueError:
        place.unlink()
        raise
    return path


def page(trainer: str) -> str:
    """The content of a study file for the trainer; ValueError where there is no such trainer, with the nearest."""
    module = trainers.module(trainer, "config")
    example = _example(trainer)
    config: TrainerConfig = example.config if example else module.Config()
    parameter = example.parameter if example else RATE
    metrics = module.metrics(config)
    objective = example.objectives[0].name if example else next(iter(metrics))
    others = [name for name in metrics if name != objective]
    return PAGE.format(
        trainer=trainer, package=trainers.package_of(trainer), parameter=parameter,
        suggestion=_suggestion(parameter, explore(example)[parameter] if example else None, config.optimiser.lr),
        backbone=config.backbone, steps=config.steps, batch_size=config.batch_size,
        evaluate_every=config.evaluate_every, checkpoint_every=config.checkpoint_every, lr=config.optimiser.lr,
        objective=objective, direction=metrics[objective].direction,
        others=f"; it reports {', '.join(others)}, too" if others else "", trials=TRIALS,
    )  # fmt: skip


def _example(trainer: str) -> spec.Study | None:
    """The project's own study of this trainer, by its default profile; None where it has none."""
    for path in spec.available().values():
        found = spec.profiles(path)
        study = found[spec.chosen(found, path, None)[0]]
        if study.trainer == trainer:
            return study
    return None


def _suggestion(parameter: str, distribution: Any, rate: float) -> str:
    """The call that suggests the parameter."""
    if distribution is None:
        return f"trial.suggest_float({parameter!r}, {rate / 3:.2g}, {rate * 3:.2g}, log=True)".replace("'", '"')
    if hasattr(distribution, "choices"):
        return f'trial.suggest_categorical("{parameter}", {distribution.choices!r})'.replace("'", '"')
    kind = "int" if isinstance(distribution.low, int) else "float"
    log = ", log=True" if distribution.log else ""
    return f'trial.suggest_{kind}("{parameter}", {distribution.low!r}, {distribution.high!r}{log})'


if __name__ == "__main__":
    sys.exit(main())
