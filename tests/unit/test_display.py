"""What a running study shows: every event once in plain lines, a table in a terminal."""

from __future__ import annotations

import contextlib
import io
import time
from pathlib import Path
from typing import Any

import pytest

from study.protocol.folder import StudyFolder
from study.protocol.summary import (
    ObjectiveSummary,
    ReplicateSummary,
    StudySummary,
    Tracking,
    TrialSummary,
    WorkerSeconds,
)
from study.reporting.screen import Display, final_text
from trainables.evaluation.metrics import declared


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def trial(number: int, state: str = "running", steps: int = 0, **more: Any) -> TrialSummary:
    fields: dict[str, Any] = {"params": {"k": 2.0**number}, "worker_seconds": 10.0, "attempts": 1}
    return TrialSummary(number=number, state=state, steps=steps, planned_steps=100, **fields | more)


PAGE = "#/experiments/1/runs"


def summary(*trials: TrialSummary, status: str = "running", best: tuple[int, ...] = ()) -> StudySummary:
    return StudySummary(
        study="demo", id="demo-0123456789ab", profile="embedded", question="Which k?", status=status, parameter="k",
        planned_trials=4, objectives=[ObjectiveSummary(name="ndcg_at_10", direction="maximize")], best=best,
        trials=trials, worker_seconds=WorkerSeconds(used=40.0, saved=12.0, overhead=3.0),
        tracking=Tracking(uri="sqlite:///studies/mlflow.db", experiment="demo", run_id="p", page=PAGE),
        metrics=declared(), baselines={"bm25": {"test.ndcg_at_10": 0.4}}, updated="2026-01-05T10:06:12+00:00",
    )  # fmt: skip


DONE = {"ndcg_at_10": 0.42, "test.ndcg_at_10": 0.41, "untrained.test.ndcg_at_10": 0.1}


def plain() -> tuple[io.StringIO, Display, Clock]:
    stream, clock = io.StringIO(), Clock()
    return stream, Display(stream, "k", "ndcg_at_10", 4, clock=clock), clock


def test_plain_lines_say_each_event_once() -> None:
    stream, display, clock = plain()
    steps = [
        summary(),
        summary(trial(0)),
        summary(trial(0, steps=10, latest={"train.loss": 3.2})),
        summary(trial(0, steps=50, latest={"train.loss": 2.1, "ndcg_at_10": 0.3})),
        summary(trial(0, steps=60, latest={"train.loss": 2.0, "ndcg_at_10": 0.3})),
    ]
    for state in steps:
        display.update(state)
        display.update(state)
    clock.now = 30.0
    ended = trial(0, "complete", 100, values=DONE)
    display.update(summary(ended, trial(1), best=(0,)))
    display.message("stopping at the next step")
    collapsed = trial(1, "collapsed", 40, reason="collapsed at step 40: loss flat at 3.47\nmore")
    pruned = trial(2, "pruned", 50, reason="pruned at step 50: lags behind", values={"ndcg_at_10": 0.2})
    last = summary(ended, collapsed, pruned, status="finished", best=(0,))
    display.update(last)
    display.close(last, StudyFolder(Path("studies/demo")))
    assert stream.getvalue().splitlines() == [
        "trial 0 (k = 1) started",
        "trial 0 (k = 1) step 50/100: nDCG@10 0.300, loss 2.100",
        "trial 0 (k = 1) complete at step 100/100, nDCG@10 0.420 [1/4, about 1 min 30 s left]",
        "trial 1 (k = 2) started",
        "stopping at the next step",
        "trial 1 (k = 2) collapsed at step 40/100: loss flat at 3.47 [3/4, about 10 s left]",
        "trial 2 (k = 4) started",
        "trial 2 (k = 4) pruned at step 50/100, nDCG@10 0.200: lags behind [3/4, about 10 s left]",
        "Best k = 1: test nDCG@10 0.410, validation 0.420, untrained 0.100, BM25 0.400",
        "3 of 4 trials: 1 complete, 1 pruned, 1 collapsed. 40 worker-seconds used, 12 saved by stopping early.",
        "report: studies/demo/report.html",
        "MLflow: mlflow ui --backend-store-uri sqlite:///studies/mlflow.db",
        f"runs: http://127.0.0.1:5000/{PAGE}",
    ]


def test_a_line_says_which_replicate_it_is_of() -> None:
    stream, display, _ = plain()
    one = ReplicateSummary(seed=0, values={"ndcg_at_10": 0.4})
    display.update(summary(trial(0, steps=100, latest={"train.loss": 2.0, "ndcg_at_10": 0.4})))
    display.update(summary(trial(0, steps=100, latest={"ndcg_at_10": 0.1}, replicates=(one,))))
    assert stream.getvalue().splitlines()[1:] == [
        "trial 0 (k = 1) step 100/100: nDCG@10 0.400, loss 2.000",
        "trial 0 (k = 1) replicate 2, step 100/100: nDCG@10 0.100",
    ]


