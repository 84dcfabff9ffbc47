"""Takes the pictures of MLflow and optuna-dashboard in docs/images: `python -m docs.screenshots_servers`."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from urllib.parse import quote

from tests import browser as browsers
from tests.recorded_study import GRID, dashboard, mlflow_server, record

IMAGES = Path(__file__).parent / "images"
WIDTH, HEIGHT = 1180, 760
ASSISTANT = "[data-component-id='mlflow.assistant.chat_panel.close']"
"""The button that closes MLflow's assistant, which takes a third of the window."""


def main() -> None:
    with tempfile.TemporaryDirectory() as aside, browsers.browser() as browser:
        folder = Path(aside)
        study = record(folder)
        from mlflow.tracking import MlflowClient

        best = study.trials[GRID.index(2)]
        (model,) = MlflowClient(study.tracking).get_run(best).outputs.model_outputs
        runs, experiments = quote(json.dumps(list(study.trials.values()))), quote('["1"]')
        with mlflow_server(study.tracking, folder) as server, dashboard(folder) as optuna:
            pictures = {
                "mlflow-runs": (f"{server}/{study.page}", "collapsed"),
                "mlflow": (f"{server}/#/compare-runs?runs={runs}&experiments={experiments}", "Clear All"),
                "mlflow-model": (f"{server}/#/experiments/1/models/{model.model_id}", "Parameters ("),
                "optuna-dashboard": (f"{optuna}/dashboard/studies/1", "Hyperparameter Importance"),
            }
            for name, (address, text) in pictures.items():
                browser.show(address, width=WIDTH)
                browser.wait(f"document.body.innerText.includes({json.dumps(text)})", 60)
                browser.run(f"document.querySelector({json.dumps(ASSISTANT)})?.click()")
                # Charts are drawn, and columns find their width, some time after their text is there.
                browser.wait("new Promise(done => setTimeout(() => done(true), 4000))")
                (IMAGES / f"{name}.png").write_bytes(browser.picture(HEIGHT))


if __name__ == "__main__":
    main()
