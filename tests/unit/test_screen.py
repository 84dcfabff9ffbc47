"""The screen is a view: nothing ends because nobody looks at it."""

from __future__ import annotations

import io
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from study import run, submit, terminal
from study.protocol.destinations import Destinations
from study.protocol.folder import StudyFolder
from study.protocol.summary import ObjectiveSummary, StudySummary, WorkerSeconds
from study.reporting.screen import Display


def stream(number: int) -> terminal.View:
    return terminal.View(os.fdopen(number, "w", buffering=1))


def test_a_reader_that_leaves() -> None:
    reading, writing = os.pipe()
    view = stream(writing)
    view.write("seen\n")
    assert os.read(reading, 99) == b"seen\n"
    os.close(reading)
    for _ in range(2):
        assert view.write("not seen\n") == 9
        view.flush()
    print("nor this", file=view, flush=True)


def test_a_terminal_that_is_closed() -> None:
    master, terminal = os.openpty()
    view = stream(terminal)
    display = Display(view, "k", "ndcg_at_10", 4)
    assert view.isatty()
    os.close(master)
    display.message("nobody sees this")
    display.update(
        StudySummary(
            study="demo", id="demo-0123456789ab", profile="embedded", question="?", status="running", parameter="k",
            planned_trials=4, trials=(), worker_seconds=WorkerSeconds(), updated="2026-01-05T10:06:12+00:00",
            objectives=[ObjectiveSummary(name="ndcg_at_10", direction="maximize")],
        )
    )  # fmt: skip
    display.close(None)
    assert not view.isatty()


def test_a_reader_that_is_slow_is_not_given_up() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    view = stream(writing)
    os.set_blocking(reading, False)
    for _ in range(20):
        view.write("x" * 10_000 + "\n")
    with suppress(BlockingIOError):
        while os.read(reading, 100_000):
            continue
    view.write("seen\n")
    assert os.read(reading, 100_000).endswith(b"seen\n")
    os.close(reading)


def test_other_errors_of_a_stream_are_not_hidden() -> None:
    closed = io.StringIO()
    closed.close()
    with pytest.raises(ValueError, match="closed file"):
        terminal.View(closed).write("text")


@pytest.mark.parametrize("command", [run.main, submit.main])
def test_a_refusal_that_nobody_reads_keeps_its_exit_code(monkeypatch, command) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    monkeypatch.setattr("sys.stderr", os.fdopen(writing, "w", buffering=1))
    assert command(["splade_k_serach"]) == 2


@pytest.fixture
def handlers():
    before = {number: signal.getsignal(number) for number in terminal.STOPS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", terminal.STOPS)
def test_a_closed_terminal_stops_as_ctrl_c_does(handlers, number) -> None:
    heard = []
    terminal.listen(lambda number, frame: heard.append(number))
    os.kill(os.getpid(), number)
    assert heard == [number]


def test_nohup_lets_it_go_on(handlers) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    heard = []
    terminal.listen(lambda number, frame: heard.append(number))
    os.kill(os.getpid(), signal.SIGHUP)
    os.kill(os.getpid(), signal.SIGTERM)
    assert heard == [signal.SIGTERM]


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_processes_of_a_start_do_not_hear_what_stops_a_study(handlers, number) -> None:
    heard = []
    terminal.listen(lambda number, frame: heard.append(number))
    with terminal.deaf_children():
        child = subprocess.Popen(["sleep", "60"])
        os.kill(os.getpid(), number)
    assert heard == [number]
    try:
        child.send_signal(number)
        blocked = next(line for line in Path(f"/proc/{child.pid}/status").read_text().splitlines() if "SigBlk" in line)
        assert int(blocked.split()[1], 16) & 1 << (number - 1)
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def test_the_end_of_a_terminal_is_told_once_however_often_it_is_said(monkeypatch) -> None:
    ended = []
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr(run, "kill", lambda processes: None)
    monkeypatch.setattr(run, "SAME_SIGNAL_S", 0)
    session = run.Session("k", "embedded", None, Destinations(StudyFolder(Path())), None, None)
    for number in (signal.SIGHUP, signal.SIGHUP):
        session._on_signal(number, None)
    assert (session.signals, session.signalled, ended) == (1, "SIGHUP", [])
    session._on_signal(signal.SIGINT, None)
    assert ended == [130]