def test_carrying_on_does_not_repeat_what_ended_before() -> None:
    stream, display, _ = plain()
    before = [trial(0, "complete", 100, values=DONE), trial(1, "interrupted", 40)]
    display.update(summary(*before, best=(0,)))
    display.update(summary(before[0], trial(1, steps=40, attempts=2), best=(0,)))
    display.update(summary(before[0], trial(1, "interrupted", 60, attempts=2, reason="stopped by hand"), best=(0,)))
    assert stream.getvalue().splitlines() == [
        "carrying on: 2 of 4 trials: 1 complete, 1 interrupted",
        "trial 1 (k = 2) carried on, attempt 2",
        "trial 1 (k = 2) interrupted at step 60/100: stopped by hand",
    ]


def test_a_trial_that_is_carried_on_is_told_with_its_attempt_and_without_its_old_evaluation() -> None:
    stream, display, _ = plain()
    old = {"latest": {"ndcg_at_10": 0.3}}
    display.update(summary(trial(0, "interrupted", 40, attempts=1, **old)))
    display.update(summary(trial(0, steps=40, attempts=1, **old)))
    display.update(summary(trial(0, steps=0, attempts=2, **old)))
    display.update(summary(trial(0, steps=50, attempts=2, latest={"ndcg_at_10": 0.4})))
    assert stream.getvalue().splitlines() == [
        "carrying on: 1 of 4 trials: 1 interrupted",
        "trial 0 (k = 1) carried on, attempt 2",
        "trial 0 (k = 1) step 50/100: nDCG@10 0.400",
    ]


def test_each_line_is_flushed() -> None:
    class Counting(io.StringIO):
        flushes = 0

        def flush(self) -> None:
            self.flushes += 1

    stream = Counting()
    display = Display(stream, "k", "ndcg_at_10", 4)
    display.update(summary(trial(0), trial(1)))
    assert stream.flushes == 2


def test_remaining_time_counts_this_launch_and_running_trials() -> None:
    _, display, clock = plain()
    first = trial(0, "complete", 100, values=DONE)
    display.update(summary(first))
    assert display.progress.remaining(summary(first, trial(1, steps=90))) is None
    clock.now = 60.0
    # One ended and a half underway in 60 s; one and a half to go.
    now = summary(first, trial(1, "complete", 100, values=DONE), trial(2, steps=50))
    assert display.progress.remaining(now) == pytest.approx(60.0)


def test_what_was_done_before_the_first_look_is_no_pace() -> None:
    _, display, clock = plain()
    display.update(summary(trial(0, "interrupted", 80), trial(1, steps=50)))
    clock.now = 70.0
    # 0.2 and 0.5 trials in 70 s; two to go.
    now = summary(trial(0, "complete", 100, values=DONE), trial(1, "complete", 100, values=DONE))
    assert display.progress.remaining(now) == pytest.approx(200.0)


def test_table_shows_trials_progress_and_result_on_its_stream_only(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    stream, clock = io.StringIO(), Clock()
    display = Display(stream, "k", "ndcg_at_10", 4, plain=False, clock=clock)
    display.update(summary(trial(0, steps=50, latest={"train.loss": 2.125, "ndcg_at_10": 0.3})))
    clock.now = 30.0
    odd = trial(1, "collapsed", 40, reason="[bold]vectors[/bold] are zero")
    display.message("a word [between]")
    display.close(summary(trial(0, "complete", 100, values=DONE), odd, status="finished", best=(0,)))
    text = stream.getvalue()
    for part in ("50/100", "2.125", "0.300", "0/4 trials", "a word [between]", "2/4 trials", "40 s left",
                 "★ best", "[bold]vectors[/bold] are zero", "Best k = 1: test nDCG@10 0.410"):  # fmt: skip
        assert part in text
    assert capfd.readouterr() == ("", "")


def test_table_keeps_its_numbers_and_cuts_reasons_where_it_is_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    stream = io.StringIO()
    display = Display(stream, "k", "ndcg_at_10", 4, plain=False)
    display.update(
        summary(
            trial(0, "collapsed", 40, reason="a reason " * 30),
            trial(1, steps=20, latest={"ndcg_at_10": 0.31}),
        )
    )
    display.close(None)
    assert "0.310" in stream.getvalue()
    assert "nDCG@10" in stream.getvalue()
    assert "…" in stream.getvalue()


def test_table_of_many_trials_keeps_the_running_and_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "20")
    stream = io.StringIO()
    display = Display(stream, "k", "ndcg_at_10", 60, plain=False)
    ended = [trial(n, "complete", 100, params={"k": n}, values=DONE) for n in range(50)]
    display.update(summary(*ended, trial(50, steps=33), best=(7,)))
    display.close(None)
    text = stream.getvalue()
    assert "33/100" in text
    assert "★ best" in text
    assert "38 more trials are not shown" in text


