"""A PostgreSQL server of the tests' own, in a folder and on a port where no other is, and what studies start with."""

from __future__ import annotations

import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from urllib.parse import quote

import pytest

from study.protocol.destinations import Destinations
from study.protocol.folder import StudyFolder
from study.uris import with_driver
from trainables.report import Metric

ADMIN_PASSWORD = "hunter3-hunter3"


def programs() -> Path | None:
    """The folder of `initdb`, `postgres` and their kin; Debian keeps it off PATH."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    folders = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    return max((path.parent for path in folders), key=lambda folder: float(folder.parent.name), default=None)


class Server:
    """Where it is, and its databases. `study` owns those that `database` makes, and may do nothing else."""

    password = "hunter2/:@?#% hunter2"
    """Of the user `study`: a URL has to quote it."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder, self.programs = folder, programs
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None

    def url(self, database: str) -> str:
        """As a user gives it to `--ledger`."""
        return f"postgresql://study:{quote(self.password, safe='')}@127.0.0.1:{self.port}/{database}"

    def database(self, template: str = "template1") -> str:
        """URL of a new database, empty or a copy of another one; it goes with the server."""
        name = f"test_{uuid.uuid4().hex[:8]}"
        self.execute(f"create database {name} owner study template {template}")
        return self.url(name)

    @cached_property
    def ledger_template(self) -> str:
        """Name of a database with Optuna's tables and nothing in them: making one takes longer than most tests."""
        from optuna.storages import RDBStorage

        url = self.database()
        storage = RDBStorage(with_driver(url))
        storage.remove_session()
        # Only a database that nobody is connected to can be copied.
        storage.engine.dispose()
        return url.rpartition("/")[2]

    def hang_up(self) -> None:
        """End every connection, as a restart of the server or a firewall that forgets idle ones does."""
        others = "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()"
        self.execute(f"{others} and backend_type = 'client backend'")

    def execute(self, statement: str) -> None:
        """One statement outside of a transaction, as the administrator."""
        import psycopg2

        administrator = {"user": "postgres", "password": ADMIN_PASSWORD, "dbname": "postgres"}
        connection = psycopg2.connect(host=str(self.folder), port=self.port, **administrator)
        connection.autocommit = True
        connection.cursor().execute(statement)
        connection.close()

    def start(self) -> None:
        """Make the server's files, start it, and wait until it answers."""
        # PostgreSQL refuses to run as root; its Debian package brings a user for it.
        user = "postgres" if os.geteuid() == 0 else None
        if user:
            shutil.chown(self.folder, user, user)
        secret = self.folder / "password"
        secret.write_text(ADMIN_PASSWORD)
        subprocess.run(
            [self.programs / "initdb", "--pgdata", self.folder / "data", "--username", "postgres", "--no-sync",
             "--auth", "scram-sha-256", "--pwfile", secret, "--encoding", "UTF8", "--no-locale"],
            cwd=self.folder, user=user, group=user, extra_groups=[] if user else None, check=True, capture_output=True,
        )  # fmt: skip
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [self.programs / "postgres", "-D", self.folder / "data", "-k", self.folder, "-p", str(self.port),
                 "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "shared_buffers=16MB"],
                cwd=self.folder, user=user, group=user, extra_groups=[] if user else None,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + 60
        ask = [self.programs / "pg_isready", "--quiet", "--host", self.folder, "--port", str(self.port)]
        while subprocess.run(ask).returncode != 0:
            told = (self.folder / "log").read_text()
            assert self.process.poll() is None, told
            assert time.monotonic() < deadline, told
            time.sleep(0.05)
        self.execute(f"create user study password '{self.password}'")

    def stop(self) -> None:
        """SIGINT ends the connections and then the server."""
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(30)


@contextmanager
def served(programs: Path) -> Iterator[Server]:
    """A server from here to the end of the block, whatever happens in it."""
    # A short path: the name of a Unix socket may have 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    server = Server(folder, programs)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    found = programs()
    if found is None:
        pytest.skip("there is no PostgreSQL server here: install Debian's package `postgresql`")
    with served(found) as server:
        yield server


@pytest.fixture(scope="session")
def prepared(empty_tracking: Path, embedded_cache: Path) -> Callable[..., None]:
    """`prepared(storage, database)` puts there what a first launch spends seconds on: pairs, and MLflow's tables."""

    def prepare(storage: Path, database: Path | None = None) -> None:
        shutil.copytree(embedded_cache, storage / "cache")
        if database is not None:
            database.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(empty_tracking, database)

    return prepare


@pytest.fixture
def toy_trainer(monkeypatch):
    """A trainer of which only the config exists, for a ledger that never trains and whose view is always written."""
    module = types.ModuleType("trainables.toy.config")
    gain, cost = Metric(label="gain", meaning="?"), Metric(label="cost", meaning="?", direction="minimize")
    module.metrics = lambda config: {"ndcg_at_10": gain, "flops": cost}
    package = types.ModuleType("trainables.toy")
    package.config = module
    monkeypatch.setitem(sys.modules, "trainables.toy", package)
    monkeypatch.setitem(sys.modules, "trainables.toy.config", module)
    # On a busy machine one may seem too dear to be written after every event.
    monkeypatch.setattr("study.ledger.view.CHEAP_S", math.inf)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request, monkeypatch) -> None:
    """Where a ledger is kept: in a file of its storage folder, or in a database on a server, one for each folder."""
    if request.param == "sqlite":
        return
    server, urls = request.getfixturevalue("postgres"), {}

    def url(storage: StudyFolder) -> str:
        if storage not in urls:
            urls[storage] = server.database(server.ledger_template)
        return urls[storage]

    monkeypatch.setattr(Destinations, "ledger_url", property(lambda self: self.ledger or url(self.storage)))
