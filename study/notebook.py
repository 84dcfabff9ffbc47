"""What a study has found, for notebooks and scripts: `study.open(FOLDER)`.

Nothing is started and nothing is written, but for copies of models that an object store has.
"""

from __future__ import annotations

import difflib
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from study.profiles import STUDIES
from study.protocol.folder import StudyFolder
from study.protocol.states import TrialState
from study.protocol.summary import TrialSummary, read
from study.reporting.conclusions import answer
from study.reporting.exported_model import local
from study.reporting.formatting import at, best_trial, cost, counts, no_result
from study.reporting.groups import grouped, headline
from study.reporting.results import Findings
from trainables import card, overrides, trainers
from trainables.places import absolute
from trainables.training_record import TrainingRecord

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd
    from sentence_transformers import SentenceTransformer, SparseEncoder

    from trainables.recipe import Encoder


class RecordedStudy:
    """A study as its folder has it.

    Each part is read when it is first asked for, and kept; `study.open` again shows what has come since. Columns of the
    tables are listed under "Tables".
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        """ValueError with the nearest studies where the folder is none."""
        path = absolute(str(folder), Path.cwd())
        self._folder = StudyFolder(path)
        if not self._folder.summary.exists():
            raise ValueError(_no_study(path))
        self.folder = path
        """Where the study is."""
        self.summary = read(self._folder.summary)
        """The whole of `summary.json`: a `study.protocol.summary.StudySummary`."""

    def __repr__(self) -> str:
        spent = cost(self.summary.worker_seconds, self.summary.gpu_hours)
        return f"{self.summary.study}: {self.answer}\n{counts(self.summary)}. {spent}."

    @property
    def answer(self) -> str:
        """What the study has found, in one or two sentences, as the report begins."""
        if self.summary.groups:
            return headline(self.summary.group or "", grouped(self._folder, self.summary))
        return answer(self._findings)

    @cached_property
    def groups(self) -> dict[str, RecordedStudy]:
        """Name of each group -> the study as if it had this group only; {} for a study without groups.

        `curves` and `per_query` of each have the figures of all trials.
        """
        found = {group.name: RecordedStudy(self.folder) for group in self.summary.groups}
        for group in self.summary.groups:
            found[group.name].summary = self.summary.alone(group)
        return found

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row per trial: state, parameters (`params.KEY`), means over replicates (`metrics.NAME`), steps, cost."""
        from study.reporting import frames

        return frames.trials(self.summary)

    @cached_property
    def replicates(self) -> pd.DataFrame:
        """One row per replicate that has ended, with its seed and its own metrics."""
        from study.reporting import frames

        return frames.replicates(self.summary)

    @cached_property
    def confirmation(self) -> pd.DataFrame:
        """One row per fresh seed of each trial that was run again to confirm the search: `confirms` is its number
        there. Empty where nothing is confirmed."""
        from study.reporting import frames

        return frames.confirmation(self.summary)

    @cached_property
    def curves(self) -> pd.DataFrame:
        """One row per replicate, step and metric: signals of training (`train.loss`) and evaluations."""
        from study.reporting import frames

        return frames.curves(self._folder)

    @cached_property
    def per_query(self) -> pd.DataFrame:
        """One row per finished replicate, split, metric and query or pair."""
        from study.reporting import frames

        return frames.per_query(self._folder)

    def figure(self, name: str) -> alt.LayerChart:
        """A figure of the report as an Altair chart, which a notebook shows: `curve`, `pareto`, `validation_curve`, ...

        A study with groups has one of its own, `groups`, of all of them together.
        Raises ValueError with the names of the figures that the study has.
        """
        from study.reporting.figures import figures, group_figures
        from study.reporting.groups import grouped

        if self.summary.groups:
            together = group_figures(grouped(self._folder, self.summary))
            if name in together:
                return together[name]
            names = ", ".join(group.name for group in self.summary.groups)
            raise ValueError(
                f"{self.summary.study} has figures for each group: groups[NAME].figure('{name}') of {names}"
            )
        drawn = figures(self._findings)
        if name not in drawn:
            has = f"there are {', '.join(drawn)}" if drawn else "there is none yet"
            raise ValueError(f"{self.summary.study} has no figure '{name}'; {has}")
        return drawn[name]

    @property
    def best(self) -> RecordedTrial:
        """The best finished trial, with several objectives the best one in the first of them.

        Raises ValueError that says why there is none; in a study with groups each of them has its own.
        """
        if self.summary.groups:
            names = ", ".join(group.name for group in self.summary.groups)
            raise ValueError(f"{self.summary.study} has a best trial for each group: groups[NAME].best of {names}")
        found = best_trial(self.summary)
        if found is None:
            raise ValueError(f"{self.summary.study} has no best trial. {no_result(self.summary)}")
        return RecordedTrial(self._folder, found, self.summary.parameter)

    def trial(self, number: int) -> RecordedTrial:
        """The trial of that number; ValueError where there is none."""
        found = next((trial for trial in self.summary.trials if trial.number == number), None)
        if found is None:
            has = f"there are 0 to {len(self.summary.trials) - 1}" if self.summary.trials else "there is none yet"
            raise ValueError(f"{self.summary.study} has no trial {number}; {has}")
        return RecordedTrial(self._folder, found, self.summary.parameter)

    @cached_property
    def _findings(self) -> Findings:
        return Findings(self._folder, self.summary)


