"""The tables of a study: what their columns are, that they hold what was recorded, and the files of them."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path

import pandas as pd
import pytest

from study.protocol.folder import StudyFolder
from study.protocol.journal import Metrics, encode
from study.protocol.summary import StudySummary, read
from study.reporting import frames

_spec = importlib.util.spec_from_file_location("synthetic_study", Path(__file__).with_name("synthetic_study.py"))
assert _spec is not None and _spec.loader is not None  # noqa: PT018
synthetic = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(synthetic)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> StudyFolder:
    path = tmp_path_factory.mktemp("study")
    synthetic.write_study(path, synthetic.K_STUDY, seeds=2)
    return StudyFolder(path)


@pytest.fixture(scope="module")
def summary(folder: StudyFolder) -> StudySummary:
    return read(folder.summary)


def tables(folder: StudyFolder, summary: StudySummary) -> dict[str, pd.DataFrame]:
    of_summary = {"trials": frames.trials(summary), "replicates": frames.replicates(summary)}
    return of_summary | {"curves": frames.curves(folder), "per_query": frames.per_query(folder)}


def check_columns(table: str, frame: pd.DataFrame) -> None:
    """Each column is one of `TABLES`, in its order, and of its type."""
    declared = {column.name: column for column in frames.TABLES[table]}
    found = []
    for name, dtype in frame.dtypes.items():
        prefix = str(name).partition(".")[0]
        column = declared[{"params": "params.KEY", "metrics": "metrics.NAME"}.get(prefix, str(name))]
        found.append(column.name)
        assert column.name == "params.KEY" or dtype == column.dtype, name
    assert list(dict.fromkeys(found)) == [name for name in declared if name in found]
    assert {name for name in declared if "." not in name} <= set(found)


def test_columns_are_those_that_are_declared(folder: StudyFolder, summary: StudySummary) -> None:
    for table, frame in tables(folder, summary).items():
        assert len(frame)
        check_columns(table, frame)


def test_columns_of_a_study_without_trials(tmp_path: Path) -> None:
    synthetic.write_study(tmp_path, {}, status="running")
    folder = StudyFolder(tmp_path)
    for table, frame in tables(folder, read(folder.summary)).items():
        assert len(frame) == 0
        check_columns(table, frame)


def test_trials_and_replicates_are_those_of_the_summary(summary: StudySummary) -> None:
    trials, replicates = frames.trials(summary), frames.replicates(summary)
    assert list(trials["params.k"]) == list(synthetic.K_STUDY)
    assert list(trials[trials.best].trial) == list(summary.best)
    assert list(trials.columns[5:7]) == ["params.k", "metrics.ndcg_at_10"]
    assert list(trials.seeds[:2]) == ["0", "0 1"]
    assert trials.reason.isna().sum() == sum(trial.reason is None for trial in summary.trials)
    pruned = trials[trials.state == "pruned"].iloc[0]
    assert math.isnan(pruned["metrics.test.ndcg_at_10"])
    assert pruned["steps"] == 100
    means = replicates.groupby("trial")["metrics.test.ndcg_at_10"].mean().dropna()
    whole = trials.set_index("trial")["metrics.test.ndcg_at_10"].dropna()
    pd.testing.assert_series_equal(means, whole)


def test_curves_are_those_of_the_journal(folder: StudyFolder, summary: StudySummary) -> None:
    curves = frames.curves(folder)
    recorded = [
        (entry.trial, entry.replicate, record["step"], metric, value)
        for entry in folder.entries(Metrics)
        for record in entry.records
        for metric, value in record["metrics"].items()
    ]
    expected = pd.DataFrame(recorded, columns=curves.columns)
    pd.testing.assert_frame_equal(
        curves.astype({"metric": "str"}), expected.astype({"metric": "str"}), check_dtype=False
    )
    assert {"train.loss", "ndcg_at_10"} <= set(curves.metric)
    assert curves[(curves.trial == 0) & (curves.metric == "train.loss")].value.isna().sum() == 1


def test_curves_in_several_batches(folder: StudyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = frames.curves(folder)
    monkeypatch.setattr(frames, "ROWS", 100)
    pd.testing.assert_frame_equal(frames.curves(folder), whole)


def test_values_per_query_are_those_of_the_results(folder: StudyFolder, summary: StudySummary) -> None:
    values = frames.per_query(folder)
    assert set(values.split) == {"test", "untrained.test"}
    one = values[(values.trial == 3) & (values.replicate == 1) & (values.split == "test")]
    path = folder.replicate(3, 1).result
    expected = json.loads(path.read_text())["per_item"]["test"]["ndcg_at_10"]
    assert dict(zip(one["item"], one["value"], strict=True)) == expected
    assert one.value.mean() == pytest.approx(summary.trials[3].replicates[1].values["test.ndcg_at_10"])


def test_files_hold_the_same_tables(tmp_path: Path) -> None:
    synthetic.write_study(tmp_path, synthetic.K_STUDY)
    with (tmp_path / "journal.jsonl").open("a") as journal:
        journal.write(encode(Metrics(1, 0, [{"step": 201, "time": 0, "metrics": {"train.loss": math.inf}}])))
    folder = StudyFolder(tmp_path)
    frames.write(folder, read(folder.summary))
    trials, curves = pd.read_csv(folder.trials_table), pd.read_csv(folder.curves_table)
    expected = frames.trials(read(folder.summary))
    pd.testing.assert_frame_equal(trials[["trial", "params.k", "steps"]], expected[["trial", "params.k", "steps"]])
    assert list(trials.reason.dropna()) == list(expected.reason.dropna())
    pd.testing.assert_frame_equal(curves, frames.curves(folder), check_dtype=False, check_categorical=False)
    assert curves.value.iloc[-1] == math.inf
    pd.testing.assert_frame_equal(
        pd.read_parquet(folder.per_query_table).astype({"item": "str", "split": "str", "metric": "str"}),
        frames.per_query(folder).astype({"item": "str", "split": "str", "metric": "str"}),
    )


def test_a_damaged_result_is_named(tmp_path: Path) -> None:
    synthetic.write_study(tmp_path, {1.0: {"test": 0.4, "untrained": 0.2}})
    result = StudyFolder(tmp_path).replicate(0, 0).result
    result.write_text("{")
    with pytest.raises(ValueError, match=f"{result} is not the result of a replicate"):
        frames.per_query(StudyFolder(tmp_path))
