"""The Optuna study behind a ledger: opened, checked to be the same one, explored, sampled."""

from __future__ import annotations

import hashlib
import uuid
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
from optuna.distributions import BaseDistribution, distribution_to_json
from optuna.storages import RDBStorage
from optuna.trial import TrialState
from sqlalchemy.exc import SQLAlchemyError

from study.spec import Pruner, Study
from study.tracking_uri import check_quoted, masked, with_driver
from trainables import overrides
from trainables.object_store import place_of

FORMAT = 1
"""Version of what this module stores; a ledger with a higher one is refused."""

FINAL = ("complete", "pruned", "collapsed", "failed")


class Refused(ValueError):
    """The ledger cannot serve this request; the message says what to do."""


def default_url(storage: Path) -> str:
    """SQLite beside the results."""
    return f"sqlite:///{storage.resolve() / 'ledger.db'}"


def check_url(url: str) -> None:
    """Raise ValueError, without the password, unless a ledger can be kept at this SQLAlchemy URL."""
    shown = masked(url)
    try:
        check_quoted(url)
        engine = sqlalchemy.create_engine(with_driver(url), poolclass=sqlalchemy.NullPool)
        if engine.dialect.name != "sqlite":
            engine.connect().close()
    except (SQLAlchemyError, ImportError, ValueError) as error:
        reason = masked(str(getattr(error, "orig", None) or error).strip().splitlines()[0])
        raise ValueError(
            f"--ledger {shown}: {reason}; accepted are sqlite:////absolute/path.db and URLs of a database server "
            "that answers and whose driver is installed, such as postgresql://USER@HOST/DATABASE"
        ) from error
    if engine.dialect.name == "sqlite" and not Path(engine.url.database or "").resolve().parent.is_dir():
        raise ValueError(f"--ledger {shown}: its folder does not exist; create it first")


def holds(url: str, name: str) -> bool:
    """Whether the storage already has a study of this name."""
    return name in optuna.get_all_study_names(_storage(url))


def _storage(url: str) -> RDBStorage:
    """Optuna's storage; a connection that a server or a firewall has ended meanwhile is opened again."""
    return RDBStorage(with_driver(url), engine_kwargs={"pool_pre_ping": True})


