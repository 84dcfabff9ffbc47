"""What `summary.json` is: the study as screens, reports, `--json` and other programs see it.

The ledger writes it after every event; everybody else reads it. `docs/summary.md` is made of the docstrings here
by `study/protocol/summary_page.py`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from study.protocol.states import StudyStatus, TrialState
from trainables.errors import told
from trainables.report import Metric

FORMAT = 2
AGAIN = "the command that ran the study writes it again from the ledger"


def _finite(value: float | None) -> float | None:
    return value if value is None or math.isfinite(value) else None


Number = Annotated[float | None, AfterValidator(_finite)]
"""JSON has no NaN: what is not finite is null."""
MetricValues = Mapping[str, Number]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class ObjectiveSummary(_Part):
    """What trials are judged by."""

    name: str
    """A metric, measured on validation queries or pairs."""
    direction: Literal["maximize", "minimize"]
    """Which way is better."""


class WorkerSeconds(_Part):
    """Cost of all trials in seconds, each counted once for every worker of the gang."""

    used: float = 0.0
    """Seconds that gangs were held, over all attempts."""
    saved: float = 0.0
    """Seconds that ending early did not spend, at each trial's own pace."""
    overhead: float = 0.0
    """Seconds that trials which have ended spent outside the training loop; part of those used."""


class GpuHours(_Part):
    """Cost of all trials in GPU-hours: hours that gangs were held, each counted once for every GPU."""

    used: float = 0.0
    """GPU-hours that gangs were held, over all attempts; 0 where trials hold no GPU."""
    saved: float = 0.0
    """GPU-hours that ending early did not spend, at each trial's own pace."""
    price: float | None = None
    """Price of one GPU-hour, in whatever currency; null where the study names none."""


class GroupSummary(_Part):
    """One group of a study: its trials are compared with each other, and with no others."""

    name: str
    """What the group is called; its trials have this as their `group`."""
    value: Any
    """The value of the study's group key that its trials have."""
    best: tuple[int, ...] = ()
    """Numbers of its best trials, controls left out: one, or the Pareto front of several objectives."""
    planned_trials: int
    """Trials that the budget has room for in this group."""
    importances: Mapping[str, float] = {}
    """Parameter -> share of the variance of the first objective over the space; empty while too few trials tell."""
    worker_seconds: WorkerSeconds = WorkerSeconds()
    """What its trials have cost in worker-seconds."""
    gpu_hours: GpuHours = GpuHours()
    """What its trials have cost in GPU-hours."""


class Tracking(_Part):
    """Where the study is recorded run by run."""

    uri: str | None = None
    """The tracking server or store, without its password; null for a study that is kept out of it."""
    experiment: str | None = None
    """What all runs of the study are filed under."""
    run_id: str | None = None
    """The study's own run, the parent of its trials' runs; null until the server has it."""
    page: str | None = None
    """The page with its runs, to be put behind the address of a server; null until the server has one."""
    pending: int = 0
    """Entries of the journal that the server does not have yet."""
    error: str | None = None
    """What the records wait for, or null."""


class ReplicateSummary(_Part):
    """One seed of a trial that has ended."""

    seed: int
    """The seed of this replicate."""
    values: MetricValues
    """Metric -> value, named as those of the trial."""


class TrialSummary(_Part):
    """One parameter set of the study."""

    number: int
    """Number of the trial, from 0."""
    state: TrialState
    """What has become of the trial."""
    reason: str | None = None
    """Why it is in this state, where there is more to say."""
    group: str | None = None
    """Name of its group; null in a study without groups."""
    params: Mapping[str, Any]
    """Parameters that the space suggested, or those of a control: dotted key of the config -> value."""
    values: MetricValues = {}
    """Metric -> mean over replicates; `test.`, `untrained.` and `untrained.test.` stand before a name."""
    replicates: tuple[ReplicateSummary, ...] = ()
    """The replicates that have ended, in the order of their seeds."""
    steps: int = 0
    """Training steps done, over all replicates."""
    planned_steps: int
    """Training steps of all planned replicates."""
    worker_seconds: float = 0.0
    """Seconds that the trial's gangs were held, times their workers."""
    saved_worker_seconds: float = 0.0
    """Worker-seconds that ending early did not spend, at the trial's own pace."""
    gpu_hours: float = 0.0
    """GPU-hours that its gangs were held; 0 where the trial holds no GPU."""
    attempts: int = 0
    """Number of gangs that took the trial over, one after the other."""
    run_id: str | None = None
    """The trial's run on the tracking server; null until the server has it."""
    checkpoint: str | None = None
    """The finished model, or the newest checkpoint, as a path in the study's folder, or null where there is none (any
    more: `--keep`); with `--checkpoints` the URI of the model, or of the trial's folder."""
    retry_of: int | None = None
    """The failed trial that this one runs again, or null."""
    control: bool = False
    """Whether the trial is a control: an arm to compare with, outside the search."""
    confirms: int | None = None
    """The trial of the search that this one runs again with fresh seeds, or null."""
    latest: MetricValues = {}
    """Newest training loss and validation metrics."""


