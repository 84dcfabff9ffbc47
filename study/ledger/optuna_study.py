"""The Optuna study behind a ledger: opened, and checked to be the same one."""

from __future__ import annotations

import inspect
import re
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

import optuna
import sqlalchemy
from optuna.distributions import distribution_to_json
from optuna.storages import RDBStorage
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from study.confirmation import Decision
from study.databases import check_sqlite, patience
from study.ledger import lease
from study.ledger.definition import at_default, defaults, differences
from study.ledger.groups import CONFIRMS, GROUP, places
from study.ledger.lease import TABLE as LEASES
from study.ledger.lease import known
from study.ledger.moved import ANEW, Begun, since
from study.ledger.sampling import Sampler, control_of, pruner
from study.ledger.space import explore
from study.private_names import STORAGE_WRITES, ReadOnce, storage_id
from study.protocol.states import TrialState
from study.spec import Study
from study.uris import NO_FILE, check_quoted, redacted, sqlite_path, with_driver
from trainables import paths
from trainables.errors import first_line, told
from trainables.object_store import place_of
from trainables.overrides import flat

DECISION = "confirmation"
"""Attribute of an Optuna study: which of its trials are confirmed, once that is decided."""
FORMAT = 1
"""Version of what this module stores; a ledger with a higher one is refused."""


class Refused(ValueError):
    """The ledger cannot serve this request; the message says what to do."""


class Different(Refused):
    """What is asked for is not the study that the ledger has."""


def check_url(url: str) -> None:
    """Raise ValueError, without the password, unless a ledger can be kept at this SQLAlchemy URL."""
    shown = redacted(url)
    try:
        check_quoted(url)
        engine = sqlalchemy.create_engine(with_driver(url), poolclass=sqlalchemy.NullPool)
        if engine.dialect.name != "sqlite":
            engine.connect().close()
    except (SQLAlchemyError, ImportError, ValueError) as error:
        if isinstance(error, ImportError) and error.name == "psycopg2":
            raise ValueError(
                f"--ledger {shown}: the driver of this database is not installed here; install the extra 'postgresql' "
                "of this project, or pip install psycopg2-binary"
            ) from error
        reason = redacted(first_line(error))
        raise ValueError(
            f"--ledger {shown}: {reason}; accepted are sqlite:////absolute/path.db and URLs of a database server "
            "that answers and whose driver is installed, such as postgresql://USER@HOST/DATABASE"
        ) from error
    if engine.dialect.name != "sqlite":
        return
    file = sqlite_path(url)
    if file is None or file.name in NO_FILE:
        raise ValueError(f"--ledger {shown} names no file; accepted are sqlite:////absolute/path.db")
    if not file.resolve().parent.is_dir():
        raise ValueError(f"--ledger {shown}: its folder does not exist; create it first")


def holds(url: str, name: str) -> bool:
    """Whether the storage already has a study of this name."""
    with _readable(url):
        return name in optuna.get_all_study_names(_database(url))


def _database(url: str, fence: Callable[[], None] | None = None) -> RDBStorage:
    """Optuna's storage; a connection that a server or a firewall has ended meanwhile is opened again."""
    file = sqlite_path(url)
    tables = check_sqlite(file) - {LEASES.name} if file is not None else set()
    if tables and not tables & {"studies", "version_info"}:
        raise ValueError(f"it is a database of something else, with the tables {', '.join(sorted(tables)[:3])}, ...")
    url = with_driver(url)
    options = {"pool_pre_ping": True, "connect_args": patience(url)}
    tries = 10
    while True:
        try:
            return _Fenced(url, options, fence) if fence else RDBStorage(url, engine_kwargs=options)
        except SQLAlchemyError as error:
            # Two processes make the tables of an empty database at the same moment.
            tries -= 1
            if not tries or not (isinstance(error, IntegrityError) or "already exists" in str(error)):
                raise
            time.sleep(0.2)


