"""Full evaluations in MLflow: metrics `SUITE.COLLECTION.METRIC` of the trials' runs, tables on the study's run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from study.protocol.summary import TrialSummary
from study.tracking.mlflow_runs import accepted, connect

PLACE = "evaluation"
"""Folder of the tables among the artifacts of the study's run."""


def record(
    uri: str,
    run_id: str,
    trials: Mapping[str, TrialSummary],
    suite: str,
    values: Mapping[int, Mapping[str, Mapping[str, float]]],
    times: Mapping[int, int],
    files: Sequence[Path],
) -> None:
    """Record `values`, trial -> collection -> metric -> value, measured at `times`, milliseconds since the epoch.

    `run_id` is the study's run, `trials` are those that were measured, by their runs. Recording the same once more
    changes nothing: MLflow keeps one point of what is equal in name, step, time and value. Raises MLflow's own errors.
    """
    from mlflow.entities import Metric

    client = connect(uri)
    for own_run_id, trial in trials.items():
        number = trial.number
        points = [
            Metric(accepted(f"{suite}.{collection}.{name}"), value, times[number], trial.steps)
            for collection, measured in values[number].items()
            for name, value in measured.items()
        ]
        client.log_batch(own_run_id, metrics=points)
    for file in files:
        client.log_artifact(run_id, str(file), PLACE)