@pytest.mark.parametrize(
    ("trials", "status", "first"),
    [
        ((), "interrupted", "No result yet: no trial has ended."),
        ((trial(0, "failed", reason="CUDA is full"),), "failed",
         "No result: the only trial that ended failed. First reason (k = 1): CUDA is full."),
        ((trial(0, "complete", 100, values={"ndcg_at_10": 0.42}),), "interrupted",
         "Best k = 1 so far: validation nDCG@10 0.420"),
    ],
)  # fmt: skip
def test_final_text_of_other_endings(trials: tuple[TrialSummary, ...], status: str, first: str) -> None:
    best = tuple(t.number for t in trials if t.state == "complete")
    lines = final_text(summary(*trials, status=status, best=best)).splitlines()
    assert lines[0] == first
    failed = [t for t in trials if t.state == "failed"]
    assert [line for line in lines if line.startswith("trial ")] == [
        f"trial {t.number} failed: CUDA is full" for t in failed
    ]


def test_the_last_lines_name_the_folder_of_the_best_model() -> None:
    def last(checkpoint: str) -> list[str]:
        best = trial(3, "complete", 100, values=DONE, checkpoint=checkpoint)
        storage = StudyFolder(Path("/data/studies/demo"))
        return final_text(summary(best, status="finished", best=(3,)), storage).splitlines()

    folder = "/data/studies/demo/trials/0003/replicate-0/model"
    for checkpoint in (folder, "trials/0003/replicate-0/model"):
        assert last(checkpoint)[2:4] == [f"best model: {folder}", "report: /data/studies/demo/report.html"]
    uri = "s3://bucket/demo-1/trials/0003/replicate-0/model"
    assert f"best model: {uri}" in last(uri)


@pytest.mark.parametrize("parameters", [1, 2])
def test_a_terminal_of_40_columns(parameters: int) -> None:
    from rich.console import Console

    stream = io.StringIO()
    display = Display(stream, "k", "ndcg_at_10", 4, plain=False)
    params = dict([("k", 0.25), ("optimiser.lr", 0.003)][:parameters])
    trials = [
        trial(0, "complete", 100, values=DONE, params=params, latest={"train.loss": 1.234}),
        trial(1, "collapsed", 40, reason="collapsed at step 40: loss flat", params=params),
        trial(12, steps=55, params=params),
    ]
    view = display._view
    view.console = Console(file=stream, width=40, height=24)
    shown = Console(file=io.StringIO(), width=40)
    shown.print(view._render(summary(*trials, best=(0,))))
    lines = shown.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 40
    assert [line.split()[:3] for line in lines[1:4]] == [
        ["0", "0.25", "100/100"],
        ["1", "0.25", "40/100"],
        ["12", "0.25", "55/100"],
    ]
    for word, line in zip(("0.420", "collapsed", "running"), lines[1:4], strict=True):
        assert word in line
    assert "2/4 trials" in lines[-1]
    display.close(None)


def test_movement_is_shown_while_something_takes_long(monkeypatch) -> None:
    from study.reporting import screen as module

    stream = io.StringIO()
    display = Display(stream, "k", "ndcg_at_10", 4)
    for elapsed in (0.5, 9.5, 10, 12, 19, 20, 39, 41):
        display._view.waiting("checking the inputs", elapsed)
    assert stream.getvalue().splitlines() == [f"checking the inputs, {s} s" for s in (10, 20, 41)]
    terminal = io.StringIO()
    display = Display(terminal, "k", "ndcg_at_10", 4, plain=False)
    monkeypatch.setattr(module, "TICK_S", 0.01)
    doing = iter(["checking the inputs", "starting Ray"])
    with display.waiting(lambda: next(doing, "starting Ray")):
        until = time.monotonic() + 5
        while "starting Ray" not in terminal.getvalue() and time.monotonic() < until:
            time.sleep(0.01)
    assert "checking the inputs, 0 s" in terminal.getvalue()
    assert "starting Ray, 0 s" in terminal.getvalue()
    display.close(None)


@pytest.mark.parametrize(("size", "width"), [((24, 40), 40), ((0, 0), 80)])
def test_the_terminal_that_is_written_to_is_measured(size: tuple[int, int], width: int) -> None:
    import fcntl
    import os
    import re
    import struct
    import termios

    master, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    with os.fdopen(terminal, "w") as stream:
        display = Display(stream, "k", "ndcg_at_10", 4)
        display._view.waiting("checking the inputs", 4000)
        display.update(summary(trial(0, "complete", 100, values=DONE), trial(1, steps=40), best=(0,)))
        display.close(None)
    seen = b""
    # What was written arrives piece by piece; behind its end is an error.
    with contextlib.suppress(OSError):
        while piece := os.read(master, 100_000):
            seen += piece
    os.close(master)
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode()).replace("\r", "\n").splitlines()
    assert any(line.startswith("checking the inputs, 1 h 6 min  ━━━") for line in lines)
    assert max(map(len, lines)) <= display._view.console.width == width
