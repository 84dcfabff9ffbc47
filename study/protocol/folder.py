"""Where everything is that a study writes: the one place that knows how its folder is laid out.

    lock, ledger.lock                     held by a launch, and by its ledger
    ledger.db                             the ledger, unless it is kept in a database server
    study.json                            the study's id, and where the folder was last used
    journal.jsonl                         every event and every logged step
    marks.json                            what a launch would have to read the journal for
    summary.json                          the study as it stands
    tracking.json                         how far the journal has been replayed into the tracking store
    report.html, report.md, FIGURE.png    the answer
    trials.csv, curves.csv, per_query.parquet  its figures as tables
    logs/driver.log, check.log            the launch, and its check of the inputs
    logs/trial-NNNN.log, ray-LAUNCH/      the workers of a trial; what Ray has logged
    cache/                                prepared texts
    trials/NNNN/replicate-R/              a replicate, as `trainables.checkpoints` lays it out
    best/trial-NNNN/                      a copy of the best model, where an object store has it
    ray/                                  scratch of a launch
    evaluation/                           lock, logs and cache of full evaluations
    evaluation/SUITE.json, .md, .svg      a suite's figures, its page, and the curves over prefixes on it
    evaluation/SUITE/DATASET/trial-NNNN-replicate-R.json

On an object store trials lie below URI/ID/trials/ in the same order. The classes name places and list what is there;
none of them writes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from study.protocol.journal import E, StudyBegun, first, read
from study.uris import TRACKING_FILE
from trainables.checkpoints import ATTEMPT, MODEL, RESULT, manifests, step_folders
from trainables.object_store import below

_TRIALS, _REPLICATE = "trials", "replicate-"


@dataclass(frozen=True)
class ReplicateFolder:
    """What one replicate of a trial has written."""

    path: Path

    @property
    def trial(self) -> int:
        """Number of the trial; ValueError where the folder has no such name."""
        return int(self.path.parent.name)

    @property
    def number(self) -> int:
        """Number of the replicate within its trial; ValueError where the folder has no such name."""
        return int(self.path.name.removeprefix(_REPLICATE))

    @property
    def result(self) -> Path:
        """The file that says how the replicate ended."""
        return self.path / RESULT

    @property
    def model(self) -> Path:
        """The folder of the finished model."""
        return self.path / MODEL

    @property
    def attempt(self) -> Path:
        """The file with the number of the attempt that may write here."""
        return self.path / ATTEMPT

    @property
    def used(self) -> bool:
        """Whether the folder holds something of use: a result, or a checkpoint, even a damaged one."""
        return self.result.exists() or bool(step_folders(self.path))

    def stamped(self) -> list[Path]:
        """The files that carry the study's id."""
        return [path for path in (self.result, *manifests(self.path)) if path.exists()]


@dataclass(frozen=True)
class TrialFolder:
    """What the replicates of one trial have written."""

    path: Path

    def replicate(self, number: int) -> ReplicateFolder:
        """The folder of a replicate, there or not."""
        return ReplicateFolder(self.path / f"{_REPLICATE}{number}")

    def replicates(self) -> list[ReplicateFolder]:
        """The replicates whose folders are there, sorted by name."""
        return [ReplicateFolder(path) for path in sorted(self.path.glob(f"{_REPLICATE}*"))]

    @property
    def every_replicate(self) -> Path:
        """The folders of its replicates, as a pattern to be shown."""
        return self.path / f"{_REPLICATE}*"

    def newest(self) -> Path | None:
        """The newest checkpoint or finished model of the trial; None before the first checkpoint."""
        for replicate in reversed(self.replicates()):
            if steps := step_folders(replicate.path):
                return steps[0]
            if replicate.model.exists():
                return replicate.model
        return None


@dataclass(frozen=True)
class WorkFolder:
    """A folder that one command at a time works in."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def lock(self) -> Path:
        """The file that the command holds a lock on."""
        return self.path / "lock"

    @property
    def cache(self) -> Path:
        """A folder for what can be made again."""
        return self.path / "cache"

    @property
    def logs(self) -> Path:
        """A folder for logs, which nobody reads while all goes well."""
        return self.path / "logs"

    @property
    def driver_log(self) -> Path:
        """The file for what libraries print into the command's own process."""
        return self.logs / "driver.log"

    def ray_logs(self, launch: str) -> Path:
        """A folder for the logs of a cluster of the command's own."""
        return self.logs / f"ray-{launch}"

    @property
    def scratch(self) -> Path:
        """A folder for what Ray Tune and Ray Train write during a launch."""
        return self.path / "ray"


