"""What people see who open a study in MLflow and in optuna-dashboard: real servers, a real browser."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests import browser as browsers
from tests.recorded_study import ANSWER, COLLAPSED, DASHBOARD, GRID, Recorded, dashboard, mlflow_server, record

pytestmark = pytest.mark.skipif(not browsers.THERE, reason="there is no chromium with its driver")
BEST, OBJECTIVE = GRID.index(2), "objective/ndcg_at_10"
EXPERIMENT = "#/experiments/1"


@pytest.fixture(scope="module")
def study(tmp_path_factory, empty_tracking) -> Recorded:
    folder = tmp_path_factory.mktemp("pages")
    (folder / "studies").mkdir()
    shutil.copy(empty_tracking, folder / "studies" / "mlflow.db")
    return record(folder)


@pytest.fixture(scope="module")
def browser() -> Iterator[browsers.Browser]:
    with browsers.browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def mlflow(study, tmp_path_factory) -> Iterator[str]:
    with mlflow_server(study.tracking, tmp_path_factory.mktemp("mlflow")) as address:
        yield address


def shown(browser: browsers.Browser, *texts: str, seconds: float = 60) -> str:
    """The text of the page, on one line, once it has all of these."""
    text = "document.body.innerText.replace(/\\s+/g, ' ')"
    browser.wait(f"{json.dumps(texts)}.every(text => {text}.includes(text))", seconds)
    return browser.run(f"return {text}")


def in_order(text: str, *parts: str) -> None:
    places = [text.index(part) for part in parts]
    assert places == sorted(places), text


def test_the_printed_page_lists_the_trials_by_the_objective(study, browser, mlflow) -> None:
    browser.show(f"{mlflow}/{study.page}", width=1600)
    text = shown(browser, OBJECTIVE, "collapsed", f"trial {BEST} · k=2")
    assert "/runs" in browser.run("return location.hash")
    assert f"Sort: {OBJECTIVE}" in text
    # Best first, the collapsed ones among the last; `k` and `state` have columns.
    in_order(text, f"trial {BEST} · k=2", "trial 0 · k=0.5", f"trial {GRID.index(1 / 64)} · k=0.01562")
    for column in (OBJECTIVE, "k", "state"):
        assert browser.wait(
            f"[...document.querySelectorAll('.ag-header-cell')].some(cell => cell.innerText.trim() === '{column}')"
        )


def test_a_comparison_begins_with_parameter_and_objective(study, browser, mlflow) -> None:
    runs, experiments = quote(json.dumps([study.trials[number] for number in range(len(GRID))])), quote('["1"]')
    browser.show(f"{mlflow}/#/compare-runs?runs={runs}&experiments={experiments}")
    text = shown(browser, "Parallel Coordinates Plot", OBJECTIVE)
    controls = text[text.index("Parameters:") : text.index("Clear All")]
    assert controls.split() == ["Parameters:", "k", "Metrics:", OBJECTIVE]


def test_charts_begin_with_the_objective_and_none_is_of_a_single_measurement(study, browser, mlflow) -> None:
    browser.show(f"{mlflow}/{study.page}&compareRunsMode=CHART", width=1600)
    text = shown(browser, "objective (1)", "train (2)", "validation (3)")
    in_order(text, "objective (1)", "train (2)", "validation (3)", "Model metrics (0)")


def test_the_run_of_a_study_says_what_was_asked_and_found(study, browser, mlflow) -> None:
    browser.show(f"{mlflow}/{EXPERIMENT}/runs/{study.run}", width=1600)
    text = shown(browser, ANSWER, "Datasets", "splade_k_search-trial-2")
    assert "Which rescale factor k makes this encoder trainable as SPLADE?" in text
    assert "splade_k_search.py" in text
    assert "embedded, 5,412 pairs" in text
    link = browser.wait("[...document.querySelectorAll('a')].find(a => a.innerText === 'Report')?.href")
    assert link.startswith(mlflow)
    browser.show(link)
    shown(browser, "report.html")


def test_the_model_is_ready_and_registered(study, browser, mlflow) -> None:
    from mlflow.tracking import MlflowClient

    (model,) = MlflowClient(study.tracking).get_run(study.trials[BEST]).outputs.model_outputs
    browser.show(f"{mlflow}/{EXPERIMENT}/models/{model.model_id}")
    text = shown(browser, "Ready", "splade-code v1", f"trial {BEST} · k=2", OBJECTIVE)
    assert "Not registered" not in text


def test_optuna_dashboard_tells_collapsed_from_pruned(study, browser) -> None:
    """With the command that the documentation prints."""
    assert f"    {DASHBOARD}\n" in (Path(__file__).parents[2] / "docs" / "mlflow.md").read_text()
    with dashboard(study.folder) as address:
        browser.show(f"{address}/dashboard/studies/1")
        drawn = "[...document.querySelectorAll('.js-plotly-plot')].flatMap(plot => plot.data)"
        named = "(name => " + drawn + ".find(trace => trace.name?.startsWith(name) && trace.mode === 'markers'))"
        infeasible = browser.wait(f"{named}('Infeasible Trial')?.x", 60)
        assert sorted(infeasible) == sorted(GRID.index(k) for k in COLLAPSED)
        feasible = browser.wait(f"{named}('ndcg_at_10')?.x")
        assert sorted([*feasible, *infeasible]) == list(range(len(GRID)))
        pruned = GRID.index(64)
        browser.show(f"{address}/dashboard/studies/1/trials?numbers={pruned}")
        text = shown(browser, "Pruned", "lags behind")
        assert "pruned" in text
