"""One head per study: a lease in the ledger's own database, for heads that share no folder.

A row of the table `study_lease` says who runs the study, under which epoch, and until when. It is taken by one
statement that succeeds only if nobody else has changed the row meanwhile, and every time in it is the database's:
clocks of two machines differ. A takeover raises the epoch. Optuna commits its writes itself, so they cannot be made
conditional on the epoch; instead it is looked up before each of them (`Lease.check`).

    the holder                                       the next head
    renews within `RENEW_S`                          is refused
    is a process of this machine that is gone        takes over at once
    is silent until the lease ends, after `LEASE_S`  takes over then

A head that cannot renew for half the lease, by its own monotonic clock, stops before another one may begin.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import sqlalchemy
from sqlalchemy import Column, Double, Integer, MetaData, String, Table, Text
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from study.databases import patience
from study.ledger.lock import Held
from study.uris import redacted, with_driver
from trainables.errors import first_line

LEASE_S = 50.0
"""How long a head that nobody can ask counts as alive after its last word."""
RENEW_S = 5.0
LOOK_S = 0.2

TABLE = Table(
    "study_lease",
    MetaData(),
    Column("study", String(512), primary_key=True),
    Column("epoch", Integer, nullable=False),
    Column("holder", Text, nullable=False),
    Column("renewed", Double, nullable=False),
    Column("expires", Double, nullable=False),
)
_CLOCKS = {
    "sqlite": "(julianday('now') - 2440587.5) * 86400.0",
    "postgresql": "extract(epoch from clock_timestamp())::float8",
    "mysql": "unix_timestamp(now(6)) + 0e0",
    "mariadb": "unix_timestamp(now(6)) + 0e0",
}
"""Seconds since the epoch on the clock of each kind of database that Optuna keeps studies in."""


class Deposed(RuntimeError):
    """This head does not hold the study's lease any more: it must neither write nor let its gangs go on."""


@dataclass(frozen=True)
class Holder:
    """A process that runs a study."""

    pid: int
    begun: int | None
    """When the process began, in clock ticks since the machine did; tells it from a later one of the same number."""
    host: str
    machine: str
    """Boot of the machine and namespace of process numbers: where both agree, the process can be looked up."""
    since: str
    folder: str

    @classmethod
    def this(cls, folder: Path) -> Holder:
        """This process, running the study in `folder`."""
        pid = os.getpid()
        started = time.strftime("%Y-%m-%d %H:%M:%S")
        return cls(pid, _begun(pid), socket.gethostname(), _machine(), started, str(folder))

    @property
    def here(self) -> bool:
        """Whether the holder is, or was, a process of this machine."""
        return self.machine == _machine()

    @property
    def gone(self) -> bool:
        """Whether the holder is known to have ended."""
        return self.here and (self.begun is None or _begun(self.pid) != self.begun)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since}, in {self.folder}"


@dataclass(frozen=True)
class _Row:
    """The lease as the database had it a moment ago."""

    epoch: int
    holder: Holder | None
    """The head that holds the lease; None after a release."""
    renewed: float
    silent_s: float
    left_s: float

    @property
    def free(self) -> bool:
        return self.holder is None or self.left_s <= 0 or self.holder.gone

    @property
    def end(self) -> str:
        """Why a lease is free that names a holder still."""
        return (
            "is gone" if self.holder is not None and self.holder.gone else f"has been silent for {self.silent_s:.0f} s"
        )


class _Leases:
    """The table in one database, with connections of its own."""

    def __init__(self, url: str, study: str) -> None:
        self.shown, self.study = redacted(url), study
        url = with_driver(url)
        self.engine = sqlalchemy.create_engine(url, pool_pre_ping=True, connect_args=patience(url))
        kind = self.engine.dialect.name
        if kind not in _CLOCKS:
            raise ValueError(f"--ledger {self.shown}: a ledger cannot be kept there; accepted are {', '.join(_CLOCKS)}")
        self._now = sqlalchemy.literal_column(_CLOCKS[kind], Double)
        self._mine = TABLE.c.study == study

    def create(self) -> None:
        """Make the table; another head may do so at the same moment."""
        try:
            TABLE.create(self.engine, checkfirst=True)
        except SQLAlchemyError:
            if not sqlalchemy.inspect(self.engine).has_table(TABLE.name):
                raise

    def look(self) -> _Row | None:
        """The study's row; None where there is none yet."""
        c = TABLE.c
        wanted = sqlalchemy.select(c.epoch, c.holder, c.renewed, self._now - c.renewed, c.expires - self._now)
        with self.engine.connect() as connection:
            found = connection.execute(wanted.where(self._mine)).one_or_none()
        if found is None:
            return None
        epoch, holder, renewed, silent, left = found
        return _Row(epoch, Holder(**json.loads(holder)) if holder else None, renewed, silent, left)

    def take(self, seen: _Row | None, holder: Holder, seconds: float) -> int | None:
        """The epoch of a lease just taken; None where somebody else has changed the row since it was `seen`."""
        values = {"holder": json.dumps(asdict(holder)), "renewed": self._now, "expires": self._now + seconds}
        if seen is None:
            try:
                with self.engine.begin() as connection:
                    connection.execute(sqlalchemy.insert(TABLE).values(study=self.study, epoch=1, **values))
            except IntegrityError:
                return None
            return 1
        unchanged = (TABLE.c.epoch == seen.epoch) & (TABLE.c.renewed == seen.renewed)
        return seen.epoch + 1 if self._update(unchanged, epoch=seen.epoch + 1, **values) else None

    def renew(self, epoch: int, seconds: float) -> bool:
        """Whether the lease was still that of `epoch`, and now runs for so many seconds more."""
        return self._update(TABLE.c.epoch == epoch, renewed=self._now, expires=self._now + seconds)

    def release(self, epoch: int) -> None:
        self._update(TABLE.c.epoch == epoch, holder="", expires=0.0)

    def _update(self, condition: sqlalchemy.ColumnElement[bool], **values: object) -> bool:
        with self.engine.begin() as connection:
            return (
                connection.execute(sqlalchemy.update(TABLE).where(self._mine, condition).values(values)).rowcount == 1
            )


