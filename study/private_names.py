"""Every private name of Ray and Optuna that this code leans on, and what it is needed for; no other module has one.

Their authors may rename them in any release. tests/unit/test_private_names.py then says which name went and what it was
for. What is overridden is a mixin here, which gives the private method a name of ours. Neither library is imported
before something is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

HEAD = "node:__internal_head__"
"""Ray's resource of the node that the cluster's head runs on."""
TEMPORARY_FOLDER = "_temp_dir"
"""Keyword of `ray.init`: the folder of sockets and logs."""
CHATTY = (
    "ray.dashboard.modules.dashboard_sdk",
    "ray._private.runtime_env.packaging",
    "ray._private.authentication.authentication_token_setup",
)
"""Loggers that tell users of uploads and tokens what they cannot use."""
STORAGE_WRITES = (
    "create_new_study", "delete_study", "set_study_user_attr", "set_study_system_attr", "_create_new_trial",
    "_set_trial_param", "set_trial_state_values", "set_trial_intermediate_value", "set_trial_user_attr",
    "set_trial_system_attr",
)  # fmt: skip
"""The methods of Optuna's `RDBStorage` that change the database, as its cache calls them."""

NODE_HELPERS = ("start_log_monitor", "start_monitor", "start_api_server")
"""What Ray's head node starts beside the processes that do its work: the one that copies logs to the driver, the
autoscaler's, and the dashboard's, which starts without a dashboard too."""
SCALING_REQUESTS = ("_send_resource_request", "_maybe_send_resource_request", "_cancel_resource_request")
"""What Ray Train's policy of a fixed number of workers tells a helper process that asks the autoscaler."""


class Private(NamedTuple):
    """A private name: the module it is in, its path there, the parameters that are given, and what it is for."""

    module: str
    path: str
    parameters: tuple[str, ...]
    purpose: str


NAMES = (
    Private("ray._private.state", "state.get_draining_nodes", (),
            "nodes that are about to go have no room for trials"),
    Private("ray._private.authentication.authentication_token_setup", "maybe_enable_token_auth_if_token_available",
            ("warn_if_disabled",), "`study.submit` finds the user's token as Ray's own commands do"),
    *(Private("ray._private.node", f"Node.{name}", ("self",), "no helper process on a cluster that ends with its study")
      for name in NODE_HELPERS),
    Private("ray.train.v2.api.data_parallel_trainer", "DataParallelTrainer._initialize_and_run_controller",
            ("self", "controller_init_kwargs"), "no helper process that asks an autoscaler where there is none"),
    *(Private("ray.train.v2._internal.execution.scaling_policy", f"FixedScalingPolicy.{name}", ("self",),
              "no helper process that asks an autoscaler where there is none")
      for name in SCALING_REQUESTS),
    Private("ray.train.v2._internal.callbacks", "DatasetsCallback", (), "no helper process for Ray datasets"),
    Private("ray.train.v2._internal.callbacks.placement_group_callback", "PlacementGroupCleanerCallback", (),
            "no helper process beside a trial on a cluster that ends with its study"),
    Private("ray.train.v2.api.data_parallel_trainer", "DataParallelTrainer._create_default_callbacks", ("self",),
            "the two helper processes are left out here"),
    Private("ray.train.v2._internal.execution.context", "get_train_context", (),
            "a worker asks whether its node is about to go"),
    Private("ray.train.v2._internal.execution.context", "TrainContext.preemption_context", (),
            "a worker asks whether its node is about to go"),
    Private("ray.train.v2._internal.execution.preemption", "PreemptionContext.preemption_info", (),
            "a worker asks whether its node is about to go"),
    Private("ray.train.v2._internal.exceptions", "WorkerGroupStartupTimeoutError", (),
            "a gang that found no room is no failed one"),
    Private("ray._private.state", "state.available_resources_per_node", (),
            "what others hold on a shared cluster is no room for trials"),
    Private("ray.job_submission", "JobSubmissionClient._do_request", ("self", "method", "endpoint"),
            "requests of `study.submit` end when the server does not answer"),
    Private("ray.job_submission", "JobSubmissionClient._raise_error", ("self", "r"),
            "what the job server refuses is told in one sentence"),
    Private("optuna.distributions", "BaseDistribution._contains", ("self", "param_value_in_internal_repr"),
            "a given point has to be in the search space"),
    Private("optuna.study", "Study._storage", (), "a group is shown a storage that has its own trials only"),
    Private("optuna.trial", "FrozenTrial._trial_id", (), "a trial is opened again by its id in the database"),
    Private("optuna.samplers", "QMCSampler._find_sample_id", ("self", "study", "search_space"),
            "a trial's place in the Sobol sequence is a function of its number"),
    Private("optuna.storages", "RDBStorage._get_trials",
            ("self", "study_id", "states", "included_trial_ids", "trial_id_greater_than"),
            "a trial that runs is not read again for every other one that reports"),
    *(Private("optuna.storages", f"RDBStorage.{name}", ("self",), "a head that was deposed writes nothing more")
      for name in STORAGE_WRITES),
)  # fmt: skip


def draining_nodes() -> Mapping[str, int]:
    """Id of each node that Ray was told will go -> when, in milliseconds since the epoch."""
    from ray._private.state import state

    return state.get_draining_nodes()