@dataclass(frozen=True)
class EvaluationFolder(WorkFolder):
    """What full evaluations of a study's trials write."""

    def figures(self, suite: str) -> Path:
        """The file with all figures of a suite."""
        return self.path / f"{suite}.json"

    def page(self, suite: str) -> Path:
        """The page with the tables of a suite, for readers."""
        return self.path / f"{suite}.md"

    def picture(self, suite: str) -> Path:
        """The figure on that page, where models were measured at prefixes of their vectors."""
        return self.path / f"{suite}.svg"

    def result(self, suite: str, dataset: str, trial: int, replicate: int) -> Path:
        """The file with the metrics of one replicate on one collection."""
        return self.path / suite / dataset / f"{trial_name(trial)}-{_REPLICATE}{replicate}.json"


@dataclass(frozen=True)
class StudyFolder(WorkFolder):
    """What a study writes."""

    @classmethod
    def within(cls, folder: Path) -> list[StudyFolder]:
        """The studies whose folders are in this one, by name."""
        return [cls(path.parent) for path in sorted(folder.glob("*/summary.json"))]

    @property
    def ledger_lock(self) -> Path:
        """The file that the ledger holds a lock on; the ledger may outlive a launch that was killed."""
        return self.path / "ledger.lock"

    @property
    def database(self) -> Path:
        """The database of the ledger, where it is kept in the folder."""
        return self.path / "ledger.db"

    @property
    def shared_tracking(self) -> Path:
        """A tracking store beside the folder, for all studies there."""
        return self.path.parent / TRACKING_FILE

    @property
    def identity(self) -> Path:
        """The file that says whose folder this is, and where it was when it was last used."""
        return self.path / "study.json"

    @property
    def journal(self) -> Path:
        """The journal: every event and every logged step."""
        return self.path / "journal.jsonl"

    @property
    def marks(self) -> Path:
        """The file with what a ledger has to know of its journal."""
        return self.path / "marks.json"

    @property
    def summary(self) -> Path:
        """The file `summary.json`: the study as it stands."""
        return self.path / "summary.json"

    @property
    def tracking(self) -> Path:
        """The file that says how far the journal has been replayed into the tracking store."""
        return self.path / "tracking.json"

    @property
    def report(self) -> Path:
        """The page with the answer."""
        return self.path / "report.html"

    @property
    def report_text(self) -> Path:
        """The answer in words and tables, in Markdown."""
        return self.path / "report.md"

    def figure(self, name: str) -> Path:
        """The PNG of a figure of the report."""
        return self.path / f"{name}.png"

    def figures(self) -> list[Path]:
        """The figures that are there, by name."""
        return sorted(self.path.glob("*.png"))

    @property
    def trials_table(self) -> Path:
        """The file with a row for each trial."""
        return self.path / "trials.csv"

    @property
    def curves_table(self) -> Path:
        """The file with a row for each step and metric of a replicate."""
        return self.path / "curves.csv"

    @property
    def per_query_table(self) -> Path:
        """The file with a row for each query or pair, split and metric of a replicate."""
        return self.path / "per_query.parquet"

    @property
    def check_log(self) -> Path:
        """The file for what the check of the inputs prints."""
        return self.logs / "check.log"

    def trial_log(self, number: int) -> Path:
        """The file for what the workers of a trial log."""
        return self.logs / f"{trial_name(number)}.log"

    @property
    def every_trial_log(self) -> Path:
        """The logs of all trials, as a pattern to be shown."""
        return self.logs / "trial-*.log"

    def all_logs(self) -> list[Path]:
        """The logs that are there of the study's own processes, by name."""
        return sorted(self.logs.glob("*.log"))

    @property
    def trials(self) -> Path:
        """The folder of all trials."""
        return self.path / _TRIALS

    def trial(self, number: int) -> TrialFolder:
        """The folder of a trial, there or not."""
        return TrialFolder(self.trials / _numbered(number))

    def replicate(self, trial: int, replicate: int) -> ReplicateFolder:
        """The folder of a replicate, there or not."""
        return self.trial(trial).replicate(replicate)

    def all_trials(self) -> list[TrialFolder]:
        """The folders of all trials that are there, by name."""
        return [TrialFolder(path) for path in sorted(self.trials.glob("*"))]

    def replicates(self) -> list[ReplicateFolder]:
        """The folders of all replicates that are there, by name."""
        return [ReplicateFolder(path) for path in sorted(self.path.glob(f"{_TRIALS}/*/{_REPLICATE}*"))]

    def best(self, number: int) -> Path:
        """A folder for copies of what an object store has of the best trial."""
        return self.path / "best" / trial_name(number)

    @property
    def evaluation(self) -> EvaluationFolder:
        """The folder of full evaluations."""
        return EvaluationFolder(self.path / "evaluation")

    # --- the journal, for those who read it whole ------------------------------------------------

    def launches(self) -> list[StudyBegun]:
        """The launches on record, oldest first."""
        return list(self.entries(StudyBegun))

    def entries(self, kind: type[E]) -> Iterator[E]:
        """The journal's entries of one kind; none where there is no journal. Raises `protocol.journal.Unreadable`."""
        return read(self.journal, kind)

    def first_entry(self) -> StudyBegun | None:
        """What the journal begins with, which says whose it is; None where that is nothing. Raises `Unreadable`."""
        return first(self.journal)

    # --- places on record ------------------------------------------------------------------------

    def inside(self, place: str | Path) -> str:
        """The place as it is put on record, so that a folder that is moved takes it along.

        It is relative to the folder; a URI, and what lies elsewhere, stays as it is.

        >>> StudyFolder(Path("/studies/k")).inside("/studies/k/trials/0003/replicate-0/model")
        'trials/0003/replicate-0/model'
        >>> StudyFolder(Path("/studies/k")).inside("s3://bucket/k/trials/0003")
        's3://bucket/k/trials/0003'
        """
        path = Path(place)
        return path.relative_to(self.path).as_posix() if path.is_relative_to(self.path) else str(place)

    def resolved(self, place: str) -> str:
        """Where a place on record is now: a URI, or an absolute path.

        Earlier versions recorded absolute paths. Of one that the folder has left, the longest end that is in the
        folder counts; a path with no such end stays as it is.
        """
        if "://" in place:
            return place
        path = Path(place)
        if not path.is_absolute():
            return str(self.path / path)
        ends = (self.path.joinpath(*path.parts[start:]) for start in range(1, len(path.parts)))
        return str(next((end for end in ends if end.exists()), path))

    def traces(self) -> list[Path]:
        """What a study has left in the folder and a new study would take for its own."""
        return [
            path
            for path in (self.identity, self.journal, self.summary, self.database, self.trials)
            if os.path.lexists(path)
        ]


