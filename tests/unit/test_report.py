"""The report says what the numbers say: answers, intervals, tests and figures of studies of known values."""

from __future__ import annotations

import csv
import importlib.util
import json
import math
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from statistics import fmean

import pytest
import scipy.stats

from study import report
from study.protocol.folder import StudyFolder
from study.protocol.journal import Metrics, encode
from study.protocol.summary import ObjectiveSummary, Tracking, read
from study.reporting.conclusions import accounts, answer, caveats, notes
from study.reporting.origin import origin
from study.reporting.page import write as write_report
from study.reporting.page import write_while_running
from study.reporting.results import Findings
from study.stats import significance

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("synthetic_study", Path(__file__).with_name("synthetic_study.py"))
assert _spec is not None and _spec.loader is not None  # noqa: PT018
synthetic = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(synthetic)
K_STUDY, write_study = synthetic.K_STUDY, synthetic.write_study


@pytest.fixture
def k_study(tmp_path: Path) -> Findings:
    write_study(tmp_path, K_STUDY)
    return Findings(StudyFolder(tmp_path))


def test_mean_agrees_with_scipy() -> None:
    values = list(synthetic.spread(0.1, 3).values())
    found = significance.mean(values)
    reference = scipy.stats.ttest_1samp(values, 0.0)
    interval = reference.confidence_interval(0.95)
    assert found.p == pytest.approx(reference.pvalue, rel=1e-9)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-9)


def test_mean_of_equal_and_of_too_few_values() -> None:
    assert significance.mean([0.0, 0.0, 0.0]).p == 1.0
    assert significance.mean([0.5, 0.5, 0.5]).p == 0.0
    with pytest.raises(ValueError, match="at least 2 values, got 1"):
        significance.mean([0.5])


def test_holm_is_monotone_capped_and_keeps_the_order() -> None:
    assert significance.holm([0.04, 0.001, 0.5, 0.03]) == pytest.approx([0.09, 0.004, 0.5, 0.09])
    assert significance.holm([0.6, 0.7]) == [1.0, 1.0]
    assert significance.holm([]) == []


def test_answer_of_a_finished_study(k_study: Findings) -> None:
    text = answer(k_study)
    assert text.startswith("Best k = 2: test nDCG@10 0.431 (95% CI 0.4")
    assert "over 200 queries), +0.212 over the best untrained k (k = 2, 0.219; paired p < 0.001); BM25 0.400." in text
    assert accounts(k_study.summary) == (
        "9 trials: 5 complete, 1 pruned, 3 collapsed. 312 worker-seconds used, 95 saved by stopping early."
    )
    assert any("cannot be told apart from k = 1" in caveat for caveat in caveats(k_study))
    assert caveats(k_study)[-1] == "One seed per trial: differences between trials include seed noise."


def test_interval_and_comparisons_come_from_the_per_query_values(k_study: Findings, tmp_path: Path) -> None:
    def items(trial: int) -> dict[str, float]:
        path = tmp_path / "trials" / f"{trial:04d}" / "replicate-0" / "result.json"
        return json.loads(path.read_text())["per_item"]["test"]["ndcg_at_10"]

    best, other = items(3), items(5)
    assert k_study.interval is not None
    assert k_study.interval.value == pytest.approx(fmean(best.values()))
    reference = scipy.stats.ttest_rel([best[q] for q in best], [other[q] for q in best])
    found = next(c for c in k_study.comparisons if c.name == "k = 8")
    assert found.gap.p == pytest.approx(reference.pvalue, rel=1e-9)
    assert found.gap.value == pytest.approx(0.431 - 0.285)
    assert found.distinct
    assert {c.name for c in k_study.comparisons} == {"k = 0.5", "k = 1", "k = 4", "k = 8", "untrained, k = 2"}


def test_replicates_are_averaged_per_query(tmp_path: Path) -> None:
    write_study(tmp_path, K_STUDY, seeds=3)
    findings = Findings(StudyFolder(tmp_path))
    assert findings.interval is not None
    assert findings.interval.value == pytest.approx(0.431)
    assert (findings.interval.items, findings.interval.seeds) == (200, 3)
    assert "over 3 seeds × 200 queries)" in answer(findings)
    assert "hold for other seeds and other queries" in " ".join(notes(findings))
    assert "3 seeds × 200 queries of the test split" in write_report(StudyFolder(tmp_path)).read_text()
    assert findings.seeds == 3
    assert not any("One seed" in text for text in [*caveats(findings), *notes(findings)])