def known(url: str, study: str) -> bool:
    """Whether a head has ever held a lease for the study; changes nothing."""
    leases = _Leases(url, study)
    try:
        return sqlalchemy.inspect(leases.engine).has_table(TABLE.name) and leases.look() is not None
    finally:
        leases.engine.dispose()


def head(url: str, study: str) -> tuple[Holder, str | None] | None:
    """(the head that the study's lease names, why it does not run any more, or None where it does); changes nothing.

    None where there is no head, or the last one has come to its end.
    """
    leases = _Leases(url, study)
    try:
        row = leases.look() if sqlalchemy.inspect(leases.engine).has_table(TABLE.name) else None
    finally:
        leases.engine.dispose()
    if row is None or row.holder is None:
        return None
    return row.holder, row.end if row.free else None


def remove(url: str, study: str) -> None:
    """Forget the lease of a study that there is no more."""
    leases = _Leases(url, study)
    try:
        if sqlalchemy.inspect(leases.engine).has_table(TABLE.name):
            with leases.engine.begin() as connection:
                connection.execute(sqlalchemy.delete(TABLE).where(TABLE.c.study == study))
    finally:
        leases.engine.dispose()


def await_free(url: str, study: str, say: Callable[[str], None] = lambda message: None) -> None:
    """Return when no head holds the study, or its holder is gone or silent for too long; changes nothing.

    A wait for the end of a lease is announced by `say`. Raises `Held` for a holder that is alive.
    """
    leases = _Leases(url, study)
    try:
        if sqlalchemy.inspect(leases.engine).has_table(TABLE.name):
            _await_free(leases, say)
    finally:
        leases.engine.dispose()


def _await_free(leases: _Leases, say: Callable[[str], None] = lambda message: None) -> _Row | None:
    """The row, free to be taken, or None where there is none yet."""
    first = row = leases.look()
    said = False
    while row is not None and not row.free:
        assert first is not None
        # A process that can be looked up is there; of another one only a renewal tells.
        if row.holder is not None and (row.holder.here or row.renewed != first.renewed):
            raise Held(
                f"the study {leases.study} is in use by {row.holder} (ledger {leases.shown}); wait for it or stop it "
                "with Ctrl-C"
            )
        if not said and row.silent_s > 2 * RENEW_S:
            said = True
            say(f"{leases.study} was run by {row.holder}, silent for {row.silent_s:.0f} s: "
                f"its lease ends in {row.left_s:.0f} s")  # fmt: skip
        time.sleep(LOOK_S)
        row = leases.look()
    return row


class Lease:
    """The right to run a study, from here to `release`; renewed by a thread of its own."""

    def __init__(
        self, url: str, study: str, holder: Holder, seconds: float = LEASE_S, renew_every_s: float = RENEW_S
    ) -> None:
        """Take the lease, or raise `Held`. A holder that may be dead is waited for until its lease ends."""
        self._leases, self._seconds, self._every = _Leases(url, study), seconds, renew_every_s
        self._leases.create()
        self.lost: str | None = None
        """Why this head must stop."""
        self.predecessor: str | None = None
        """From whom the lease was taken over, in a sentence."""
        self._stop = threading.Event()
        self.epoch = self._take(holder)
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._thread.start()

    def _take(self, holder: Holder) -> int:
        while True:
            seen = _await_free(self._leases)
            self._renewed = time.monotonic()
            epoch = self._leases.take(seen, holder, self._seconds)
            if epoch is None:
                continue
            if seen is not None and seen.holder is not None:
                self.predecessor = f"taken over from {seen.holder}, which {seen.end}"
            return epoch

    def check(self) -> None:
        """Raise `Deposed` unless this head still holds the lease; a database that is away is waited for until then."""
        while self.lost is None:
            try:
                row = self._leases.look()
            except SQLAlchemyError as error:
                self._overdue(error)
                self._stop.wait(LOOK_S)
                continue
            if row is not None and row.epoch == self.epoch:
                return
            self._taken(row)
        raise Deposed(self.lost)

    def release(self) -> None:
        """Let the next head begin at once."""
        self._stop.set()
        self._thread.join()
        try:
            if self.lost is None:
                self._leases.release(self.epoch)
        except SQLAlchemyError:
            # The lease stays, and the next head waits for its end.
            self.lost = "its database is away"
        self._leases.engine.dispose()

    def _keep(self) -> None:
        pause = self._every
        while self.lost is None and not self._stop.wait(pause):
            asked = time.monotonic()
            try:
                if self._leases.renew(self.epoch, self._seconds):
                    self._renewed, pause = asked, self._every
                else:
                    self._taken(self._leases.look())
            except SQLAlchemyError as error:
                self._overdue(error)
                pause = min(1.0, self._every)

    def _overdue(self, error: SQLAlchemyError) -> None:
        silent = time.monotonic() - self._renewed
        if silent > self._seconds / 2:
            reason = redacted(first_line(error))
            self.lost = f"the ledger's database has not answered for {silent:.0f} s ({reason})"

    def _taken(self, row: _Row | None) -> None:
        self.lost = f"the study was taken over by {row.holder}" if row and row.holder else "the study was taken over"


def _begun(pid: int) -> int | None:
    """Start of a process in clock ticks since that of the machine; None where there is none, or only its corpse."""
    try:
        # The name, in parentheses, may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _machine() -> str:
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
