"""A study's figures as tables: pandas DataFrames, and the files of them that lie beside the report.

`TABLES` says what each column is. Names of metrics are those of `summary.json` and of the journal: `test.` and
`untrained.` stand before what was measured on test items and before training, `train.` before signals of the steps.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import csv, parquet

from study.protocol import journal, per_item
from study.protocol.folder import StudyFolder
from study.protocol.summary import ReplicateSummary, StudySummary, TrialSummary
from trainables.files import replacing

ROWS = 1 << 17
"""Rows of a curve that are held at a time while the file of them is written."""


@dataclass(frozen=True)
class Column:
    """One column of a table, or one for each key where the name ends with KEY or NAME."""

    name: str
    dtype: str
    meaning: str


_TRIAL = Column("trial", "int64", "Number of the trial, from 0.")
_REPLICATE = "Which of the trial's replicates, from 0."
_METRICS = "The metric NAME"
_OF_A_REPLICATE = (Column("trial", "int32", _TRIAL.meaning), Column("replicate", "int32", _REPLICATE))

TABLES: dict[str, tuple[Column, ...]] = {
    "trials": (
        _TRIAL,
        Column("group", "string", "Its group; missing in a study without groups."),
        Column("state", "string", "What has become of the trial."),
        Column(
            "best", "bool", "Whether it is the best trial, or on the Pareto front of several objectives; of its group."
        ),
        Column("control", "bool", "Whether it is a control: an arm to compare with, outside the search."),
        Column("params.KEY", "as its values", "The parameter KEY; missing where the space left it out."),
        Column("metrics.NAME", "float64", f"{_METRICS}, the mean over replicates; missing where it was not measured."),
        Column("steps", "int64", "Training steps done, over all replicates."),
        Column("planned_steps", "int64", "Training steps of all planned replicates."),
        Column("replicates", "int64", "Replicates that have ended."),
        Column("seeds", "string", "Seeds of these, a space between."),
        Column("attempts", "int64", "Gangs that took the trial over, one after the other."),
        Column("worker_seconds", "float64", "Seconds that its gangs were held, times their workers."),
        Column("saved_worker_seconds", "float64", "Worker-seconds that ending early did not spend."),
        Column("gpu_hours", "float64", "GPU-hours that its gangs were held."),
        Column("retry_of", "Int64", "The failed trial that this one runs again."),
        Column("reason", "string", "Why it is in this state, where there is more to say."),
        Column("checkpoint", "string", "Its model or newest checkpoint: a path in the study's folder, or a URI."),
        Column("run_id", "string", "Its run on the tracking server."),
    ),
    "replicates": (
        _TRIAL,
        Column("replicate", "int64", _REPLICATE),
        Column("seed", "int64", "Its seed."),
        Column("metrics.NAME", "float64", f"{_METRICS} of this replicate."),
    ),
    "confirmation": (
        Column("confirms", "int64", "Number of the trial of the search that was run again."),
        _TRIAL,
        Column("replicate", "int64", _REPLICATE),
        Column("seed", "int64", "The fresh seed, the same for all."),
        Column("group", "string", "Its group; missing in a study without groups."),
        Column("control", "bool", "Whether it is a control."),
        Column("winner", "bool", "Whether the trial of the search is the one that the confirmation names, so far."),
        Column("params.KEY", "as its values", "The parameter KEY."),
        Column("metrics.NAME", "float64", f"{_METRICS} of this replicate."),
    ),
    "curves": (
        *_OF_A_REPLICATE,
        Column("step", "int32", "Steps done when it was measured; 0 is the untrained model."),
        Column("metric", "category", "What was measured: a signal such as `train.loss` or `train.loss.max`, a metric."),
        Column("value", "float64", "Its value, which may be nan or infinite."),
    ),
    "per_query": (
        *_OF_A_REPLICATE,
        Column("split", "category", "Where it was measured: `test`, `validation`, `untrained.test` and so on."),
        Column("metric", "category", "The metric, without the split."),
        Column("item", "category", "Id of the query, or of the pair."),
        Column("value", "float64", "The metric of this query or pair alone."),
    ),
}
"""Table -> its columns, in their order."""

_INDEX = pa.dictionary(pa.int32(), pa.string())
_TYPES = {"int32": pa.int32(), "float64": pa.float64(), "category": _INDEX}


def trials(summary: StudySummary) -> pd.DataFrame:
    """One row per trial."""
    found = summary.trials
    keys = dict.fromkeys(key for trial in found for key in trial.params)
    values = {
        "trial": [trial.number for trial in found],
        "best": [trial.number in summary.best for trial in found],
        "replicates": [len(trial.replicates) for trial in found],
        "seeds": [" ".join(str(replicate.seed) for replicate in trial.replicates) for trial in found],
    }
    columns: dict[str, pd.Series] = {}
    for column in TABLES["trials"]:
        if column.name == "params.KEY":
            columns |= {f"params.{key}": pd.Series([trial.params.get(key) for trial in found]) for key in keys}
        elif column.name == "metrics.NAME":
            columns |= _metrics(summary, found)
        else:
            own = column.name not in values
            of_trials = [getattr(trial, column.name) for trial in found] if own else values[column.name]
            columns[column.name] = pd.Series(of_trials, dtype=column.dtype)
    return pd.DataFrame(columns)


def replicates(summary: StudySummary) -> pd.DataFrame:
    """One row per replicate that has ended."""
    rows = [(trial.number, r, one.seed) for trial in summary.trials for r, one in enumerate(trial.replicates)]
    names = ("trial", "replicate", "seed")
    columns = {name: pd.Series([row[i] for row in rows], dtype="int64") for i, name in enumerate(names)}
    measured = [replicate for trial in summary.trials for replicate in trial.replicates]
    return pd.DataFrame(columns | _metrics(summary, measured))


def confirmation(summary: StudySummary) -> pd.DataFrame:
    """One row per fresh seed that has ended of each trial that is confirmed; none where nothing is."""
    found = summary.confirmation
    runs = found.runs if found else ()
    winners = {group.winner for group in found.groups} if found else set()
    rows = [(run, place, one) for run in runs for place, one in enumerate(run.replicates)]
    values: dict[str, list[Any]] = {
        "confirms": [run.confirms for run, _, _ in rows],
        "trial": [run.number for run, _, _ in rows],
        "replicate": [place for _, place, _ in rows],
        "seed": [one.seed for _, _, one in rows],
        "group": [run.group for run, _, _ in rows],
        "control": [run.control for run, _, _ in rows],
        "winner": [run.confirms in winners for run, _, _ in rows],
    }
    columns = {
        column.name: pd.Series(values[column.name], dtype=column.dtype)
        for column in TABLES["confirmation"]
        if column.name in values
    }
    keys = dict.fromkeys(key for run, _, _ in rows for key in run.params)
    columns |= {f"params.{key}": pd.Series([run.params.get(key) for run, _, _ in rows]) for key in keys}
    return pd.DataFrame(columns | _metrics(summary, [one for _, _, one in rows]))


def curves(storage: StudyFolder) -> pd.DataFrame:
    """One row per replicate, step and metric, in the order of the journal, which may be growing.

    Raises `protocol.journal.Unreadable` where the journal is damaged.
    """
    return _frame("curves", _curves(storage))


def per_query(storage: StudyFolder) -> pd.DataFrame:
    """One row per finished replicate, split, metric and query or pair.

    Raises a ValueError that names the file where the result of a replicate is damaged.
    """
    return _frame("per_query", _per_query(storage))


def write(storage: StudyFolder, summary: StudySummary) -> None:
    """Write the tables beside the report: `trials.csv`, `curves.csv` and `per_query.parquet`.

    No more than one replicate's values per query, or `ROWS` rows of the curves, are held at a time. Raises as
    `curves` and `per_query`, and OSError.
    """
    with replacing(storage.trials_table) as aside:
        trials(summary).to_csv(aside, index=False)
    with replacing(storage.curves_table) as aside, csv.CSVWriter(aside, schema("curves")) as sheet:
        for batch in _curves(storage):
            sheet.write(batch)
    with (
        replacing(storage.per_query_table) as aside,
        parquet.ParquetWriter(aside, schema("per_query"), compression="zstd") as file,
    ):
        for batch in _per_query(storage):
            file.write(batch)


def schema(table: str) -> pa.Schema:
    """The types of a table in Arrow's words; texts are indices into a dictionary."""
    return pa.schema([(column.name, _TYPES[column.dtype]) for column in TABLES[table]])