def test_no_difference_is_called_none(tmp_path: Path) -> None:
    write_study(
        tmp_path,
        {
            1.0: {"test": 0.30, "untrained": 0.30},
            2.0: {"test": 0.301, "untrained": 0.29},
            4.0: {"test": 0.299, "untrained": 0.2},
        },
    )
    findings = Findings(StudyFolder(tmp_path))
    assert "no measurable difference (+0.001) to the best untrained k (k = 1, 0.300" in answer(findings)
    assert "cannot be told apart from k = 1 and k = 4" in caveats(findings)[0]


def test_training_that_harms_is_said_to(tmp_path: Path) -> None:
    write_study(tmp_path, {1.0: {"test": 0.10, "untrained": 0.40}, 2.0: {"test": 0.05, "untrained": 0.2}})
    text = answer(Findings(StudyFolder(tmp_path)))
    assert "training made it worse: −0.300 against the best untrained k (k = 1, 0.400; paired p < 0.001)" in text


def test_a_best_value_at_the_end_of_the_range_is_a_caveat(tmp_path: Path) -> None:
    write_study(tmp_path, {1.0: {"test": 0.2, "untrained": 0.1}, 2.0: {"test": 0.4, "untrained": 0.1}})
    assert "It lies at the upper end of what was tried (1 to 2)" in " ".join(caveats(Findings(StudyFolder(tmp_path))))


def test_a_rival_that_wins_on_test_is_named(tmp_path: Path) -> None:
    summary = write_study(tmp_path, {1.0: {"test": 0.2, "untrained": 0.1}, 2.0: {"test": 0.4, "untrained": 0.1}})
    (tmp_path / "summary.json").write_text(summary.model_copy(update={"best": (0,)}).text())
    assert "chosen on validation; on the test queries k = 2 did better" in caveats(Findings(StudyFolder(tmp_path)))[0]


@pytest.mark.parametrize(
    ("status", "opening"),
    [
        ("running", "Still running. Best so far: k = 2"),
        ("interrupted", "Interrupted before its end. Best so far: k = 2"),
    ],
)
def test_an_unfinished_study_is_said_to_be(tmp_path: Path, status: str, opening: str) -> None:
    write_study(tmp_path, K_STUDY, status=status, planned_trials=20)
    findings = Findings(StudyFolder(tmp_path))
    assert answer(findings).startswith(opening)
    assert accounts(findings.summary).startswith("9 of 20 trials: ")


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (
            "collapsed",
            "No k that was tried trains: all 2 trials that ended collapsed.",
        ),
        ("failed", "No result: all 2 trials that ended failed."),
        (
            "pruned",
            "No result: all 2 trials that ended were stopped early or failed.",
        ),
    ],
)
def test_a_study_without_a_result(tmp_path: Path, state: str, text: str) -> None:
    spec = {"state": state, "reason": "loss is nan\nTraceback", "untrained": 0.1, "steps": 20}
    write_study(tmp_path, {1.0: spec, 2.0: spec})
    assert answer(Findings(StudyFolder(tmp_path))) == f"{text} First reason (k = 1): loss is nan."
    assert text in write_report(StudyFolder(tmp_path)).read_text()


def test_no_verdict_on_a_parameter_while_trials_are_left(tmp_path: Path) -> None:
    write_study(tmp_path, {1.0: {"state": "collapsed", "untrained": 0.1}}, status="interrupted", planned_trials=9)
    assert "No result yet: the only trial that ended collapsed." in answer(Findings(StudyFolder(tmp_path)))


def test_a_study_that_has_only_begun(tmp_path: Path) -> None:
    write_study(tmp_path, {}, status="running", planned_trials=9)
    assert answer(Findings(StudyFolder(tmp_path))) == "Still running. No result yet: no trial has ended."
    assert "None yet." in write_report(StudyFolder(tmp_path)).read_text()


def test_matched_cost_takes_the_best_evaluation_within_each_level(k_study: Findings) -> None:
    rows = {row.budget: row for row in k_study.matched()}
    assert rows[100.0].trial.params["k"] == 2.0
    for row in rows.values():
        assert row.cost <= row.budget
        offers = [v for t in k_study.trials for c, v, _ in k_study.paid(t) if c <= row.budget]
        assert row.value == max(offers)
    assert all(step > 0 for trial in k_study.trials for *_, step in k_study.paid(trial))