class _Fenced(ReadOnce, RDBStorage):
    """Calls `fence` before each write; it raises where this process may not write any more."""

    def __init__(self, url: str, engine_kwargs: dict[str, Any], fence: Callable[[], None]) -> None:
        self.fence = fence
        self.written, self.newest = set(), {}
        super().__init__(url, engine_kwargs=engine_kwargs)


def _fenced(name: str) -> Callable[..., Any]:
    write = getattr(RDBStorage, name)
    of_a_trial = "trial_id" in inspect.signature(write).parameters

    @wraps(write)
    def checked(self: _Fenced, *arguments: Any, **keywords: Any) -> Any:
        self.fence()
        if of_a_trial:
            self.written.add(arguments[0])
        done = write(self, *arguments, **keywords)
        if isinstance(done, optuna.trial.FrozenTrial):
            self.written.add(storage_id(done))
        return done

    return checked


for _name in STORAGE_WRITES:
    setattr(_Fenced, _name, _fenced(_name))


@contextmanager
def _readable(url: str) -> Iterator[None]:
    """Whatever is wrong with the database itself is refused in one sentence that names it."""
    try:
        yield
    except Refused:
        raise
    except RuntimeError as error:
        # Optuna's own check of its tables.
        made = re.search(r"set up by optuna ([\w.]+)", str(error))
        older = "storage upgrade" in str(error)
        raise Refused(
            f"the ledger {_shown(url)} was made by Optuna {made[1] if made else 'of another version'}, whose tables "
            f"Optuna {optuna.__version__} does not read: use that version, or "
            + (f"run `optuna storage upgrade --storage {redacted(url)}`" if older else "begin anew with --fresh")
        ) from error
    except (SQLAlchemyError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = redacted(told(getattr(error, "orig", None) or error))
        raise Refused(
            f"the ledger {_shown(url)} cannot be read: {reason}; put a copy of it back, name another one with "
            "--ledger, or begin anew with --fresh"
        ) from error


def _shown(url: str) -> str:
    return str(sqlite_path(url) or redacted(url))


def open_study(
    url: str,
    name: str,
    spec: Study,
    checkpoints: str | None = None,
    fence: Callable[[], None] | None = None,
    admit: Callable[[str | None], None] | None = None,
) -> optuna.Study:
    """Create the Optuna study or open the one there is, after checking that it is the same study.

    `admit` is called first with the study's id, None where there is none yet, and `fence` before each write; both
    may raise.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = _database(url, fence)
    if admit is not None:
        admit(_id_in(storage, name))
    study = optuna.create_study(
        storage=storage,
        study_name=name,
        directions=[o.direction for o in spec.objectives],
        sampler=Sampler(spec),
        pruner=pruner(spec.pruner, spec.config.total_steps),
        load_if_exists=True,
    )
    names = [objective.name for objective in spec.objectives]
    if study.metric_names != names:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study.set_metric_names(names)
    wanted = definition(spec)
    if "id" not in study.user_attrs:
        study.set_user_attr("format", FORMAT)
        study.set_user_attr("definition", wanted)
        study.set_user_attr("checkpoints", checkpoints)
        study.set_user_attr("id", new_id(name))
    check_same(study.user_attrs, spec, name, checkpoints)
    # Keys that have come since it was begun are part of it from now on: their defaults may change later.
    for key, value in (("definition", wanted), ("at_default", at_default(wanted, defaults(spec)))):
        if study.user_attrs.get(key) != value:
            study.set_user_attr(key, value)
    return study


def new_id(name: str) -> str:
    """An id of its own for a study of this name, fit for tags, paths and the names of objects.

    >>> new_id("my study (v2)")[:-12]
    'my-study-v2-'
    """
    return f"{re.sub(r'[^A-Za-z0-9_.]+', '-', name).strip('-')}-{uuid.uuid4().hex[:12]}"


def _id_in(storage: RDBStorage, name: str) -> str | None:
    try:
        return storage.get_study_user_attrs(storage.get_study_id_from_name(name)).get("id")
    except KeyError:
        return None


def check_same(attributes: Mapping[str, Any], spec: Study, name: str, checkpoints: str | None = None) -> None:
    """Raise `Refused` unless the stored study has this format and definition, and its checkpoints there.

    Keys that came or went since it was begun are no difference at their default, see `definition.differences`.
    """
    stored, version = attributes.get("definition"), attributes.get("format", 0)
    if not isinstance(stored, dict) or not isinstance(version, int):
        raise Refused(f"the stored Optuna study '{name}' is not a ledger of this platform; choose another --ledger")
    if version > FORMAT:
        raise Refused(
            f"the ledger of {name} has format {version}, this version reads {FORMAT}: "
            f"use the newer version it was written with, or {ANEW}"
        )
    different = differences(stored, definition(spec), defaults(spec), attributes.get("at_default", ()))
    if different:
        shown = "; ".join(different[:5])
        more = f" and {len(different) - 5} more" if len(different) > 5 else ""
        raise Different(f"the study {name} was begun differently: {shown}{more}. Undo the change, or {ANEW}")
    decided = attributes.get(DECISION)
    if decided is not None and spec.confirm is not None and Decision.restored(decided).asked != spec.confirm:
        raise Different(
            f"the finalists of {name} were decided for --confirm {Decision.restored(decided).asked}, and that is "
            f"carried on; {spec.confirm} was asked for. Undo the change, or {ANEW}"
        )
    kept = attributes.get("checkpoints")
    if place_of(kept or "") != place_of(checkpoints or ""):
        where, option = (kept, f"--checkpoints {kept}") if kept else ("its storage folder", "no --checkpoints")
        raise Refused(f"the study {name} has its checkpoints in {where}; give {option}, or {ANEW}")


@dataclass(frozen=True)
class Outlook:
    """What a launch would find in the ledger."""

    states: dict[TrialState, int]
    """State -> number of trials."""
    interrupted: list[int]
    new: int
    """Trials that the budget still has room for."""
    confirming: int = 0
    """Trials that are left to be run again to confirm the search: before they are decided, the most that may be."""

    @property
    def idle(self) -> bool:
        """Whether there is nothing left to run."""
        return not (self.interrupted or self.new or self.confirming)


def outlook(study: optuna.Study | None, spec: Study) -> Outlook:
    """What is done and what is left; None is a study that was never begun. Changes nothing."""
    trials = study.get_trials(deepcopy=False) if study is not None else []
    retried = {t.user_attrs["retry_of"] for t in trials if "retry_of" in t.user_attrs}
    states: dict[TrialState, int] = {}
    counted: Counter[int | None] = Counter()
    confirming = [found for found in trials if CONFIRMS in found.user_attrs]
    trials = [found for found in trials if CONFIRMS not in found.user_attrs]
    decided = study.user_attrs.get(DECISION) if study is not None else None
    for found in trials:
        state = TrialState(found.user_attrs.get("row", {}).get("state", TrialState.RUNNING))
        state = state if state.ended else TrialState.INTERRUPTED
        states[state] = states.get(state, 0) + (found.number not in retried)
        counted[found.user_attrs.get(GROUP)] += found.number not in retried
    if decided is not None:
        # The search is over, whatever room there is.
        confirmed = {t.user_attrs[CONFIRMS] for t in confirming}
        left = [n for n in Decision.restored(decided).numbers if n not in confirmed]
        left += [t.number for t in confirming if not t.state.is_finished()]
        return Outlook(states, [], 0, len(left) if spec.confirm else 0)
    interrupted = [t.number for t in trials if not t.state.is_finished()]
    new = sum(max(0, spec.budget.trials - counted[group]) for group in places(spec))
    return Outlook(states, interrupted, new, spec.confirmations)


def existing_study(url: str, name: str, spec: Study, checkpoints: str | None = None) -> optuna.Study | None:
    """The stored study, checked to be the same one, or None; creates nothing."""
    study = _load(url, name)
    if study is not None:
        check_same(study.user_attrs, spec, name, checkpoints)
    return study


def _load(url: str, name: str) -> optuna.Study | None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    file = sqlite_path(url)
    if file is not None and not file.exists():
        return None
    with _readable(url):
        storage = _database(url)
        try:
            study = optuna.load_study(study_name=name, storage=storage)
        except KeyError:
            return None
        # Read here, where what is damaged is told as such.
        attributes, _ = study.user_attrs, study.get_trials(deepcopy=False)
        # Without an id a head is making it just now, or was killed over it; the next one makes the rest.
        return None if "id" not in attributes and known(url, name) else study


def begun(url: str, name: str, spec: Study) -> Begun:
    """The inputs of the stored study of this name, and where those of `spec` may be instead; changes nothing."""
    study = _load(url, name)
    if study is None or "definition" not in study.user_attrs or _unstepped(study):
        return Begun()
    moves = since(study.user_attrs["definition"], definition(spec), paths.places(spec.config))
    return Begun(moves, study.user_attrs.get("facts", {}), study.user_attrs.get("contents"))


def fruitless(url: str, name: str) -> int:
    """The number of trials of a stored study if all of them failed before their first step, else 0."""
    study = _load(url, name)
    return _unstepped(study) if study is not None else 0


def id_of(url: str, name: str) -> str | None:
    """The id of the stored study of this name; None where there is none."""
    study = _load(url, name)
    return study.user_attrs.get("id") if study is not None else None


def forget(url: str, name: str) -> None:
    """Take a study out of the storage, if it is there and still has no more than what `fruitless` counts."""
    if fruitless(url, name):
        optuna.delete_study(study_name=name, storage=_database(url))


def remove(url: str, name: str) -> None:
    """Take a study out of the storage, with all its trials and its lease."""
    with _readable(url):
        optuna.delete_study(study_name=name, storage=_database(url))
    lease.remove(url, name)


def _unstepped(study: optuna.Study) -> int:
    rows = [
        t.user_attrs.get("row", {})
        for t in study.get_trials(deepcopy=False)
        if t.state != optuna.trial.TrialState.WAITING
    ]
    failed = [row for row in rows if row.get("state") == TrialState.FAILED]
    stepped = any(row["step"] or row["replicates"] or "train.loss" in row["latest"] for row in failed)
    return 0 if stepped or len(failed) < len(rows) else len(failed)


def definition(spec: Study) -> dict[str, Any]:
    """What must not change while a study is carried on, as flat JSON values."""
    free = {"question", "purpose", "parameter", "plane", "signals", "budget", "resources", "power", "confirm"}
    tree = spec.model_dump(mode="json", exclude=free)
    tree["config"].pop("cache")
    tree["space"] = {name: distribution_to_json(found) for name, found in explore(spec).items()}
    return flat(tree)


FEWEST = 8
"""Complete trials from which on importances are worth a look."""


def importances(study: optuna.Study, spec: Study) -> dict[str, float]:
    """Share of each parameter in the variance of the first objective over the space (fANOVA, Hutter et al. 2014).

    Of parameters that every searched complete trial has, largest first; empty with fewer than `FEWEST` such
    trials, with fewer than two such parameters, or where all values are equal. Of one group where `study` is what
    `groups.alone` makes of it.
    """
    # Brings scikit-learn with it, which a plan of a study does not need.
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances

    done = [
        trial
        for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
        if CONFIRMS not in trial.user_attrs and control_of(spec, study, trial.number) is None
    ]
    if len(done) < FEWEST or len({trial.values[0] for trial in done}) == 1:
        return {}
    shared = set.intersection(*(set(trial.params) for trial in done))
    if len(shared) < 2:
        return {}
    # The evaluator looks at all trials of a study, and controls have none of the parameters.
    searched = optuna.create_study(directions=study.directions)
    searched.add_trials(done)
    evaluator = FanovaImportanceEvaluator(seed=0)
    found = get_param_importances(searched, evaluator=evaluator, params=sorted(shared), target=lambda t: t.values[0])
    return {name: float(share) for name, share in found.items()}