class RecordedTrial:
    """One parameter set of a study, and the models that its replicates have left."""

    def __init__(self, storage: StudyFolder, summary: TrialSummary, parameter: str) -> None:
        self._folder = storage
        self._parameter = parameter
        self.summary = summary
        """All that `summary.json` has of it: a `study.protocol.summary.TrialSummary`."""

    def __repr__(self) -> str:
        return f"trial {self.number} ({at(self.summary, self._parameter)}): {self.summary.state}"

    @property
    def number(self) -> int:
        """Its number, from 0."""
        return self.summary.number

    @property
    def params(self) -> dict[str, Any]:
        """Its parameters: key of the config -> value."""
        return dict(self.summary.params)

    @property
    def metrics(self) -> dict[str, float | None]:
        """Its metrics, means over replicates: name -> value, None for one that is not finite."""
        return dict(self.summary.values)

    def model_folder(self, replicate: int = 0) -> Path:
        """The folder of a replicate's model, counted from 0, in Hugging Face format.

        A model that an object store has is copied into the cache of the study's folder first. Raises ValueError where
        the trial is not finished, or its model was removed.
        """
        if self.summary.state != TrialState.COMPLETE:
            raise ValueError(f"trial {self.number} is {self.summary.state}: only a complete trial has a model")
        return local(self._folder, self.summary, replicate)

    def model(self, replicate: int = 0) -> SentenceTransformer | SparseEncoder:
        """A replicate's model as sentence-transformers opens it: with the lengths, prefixes and similarity of training.

        Raises ImportError where sentence-transformers is not installed, and ValueError as `model_folder`, or where the
        trainer's models are of a kind that it does not open. `encoder` needs no more than what trains.
        """
        folder = self.model_folder(replicate)
        kind = card.opened_by(folder)
        if kind == "AutoModel":
            raise ValueError(f"{folder} has no modules of sentence-transformers; encoder() opens it")
        try:
            import sentence_transformers
        except ModuleNotFoundError as error:
            if error.name != "sentence_transformers":
                raise
            raise ImportError(
                "model() needs sentence-transformers: pip install 'sentence-transformers>=6.2'; encoder() does without"
            ) from None
        found: SentenceTransformer | SparseEncoder = getattr(sentence_transformers, kind)(str(folder))
        return found

    def encoder(self, replicate: int = 0, device: str = "cpu") -> Encoder:
        """A replicate's model as its own trainer opens it, on a device of torch: what was evaluated.

        Raises ValueError as `model_folder`, or for a model of an earlier version, without a record of its training.
        """
        folder = self.model_folder(replicate)
        record = TrainingRecord.read(folder)
        import torch

        config = overrides.validate(trainers.module(record.trainer, "config").Config, record.config)
        found: Encoder = trainers.module(record.trainer, "recipe").Encoder.open(folder, config, torch.device(device))
        return found


def _no_study(folder: Path) -> str:
    """Why the folder is no study's, with the studies that may be meant."""
    if folder.is_file():
        own = f", such as {folder.parent}" if StudyFolder(folder.parent).summary.exists() else ""
        return f"{folder} is a file; a study's folder is needed{own}"
    what = (
        f"is no study's folder: it has no {StudyFolder(folder).summary.name}" if folder.is_dir() else "does not exist"
    )
    around = (folder, folder / STUDIES, folder.parent, STUDIES.absolute())
    there = {one.path.name: one.path for above in around for one in StudyFolder.within(above)}
    near = difflib.get_close_matches(folder.name, there, n=3) or list(there)[:3]
    return f"{folder} {what}" + (f"; nearest: {', '.join(str(there[name]) for name in near)}" if near else "")
