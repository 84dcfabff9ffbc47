"""Keep a finished model in MLflow so that it can be loaded: `python -m study.tracking.keep_model`, a request on stdin.

A process of its own: it imports what a ledger must not. The model is opened by `study/tracking/loadable.py`, which
MLflow keeps beside it. A request that is made again finds the model that is there, and goes on with one that was cut
short.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from study.tracking.mlflow_runs import connect
from study.tracking.model_process import ModelRequest
from study.tracking.pages import OBJECTIVE, VALIDATION
from trainables.errors import first_line

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel
    from mlflow.models import ModelSignature
    from mlflow.tracking import MlflowClient

LOADABLE = Path(__file__).with_name("loadable.py")
VERSIONS = "mlflow.modelVersions"
"""Tag of a model that says which versions of registered models it is."""
EXAMPLE = ["How do I read a file line by line?"]
NEEDED = ("sentence-transformers", "transformers", "torch")
"""Packages that open the model."""
OPENED_BY = "sentence-transformers>=6.2"
"""Where it is not installed here: the version that exported models are tested with."""


def main() -> int:
    request = json.load(sys.stdin)
    try:
        keep(ModelRequest(**request | {"runs": tuple(request["runs"])}))
    except Exception as error:
        print(f"{type(error).__name__}: {first_line(error)}", file=sys.stderr)
        return 1
    return 0


def keep(request: ModelRequest) -> str:
    """The model's id in MLflow, where it is ready to be loaded when this returns. Raises MLflow's own errors."""
    client = connect(request.uri)
    import mlflow
    from mlflow.entities import LoggedModelOutput, LoggedModelStatus

    # The registry looks a model up where this says, whatever the client was told.
    mlflow.set_tracking_uri(request.uri)
    model = _found(client, request) or _created(client, request)
    if model.status != LoggedModelStatus.READY:
        with tempfile.TemporaryDirectory() as aside:
            folder = Path(aside) / "model"
            _write(folder, Path(request.path), model.model_id, request.runs[0])
            client.log_model_artifacts(model.model_id, str(folder))
        client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
    for run_id in request.runs:
        outputs = client.get_run(run_id).outputs
        if outputs and any(output.model_id == model.model_id for output in outputs.model_outputs):
            continue
        client.log_outputs(run_id, [LoggedModelOutput(model.model_id, request.step)])
    if request.register:
        _register(client, request.register, model.model_id)
    return model.model_id


def _found(client: MlflowClient, request: ModelRequest) -> LoggedModel | None:
    """What an earlier request of this kind has made, be it in part."""
    named = client.search_logged_models([request.experiment_id], f"name = '{request.name}'")
    return next((model for model in named if request.tags.items() <= model.tags.items()), None)


def _created(client: MlflowClient, request: ModelRequest) -> LoggedModel:
    """A new entry with the run's parameters, and its figures on validation and test data."""
    from mlflow.entities import Metric

    run_id = request.runs[0]
    run = client.get_run(run_id)
    figures = {name: text for name, text in run.data.tags.items() if name.startswith("test.")}
    model = client.create_logged_model(
        request.experiment_id, request.name, run_id, request.tags | figures, run.data.params, "retriever"
    )
    sections = (f"{OBJECTIVE}/", f"{VALIDATION}/")
    latest = [client.get_metric_history(run_id, name)[-1] for name in run.data.metrics if name.startswith(sections)]
    points = [
        Metric(one.key, one.value, one.timestamp, one.step, model_id=model.model_id, run_id=run_id) for one in latest
    ]
    client.log_batch(run_id, points)
    return model


def _write(folder: Path, model: Path, model_id: str, run_id: str) -> None:
    """`folder` as MLflow loads it, with a copy of the model."""
    import mlflow.pyfunc
    from mlflow.models import Model

    mlflow.pyfunc.save_model(
        folder,
        python_model=str(LOADABLE),
        # As a URI: a path may have signs that mean something in one.
        artifacts={"model": model.resolve().as_uri()},
        signature=_signature(model),
        input_example=EXAMPLE,
        pip_requirements=_requirements(),
        mlflow_model=Model(model_id=model_id, run_id=run_id),
    )


def _signature(model: Path) -> ModelSignature:
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema
    from mlflow.types.schema import Array, Map

    about = json.loads((model / "config_sentence_transformers.json").read_text())
    sparse = about.get("model_type") == "SparseEncoder"
    return ModelSignature(
        inputs=Schema([ColSpec(DataType.string)]),
        outputs=Schema([ColSpec(Map(DataType.double) if sparse else Array(DataType.double))]),
        params=ParamSchema([ParamSpec("side", DataType.string, "query")]),
    )


def _requirements() -> list[str]:
    found = []
    for package in NEEDED:
        try:
            found.append(f"{package}=={importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(OPENED_BY)
    return found


def _register(client: MlflowClient, name: str, model_id: str) -> None:
    """Make the model a version of the registered model `name`, unless it is one."""
    import mlflow

    versions = json.loads(client.get_logged_model(model_id).tags.get(VERSIONS, "[]"))
    if name not in [version["name"] for version in versions]:
        mlflow.register_model(f"models:/{model_id}", name)


if __name__ == "__main__":
    sys.exit(main())
