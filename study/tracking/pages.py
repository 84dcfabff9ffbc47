"""How a study looks on MLflow's pages: groups of metrics, the view of its runs, datasets, descriptions.

MLflow draws a chart for each metric of a run, in sections: what stands before a metric's last `/` is its section, and
sections and charts are sorted by name. Its table and its comparison of runs begin with the metric that a run has had
first. So the objective is the first metric in both orders, and what is measured once is a tag, which has no chart.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

from trainables.bins import HIGHEST, LOWEST

OBJECTIVE, TRAINING, VALIDATION = "objective", "train", "validation"
"""Sections of metrics, and the order that MLflow shows them in; `system` is MLflow's own, which comes last."""
CURVES = ("train.", "system.")
"""What stands before the names of signals that are measured as a run goes on."""
RANGE = "range"
"""What a section is called, behind the name of its signals' own, that has the ends of each bin of steps."""
STEPS = "steps"
"""The training steps of a trial, which is the one figure of its end that is neither measured nor has a prefix."""
BEST = "best."
"""What stands before the names of the best trial's figures on the study's run."""


@dataclass(frozen=True)
class Subject:
    """What a study is about, as far as its pages show it."""

    question: str = ""
    parameter: str | None = None
    """The key of the config that the study is about."""
    objectives: Mapping[str, str] = field(default_factory=dict)
    """Metric that trials are judged by -> `maximize` or `minimize`, the first one first."""


def metric_key(name: str, objectives: Mapping[str, str]) -> str | None:
    """The name of a metric's curve in MLflow; None for what is measured once.

    >>> [metric_key(name, {"gain": "maximize"}) for name in ("gain", "cost", "train.loss", "test.gain")]
    ['objective/gain', 'validation/cost', 'train/loss', None]
    >>> metric_key("train.loss.max", {})
    'train range/loss.max'
    """
    if name.startswith(CURVES):
        group, _, signal = name.partition(".")
        return f"{group} {RANGE}/{signal}" if signal.endswith((LOWEST, HIGHEST)) else f"{group}/{signal}"
    if "." in name or name == STEPS:
        return None
    return f"{OBJECTIVE if name in objectives else VALIDATION}/{name}"


def figure(value: float) -> str:
    """A figure as the text of a tag.

    >>> figure(0.123456789), figure(4.0), figure(float("nan"))
    ('0.123457', '4', 'nan')
    """
    return f"{value:.6g}" if math.isfinite(value) else str(value)


def page(experiment_id: str, study_id: str) -> str:
    """The page with a study's runs, to be put behind the address of a server.

    >>> page("3", "k-1f2a")
    '#/experiments/3/runs?viewStateShareKey=k-1f2a&workflowType=machine_learning'
    """
    query = urlencode({"viewStateShareKey": study_id, "workflowType": "machine_learning"})
    return f"#/experiments/{experiment_id}/runs?{query}"


def view_tag(subject: Subject, study_id: str) -> tuple[str, str]:
    """(key, value) of the tag of an experiment that makes `page` a table of this study's trials, the best one first,
    with columns for the objectives, the parameter and what became of each."""
    columns = [f"metrics.`{metric_key(name, subject.objectives)}`" for name in subject.objectives]
    columns += [f"params.`{subject.parameter}`"] if subject.parameter else []
    columns += ["tags.`state`"]
    first = next(iter(subject.objectives), None)
    order = {} if first is None else {"orderByKey": columns[0], "orderByAsc": subject.objectives[first] == "minimize"}
    state = {
        "selectedColumns": columns,
        "searchFilter": f"tags.`study.id` = '{study_id}' AND tags.`study.level` != 'replicate'",
        "startTime": "ALL", "lifecycleFilter": "Active", "modelVersionFilter": "All Runs", "datasetsFilter": [],
    }  # fmt: skip
    return f"mlflow.sharedViewState.{study_id}", json.dumps(state | order)


@dataclass(frozen=True)
class InputData:
    """A data set that a study trains on or measures with."""

    name: str
    digest: str
    context: str
    """`training`, or the split that is measured."""
    sizes: Mapping[str, int]


DIGEST_CHARACTERS = 36
"""Characters that MLflow takes for the digest of a data set."""


def inputs_of(facts: Mapping[str, str]) -> list[InputData]:
    """The data sets among the facts of a study: `NAME`, `NAME.identity` and sizes, where NAME ends with the split.

    >>> inputs_of({"data.train": "pairs", "data.train.identity": "1f", "data.train.examples": "9", "python": "3"})
    [InputData(name='pairs', digest='1f', context='training', sizes={'examples': 9})]
    """
    found = []
    for key, identity in facts.items():
        name = key.removesuffix(".identity")
        if name == key or name not in facts:
            continue
        own = {fact.removeprefix(f"{name}."): text for fact, text in facts.items() if fact.startswith(f"{name}.")}
        split = name.rpartition(".")[2]
        found.append(
            InputData(
                name=facts[name],
                digest=identity[:DIGEST_CHARACTERS],
                context=split if split in ("validation", "test") else "training",
                sizes={what: int(count) for what, count in own.items() if count.isdigit()},
            )
        )
    return found


def description(question: str, answer: str | None = None, report: str | None = None) -> str:
    """A run's description, in Markdown; `report` is the address of the page with the answer."""
    parts = [f"**{question}**"] if question else []
    parts += [answer] if answer else []
    parts += [f"[Report]({report})"] if report else []
    return "\n\n".join(parts)


def artifact_page(experiment_id: str, run_id: str, place: str) -> str:
    """The page that shows one artifact of a run, to be put behind the address of a server."""
    return f"#/experiments/{experiment_id}/runs/{run_id}/artifacts/{quote(place)}"
