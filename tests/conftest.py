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


def pytest_addoption(parser) -> None:
    parser.addoption("--write-golden", action="store_true", help="write tests/golden/ anew instead of comparing")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """How two test processes share the work: files as a whole, and those that start a Ray in one process, first.

    They take longest and wait often; what else there is keeps the other core busy meanwhile.
    """
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
    items.sort(key=lambda item: item.get_closest_marker("xdist_group").args != ("ray",))


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


@pytest.fixture(scope="session")
def embedded_cache(tmp_path_factory) -> Path:
    """Cache with the embedded pairs of the installed packages: read once, whatever the number of test processes."""
    from trainables.data.embedded import embedded_training_set

    own = tmp_path_factory.getbasetemp()
    cache = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "embedded-cache"
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
