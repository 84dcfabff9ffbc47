"""Ray Train's trainer without the helper processes that a trial here has no use for.

Each of them is a Python process that imports Ray (about 190 MB, and on two cores some seconds of the
start of every trial): the dataset manager, when no Ray dataset is passed; the placement-group
cleaner, which watches for a trial that is killed from outside; and the coordinator of what is asked of an
autoscaler. Trials here end by returning, and the cluster that a study starts for itself ends with it and
has no autoscaler; on a shared cluster the last two stay.
"""

from __future__ import annotations

from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from study import private_names


class Gang(private_names.ChosenHelpers, DataParallelTrainer):
    """A gang of workers; `own_cluster` says that the cluster ends with the study."""

    def __init__(self, *arguments, own_cluster: bool, **keywords) -> None:
        super().__init__(*arguments, **keywords)
        unused = [private_names.dataset_helper()]
        if own_cluster:
            unused.append(private_names.cleaning_helper())
        self._unused = tuple(unused)
        self.asks_autoscaler = not own_cluster

    def chosen(self, callbacks):
        return [callback for callback in callbacks if not isinstance(callback, self._unused)]


def taken_away() -> str | None:
    """A sentence where Ray was told that a node of this gang will be taken away; asked in a worker.

    `ray.train.get_preemption_info` says the same, but only to all ranks at once and through the controller.
    """
    return "a node of its gang is about to be taken away" if private_names.node_will_go() else None
