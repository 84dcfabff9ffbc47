"""What a tracking store says of one run, asked in milliseconds: MLflow itself takes seconds to import."""

from __future__ import annotations

from urllib.parse import quote

import sqlalchemy
from sqlalchemy import column, select, table
from sqlalchemy.exc import SQLAlchemyError

from study.databases import patience
from study.tracking.uri_check import get
from study.uris import sqlite_path, with_driver

_RUNS = table("runs", column("run_uuid"), column("lifecycle_stage"))
_TAGS = table("tags", column("run_uuid"), column("key"), column("value"))
"""The columns that are read here of two tables of MLflow's own schema."""


def run_tags(uri: str, run_id: str) -> dict[str, str] | None:
    """Tags of a run; None where the store has no such run, only a deleted one, or cannot be asked just now."""
    try:
        return _served(uri, run_id) if uri.startswith("http") else _stored(uri, run_id)
    except (SQLAlchemyError, ValueError):
        # Not an error here: the tracker asks again, as long as it takes.
        return None


def _stored(uri: str, run_id: str) -> dict[str, str] | None:
    path = sqlite_path(uri)
    if path is not None and not path.exists():
        return None
    url = with_driver(uri)
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool, connect_args=patience(url))
    with engine.connect() as connection:
        stage = connection.scalar(select(_RUNS.c.lifecycle_stage).where(_RUNS.c.run_uuid == run_id))
        if stage != "active":
            return None
        found = connection.execute(select(_TAGS.c.key, _TAGS.c.value).where(_TAGS.c.run_uuid == run_id))
        return {tag.key: tag.value for tag in found}


def _served(uri: str, run_id: str) -> dict[str, str] | None:
    answer = get(uri, f"/api/2.0/mlflow/runs/get?run_id={quote(run_id)}", timeout_s=5.0)
    if answer.status_code != 200:
        return None
    run = answer.json()["run"]
    if run["info"]["lifecycle_stage"] != "active":
        return None
    return {tag["key"]: tag["value"] for tag in run["data"].get("tags", ())}