def test_front_keeps_only_what_nothing_beats(k_study: Findings) -> None:
    points = [(3.0, 0.4), (1.0, 0.2), (2.0, 0.1), (3.0, 0.3), (5.0, 0.4), (6.0, 0.5)]
    assert k_study.front(points) == [(1.0, 0.2), (3.0, 0.4), (6.0, 0.5)]


def test_curves_read_the_journal_with_its_non_finite_values_and_half_a_line(k_study: Findings, tmp_path: Path) -> None:
    assert math.isnan(k_study.curves[0].signals["loss"][-1][1])
    assert len(k_study.curves[3].signals["loss"]) == 200
    with (tmp_path / "journal.jsonl").open("a") as journal:
        journal.write('{"op":"metrics","trial":3,"replicate":0,"records":[{"st')
    assert Findings(StudyFolder(tmp_path)).curves[3] == k_study.curves[3]


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.tags: list[str] = []
        self.specifications: list[dict] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append(tag)
        self.links += [value for key in ("src", "href") if (value := found.get(key))]
        self._inside = (found.get("type") or "") + (found.get("id") or "")
        if tag == "img":
            self.images.append(found)

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "application/json":
            self.specifications.append(json.loads(data))


FIGURES = {"curve", "matched_cost", "pareto", "training_loss", "validation_curve"}


def test_the_page_stands_alone_and_is_complete(tmp_path: Path) -> None:
    write_study(tmp_path, K_STUDY)
    (tmp_path / "loss_curves.png").write_bytes(b"of an earlier version")
    assert write_report(StudyFolder(tmp_path)) == tmp_path / "report.html"
    text = (tmp_path / "report.html").read_text()
    page = _Page(text)
    assert len(page.images) == len(page.specifications) == 5
    own = tuple(f"#{name}" for name in FIGURES)
    assert all(link.startswith(("data:image/svg+xml;base64,", *own)) for link in page.links)
    assert all(image["alt"] for image in page.images)
    assert not {"link", "iframe", "b"} & set(page.tags)
    assert text.count("window.vegaEmbed=") == 1
    assert "&lt;b&gt;&amp;amp;&lt;/b&gt;" in text
    assert "mlflow ui --backend-store-uri sqlite:///studies/mlflow.db" in text
    assert "The learning rate was not re-tuned" in text
    assert {path.stem for path in tmp_path.glob("*.png")} == FIGURES
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in tmp_path.glob("*.png"))
    assert not list(tmp_path.glob(".*"))
    assert "renewed every minute" not in text


def test_a_figure_carries_its_data_as_the_table_that_readers_take_away(tmp_path: Path) -> None:
    write_study(tmp_path, K_STUDY)
    page = _Page(write_report(StudyFolder(tmp_path)).read_text())
    rows = list(csv.DictReader(page.specifications[0]["data"]["values"].splitlines()))
    tested = {row["parameters"]: float(row["value"]) for row in rows if row["series"] == "test"}
    assert tested == {f"k = {k:g}": spec["test"] for k, spec in K_STUDY.items() if "test" in spec}


def test_what_other_people_wrote_does_not_end_the_script_that_it_stands_in(tmp_path: Path) -> None:
    write_study(tmp_path, {"</script><b>": {"test": 0.4, "untrained": 0.1}, "x": {"test": 0.3, "untrained": 0.1}})
    page = _Page(write_report(StudyFolder(tmp_path)).read_text())
    assert "b" not in page.tags
    assert "k = </script><b>" in page.specifications[0]["data"]["values"]


def test_a_page_of_a_running_study_is_cheap_and_renews_itself(tmp_path: Path) -> None:
    write_study(tmp_path, K_STUDY, status="running")
    write_while_running(StudyFolder(tmp_path))
    text = (tmp_path / "report.html").read_text()
    page = _Page(text)
    assert len(page.specifications) == 5
    assert page.images == []
    assert 'id="renew"' in text
    assert not list(tmp_path.glob("*.png"))


def test_forty_trials_of_seven_backbones_stay_below_six_megabytes(tmp_path: Path) -> None:
    synthetic.backbones_study(tmp_path)
    assert write_report(StudyFolder(tmp_path)).stat().st_size < 6e6
    long = [{"step": step, "time": step, "metrics": {"train.loss": 1.0 + step % 7}} for step in range(1, 1_501)]
    with (tmp_path / "journal.jsonl").open("a") as journal:
        journal.writelines(encode(Metrics(trial, 0, long)) for trial in range(40))
    write_while_running(StudyFolder(tmp_path))
    assert (tmp_path / "report.html").stat().st_size < 6e6