def trial_name(number: int) -> str:
    """What files of a trial outside its folder are called.

    >>> trial_name(3)
    'trial-0003'
    """
    return f"trial-{_numbered(number)}"


def stored_trial(uri: str, study_id: str, number: int) -> str:
    """Where the object store at `uri` keeps what the replicates of a trial write.

    >>> stored_trial("s3://bucket/all?region=eu-west-1", "k-0123", 3)
    's3://bucket/all/k-0123/trials/0003?region=eu-west-1'
    """
    return below(uri, study_id, _TRIALS, _numbered(number))


def stored_replicate(trial: str, replicate: int) -> str:
    """Where an object store keeps a replicate, below the URI of its trial."""
    return below(trial, f"{_REPLICATE}{replicate}")


def stored_model(trial: str, replicate: int) -> str:
    """Where an object store keeps the finished model of a replicate, below the URI of its trial."""
    return below(stored_replicate(trial, replicate), MODEL)


def trial_of(stored: str) -> str:
    """The URI of a trial, from that of something in the folder of one of its replicates.

    >>> trial_of("s3://bucket/all/k-0123/trials/0003/replicate-0/model?region=eu-west-1")
    's3://bucket/all/k-0123/trials/0003?region=eu-west-1'
    """
    uri, mark, settings = stored.partition("?")
    return uri.rpartition(f"/{_REPLICATE}")[0] + mark + settings


def _numbered(number: int) -> str:
    return f"{number:04d}"