def open_study(url: str, name: str, spec: Study, checkpoints: str | None = None) -> optuna.Study:
    """Create the Optuna study or open the one there is, after checking that it is the same study."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        storage=_storage(url),
        study_name=name,
        directions=[o.direction for o in spec.objectives],
        sampler=_Sampler(spec),
        pruner=_pruner(spec.pruner, spec.config.total_steps),
        load_if_exists=True,
    )
    wanted = definition(spec)
    if "id" not in study.user_attrs:
        study.set_user_attr("format", FORMAT)
        study.set_user_attr("definition", wanted)
        study.set_user_attr("checkpoints", checkpoints)
        study.set_user_attr("id", f"{name}-{uuid.uuid4().hex[:12]}")
    check_same(study.user_attrs, wanted, name, checkpoints)
    return study


def check_same(
    attributes: Mapping[str, Any], wanted: dict[str, Any], name: str, checkpoints: str | None = None
) -> None:
    """Raise `Refused` unless the stored study has this format and definition, and its checkpoints there."""
    if attributes.get("format", 0) > FORMAT:
        raise Refused(
            f"the ledger of {name} has format {attributes['format']}, this version reads {FORMAT}: "
            "use the newer version it was written with, or --fresh"
        )
    if "definition" not in attributes:
        raise Refused(f"the stored Optuna study '{name}' is not a ledger of this platform; choose another --ledger")
    stored = attributes["definition"]
    different = sorted(key for key in stored.keys() | wanted.keys() if stored.get(key) != wanted.get(key))
    if different:
        shown = "; ".join(f"{key} was {stored.get(key)!r}, now {wanted.get(key)!r}" for key in different[:5])
        more = f" and {len(different) - 5} more" if len(different) > 5 else ""
        raise Refused(
            f"the study {name} was begun differently: {shown}{more}. Undo the change, or begin anew with --fresh"
        )
    kept = attributes.get("checkpoints")
    if place_of(kept or "") != place_of(checkpoints or ""):
        where, option = (kept, f"--checkpoints {kept}") if kept else ("its storage folder", "no --checkpoints")
        raise Refused(f"the study {name} has its checkpoints in {where}; give {option}, or begin anew with --fresh")


@dataclass(frozen=True)
class Outlook:
    """What a launch would find in the ledger."""

    states: dict[str, int]
    """State -> number of trials."""
    interrupted: list[int]
    new: int
    """Trials that the budget still has room for."""

    @property
    def idle(self) -> bool:
        """Whether there is nothing left to run."""
        return not self.interrupted and not self.new


def outlook(study: optuna.Study | None, spec: Study) -> Outlook:
    """What is done and what is left; None is a study that was never begun. Changes nothing."""
    trials = study.get_trials(deepcopy=False) if study is not None else []
    retried = {t.user_attrs["retry_of"] for t in trials if "retry_of" in t.user_attrs}
    states: dict[str, int] = {}
    for found in trials:
        state = found.user_attrs.get("row", {}).get("state", "running")
        state = state if state in FINAL else "interrupted"
        states[state] = states.get(state, 0) + (found.number not in retried)
    interrupted = [t.number for t in trials if not t.state.is_finished()]
    return Outlook(states, interrupted, max(0, spec.budget.trials - sum(states.values())))


def existing_study(url: str, name: str, spec: Study, checkpoints: str | None = None) -> optuna.Study | None:
    """The stored study, checked to be the same one, or None; creates nothing."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if url.startswith("sqlite:///") and not Path(url.removeprefix("sqlite:///")).exists():
        return None
    try:
        study = optuna.load_study(study_name=name, storage=_storage(url))
    except KeyError:
        return None
    check_same(study.user_attrs, definition(spec), name, checkpoints)
    return study


def definition(spec: Study) -> dict[str, Any]:
    """What must not change while a study is carried on, as flat JSON values."""
    tree = spec.model_dump(mode="json", exclude={"question", "parameter", "plane", "signals", "budget", "resources"})
    tree["config"].pop("cache")
    tree["space"] = {name: distribution_to_json(found) for name, found in explore(spec).items()}
    return flat(tree)


def explore(spec: Study) -> dict[str, BaseDistribution]:
    """Parameters that the space suggests, found by sampling it; checks their names and ranges.

    Raises ValueError for a name that the config lacks and for a point outside the space.
    """
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        probe = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
        found: dict[str, BaseDistribution] = {}
        known = overrides.keys(spec.config)
        for _ in range(20):
            trial = probe.ask()
            try:
                spec.space(trial)
            except Exception as error:
                raise ValueError(f"the search space raises {type(error).__name__}: {error}") from error
            found |= trial.distributions
            for name in trial.distributions:
                if name not in known:
                    raise ValueError(f"the search space suggests an {overrides.unknown_key(name, known)}")
            overrides.apply(spec.config, trial.params)
        for point in spec.points:
            for name, value in point.items():
                if name not in found or not found[name]._contains(found[name].to_internal_repr(value)):
                    raise ValueError(f"point {point}: {name}={value!r} is not in the search space")
        return found
    finally:
        optuna.logging.set_verbosity(verbosity)


def control_of(spec: Study, study: optuna.Study, number: int) -> dict[str, Any] | None:
    """The control that this trial runs, or None for a trial that is searched."""
    place = _place(study, number)
    return spec.controls[place] if place < len(spec.controls) else None


def _place(study: optuna.Study, number: int) -> int:
    """Where a trial stands in the order of trials without the retries; a retry stands where its failed trial does."""
    trials = study.get_trials(deepcopy=False)
    if "retry_of" in trials[number].user_attrs:
        return _place(study, trials[number].user_attrs["retry_of"])
    return number - sum("retry_of" in t.user_attrs for t in trials[:number])