def free_resources() -> Mapping[str, Mapping[str, float]]:
    """Id of each node -> what of its resources nobody holds just now."""
    from ray._private.state import state

    return state.available_resources_per_node()


def gang_lacked_room(failure: Exception) -> bool:
    """Whether a gang of Ray Train did not start because the cluster had no room for it for as long as Train waits."""
    from ray.train.v2._internal.exceptions import WorkerGroupStartupTimeoutError

    return isinstance(failure, WorkerGroupStartupTimeoutError)


def use_token() -> None:
    """Send the user's token with requests to a cluster where there is one; `AuthenticationError` where it is amiss."""
    from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available

    maybe_enable_token_auth_if_token_available(warn_if_disabled=False)


def dataset_helper() -> type:
    """The callback of Ray Train that starts a process for Ray datasets."""
    from ray.train.v2._internal.callbacks import DatasetsCallback

    return DatasetsCallback


def cleaning_helper() -> type:
    """The callback of Ray Train that starts a process which frees the workers of a trial that is killed."""
    from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback

    return PlacementGroupCleanerCallback


@contextmanager
def no_node_helpers() -> Iterator[None]:
    """`ray.init` in this block starts a head node without `NODE_HELPERS`."""
    from ray._private.node import Node

    kept = {name: getattr(Node, name) for name in NODE_HELPERS}
    for name in kept:
        setattr(Node, name, nothing)
    try:
        yield
    finally:
        for name, method in kept.items():
            setattr(Node, name, method)


def nothing(*arguments: Any, **keywords: Any) -> None:
    """In place of a method that is left out."""


def node_will_go() -> bool:
    """Whether Ray was told that a node of this worker's gang will be taken away."""
    from ray.train.v2._internal.execution.context import get_train_context

    return get_train_context().preemption_context.preemption_info is not None


class ChosenHelpers:
    """Before Ray Train's `DataParallelTrainer`: `chosen` says which of its callbacks are used, and `asks_autoscaler`
    whether a helper process asks the autoscaler for the gang's room."""

    asks_autoscaler: bool

    def chosen(self, callbacks: list[Any]) -> list[Any]:
        raise NotImplementedError

    def _initialize_and_run_controller(self, **keywords: Any) -> Any:
        if not self.asks_autoscaler:
            # The policy goes to the controller's process as it is here.
            for name in SCALING_REQUESTS:
                setattr(keywords["scaling_policy"], name, nothing)
        return super()._initialize_and_run_controller(**keywords)  # type: ignore[misc]

    def _create_default_callbacks(self) -> list[Any]:
        return self.chosen(super()._create_default_callbacks())  # type: ignore[misc]


class OwnRequests:
    """Before Ray's `JobSubmissionClient`: `request` and `refuse` say how a server is asked and what a refusal is."""

    def request(self, method: str, send: Callable[..., Any]) -> Any:
        """The answer to a request of this HTTP method, made by `send(timeout=...)`."""
        raise NotImplementedError

    def refuse(self, answer: Any) -> None:
        """Raise what an answer without success means."""
        raise NotImplementedError

    def _do_request(self, method: str, endpoint: str, **keywords: Any) -> Any:
        ask = super()._do_request  # type: ignore[misc]
        return self.request(method, lambda **more: ask(method, endpoint, **keywords, **more))

    def _raise_error(self, r: Any) -> None:
        self.refuse(r)


class OwnPlace:
    """Before Optuna's `QMCSampler`: the point of the sequence at `place`, whatever has been counted so far."""

    place: int

    def _find_sample_id(self, study: Any, search_space: Any) -> int:
        return self.place


class ReadOnce:
    """Before Optuna's `RDBStorage`, in the one process that writes: of the trials that its cache asks for, those that
    were `written` since it had them. Optuna's cache reads all that have not ended, at every look."""

    written: set[int]
    """Ids of trials that were made, or written to."""
    newest: dict[int, int]
    """Study -> the highest id of its trials that the cache has."""

    def _get_trials(
        self, study_id: int, states: Any, included_trial_ids: set[int], trial_id_greater_than: int
    ) -> list[Any]:
        if not included_trial_ids and trial_id_greater_than < 0:
            # All trials, for a cache that has none yet.
            return super()._get_trials(study_id, states, included_trial_ids, trial_id_greater_than)  # type: ignore[misc]
        written = self.written.copy()
        if not written:
            return []
        newest = self.newest.get(study_id, -1)
        found = super()._get_trials(study_id, states, written, newest)  # type: ignore[misc]
        self.written -= written
        self.newest[study_id] = max((trial._trial_id for trial in found), default=newest)
        return found


def storage_of(study: Any) -> Any:
    """The storage that an Optuna study is kept in."""
    return study._storage


def storage_id(trial: Any) -> int:
    """The id in its database of an Optuna trial; its number is another one."""
    return trial._trial_id


def show_constraint(trial: Any, value: float) -> None:
    """Store a constraint of an Optuna trial as optuna-dashboard reads it: as a list, which Optuna itself once wrote."""
    trial.storage.set_trial_system_attr(trial._trial_id, "constraints", [value])


def holds(distribution: Any, value: Any) -> bool:
    """Whether an Optuna distribution can suggest the value."""
    try:
        return distribution._contains(distribution.to_internal_repr(value))
    except ValueError:
        return False
