"""Options of the test suite, and what its test processes share."""

from __future__ import annotations

import functools
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from xdist.remote import Producer
from xdist.scheduler.loadscope import LoadScopeScheduling


def pytest_addoption(parser) -> None:
    parser.addoption("--write-golden", action="store_true", help="write tests/golden/ anew instead of comparing")


WITH_RAY = ("test_study.py",)
"""Files whose tests start a Ray: two of those at a time would take both cores from each other."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that start a Ray come first: they take longest, and what else there is keeps the other core busy."""
    items.sort(key=lambda item: item.path.name not in WITH_RAY)


class Files(LoadScopeScheduling):
    """How test processes share the work: a file as a whole, and all that start a Ray in one process."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "ray" if file.endswith(WITH_RAY) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Files:
    return Files(config, log)


@pytest.fixture(scope="session", autouse=True)
def quick_databases() -> Iterator[None]:
    """SQLite that does not wait for the disk, which no killed process needs, and schema versions that are read once."""
    import alembic.util
    from sqlalchemy import Engine, event

    def settle(connection, _record) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous=OFF")

    load = alembic.util.load_python_file
    known = functools.cache(load)
    event.listen(Engine, "connect", settle)
    with pytest.MonkeyPatch.context() as patch:
        # env.py is what runs a migration; the others only say what each version is.
        patch.setattr(alembic.util, "load_python_file", lambda *file: (load if file[1] == "env.py" else known)(*file))
        yield
    event.remove(Engine, "connect", settle)


def shared(tmp_path_factory, name: str) -> Path:
    """A path that all test processes of a run have in common."""
    own = tmp_path_factory.getbasetemp()
    return (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / name


@pytest.fixture(scope="session")
def empty_tracking(tmp_path_factory) -> Path:
    """An SQLite database with MLflow's tables and nothing in them, to be copied: making one takes seconds."""
    from study.tracking.mlflow_runs import initialise

    path = shared(tmp_path_factory, "empty-mlflow.db")
    with FileLock(f"{path}.lock"):
        if not path.exists():
            initialise(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def embedded_cache(tmp_path_factory) -> Path:
    """Cache with the embedded pairs of the installed packages: read once, whatever the number of test processes."""
    from trainables.data.embedded import embedded_training_set

    cache = shared(tmp_path_factory, "embedded-cache")
    with FileLock(f"{cache}.lock"):
        if not cache.exists():
            embedded_training_set(cache=cache)
    return cache


RAW = (
    "Traceback", "[Errno", "<class", " object at 0x", "Background on this error", "During handling", "errors.pydantic",
)  # fmt: skip


def refused(code: object, told: str, *names: str, expected: int = 2) -> str:
    """The one sentence of a refusal: the exit code is the documented one, nothing raw is told, and it has all `names`.

    argparse puts its usage before the sentence.
    """
    assert code == expected, told
    *before, sentence = told.strip().splitlines()
    assert not before or before[0].startswith("usage: "), told
    assert re.search(r"(^|: )error: ", sentence), told
    assert told.count("error: ") == 1, told
    assert not re.search(r"error: \w*(Error|Exception|Exit)\b", sentence), told
    assert not any(raw in told for raw in RAW), told
    assert len(sentence) < 1600, told
    for name in names:
        assert name in sentence, f"{name!r} is not in: {sentence}"
    return sentence


@pytest.fixture
def refusal() -> Callable[..., str]:
    return refused


@pytest.fixture
def refuses(capsys) -> Callable[..., str]:
    """`refuses(main, arguments, *names)`: `main` ends with exit 2 and one sentence that has all `names`."""

    def check(main: Callable[[list[str]], int], arguments: list[str], *names: str, expected: int = 2) -> str:
        capsys.readouterr()
        try:
            code: object = main(arguments)
        except SystemExit as ended:
            code = ended.code
        out, err = capsys.readouterr()
        assert out == ""
        return refused(code, err, *names, expected=expected)

    return check
