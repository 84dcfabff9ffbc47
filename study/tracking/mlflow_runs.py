"""What MLflow is told, and how: nothing outside of this folder imports mlflow, though messages to users name it.

Every call may be repeated without changing anything, which is what lets `study.tracking.tracker` replay.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pydantic import TypeAdapter

from study.protocol.journal import (
    Answered,
    Artifact,
    Ended,
    Ending,
    Entry,
    InputsRead,
    Metrics,
    Model,
    ReplicateBegun,
    StudyBegun,
    TrialBegun,
    Values,
)
from study.protocol.states import StudyStatus, TrialState
from study.tracking.model_process import ModelRequest
from study.tracking.pages import (
    BEST,
    InputData,
    Subject,
    artifact_page,
    description,
    figure,
    metric_key,
    page,
    view_tag,
)
from study.uris import redacted, sqlite_path
from trainables.files import write_whole

if TYPE_CHECKING:
    from mlflow.entities import Metric, Param, RunTag
    from mlflow.tracking import MlflowClient

    Item = Metric | Param | RunTag

log = logging.getLogger(__name__)

PARAM_CHARACTERS, TAG_CHARACTERS = 6000, 8000
"""Characters that MLflow takes for the value of a parameter and of a tag."""
STUDY = "study"
"""Key of the parent run; a trial's is "3", a replicate's "3/0"."""
REASON = "stop.reason"
ENVIRONMENT = {
    # The client would retry for about four minutes inside one call; the tracker's own retries can be stopped.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_CONFIGURE_LOGGING": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
}


def connect(uri: str) -> MlflowClient:
    """MLflow's client, imported late (it takes seconds) and kept quiet; what the user set is kept."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from mlflow.tracking import MlflowClient

    logging.getLogger("alembic").setLevel(logging.WARNING)
    # MLflow logs a traceback for every locked database; the tracker says the same in one line.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    return MlflowClient(tracking_uri=uri)


def initialise(uri: str) -> None:
    """Create a database's tables, or check that they fit, before several processes open it.

    Nothing to do for a server. Raises ValueError with MLflow's reason, such as a schema of another version.
    """
    if uri.startswith("http"):
        return
    try:
        connect(uri).search_experiments(max_results=1)
    except Exception as error:
        raise ValueError(f"tracking URI {redacted(uri)!r} cannot be used: {error}") from error


Happening = StudyBegun | InputsRead | TrialBegun | ReplicateBegun | Ended | Artifact | Answered | Model
"""The entries that are no figures."""

TAGS = {
    "git.commit": "mlflow.source.git.commit", "user": "mlflow.user", "source": "mlflow.source.name",
    "source.type": "mlflow.source.type",
}  # fmt: skip
"""Words of this project for what MLflow has tags of its own."""
OWN, NAME, NOTE = "mlflow.", "mlflow.runName", "mlflow.note.content"
CONTEXT = "mlflow.data.context"
KIND = ("mlflow.experimentKind", "custom_model_development")
"""Tag of an experiment whose pages are those of training runs, not of traces."""
NAMES = 2
"""Version of what metrics are called; a store that was filled under other names is filled again from the beginning."""


def tags_of(entry: Happening) -> dict[str, str]:
    """The tags that an entry puts on its run.

    >>> tags_of(Ended(state=StudyStatus.FINISHED, time=0))
    {'state': 'complete'}
    """
    match entry:
        case Ended():
            state = TrialState.COMPLETE if entry.state == StudyStatus.FINISHED else entry.state
            tags = {} if entry.attempts is None else {"attempts": str(entry.attempts)}
            return tags | {"state": str(state)} | ({REASON: entry.reason} if entry.reason else {})
        case Artifact() | Answered() | Model():
            return {}
    tags = {TAGS.get(name, name): text for name, text in entry.tags.items()}
    if isinstance(entry, (StudyBegun, TrialBegun)):
        tags |= {"state": str(TrialState.RUNNING)} | _named(entry)
    return tags


def _named(entry: StudyBegun | TrialBegun | ReplicateBegun) -> dict[str, str]:
    return {} if entry.name is None else {NAME: entry.name}


