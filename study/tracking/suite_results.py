"""Full evaluations in MLflow: tags `SUITE.COLLECTION.METRIC` of the trials' runs, tables on the study's run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from study.protocol.summary import TrialSummary
from study.tracking.mlflow_runs import connect, tag_items
from study.tracking.pages import figure

PLACE = "evaluation"
"""Folder of the tables among the artifacts of the study's run."""


def record(
    uri: str,
    run_id: str,
    trials: Mapping[str, TrialSummary],
    suite: str,
    values: Mapping[int, Mapping[str, Mapping[str, float]]],
    files: Sequence[Path],
) -> None:
    """Record `values`, trial -> collection -> metric -> value, and the tables in `files`.

    `run_id` is the study's run, `trials` are those that were measured, by their runs. Recording the same once more
    changes nothing. Raises MLflow's own errors.
    """
    client = connect(uri)
    for own_run_id, trial in trials.items():
        figures = {
            f"{suite}.{collection}.{name}": figure(value)
            for collection, measured in values[trial.number].items()
            for name, value in measured.items()
        }
        client.log_batch(own_run_id, tags=tag_items(figures))
    for file in files:
        client.log_artifact(run_id, str(file), PLACE)
