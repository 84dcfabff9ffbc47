"""A study with groups on the real command line: what is best for each backbone follows from the scale of its head."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import four_backbones as known
import launches
import pytest
from mlflow.tracking import MlflowClient

from study.protocol.folder import StudyFolder
from study.protocol.states import TrialState
from study.protocol.summary import StudySummary, TrialSummary, read
from tests.scaled_heads import write_scaled_head

pytestmark = pytest.mark.chaos


@pytest.mark.timeout(900)
def test_each_backbone_is_answered_with_what_its_head_needs(tmp_path: Path) -> None:
    shutil.copy(launches.TINY.with_name("four_backbones.py"), tmp_path)
    for scale in known.SCALES:
        write_scaled_head(tmp_path / "models" / f"times {scale}", scale)
    done = subprocess.run(
        [sys.executable, "-m", "study.run", "four_backbones.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    storage = StudyFolder(tmp_path / "studies" / "four_backbones")
    summary = read(storage.summary)
    found = _by_scale(summary)
    assert len(found) == len(known.SCALES) * (1 + len(known.GRID))
    _only_the_quotient_counts(found)
    _the_best_of_the_first_says_the_others(summary, found)
    assert all(found[4096, k].state == TrialState.COLLAPSED for k in (1.0, *known.GRID))
    assert "[12/12]" in done.stdout
    assert "times-4096 none (3 collapsed)" in storage.report.read_text()
    assert storage.figure("groups").exists()
    client = MlflowClient(f"sqlite:///{tmp_path / 'studies' / 'mlflow.db'}")
    for (scale, _), trial in found.items():
        assert client.get_run(trial.run_id).data.tags["group"] == f"times-{scale}"


def _by_scale(summary: StudySummary) -> dict[tuple[int, float], TrialSummary]:
    """(scale, k) -> trial."""
    return {(int(str(t.group).removeprefix("times-")), float(t.params["k"])): t for t in summary.trials}


def _only_the_quotient_counts(found: dict[tuple[int, float], TrialSummary]) -> None:
    """Equal k / scale: equal values to the last bit, but for the norm of the head before it was rescaled."""
    pairs = [(one, other) for one in found for other in found if one < other and one[1] / one[0] == other[1] / other[0]]
    assert len(pairs) >= 5
    for one, other in pairs:
        first, second = (
            {k: v for k, v in found[key].values.items() if "backbone_head" not in k} for key in (one, other)
        )
        assert first == second, (one, other)
        assert found[one].values["untrained.backbone_head_row"] * other[0] == pytest.approx(
            found[other].values["untrained.backbone_head_row"] * one[0]
        )


def _the_best_of_the_first_says_the_others(summary: StudySummary, found: dict[tuple[int, float], TrialSummary]) -> None:
    for group, scale in zip(summary.groups, known.SCALES, strict=True):
        values = {k: found[scale, k].values.get("ndcg_at_10") for k in known.GRID}
        complete = {k: v for k, v in values.items() if found[scale, k].state == TrialState.COMPLETE}
        best = [max(complete, key=lambda k: complete[k] or 0.0)] if complete else []
        assert [summary.trials[number].params["k"] for number in group.best] == best
