"""One head per study, on SQLite and on a real PostgreSQL: who takes the lease, who loses it, and what they hear."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from study.ledger.lease import Deposed, Holder, Lease, await_free
from study.ledger.lock import Held

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path("/studies/k")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    return request.getfixturevalue("postgres").database()


def elsewhere(name: str = "node-b") -> Holder:
    """A head on a machine where nobody can look."""
    return replace(Holder.this(FOLDER), host=name, machine=f"boot of {name}")


def silent(lease: Lease) -> None:
    """Its process is gone: nothing is renewed any more."""
    lease._stop.set()
    lease._thread.join()


def test_the_first_head_runs_and_a_second_one_is_refused(url) -> None:
    first = Lease(url, "k", Holder.this(FOLDER))
    assert (first.epoch, first.predecessor) == (1, None)
    with pytest.raises(
        Held, match=r"the study k is in use by process \d+ on .*, in /studies/k .*; wait for it or stop"
    ):
        Lease(url, "k", Holder.this(FOLDER))
    with pytest.raises(Held):
        await_free(url, "k")
    other = Lease(url, "another study", Holder.this(FOLDER))
    first.check()
    first.release()
    other.release()
    await_free(url, "k")
    again = Lease(url, "k", Holder.this(FOLDER))
    assert (again.epoch, again.predecessor) == (2, None)
    again.release()


def test_a_head_elsewhere_that_renews_is_alive(url) -> None:
    first = Lease(url, "k", elsewhere(), seconds=30, renew_every_s=0.2)
    with pytest.raises(Held, match="on node-b"):
        Lease(url, "k", Holder.this(FOLDER))
    first.release()


def test_a_head_elsewhere_that_is_silent_is_replaced_when_its_lease_ends(url) -> None:
    silent(Lease(url, "k", elsewhere(), seconds=2))
    began = time.monotonic()
    lease = Lease(url, "k", Holder.this(FOLDER))
    assert 1 < time.monotonic() - began < 10
    assert lease.epoch == 2
    assert lease.predecessor.startswith("taken over from process")
    assert "on node-b" in lease.predecessor
    assert "has been silent for 2 s" in lease.predecessor
    lease.release()


def test_the_wait_for_a_silent_head_is_announced(url, monkeypatch) -> None:
    monkeypatch.setattr("study.ledger.lease.RENEW_S", 0.2)
    silent(Lease(url, "k", elsewhere(), seconds=2))
    said: list[str] = []
    await_free(url, "k", said.append)
    assert len(said) == 1
    assert said[0].startswith("k was run by process")
    assert "its lease ends in" in said[0]


KILLED = """
import os, sys
from pathlib import Path
from study.ledger.lease import Holder, Lease
Lease(sys.argv[1], "k", Holder.this(Path("/studies/k")))
print(os.getpid(), flush=True)
os._exit(9)
"""


def test_a_killed_head_of_this_machine_is_replaced_at_once(url) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, url], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 9, done.stderr
    began = time.monotonic()
    lease = Lease(url, "k", Holder.this(FOLDER))
    assert time.monotonic() - began < 5
    assert f"taken over from process {done.stdout.strip()} on" in lease.predecessor
    assert lease.predecessor.endswith("which is gone")
    lease.release()


def test_another_process_of_the_same_number_is_not_the_head(url) -> None:
    here = Holder.this(FOLDER)
    silent(Lease(url, "k", replace(here, begun=here.begun - 1)))
    lease = Lease(url, "k", here)
    assert lease.predecessor.endswith("which is gone")
    lease.release()


@pytest.mark.parametrize("kind", ["new", "left"])
def test_of_several_heads_at_one_moment_exactly_one_wins(url, kind) -> None:
    if kind == "left":
        here = Holder.this(FOLDER)
        silent(Lease(url, "k", replace(here, begun=here.begun - 1)))
    ready, won, refused = threading.Barrier(6), [], []

    def take(name: str) -> None:
        ready.wait()
        try:
            won.append(Lease(url, "k", elsewhere(name), renew_every_s=0.2))
        except Held as error:
            refused.append(str(error))

    heads = [threading.Thread(target=take, args=(f"node-{n}",)) for n in range(6)]
    for head in heads:
        head.start()
    for head in heads:
        head.join()
    assert [lease.epoch for lease in won] == [1 if kind == "new" else 2]
    assert len(refused) == 5
    won[0].check()
    won[0].release()


def test_a_long_call_of_the_ledger_does_not_let_the_lease_end(url) -> None:
    lease = Lease(url, "k", Holder.this(FOLDER), seconds=2, renew_every_s=0.1)
    time.sleep(2.5)
    row = lease._leases.look()
    assert row.left_s > 0
    lease.check()
    lease.release()


def test_a_head_that_was_replaced_hears_by_whom(url) -> None:
    here = Holder.this(FOLDER)
    old = Lease(url, "k", replace(here, begun=here.begun - 1), renew_every_s=0.1)
    new = Lease(url, "k", here)
    with pytest.raises(Deposed, match=rf"taken over by process {here.pid} on"):
        old.check()
    deadline = time.monotonic() + 5
    while old._thread.is_alive():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    old.release()
    new.check()
    new.release()


def away(*arguments):
    raise OperationalError("select", {}, Exception("server closed the connection\nand more"))


def test_a_head_that_cannot_renew_for_half_the_lease_stops_itself(url, monkeypatch) -> None:
    lease = Lease(url, "k", Holder.this(FOLDER), seconds=2, renew_every_s=0.1)
    with monkeypatch.context() as outage:
        outage.setattr(lease._leases, "renew", away)
        outage.setattr(lease._leases, "look", away)
        began = time.monotonic()
        with pytest.raises(Deposed, match=r"database has not answered for 1 s \(server closed the connection\)"):
            lease.check()
        assert 0.7 < time.monotonic() - began < 2
        assert lease.lost
    lease.release()


def test_an_outage_that_ends_in_time_is_waited_for(url, monkeypatch) -> None:
    lease = Lease(url, "k", Holder.this(FOLDER), seconds=20, renew_every_s=0.1)
    with monkeypatch.context() as outage:
        outage.setattr(lease._leases, "renew", away)
        outage.setattr(lease._leases, "look", away)
        threading.Timer(0.6, outage.undo).start()
        began = time.monotonic()
        lease.check()
    assert time.monotonic() - began > 0.5
    lease.release()
