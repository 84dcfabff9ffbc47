"""Ray Train's trainer without the helper processes that a trial here has no use for.

Each of them is a Python process that imports Ray (about 190 MB, and on two cores some seconds of the
start of every trial): the dataset manager, when no Ray dataset is passed, and the placement-group
cleaner, which watches for a trial that is killed from outside. Trials here end by returning, and the
cluster that a study starts for itself ends with it; on a shared cluster the cleaner stays.
"""

from __future__ import annotations

from ray.train.v2._internal.callbacks import DatasetsCallback
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2._internal.execution.context import get_train_context
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer


class Gang(DataParallelTrainer):
    """A gang of workers; `own_cluster` says that the cluster ends with the study."""

    def __init__(self, *arguments, own_cluster: bool, **keywords) -> None:
        super().__init__(*arguments, **keywords)
        self._unused = (DatasetsCallback, PlacementGroupCleanerCallback) if own_cluster else (DatasetsCallback,)

    def _create_default_callbacks(self):
        return [found for found in super()._create_default_callbacks() if not isinstance(found, self._unused)]


def taken_away() -> str | None:
    """A sentence where Ray was told that a node of this gang will be taken away; asked in a worker.

    `ray.train.get_preemption_info` says the same, but only to all ranks at once and through the controller.
    """
    info = get_train_context().preemption_context.preemption_info
    return None if info is None else "a node of its gang is about to be taken away"