def test_the_page_says_what_it_takes_to_run_the_study_again(tmp_path: Path) -> None:
    write_study(tmp_path, K_STUDY, seeds=2)
    config = synthetic.splade.Config(backbone="some/model", batch_size=64)
    synthetic.with_journal(tmp_path, config, "splade", **{"git.dirty": "true"})
    path = tmp_path / "summary.json"
    summary = read(path)
    trials = [t.model_copy(update={"checkpoint": f"trials/{t.number:04d}/model"}) for t in summary.trials]
    path.write_text(summary.model_copy(update={"trials": tuple(trials)}).text())
    html = write_report(StudyFolder(tmp_path)).read_text()
    for text in (html, (tmp_path / "report.md").read_text()):
        for part in (
            "python -m study.run splade_k_search", "3f9c1d2e4b5a69788796a5b4c3d2e1f001122334",
            "with changes that are in no commit", "torch 2.9.1", "backbone=some/model", "batch_size=64", "0.001",
            "0, 1", str(tmp_path / "trials/0003/model"), "sha256:1f3a", "sqlite:///studies/mlflow.db",
        ):  # fmt: skip
            assert part in text, part
    assert "lambda_query=" not in html
    assert "<dt>lambda_query</dt>" in html


def test_settings_of_a_trainer_that_is_not_at_hand_are_not_called_defaults(tmp_path: Path) -> None:
    write_study(tmp_path, K_STUDY)
    synthetic.with_journal(tmp_path, synthetic.splade.Config(), "elsewhere.trainer")
    found = origin(Findings(StudyFolder(tmp_path)))
    assert found.different is None
    assert found.settings["steps"] == 100
    assert "not known" in write_report(StudyFolder(tmp_path)).read_text()


def test_markdown_has_the_answer_and_the_tables(tmp_path: Path) -> None:
    write_study(tmp_path, K_STUDY)
    write_report(StudyFolder(tmp_path))
    text = (tmp_path / "report.md").read_text()
    assert "**Best k = 2: test nDCG@10 0.431" in text
    assert re.search(r"^\| 3 ★ \| 2 \| complete \| 200/200 \| 0\.441 \| 0\.431 \|", text, re.MULTILINE)
    assert re.search(r"^\| k = 8 \| 0\.285 \| \+0\.146 \|", text, re.MULTILINE)
    assert "\\<b>\\&amp;\\</b>" in text
    # Every row of a table has as many cells as its head.
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1, block


def test_every_metric_of_the_page_is_explained_on_it(tmp_path: Path) -> None:
    write_study(tmp_path, K_STUDY)
    text = write_report(StudyFolder(tmp_path)).read_text()
    assert "<dt>FLOPS</dt><dd>multiplications per query and document scored" in text
    assert text.count("<dt>nDCG@10</dt><dd>") == 1


def test_without_cost_there_are_no_cost_sections(tmp_path: Path) -> None:
    write_study(tmp_path, K_STUDY, cost=False)
    text = write_report(StudyFolder(tmp_path)).read_text()
    assert "FLOPS" not in text
    assert not (tmp_path / "pareto.png").exists()
    assert (tmp_path / "curve.png").exists()


def test_a_minimised_objective_and_a_parameter_of_words(tmp_path: Path) -> None:
    grid = {"chunked": {"test": 0.3, "untrained": 0.5}, "interleaved": {"test": 0.2, "untrained": 0.5}}
    write_study(
        tmp_path, grid, cost=False, parameter="split", metric="error", parameter_log=None, best=[1],
        objectives=[ObjectiveSummary(name="error", direction="minimize")],
    )  # fmt: skip
    findings = Findings(StudyFolder(tmp_path))
    assert answer(findings).startswith("Best split = interleaved: test error 0.200")
    assert "−0.300 against the best untrained split" in answer(findings)
    assert "better than the other complete trial" in caveats(findings)[0]
    write_report(StudyFolder(tmp_path))


