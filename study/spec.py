"""What a search-space file declares, and every check that can be made before anything starts."""

from __future__ import annotations

import difflib
import os
import re
import runpy
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    SerializeAsAny,
    ValidationError,
    field_validator,
    model_validator,
)

from study.confirmation import Confirm
from study.values import plain
from trainables import overrides, trainers
from trainables.config import Direction, NonNegativeFinite, PositiveFinite, Section, TrainerConfig
from trainables.errors import told
from trainables.report import Metric

PROFILE = re.compile(r"[A-Za-z][\w-]*")
"""What a profile may be called."""
FOLDER = Path(__file__).resolve().parent.parent / "search_spaces"


class Objective(Section):
    """A metric of the recipe on validation queries, and which way is better."""

    name: str
    """A metric that the trainer reports, without a prefix."""
    direction: Direction = "maximize"
    """Which way is better."""


class Pruner(Section):
    """When a trial that lags behind the others is stopped; Optuna's pruner of the same name."""

    kind: Literal["none", "successive_halving", "hyperband", "median"] = "none"
    """`none` lets every trial go to its end."""
    first_step: PositiveInt = 1
    """No trial is pruned before this step."""
    reduction_factor: Annotated[int, Field(ge=2)] = 3
    """Successive halving and hyperband let one in so many trials go on at each rung."""
    startup_trials: NonNegativeInt = 4
    """Finished trials that `median` waits for, in each group."""


class Group(Section):
    """What a study asks its question about one by one: each value is a group, with a search of its own."""

    key: str
    """A dotted key of the config, such as `backbone`; no trial is compared with one that has another value of it."""
    values: Annotated[tuple[Any, ...], Field(min_length=1)]
    """The values, one for each group. A new trial goes to the group that has the fewest, the first of them."""

    @field_validator("values")
    @classmethod
    def _plain(cls, given: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(plain(value, "a value of a group") for value in given)

    @model_validator(mode="after")
    def _told_apart(self) -> Group:
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"group.values: {', '.join(self.names)} cannot be told apart by their names")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """What the groups are called: what stands behind the last slash of each value, or all of it where that is not
        enough to tell them apart. Fit for tags, names of metrics and of files.

        >>> Group(key="backbone", values=("google-bert/bert-base-uncased", "FacebookAI/roberta-base")).names
        ('bert-base-uncased', 'roberta-base')
        """
        whole = [str(value) for value in self.values]
        last = [text.rstrip("/").rpartition("/")[2] for text in whole]
        chosen = last if len(set(last)) == len(last) else whole
        return tuple(re.sub(r"[^\w.-]+", "-", text).strip("-") for text in chosen)


class Budget(Section):
    """A study ends when the first of these is spent."""

    trials: PositiveInt
    """Number of trials, controls and points included; in a study with groups, of each group."""
    wall_clock_s: PositiveFinite | None = None
    """Seconds that all launches of the study may take."""
    worker_hours: PositiveFinite | None = None
    """Hours that workers may be held, summed over workers."""
    gpu_hours: PositiveFinite | None = None
    """Hours that GPUs may be held, summed over GPUs."""


class Resources(Section):
    """What one trial's gang holds while it runs."""

    workers: PositiveInt = 1
    """Workers in the gang of a trial; they share the batch."""
    cpus_per_worker: PositiveFinite = 1
    """CPUs that a worker holds; it has as many threads."""
    gpus_per_worker: NonNegativeFinite = 0
    """GPUs that a worker holds, or a share of one; 0 trains on the CPU."""
    gpu_hour_price: NonNegativeFinite | None = None
    """Price of a GPU-hour, in whatever currency; the cost of trials is then shown in it, too."""
    placement: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] = "PACK"
    """How Ray lays a gang over nodes: on few or on many of them; STRICT takes one node for all, or one for each."""
    accelerator: str | None = None
    """Ray's name of an accelerator, such as H100; the gang then runs on nodes that have it."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels that the nodes of a gang must have, such as {"ray.io/market-type": "spot"}, or, with !spot, must not."""
    concurrency: PositiveInt | None = None
    """Trials at a time; None takes what the cluster has room for, at any time."""
    max_nodes: PositiveInt | None = None
    """While the cluster has fewer nodes, its autoscaler is asked for room for one more trial."""

    @model_validator(mode="after")
    def _whole_gpus_in_gangs(self) -> Resources:
        if self.workers > 1 and self.gpus_per_worker % 1:
            raise ValueError(
                f"gpus_per_worker={self.gpus_per_worker}: a gang of {self.workers} workers needs whole GPUs, "
                "because NCCL refuses two ranks on one device"
            )
        return self