class ConfirmedGroup(_Part):
    """What is confirmed of one group, or of a study without groups."""

    name: str | None = None
    """What the group is called; null in a study without groups."""
    finalists: tuple[int, ...] = ()
    """Numbers of the best trials of the search, the best first."""
    controls: tuple[int, ...] = ()
    """Numbers of the complete controls, which are run again beside them."""
    missing: int = 0
    """How many finalists there are fewer than were asked for, because no more trials are complete."""
    winner: int | None = None
    """The finalist with the best mean on validation over the fresh seeds; null before one is confirmed whole."""


class ConfirmationSummary(_Part):
    """The second half of a study: its finalists, run again with seeds that the search has not used."""

    finalists: int
    """How many finalists of each group were asked for."""
    seeds: tuple[int, ...]
    """The fresh seeds, the same for all."""
    groups: tuple[ConfirmedGroup, ...]
    """What is confirmed of each group, in their order; one of a study without groups."""
    runs: tuple[TrialSummary, ...] = ()
    """The trials that do so, as far as they have begun; they are not among `trials` of the study."""

    @property
    def planned(self) -> int:
        """How many trials are run again."""
        return sum(len(one.finalists) + len(one.controls) for one in self.groups if one.finalists)

    def run_of(self, number: int) -> TrialSummary | None:
        """The newest run that confirms this trial of the search."""
        return next((run for run in reversed(self.runs) if run.confirms == number), None)

    def alone(self, name: str) -> ConfirmationSummary:
        """What is confirmed of this group, as if the study had it only."""
        groups = (one.model_copy(update={"name": None}) for one in self.groups if one.name == name)
        runs = (run.model_copy(update={"group": None}) for run in self.runs if run.group == name)
        return self.model_copy(update={"groups": tuple(groups), "runs": tuple(runs)})