FEWEST = 8
"""Complete trials from which on importances are worth a look."""


def importances(study: optuna.Study, spec: Study) -> dict[str, float]:
    """Share of each parameter in the variance of the first objective over the space (fANOVA, Hutter et al. 2014).

    Of parameters that every searched complete trial has, largest first; empty with fewer than `FEWEST` such
    trials, with fewer than two such parameters, or where all values are equal.
    """
    # Brings scikit-learn with it, which a plan of a study does not need.
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances

    done = [
        trial
        for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if control_of(spec, study, trial.number) is None
    ]
    if len(done) < FEWEST or len({trial.values[0] for trial in done}) == 1:
        return {}
    shared = set.intersection(*(set(trial.params) for trial in done))
    if len(shared) < 2:
        return {}
    # The evaluator looks at all trials of a study, and controls have none of the parameters.
    searched = optuna.create_study()
    searched.add_trials(done)
    evaluator = FanovaImportanceEvaluator(seed=0)
    found = get_param_importances(searched, evaluator=evaluator, params=sorted(shared), target=lambda t: t.values[0])
    return {name: float(share) for name, share in found.items()}


class _Sampler(optuna.samplers.BaseSampler):
    """Samples as the study's sampler does, with a random stream that depends on (seed, trial, parameter) only.

    So the sequence of trials is a function of the seed and of what was told, not of how often the
    process was started; and a trial that was killed between two parameters gets the second as if
    nothing had happened. The first trials after the controls take the study's points.
    """

    def __init__(self, spec: Study) -> None:
        self._spec = spec

    def _inner(self, trial: optuna.trial.FrozenTrial, what: str) -> optuna.samplers.BaseSampler:
        digest = hashlib.sha256(f"{self._spec.seed}/{trial.number}/{what}".encode()).digest()
        seed = int.from_bytes(digest[:4], "little")
        if self._spec.sampler == "random":
            return optuna.samplers.RandomSampler(seed=seed)
        # Groups, because controls and conditional parameters leave no parameter that all trials share.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return optuna.samplers.TPESampler(seed=seed, multivariate=True, group=True)

    def _point(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> dict[str, Any]:
        index = _place(study, trial.number) - len(self._spec.controls)
        return self._spec.points[index] if 0 <= index < len(self._spec.points) else {}

    def infer_relative_search_space(self, study, trial):
        return {} if self._point(study, trial) else self._inner(trial, "").infer_relative_search_space(study, trial)

    def sample_relative(self, study, trial, search_space):
        if not search_space:
            return {}
        inner = self._inner(trial, "")
        # The sampler keeps the groups of parameters that it has found.
        inner.infer_relative_search_space(study, trial)
        return inner.sample_relative(study, trial, search_space)

    def sample_independent(self, study, trial, param_name, param_distribution):
        point = self._point(study, trial)
        if param_name in point:
            return point[param_name]
        return self._inner(trial, param_name).sample_independent(study, trial, param_name, param_distribution)


def _pruner(pruner: Pruner, steps: int) -> optuna.pruners.BasePruner:
    match pruner.kind:
        case "none":
            return optuna.pruners.NopPruner()
        case "median":
            return optuna.pruners.MedianPruner(pruner.startup_trials, pruner.first_step)
        case "successive_halving":
            return optuna.pruners.SuccessiveHalvingPruner(
                min_resource=pruner.first_step, reduction_factor=pruner.reduction_factor
            )
        case "hyperband":
            return optuna.pruners.HyperbandPruner(
                min_resource=pruner.first_step, max_resource=steps, reduction_factor=pruner.reduction_factor
            )


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one with dotted keys.

    >>> flat({"a": {"b": 1}, "c": 2})
    {'a.b': 1, 'c': 2}
    """
    found: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found