def _metrics(
    summary: StudySummary, measured: Sequence[TrialSummary] | Sequence[ReplicateSummary]
) -> dict[str, pd.Series]:
    """A column for each metric of what has `values`, the objectives first."""
    found = dict.fromkeys(name for one in measured for name in one.values)
    first = [objective.name for objective in summary.objectives if objective.name in found]
    return {
        f"metrics.{name}": pd.Series([one.values.get(name) for one in measured], dtype="float64")
        for name in dict.fromkeys([*first, *found])
    }


def _frame(table: str, batches: Iterable[pa.RecordBatch]) -> pd.DataFrame:
    return pa.Table.from_batches(batches, schema(table)).unify_dictionaries().to_pandas()


class _Texts:
    """Texts of a column as indices: each text is kept once."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}

    def index(self, text: str) -> int:
        return self.known.setdefault(text, len(self.known))

    def column(self, indices: Any) -> pa.DictionaryArray:
        return pa.DictionaryArray.from_arrays(
            pa.array(np.asarray(indices, np.int32)), pa.array(list(self.known), pa.string())
        )


def _curves(storage: StudyFolder) -> Iterator[pa.RecordBatch]:
    texts, rows = _Texts(), _Rows()
    for entry in storage.entries(journal.Metrics):
        for record in entry.records:
            metrics = record["metrics"]
            rows.trials.extend([entry.trial] * len(metrics))
            rows.replicates.extend([entry.replicate] * len(metrics))
            rows.steps.extend([record["step"]] * len(metrics))
            rows.names.extend(map(texts.index, metrics))
            rows.values.extend(metrics.values())
        if len(rows.values) >= ROWS:
            yield rows.batch(texts)
            rows = _Rows()
    if rows.values:
        yield rows.batch(texts)


class _Rows:
    """Some rows of the curves, as packed numbers: a study has millions."""

    def __init__(self) -> None:
        self.trials, self.replicates, self.steps, self.names = (array("i") for _ in range(4))
        self.values = array("d")

    def batch(self, texts: _Texts) -> pa.RecordBatch:
        whole = [pa.array(np.asarray(column)) for column in (self.trials, self.replicates, self.steps)]
        columns = [*whole, texts.column(self.names), pa.array(np.asarray(self.values))]
        return pa.RecordBatch.from_arrays(columns, schema=schema("curves"))


def _per_query(storage: StudyFolder) -> Iterator[pa.RecordBatch]:
    splits, metrics, items = _Texts(), _Texts(), _Texts()
    for replicate in storage.replicates():
        measured = [
            (splits.index(split), metrics.index(metric), values)
            for split, of_split in per_item.read(replicate).items()
            for metric, values in of_split.items()
        ]
        sizes = [len(values) for *_, values in measured]
        rows = sum(sizes)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(np.full(rows, replicate.trial, np.int32)),
                pa.array(np.full(rows, replicate.number, np.int32)),
                splits.column(np.repeat([split for split, *_ in measured], sizes)),
                metrics.column(np.repeat([metric for _, metric, _ in measured], sizes)),
                items.column([items.index(item) for *_, values in measured for item in values]),
                pa.array([value for *_, values in measured for value in values.values()], pa.float64()),
            ],
            schema=schema("per_query"),
        )