def inherited(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags of a study that every run carries."""
    return {name: text for name, text in tags.items() if name.startswith(OWN) and name != NAME}


def status_of(state: Ending) -> str:
    """MLflow's status for a run that ended in this state."""
    if state in (TrialState.COMPLETE, StudyStatus.FINISHED):
        return "FINISHED"
    return "FAILED" if state == TrialState.FAILED else "KILLED"


class LostError(Exception):
    """A run or the experiment is gone for good."""


@dataclass
class State:
    """How far the journal has been replayed, and into which store. A state is bound to one store: another one is filled
    from the beginning."""

    uri: str
    experiment: str
    study_id: str
    names: int = 1
    offset: int = 0
    rejected: int = 0
    runs: dict[str, str] = field(default_factory=dict)
    replicates: dict[str, int] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    """MLflow's own tags of the study (user, source, commit), which every run carries."""

    @classmethod
    def load(cls, path: Path, uri: str, experiment: str, study_id: str) -> State:
        fresh = cls(uri, experiment, study_id, NAMES)
        try:
            stored = TypeAdapter(cls).validate_json(path.read_bytes(), strict=True)
        except FileNotFoundError:
            return fresh
        except (OSError, ValueError) as error:
            log.warning("%s is not readable (%s): the journal is replayed from its start", path, error)
            return fresh
        bound = (stored.uri, stored.experiment, stored.study_id, stored.names)
        return stored if bound == (uri, experiment, study_id, NAMES) else fresh

    def save(self, path: Path) -> None:
        write_whole(path, json.dumps(asdict(self)))


class Runs:
    """Journal entries as calls to MLflow, each of which may be repeated."""

    def __init__(self, uri: str, state: State, subject: Subject) -> None:
        self.uri = uri
        self.state = state
        self.subject = subject
        self.client: MlflowClient
        self.experiment_id: str
        self.page: str | None = None
        """The page with the study's runs, behind the address of a server; None until there is one."""

    def connect(self) -> None:
        self.client = connect(self.uri)
        name = self.state.experiment
        experiment = self.client.get_experiment_by_name(name)
        if experiment is None:
            # For a database MLflow would put artifacts under the working folder of whoever comes first.
            file = sqlite_path(self.uri)
            place = file.absolute().parent if file is not None else None
            location = (place / "mlartifacts" / quote(name, safe=" ")).as_uri() if place else None
            self.experiment_id = self.client.create_experiment(name, location)
        else:
            self.experiment_id = experiment.experiment_id
            if experiment.lifecycle_stage == "deleted":
                self.client.restore_experiment(self.experiment_id)
        for tag in (KIND, view_tag(self.subject, self.state.study_id)):
            self.client.set_experiment_tag(self.experiment_id, *tag)
        self.page = page(self.experiment_id, self.state.study_id)

    def key(self, entry: Entry) -> str:
        """The run an entry belongs to: replicates have runs of their own only where there are several."""
        trial, replicate = entry.trial, entry.replicate
        if trial is None:
            return STUDY
        alone = self.state.replicates.get(str(trial), 1) == 1
        return str(trial) if replicate is None or alone else f"{trial}/{replicate}"

    def open(self, key: str, entry: StudyBegun | TrialBegun | ReplicateBegun) -> None:
        """Create the run, or set the one it had before to RUNNING."""
        run_id, created = self._find_or_create(key, tags_of(entry) | _named(entry), entry.time)
        if not created:
            run = self.client.get_run(run_id)
            self.client.update_run(run_id, status="RUNNING")
            if REASON in run.data.tags:
                self.client.delete_tag(run_id, REASON)

    def run(self, key: str) -> str:
        return self._find_or_create(key, {}, None)[0]

    def _find_or_create(self, key: str, own: dict[str, str], time_ms: int | None) -> tuple[str, bool]:
        if key in self.state.runs:
            return self.state.runs[key], False
        from mlflow.entities import ViewType

        trial, _, replicate = ("", "", "") if key == STUDY else key.partition("/")
        level = STUDY if key == STUDY else "replicate" if replicate else "trial"
        identity = {"study.id": self.state.study_id, "study.level": level}
        identity |= {"study.trial": trial} if trial else {}
        identity |= {"study.replicate": replicate} if replicate else {}
        found = self.client.search_runs(
            [self.experiment_id],
            " and ".join(f"tags.`{name}` = '{value}'" for name, value in identity.items()),
            run_view_type=ViewType.ALL,  # a deleted run is found too, and restored when written to
            order_by=["attributes.start_time ASC"],
        )
        if found:
            found.sort(key=lambda run: run.info.lifecycle_stage == "deleted")
            self.state.runs[key] = found[0].info.run_id
            return self.state.runs[key], False
        name = self.state.experiment if key == STUDY else f"trial {trial}"
        name += f" · replicate {replicate}" if replicate else ""
        tags = {NAME: name} | self.state.tags | own | identity
        if key != STUDY:
            tags["mlflow.parentRunId"] = self.run(trial if replicate else STUDY)
        core = {k: str(v) for k, v in tags.items() if k in identity or k.startswith(OWN)}
        run = self.client.create_run(self.experiment_id, start_time=time_ms, tags=core)
        self.state.runs[key] = run.info.run_id
        return run.info.run_id, True

    def figures(self, entry: Metrics | Values) -> list[Item]:
        """What was measured: points of curves, the objectives' first, and tags for what is measured once.

        The study's own run has of its trials the best one's, and of that the objectives alone as curves. Steps tell
        nothing that is measured once: what ends a run says all of that again.
        """
        from mlflow.entities import Metric

        if isinstance(entry, Metrics):
            records = entry.records
        else:
            records = [{"step": entry.step, "time": entry.time, "metrics": entry.values}]
        objectives, tags = self.subject.objectives, {}
        items: list[Item] = []
        for record in records:
            curves = {}
            for name, value in record["metrics"].items():
                key = metric_key(name, objectives)
                if entry.trial is None:
                    own = name.removeprefix(BEST)
                    key = metric_key(own, objectives) if own in objectives and own != name else None
                if key is not None:
                    curves[accepted(key)] = float(value)
                else:
                    tags[name] = figure(value)
            # Sections are named so that what is sorted begins with the objectives.
            items += [Metric(key, curves[key], int(record["time"]), int(record["step"])) for key in sorted(curves)]
        return items if isinstance(entry, Metrics) else [*items, *tag_items(tags)]

    def facts(self, entry: Happening) -> list[Item]:
        """Parameters and tags of an entry."""
        from mlflow.entities import Param

        if isinstance(entry, Answered):
            report = artifact_page(self.experiment_id, self.run(STUDY), entry.report) if entry.report else None
            return [*tag_items({NOTE: description(self.subject.question, entry.answer, report)})]
        noted = {NOTE: description(self.subject.question)} if isinstance(entry, StudyBegun) else {}
        params: Mapping[str, Any] = {}
        if isinstance(entry, (StudyBegun, TrialBegun)):
            params = entry.params
        elif isinstance(entry, ReplicateBegun):
            params = {"replicate.seed": entry.seed}
        shown = [Param(accepted(name), _fitting(value, PARAM_CHARACTERS)) for name, value in params.items()]
        return [*shown, *tag_items(tags_of(entry) | noted)]

    def inputs(self, key: str, found: Sequence[InputData]) -> None:
        """Put the data sets that a run has read on its page."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        self.client.log_inputs(
            self.run(key),
            [
                DatasetInput(
                    Dataset(
                        one.name, one.digest, "local", json.dumps({"uri": one.name}), profile=json.dumps(one.sizes)
                    ),
                    [InputTag(CONTEXT, one.context)],
                )
                for one in found
            ],
        )

    def log(self, key: str, items: Iterable[Item]) -> None:
        """One request for up to 1000 metrics, or 100 parameters and 100 tags: the client splits."""
        batch: dict[str, list] = {"Metric": [], "Param": [], "RunTag": []}
        for item in items:
            batch[type(item).__name__].append(item)
        self.client.log_batch(self.run(key), batch["Metric"], batch["Param"], batch["RunTag"])

    def end(self, key: str, state: Ending, time_ms: int) -> None:
        self.client.set_terminated(self.run(key), status_of(state), time_ms)

    def upload(self, key: str, path: Path, folder: str) -> None:
        """Put a file, or what is in a folder, into `folder` of the run's artifacts."""
        put = self.client.log_artifacts if path.is_dir() else self.client.log_artifact
        put(self.run(key), str(path), folder or None)

    def model(self, key: str, entry: Model, path: Path) -> ModelRequest:
        """What is asked of a process that keeps the model of a trial."""
        tags = {"study.id": self.state.study_id, "study.trial": str(entry.trial)}
        name = re.sub(r"[^\w-]+", "-", f"{self.state.experiment}-trial-{entry.trial}")
        runs = (self.run(key), self.run(STUDY))
        return ModelRequest(self.uri, self.experiment_id, runs, entry.step, name, tags, str(path), entry.register)

    def alive(self, key: str) -> None:
        """Raise unless the server answers for the run."""
        self.client.get_run(self.run(key))

    def restore(self, key: str) -> bool:
        """Undelete the experiment and the run; False when neither was. LostError when one is no more."""
        from mlflow.exceptions import MlflowException

        restored = False
        try:
            if self.client.get_experiment(self.experiment_id).lifecycle_stage == "deleted":
                self.client.restore_experiment(self.experiment_id)
                restored = True
            run_id = self.state.runs.get(key)
            if run_id and self.client.get_run(run_id).info.lifecycle_stage == "deleted":
                self.client.restore_run(run_id)
                restored = True
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                raise LostError(key) from error
            raise
        return restored


def accepted(name: str) -> str:
    """`name` with what MLflow refuses in a key replaced: it takes letters, digits and `_-. :/`."""
    return re.sub(r"[^\w.\- :/]", "_", name)


def tag_items(tags: Mapping[str, str]) -> list[RunTag]:
    """Tags as MLflow takes them."""
    from mlflow.entities import RunTag

    return [RunTag(accepted(name), _fitting(text, TAG_CHARACTERS)) for name, text in tags.items()]


def _fitting(value: Any, limit: int) -> str:
    """`value` as text; a longer one than MLflow stores says how long it was."""
    text = str(value)
    note = f"... ({len(text)} characters)"
    return text if len(text) <= limit else text[: limit - len(note)] + note


def refusal(error: Exception) -> bool | None:
    """True: MLflow will never take it. False: it is away or busy, and will. None: it may be either.

    A 404 without MLflow's own error code is not about a run: something in front of the server answered.
    """
    from mlflow.exceptions import MlflowException

    if not isinstance(error, MlflowException):
        # An answer that is no JSON comes from something in front of the server, and may be different the next time.
        return isinstance(error, (KeyError, TypeError, ValueError)) and not isinstance(error, json.JSONDecodeError)
    if error.error_code in ("INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS"):
        return True
    status = error.get_http_status_code()
    # MLflow reports most database errors as BAD_REQUEST (400), an exhausted connection pool among them.
    return False if status >= 500 or status in (401, 403, 404, 408, 429) else None
