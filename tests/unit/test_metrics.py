"""What a study shows of a metric follows from what its recipe declares, and from nothing else."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import synthetic_study as synthetic

from study.protocol.folder import StudyFolder
from study.reporting.metrics import DeclaredMetrics
from study.reporting.page import write as write_report
from trainables.report import Correlation, Metric

ROOT = Path(__file__).resolve().parents[2]
DECLARED = {
    "gain": Metric(label="Gain", meaning="what is gained"),
    "gain_8": Metric(label="Gain 8", meaning="what is gained", of="gain", size=8,
                     correlation=Correlation(kind="rank", one="a", other="b")),
    "gain_4": Metric(label="Gain 4", meaning="what is gained", of="gain", size=4),
    "bytes": Metric(label="kB", meaning="what is kept", direction="minimize", decimals=1, cost=True),
    "width": Metric(label="Width", meaning="how wide it is", column=True),
}  # fmt: skip


def test_what_is_declared_is_what_is_shown() -> None:
    metrics = DeclaredMetrics(DECLARED)
    assert (metrics.label("untrained.test.gain"), metrics.label("gain")) == ("untrained test Gain", "Gain")
    assert (metrics.show("test.bytes", 1234.56), metrics.show("gain", 0.43149)) == ("1,234.6", "0.431")
    assert metrics.show("bytes", None) == "–"
    assert (metrics.cost, metrics.columns) == ("bytes", ["width"])
    assert (metrics.more("test.gain"), metrics.more("bytes"), metrics.more("unknown")) == (True, False, True)
    assert metrics.meanings(["gain", "test.gain", "loss"]) == {"Gain": "what is gained"}


def test_sizes_are_those_of_the_metric_on_the_same_split() -> None:
    metrics = DeclaredMetrics(DECLARED)
    assert metrics.sizes("test.gain") == {4: "test.gain_4", 8: "test.gain_8"}
    assert metrics.sizes("bytes") == {}
    assert metrics.correlation("test.gain_8").kind == "rank"
    assert metrics.correlation("gain_4") is None


@pytest.mark.parametrize("declared", [True, False])
def test_a_report_has_the_costs_and_columns_of_its_recipe(tmp_path, declared) -> None:
    """Without a declaration, as in a summary of an older version, the values are there under their plain names."""
    synthetic.write_study(tmp_path, synthetic.K_STUDY)
    path = tmp_path / "summary.json"
    summary = json.loads(path.read_text())
    named = {"flops": DECLARED["bytes"], "active_query": DECLARED["width"], "ndcg_at_10": DECLARED["gain"]}
    summary["metrics"] = {name: metric.model_dump() for name, metric in named.items()} if declared else {}
    path.write_text(json.dumps(summary))
    page = write_report(StudyFolder(tmp_path)).read_text()
    assert (">kB</th>" in page, ">Width</th>" in page, "Gain against kB" in page) == (declared,) * 3
    assert ("<dt>Gain</dt>" in page, "test ndcg@10" in page) == (declared, not declared)
    assert "FLOPS" not in page


def test_study_names_no_metric() -> None:
    """Outside of docstrings and examples; what there is to say of one is said by its recipe."""
    words = "flops|ndcg|mrr|recall|spearman|pearson|active_"
    command = ["grep", "-rnE", words, "study", "--include=*.py", "--include=*.jinja"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.splitlines()
    assert found == []
