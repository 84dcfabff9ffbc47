"""What `--dry-run` prints: the study as it would be run, and what it would cost."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from study.ledger import optuna_study
from study.ledger.retention import most_kept
from study.ledger.space import explore
from study.planning import power, pruning
from study.planning.estimate import estimate
from study.protocol.destinations import Destinations, shared_tracking
from study.spec import Resources, Study
from study.uris import redacted
from trainables import overrides, paths

HEAD_PROCESSES, HEAD_MIB_PER_TRIAL, HEAD_MIB = 3, 370, 1000
"""Per running trial: Tune's function, Train's controller and its barrier of workers, and what they hold alone (146, 116
and 107 MiB with Ray 2.60); beside them the ledger, the command and Ray's own processes."""


def plan(
    name: str,
    profile: str,
    study: Study,
    destinations: Destinations,
    outlook: optuna_study.Outlook | None,
    moves: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    fruitless: int = 0,
    cards: str | None = None,
    keep: int | None = None,
) -> str:
    """What `--dry-run` prints; without an `outlook` and `cards` where ledger and trials are elsewhere.

    Where `destinations` name no tracking store, the head of a cluster decides on it.
    `moves` are inputs that are elsewhere now, see `ledger/moved.py`; `fruitless` is the number of failed trials of a
    study that is begun again; `keep` is how many best trials of each group keep their models, None keeps all.
    """
    space = explore(study)
    first = [*study.controls, *study.points, *({} for _ in range(study.budget.trials))][: study.budget.trials]
    each = [overrides.apply(study.config, group | values).total_steps for group in study.groups for values in first]
    steps = sum(each) * study.replicates
    per_trial = f"{min(each):,}" if len(set(each)) == 1 else f"{min(each):,} to {max(each):,}"
    lines = [
        f"study       {name}, profile {profile}: {study.question}",
        f"trainer     {study.trainer}",
        "objective   " + ", ".join(f"{o.direction} {o.name}" for o in study.objectives),
        "space       " + "; ".join(f"{key} in {_range(found)}" for key, found in space.items()),
    ]
    if study.group is not None:
        lines.append(f"groups      {study.group.key}: {', '.join(study.group.names)}, each with a search of its own")
    if study.controls:
        lines.append(_wrapped("controls    " + ", ".join(_point(p) for p in study.controls)))
    of_each = "" if study.group is None else f"{len(study.groups)} groups x "
    if study.points:
        points = ", ".join(_point(p) for p in study.points)
        lines.append(_wrapped(f"first       {len(study.points)} given points: {points}"))
    lines += [
        f"sampler     {study.sampler}, pruner {study.pruner.kind}, seed {study.seed}",
        *pruning.outlook(study),
        f"trials      {of_each}{study.budget.trials} x {study.replicates} replicate(s) x {per_trial} steps = "
        f"{steps:,} steps, about {steps * study.config.batch_size:,} examples",
        *_confirmation(study),
        *power.outlook(study),
        f"gang        {_gang(study.resources)}",
        *([f"GPUs        {cards}"] if cards else []),
        *(estimate(study, keep) if study.resources.gpus_per_worker else ()),
        f"head        {_head(study)}",
        f"kept        {_kept(study, keep)}",
        f"storage     {destinations.storage}",
        *([f"checkpoints {destinations.checkpoints}"] if destinations.checkpoints else []),
        f"tracking    {_tracking(destinations)}",
    ]
    if outlook is not None:
        lines.append(f"ledger      {_outlook(outlook)}")
    if fruitless:
        lines.append(f"begun again ({fruitless} trial(s) failed before their first step; they are kept beside)")
    for key, names in moves.items():
        lines += [f"moved       {key}: {old} -> {new}, if the content is the same" for old, new in names.items()]
    lines.append("config")
    settings = {key: paths.value_of(study.config, key) for key in overrides.keys(study.config) if key != "cache"}
    if study.group is not None:
        settings[study.group.key] = "that of its group"
    lines += [f"  {key} = {value}" for key, value in settings.items()]
    return "\n".join(lines)


def _head(study: Study) -> str:
    """What the processes that start, watch and record trials take where the study runs; workers are not among them."""
    most = study.resources.concurrency or study.trials
    said = "" if study.resources.concurrency else ", if there is room for all"
    memory = (HEAD_MIB + most * HEAD_MIB_PER_TRIAL) / 1024
    return f"about {memory:.1f} GiB for {most} trial(s) at a time{said}: {HEAD_PROCESSES} small processes each"


def _kept(study: Study, keep: int | None) -> str:
    most = most_kept(study, keep)
    if most == study.trials:
        return f"the models of all {most} trial(s)"
    return (
        f"the models of {most} of {study.trials} trials, and of those that nothing surpasses at their cost; "
        "results and logs of all"
    )


def _wrapped(line: str) -> str:
    """A line of the plan as several where it is long, the later ones below its text."""
    return textwrap.fill(line, 120, subsequent_indent=" " * 12, break_long_words=False, break_on_hyphens=False)


def _confirmation(study: Study) -> list[str]:
    """What is run again when the search is over, and what that takes."""
    if study.confirm is None:
        return []
    each = study.confirmations // len(study.groups)
    own = f"the best {each - len(study.controls)} and {len(study.controls)} control(s)"
    of_each = "" if study.group is None else f"{len(study.groups)} groups x "
    steps = study.confirmations * study.confirm.seeds * study.config.total_steps
    first = study.seed + study.replicates
    line = (
        f"confirm     then {of_each}{own} with {study.confirm.seeds} fresh seeds from {first}: {steps:,} steps more, "
        f"{study.reserved:.0%} of all"
    )
    hours = study.budget.wall_clock_s or study.budget.worker_hours or study.budget.gpu_hours
    return [_wrapped(line + ("; that share of a budget in hours is kept for it" if hours else ""))]


def _tracking(destinations: Destinations) -> str:
    if destinations.tracking is not None:
        return redacted(destinations.tracking)
    return f"$MLFLOW_TRACKING_URI of the head, else {shared_tracking(destinations.storage)}"


def _outlook(outlook: optuna_study.Outlook) -> str:
    done = ", ".join(f"{count} {state}" for state, count in sorted(outlook.states.items())) or "nothing yet"
    left = [f"{outlook.new} new"] if outlook.new else []
    if outlook.interrupted:
        left.insert(0, "carry on " + ", ".join(map(str, outlook.interrupted)))
    if outlook.confirming:
        left.append(f"{outlook.confirming} to confirm the search" if outlook.new == 0 else "what confirms the search")
    return f"{done}; to do: {', then '.join(left) or 'nothing'}"


def _gang(wanted: Resources) -> str:
    text = f"{wanted.workers} worker(s) with {wanted.cpus_per_worker:g} CPU and {wanted.gpus_per_worker:g} GPU each"
    if wanted.workers > 1:
        text += f", placement {wanted.placement}"
    if wanted.accelerator:
        text += f", on {wanted.accelerator}"
    if wanted.labels:
        text += ", on nodes with " + ", ".join(f"{key}={value}" for key, value in wanted.labels.items())
    return text


def _range(found: Any) -> str:
    if hasattr(found, "choices"):
        return "{" + ", ".join(map(str, found.choices)) + "}"
    return f"[{found.low:g}, {found.high:g}]" + (" log" if found.log else "")


def _point(point: dict[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in point.items())