class Power(Section):
    """What is known, before a study, of the differences between its trials: `--dry-run` says by it what the study can
    show. Nothing of it changes what is run."""

    measured: str | None = None
    """Folder of an earlier study, whose deviations are taken in place of those stated here, and its number of items
    where none is."""
    items: Annotated[int, Field(ge=2)] | None = None
    """Test queries or pairs that every trial is measured on."""
    item_deviation: PositiveFinite | None = None
    """Standard deviation between these of the difference of two trials, each the mean over its seeds; of a correlation,
    that of its jackknife pseudo-values."""
    seed_deviation: NonNegativeFinite | None = None
    """Standard deviation between seeds of the difference of two trials in the objective, on these items."""
    reported: PositiveFinite | None = None
    """A difference in the objective that the literature reports."""
    source: str = ""
    """Who reports it, and of what."""


class Study(Section):
    """A question about one recipe, complete on one screen.

    `space(trial)` suggests values by Optuna's define-by-run calls; every name is a dotted key of
    `config`. `controls` are parameter sets outside the space, such as an arm without pre-training: the first
    trials run them, so that what is searched can be compared with them, and neither sampler nor pruner takes
    them into account. `points` are parameter sets that the next trials take, before the sampler takes over.
    A trial is one parameter set; its `replicates` run it with the seeds seed, seed + 1, ...

    With `confirm` the best few trials of a search and its controls are run again, see `study/confirmation.py`.

    With a `group` the study asks its question once for each group, as studies of their own would: each has its own
    controls, points, number of trials, sampler, pruner and best trial.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    question: str
    """What the study is to answer, for people."""
    purpose: str = ""
    """What this profile is for, beside the others of its file; `--list` shows it."""
    trainer: str
    """A package of `trainables/`, such as `splade`, or the dotted name of a package of your own."""
    config: SerializeAsAny[TrainerConfig]
    space: Callable[[Any], Any] = Field(exclude=True)
    """Suggests the parameters of a trial, by Optuna's define-by-run calls; every name is a dotted key of the config."""
    parameter: str
    """The key that tables and plots put first."""
    group: Group | None = None
    """What the question is asked about one by one, such as backbones; None asks it once."""
    plane: tuple[str, str] | None = None
    """Two numeric keys of the space whose plane the report maps, the horizontal one first."""
    signals: tuple[str, ...] = ("loss",)
    """Signals of the training steps whose curves the report draws."""
    controls: tuple[Annotated[dict[str, Any], Field(min_length=1)], ...] = ()
    """Parameter sets beside the search, which run first; neither sampler nor pruner takes them into account."""
    points: tuple[dict[str, Any], ...] = ()
    """Parameter sets that the next trials take, before the sampler takes over."""
    objectives: Annotated[tuple[Objective, ...], Field(min_length=1)]
    """One metric, or several without pruning."""
    sampler: Literal["tpe", "random", "qmc"] = "tpe"
    """`qmc` takes the points of a scrambled Sobol sequence; the space must be ranges of numbers without conditions."""
    pruner: Pruner = Pruner()
    design: Literal["search", "paired"] = "search"
    """`paired` compares arms: trials whose replicates share seeds, initialisation and data order."""
    replicates: PositiveInt = 1
    """Seeds of each trial: `seed`, `seed + 1`, ..."""
    seed: NonNegativeInt = 0
    """Seed of the sampler and of the first replicate."""
    budget: Budget
    resources: Resources = Resources()
    confirm: Confirm | None = None
    """Which of its trials the study runs again when its search is over, with seeds that the search has not used, so
    that the best is not named by its luck; None leaves it at the search."""
    power: Power = Power()

    @field_validator("controls", "points")
    @classmethod
    def _plain(cls, given: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        return tuple({key: plain(value, key) for key, value in point.items()} for point in given)

    @model_validator(mode="after")
    def _consistent(self) -> Study:
        known = overrides.keys(self.config)
        given = [*(("control", values) for values in self.controls), *(("point", values) for values in self.points)]
        used = [self.parameter, *(self.plane or ()), *(key for _, values in given for key in values)]
        for key in [*used, *(own for group in self.groups for own in group)]:
            if key not in known:
                raise ValueError(overrides.unknown_key(key, known))
        if self.group is not None and self.group.key in used:
            raise ValueError(
                f"group.key='{self.group.key}' is given to every trial by its group; parameter, plane, controls and "
                "points name other keys"
            )
        if self.budget.gpu_hours is not None and not self.resources.gpus_per_worker:
            raise ValueError(
                f"budget.gpu_hours={self.budget.gpu_hours:g}, but resources.gpus_per_worker=0: trials hold no GPU; "
                "give them some, or use budget.worker_hours"
            )
        if len(self.objectives) > 1 and self.pruner.kind != "none":
            raise ValueError(
                f"pruner.kind={self.pruner.kind!r} with {len(self.objectives)} objectives: pruning compares one "
                "value; use kind='none' or a single objective"
            )
        if self.design == "paired" and self.replicates < 2:
            raise ValueError(
                f"replicates={self.replicates} with design='paired': a paired comparison needs at least two seeds"
            )
        if self.design == "paired" and self.pruner.kind != "none":
            raise ValueError(
                f"pruner.kind={self.pruner.kind!r} with design='paired': every arm runs all its seeds; use kind='none'"
            )
        if self.confirm is not None and len(self.objectives) > 1:
            raise ValueError(
                f"confirm={self.confirm} with {len(self.objectives)} objectives: finalists are the best by one value; "
                "use a single objective"
            )
        brackets_from = self.pruner.first_step * self.pruner.reduction_factor
        if self.pruner.kind == "hyperband" and self.config.total_steps < brackets_from:
            raise ValueError(
                f"pruner.kind='hyperband' with pruner.first_step={self.pruner.first_step} has more than one bracket "
                f"from {brackets_from} steps on, and trials have {self.config.total_steps}; use an earlier first_step, "
                "or kind='successive_halving'"
            )
        self.config_with({})
        for group in self.groups:
            for kind, values in [("group", {}), *given] if group else given:
                try:
                    self.config_with(group | values)
                except ValueError as error:
                    raise ValueError(f"{kind} {group | values}: {error}") from None
        return self

    @property
    def groups(self) -> tuple[dict[str, Any], ...]:
        """What each group changes in the config, in their order; a study without groups has one, which changes
        nothing."""
        return ({},) if self.group is None else tuple({self.group.key: value} for value in self.group.values)

    def group_name(self, place: int | None) -> str | None:
        """What the group at this place of their order is called; None for no group."""
        return self.group.names[place] if self.group is not None and place is not None else None

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the replicates of each trial of the search."""
        return tuple(range(self.seed, self.seed + self.replicates))

    @property
    def confirmations(self) -> int:
        """The most trials that are run again to confirm the search."""
        if self.confirm is None:
            return 0
        searched = max(self.budget.trials - len(self.controls), 0)
        return (min(self.confirm.finalists, searched) + len(self.controls)) * len(self.groups)

    @property
    def reserved(self) -> float:
        """Share of a budget in hours that the search leaves to its confirmation: that of the replicates to be run."""
        confirming = self.confirmations * (self.confirm.seeds if self.confirm else 0)
        return confirming / (confirming + self.trials * self.replicates)

    @property
    def trials(self) -> int:
        """Trials that the budget has room for, over all groups."""
        return self.budget.trials * len(self.groups)

    @property
    def metrics(self) -> dict[str, Metric]:
        """All that the recipe reports with the base config, the groups, the controls or the points, and what it says
        of that."""
        found: dict[str, Metric] = {}
        for values in ({}, *(group | given for group in self.groups for given in ({}, *self.controls, *self.points))):
            # Parameters that a younger version refuses fail their own trial, and have nothing to report.
            with suppress(ValueError):
                found |= trainers.module(self.trainer, "config").metrics(overrides.apply(self.config, values))
        return found

    def config_with(self, values: Mapping[str, Any]) -> TrainerConfig:
        """The config of a trial with these parameters: dotted keys, as in `overrides.apply`.

        Raises ValueError with one sentence where the config refuses them, where the recipe would not report an
        objective, and where the gang cannot share the batch.
        """
        config = overrides.apply(self.config, values)
        declared = trainers.module(self.trainer, "config").metrics(config)
        reported = {name: metric for name, metric in declared.items() if not metric.initial}
        for objective in self.objectives:
            if objective.name not in reported:
                raise ValueError(
                    f"objective '{objective.name}': {self.trainer} never reports it; it reports {', '.join(reported)}"
                )
            direction = reported[objective.name].direction
            if objective.direction != direction:
                raise ValueError(
                    f"objective '{objective.name}' has direction='{objective.direction}', but {self.trainer} is better "
                    f"the {'more' if direction == 'maximize' else 'less'} it has of it; use "
                    f"direction='{direction}'"
                )
        if config.batch_size % self.resources.workers:
            raise ValueError(
                f"batch_size={config.batch_size} cannot be shared by resources.workers={self.resources.workers}; "
                "use a multiple of the number of workers"
            )
        return config


def available() -> dict[str, Path]:
    """Name -> file of the studies that come with the platform."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.py")) if not path.stem.startswith("_")}