def test_a_searched_learning_rate_and_many_values(tmp_path: Path) -> None:
    grid = {
        1.1**n: {"test": 0.3 + 0.001 * n, "untrained": 0.1, "params": {"optimiser.lr": 10 ** -(2 + n / 10)}}
        for n in range(16)
    }
    write_study(tmp_path, grid)
    assert (
        "The learning rate was re-tuned: searched together with k as optimiser.lr."
        in write_report(StudyFolder(tmp_path)).read_text()
    )


def test_passwords_stay_out_of_the_report(tmp_path: Path) -> None:
    uri = "https://me:secret@mlflow.example/x?password=secret"
    write_study(tmp_path, K_STUDY, tracking=Tracking(uri=uri, experiment="e"))
    text = write_report(StudyFolder(tmp_path)).read_text()
    assert "secret" not in text
    assert 'href="https://***@mlflow.example/x?password=***"' in text


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert report.main(["mine"]) == 2
    assert capsys.readouterr().err == (
        "error: studies/mine/summary.json does not exist: no study was run in this folder; --storage names another\n"
    )
    write_study(tmp_path / "studies" / "mine", K_STUDY)
    assert report.main(["search/mine.py"]) == 0
    assert re.fullmatch(r"studies/mine/report\.html\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not a study's summary"),
        ('{"study": "x", "status": "finished"}', "it lacks id, profile, question"),
        ('["study"]', "it is a list, not an object"),
        ('{"format": 3}', "has format 3, this version reads 2: use the version that wrote it"),
    ],
)
def test_a_broken_summary_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "summary.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        write_report(StudyFolder(tmp_path))


def test_reading_a_report_needs_neither_torch_nor_ray() -> None:
    heavy = {"torch", "ray", "mlflow", "optuna"}
    code = f"import sys, study.report, study.reporting.plots, study.reporting.screen; print({heavy} & set(sys.modules))"
    root = Path(report.__file__).parents[1]
    found = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"


RATIOS = {
    0.15: {"test": 0.40, "untrained": 0.1, "params": {"decoder": 0.5}},
    0.3: {"test": 0.45, "untrained": 0.1, "params": {"decoder": 0.6}},
    0.45: {"test": 0.42, "untrained": 0.1, "params": {"decoder": 0.3}},
    0.2: {"test": 0.41, "untrained": 0.1, "params": {"decoder": 0.8}},
    0.5: {"state": "collapsed", "reason": "loss is nan at step 24", "untrained": 0.1, "params": {"decoder": 0.9},
          "steps": 24},
}  # fmt: skip


def with_control(storage: Path, value: float) -> Findings:
    """A search over two ratios beside a control that lacks both."""
    summary = write_study(
        storage, RATIOS | {"none": {"test": value, "untrained": 0.1}}, parameter="encoder", cost=False,
        plane=("encoder", "decoder"), importances={"encoder": 0.7, "decoder": 0.3},
    )  # fmt: skip
    *searched, last = summary.trials
    control = last.model_copy(update={"control": True, "params": {"objective": "none"}})
    summary = summary.model_copy(update={"trials": (*searched, control), "best": (1,)})
    (storage / "summary.json").write_text(summary.text())
    return Findings(StudyFolder(storage))


def test_the_best_is_compared_with_the_control(tmp_path: Path) -> None:
    findings = with_control(tmp_path, 0.3)
    text = answer(findings)
    found = next(c for c in findings.comparisons if c.kind == "control")
    assert found.gap.value == pytest.approx(0.15)
    assert re.search(r", \+0\.150 over the control objective = none \(0\.300; 95% CI \+0\.1\d\d to \+0\.1\d\d, "
                     r"paired p < 0\.001\)", text), text  # fmt: skip
    assert not any("control" in caveat for caveat in caveats(findings))


def test_a_control_that_is_as_good_is_said_to_be(tmp_path: Path) -> None:
    assert "no measurable difference (+0.001) to the control objective = none (0.449;" in answer(
        with_control(tmp_path, 0.449)
    )


def test_a_control_that_is_better_is_said_to_be(tmp_path: Path) -> None:
    assert "−0.100 against the control objective = none (0.550;" in answer(with_control(tmp_path, 0.55))


def test_a_search_over_two_parameters_is_mapped(tmp_path: Path) -> None:
    with_control(tmp_path, 0.3)
    page = write_report(StudyFolder(tmp_path)).read_text()
    for name in ("plane_map", "importances"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert "encoder 0.70, decoder 0.30" in page
    assert "control objective = none" in page