class StudySummary(_Part):
    """A whole study."""

    format: Literal[2] = 2
    """Format of this document; a version of the platform reads its own and lower ones."""
    study: str
    """Name of the study, NAME.PROFILE for another than the default profile."""
    id: str
    """Id of this study, which no other study has."""
    profile: str
    """The profile that was run."""
    status: StudyStatus
    """What has become of the study."""
    reason: str | None = None
    """Why a launch looked at no more trials, where their parameters could not be run; else null."""
    question: str
    """What the study asks."""
    design: Literal["search", "paired"] = "search"
    """`paired` compares arms seed by seed."""
    parameter: str
    """The key that the study is about; tables put it first."""
    parameter_log: bool | None = None
    """Whether the space draws that parameter on a log scale; null where it draws it from no range of numbers."""
    group: str | None = None
    """The key whose values are the study's groups; null for a study without."""
    groups: tuple[GroupSummary, ...] = ()
    """The groups of the study in their order, each with a search of its own."""
    plane: tuple[str, str] | None = None
    """The pair of keys that the report maps, or null."""
    signals: tuple[str, ...] = ("loss",)
    """Signals of the training steps whose curves the report draws."""
    importances: Mapping[str, float] = {}
    """Parameter -> share of the variance of the first objective over the space; empty while too few trials tell, and
    where there are groups, which have their own."""
    objectives: tuple[ObjectiveSummary, ...]
    """What trials are judged by, the first one first."""
    best: tuple[int, ...] = ()
    """Numbers of the best trials, controls left out: one, or the Pareto front of several objectives; of each group, one
    group after the other."""
    planned_trials: int
    """Trials that the budget has room for, over all groups."""
    trials: tuple[TrialSummary, ...]
    """All trials of the search by number."""
    confirmation: ConfirmationSummary | None = None
    """What is run to confirm the search; null before it is over, and where nothing is to be confirmed."""
    worker_seconds: WorkerSeconds
    """What the study has cost in worker-seconds."""
    gpu_hours: GpuHours = GpuHours()
    """What the study has cost in GPU-hours."""
    wall_seconds: float = 0.0
    """Seconds that the study has run, over all launches."""
    metrics: Mapping[str, Metric] = {}
    """What the recipe says of every metric that it reports: name without a split -> what readers are told."""
    baselines: Mapping[str, MetricValues] = {}
    """Method, such as `bm25` -> metric -> value."""
    dataset: Mapping[str, str] = {}
    """Names, sizes and identities (sha256) of the inputs."""
    tracking: Tracking = Tracking()
    """The server or store that has its runs, and how far it has them."""
    updated: datetime
    """When this was written: UTC, ISO 8601."""

    def alone(self, group: GroupSummary) -> StudySummary:
        """The summary as it would be if the study had this group only: one without groups, whose trials keep their
        numbers."""
        trials = (trial.model_copy(update={"group": None}) for trial in self.trials if trial.group == group.name)
        confirmation = self.confirmation.alone(group.name) if self.confirmation else None
        told = {name: getattr(group, name) for name in GroupSummary.model_fields.keys() - {"name", "value"}}
        told |= {"group": None, "groups": (), "trials": tuple(trials), "confirmation": confirmation}
        return self.model_copy(update=told)

    @property
    def runs(self) -> tuple[TrialSummary, ...]:
        """All trials, those of the search and those that confirm it."""
        return self.trials + (self.confirmation.runs if self.confirmation else ())

    @property
    def planned_runs(self) -> int:
        """How many there will be of them, as far as that is known."""
        return self.planned_trials + (self.confirmation.planned if self.confirmation else 0)

    def text(self) -> str:
        """The document as it is written and printed; `read` brings it back."""
        return self.model_dump_json(indent=2)


def read(path: Path) -> StudySummary:
    """The summary in a file; ValueError with one sentence where there is none, or one of a later format."""
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist: no study was run in this folder; --storage names another") from None
    except OSError as error:
        raise ValueError(f"the summary of the study cannot be read: {told(error)}; --storage names another") from None
    except ValueError as error:
        raise ValueError(f"{path} is not a study's summary ({error}); {AGAIN}") from None
    if not isinstance(tree, dict):
        raise ValueError(f"{path} is not a study's summary: it is a {type(tree).__name__}, not an object; {AGAIN}")
    version = tree.get("format", 1)
    if isinstance(version, int) and version > FORMAT:
        raise ValueError(f"{path} has format {version}, this version reads {FORMAT}: use the version that wrote it")
    try:
        return StudySummary.model_validate(upgraded(tree) if version == 1 else tree)
    except ValidationError as error:
        raise ValueError(f"{path} is not a study's summary: {_fault(error)}; {AGAIN}") from None


def upgraded(tree: dict[str, Any]) -> dict[str, Any]:
    """A summary of format 1 in the words of format 2.

    The section with `tracking_uri` and the trials' runs, `..._run_id`, were named after the product that has them.
    """
    words = {"tracking_uri": "uri", "parent_run_id": "run_id"}
    tree = dict(tree) | {"format": FORMAT}
    section = next((key for key, value in tree.items() if isinstance(value, dict) and "tracking_uri" in value), None)
    if section is not None:
        recorded = tree.pop(section)
        named = {words.get(key, key): value for key, value in recorded.items()}
        tree["tracking"] = named | {"pending": named.get("pending") or 0}
    if isinstance(tree.get("trials"), list):
        tree["trials"] = [
            {"run_id" if key.endswith("_run_id") else key: value for key, value in trial.items()}
            if isinstance(trial, dict)
            else trial
            for trial in tree["trials"]
        ]
    return tree


def _fault(error: ValidationError) -> str:
    found = error.errors()
    missing = [".".join(map(str, one["loc"])) for one in found if one["type"] == "missing"]
    if missing:
        return f"it lacks {', '.join(missing)}"
    return f"{'.'.join(map(str, found[0]['loc']))}: {found[0]['msg']}"