def find(name: str) -> tuple[str, Path]:
    """(study name, file) for a name on the command line: a file of `search_spaces/` or a path to a `.py`."""
    if name.endswith(".py") or "/" in name:
        path = Path(name)
        if not path.is_file():
            raise ValueError(f"study file '{name}' does not exist; name one of {', '.join(available())} or a .py file")
        return path.stem, path.resolve()
    studies = available()
    if name not in studies:
        near = difflib.get_close_matches(name, studies, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"there are: {', '.join(studies)}"
        raise ValueError(f"unknown study '{name}'; {hint} (or give the path of a .py file)")
    return name, studies[name]


def profiles(path: Path) -> Mapping[str, Study]:
    """The `STUDY` mapping of a study file, which may import from the current folder."""
    if os.getcwd() not in sys.path:
        # `python -m` looks there, the console commands do not.
        sys.path.insert(0, os.getcwd())
    try:
        found = runpy.run_path(str(path)).get("STUDY")
    except ValidationError as error:
        raise ValueError(f"study file {path}{_line(error, path)}: {overrides.sentences(error)}") from None
    except (Exception, SystemExit) as error:
        where = f"study file {path}{_line(error, path)}"
        raise ValueError(f"{where} raises {type(error).__name__}: {told(error, 500)}") from error
    named = isinstance(found, Mapping) and all(isinstance(n, str) and isinstance(s, Study) for n, s in found.items())
    if not found or not named:
        raise ValueError(f"study file {path} must define STUDY, a mapping from profile name to study.spec.Study")
    for name in found:
        if not isinstance(name, str) or not PROFILE.fullmatch(name):
            raise ValueError(
                f"study file {path}: profile {name!r}: its name is part of folder names; accepted are letters, digits, "
                "_ and -, a letter first"
            )
    return found


def chosen(found: Mapping[str, Study], path: Path, profile: str | None) -> tuple[str, str]:
    """(profile that is asked for, default one) of a study file; the default is `embedded`, or the first one."""
    default = "embedded" if "embedded" in found else next(iter(found))
    name = default if profile is None else profile
    if name not in found:
        near = difflib.get_close_matches(name, found, n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise ValueError(f"profile '{name}' of {path.stem} does not exist; {hint}it has {', '.join(found)}")
    return name, default


def changed(study: Study, settings: Mapping[str, Any], changes: Mapping[str, Any]) -> Study:
    """The study with `--set` values applied to its config and `changes` to itself; ValueError with one sentence."""
    tree = study.model_dump() | {"space": study.space, "config": overrides.apply(study.config, settings)}
    for key, value in changes.items():
        section, dot, leaf = key.partition(".")
        if dot:
            tree[section] = tree[section] | {leaf: value}
        else:
            tree[section] = value
    return overrides.validate(Study, tree)


def load(path: Path, profile: str | None, settings: Mapping[str, Any], changes: Mapping[str, Any]) -> tuple[str, Study]:
    """(profile, study) of a file, `changed`; raises ValueError with one sentence."""
    found = profiles(path)
    name, _ = chosen(found, path, profile)
    return name, changed(found[name], settings, changes)


def _line(error: BaseException, path: Path) -> str:
    """The line of the study file in which the error was raised, as the end of a sentence; empty where that is
    unknown."""
    frames = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    number = error.lineno if isinstance(error, SyntaxError) else frames[-1] if frames else None
    return f", line {number}" if number else ""
