"""Full evaluations in MLflow: metrics `SUITE.COLLECTION.METRIC` of the trials' runs, tables on the study's run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from study.tracking_runs import accepted, connect

PLACE = "evaluation"
"""Folder of the tables among the artifacts of the study's run."""


def record(
    uri: str,
    parent_run_id: str,
    trials: Sequence[Mapping[str, Any]],
    suite: str,
    values: Mapping[int, Mapping[str, Mapping[str, float]]],
    times: Mapping[int, int],
    files: Sequence[Path],
) -> None:
    """Record `values`, trial -> collection -> metric -> value, measured at `times`, milliseconds since the epoch.

    Recording the same once more changes nothing: MLflow keeps one point of what is equal in name, step, time and
    value. Raises MLflow's own errors.
    """
    from mlflow.entities import Metric

    client = connect(uri)
    for trial in trials:
        number = trial["number"]
        points = [
            Metric(accepted(f"{suite}.{collection}.{name}"), value, times[number], trial["steps"])
            for collection, measured in values[number].items()
            for name, value in measured.items()
        ]
        client.log_batch(trial["mlflow_run_id"], metrics=points)
    for file in files:
        client.log_artifact(parent_run_id, str(file), PLACE)
