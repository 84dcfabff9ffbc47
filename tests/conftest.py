"""Options of the test suite, and what its test processes share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from filelock import FileLock


def pytest_addoption(parser) -> None:
    parser.addoption("--write-golden", action="store_true", help="write tests/golden/ anew instead of comparing")


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
