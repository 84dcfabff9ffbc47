"""What goes wrong around a ledger, on SQLite and on a real PostgreSQL: parameters that are refused, machines, gangs,
and storage that is away."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import optuna
import pytest

from study.ledger.faults import HANGS, NODE_FAULTS, STARTS, Faults
from study.ledger.ledger import Ledger
from study.ledger.queue import FUTILE
from study.ledger.silence import Silence
from study.protocol.folder import StudyFolder
from study.protocol.journal import Ended, Metrics
from study.protocol.messages import HandOut, Trouble
from study.spec import Budget
from study.suites.measurements import trial_configs
from tests.toy_ledger import Picky, dies, opened, outcome, record, run_trial, space, toy, trial_of
from trainables.context import Phase
from trainables.faults import Fault

pytestmark = pytest.mark.usefixtures("toy_trainer", "database")


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_server_that_hung_up_is_called_again(tmp_path, postgres) -> None:
    ledger = opened(tmp_path)
    number = ledger.ask()
    postgres.hang_up()
    ledger.begin(number)
    postgres.hang_up()
    assert ledger.report(number, 1, 0, [record(4, ndcg_at_10=0.5)]) is None
    ended = outcome("complete", ndcg_at_10=0.5)
    ledger.replicate_ended(number, 1, 0, ended)
    postgres.hang_up()
    assert ledger.finish(number, 1, ended) == "complete"
    assert trial_of(ledger, number).state.name == "COMPLETE"


def test_three_failures_in_a_row_end_the_study(tmp_path) -> None:
    ledger = opened(tmp_path)
    for _ in range(3):
        number = ledger.ask()
        ledger.begin(number)
        ledger.finish(number, 1, None, "RuntimeError: always")
    assert ledger.ask() is None
    assert ledger.conclude().status == "failed"


def test_parameters_that_the_config_refuses_fail_their_trial_alone(tmp_path, monkeypatch) -> None:
    """Whatever comes of a launch that was killed before it could say so: the next one is not held up either."""
    ledger = opened(tmp_path, toy(config=Picky(steps=10)))
    run_trial(ledger)
    ledger._optuna.ask().suggest_float("k", 0.1, 10, log=True)  # killed before the second parameter of trial 1
    dies(ledger)
    ledger = opened(tmp_path, toy(config=Picky(steps=10)))
    params = []

    def refused(config: Picky) -> bool:
        params.append((config.k, config.width))
        return len(params) == 1

    monkeypatch.setattr(Picky, "refused", refused)
    assert run_trial(ledger) == 2
    monkeypatch.setattr(Picky, "refused", lambda config: False)
    row = ledger.summary().trials[1]
    k, width = params[0]
    assert (row.state, row.reason) == ("failed", f"k is {k:g} and width {width}: no such thing")
    assert (row.params, row.attempts, row.worker_seconds) == ({"k": k, "width": width}, 0, 0)
    trial = trial_of(ledger, 1)
    assert (trial.state.name, trial.constraints["refused"]) == ("PRUNED", 1.0)
    entries = [entry for _, entry in ledger.journal.read() if entry.trial == 1]
    assert [entry.op for entry in entries] == ["trial", "values", "end"]
    assert (entries[0].params["k"], entries[0].params["steps"]) == (k, 10)
    assert (entries[2].state, entries[2].reason) == ("failed", row.reason)
    # Its parameters make no config, which nobody asks for.
    monkeypatch.setattr(sys.modules["trainables.toy.config"], "Config", Picky, raising=False)
    monkeypatch.setattr(Picky, "refused", lambda config: config.k == k)
    assert set(trial_configs("toy", StudyFolder(tmp_path), {0, 2})) == {0, 2}
    dies(ledger)
    again = opened(tmp_path, toy(config=Picky(steps=10)))
    assert run_trial(again) == 3
    assert again.ask() is None
    assert again.conclude().status == "finished"


def test_refused_parameters_are_not_run_again_with_the_failed_ones(tmp_path, monkeypatch) -> None:
    ledger = opened(tmp_path, toy(config=Picky(steps=10), budget=Budget(trials=3)))
    number = ledger.ask()
    ledger.begin(number)
    ledger.finish(number, 1, None, "OutOfMemoryError: no")
    monkeypatch.setattr(Picky, "refused", lambda config: True)
    assert ledger.ask() is None
    monkeypatch.setattr(Picky, "refused", lambda config: False)
    dies(ledger)
    again = opened(tmp_path, toy(config=Picky(steps=10), budget=Budget(trials=3)), retry_failed=True)
    assert run_trial(again) == 3
    assert again.ask() is None
    assert [row.retry_of for row in again.summary().trials] == [None, None, None, 0]


def test_a_refusal_that_a_kill_cut_short_is_told(tmp_path, monkeypatch) -> None:
    ledger = opened(tmp_path, toy(config=Picky(steps=10)))
    monkeypatch.setattr(Picky, "refused", lambda config: True)
    ledger._optuna.tell = lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        ledger.ask()
    dies(ledger)
    monkeypatch.setattr(Picky, "refused", lambda config: False)
    again = opened(tmp_path, toy(config=Picky(steps=10)))
    assert (trial_of(again, 0).state.name, trial_of(again, 0).constraints["refused"]) == ("PRUNED", 1.0)
    assert run_trial(again) == 1


def test_a_space_that_raises_now_and_then_fails_its_trial_alone(tmp_path) -> None:
    moods: list[Exception] = []

    def moody(trial) -> None:
        space(trial)
        if moods:
            raise moods.pop()

    ledger = opened(tmp_path, toy(space=moody))
    moods.append(KeyError("width"))
    assert run_trial(ledger) == 1
    row = ledger.summary().trials[0]
    assert (row.state, row.reason) == ("failed", "the search space raises KeyError: 'width'")
    assert set(row.params) == {"k", "width"}


@pytest.mark.parametrize(
    "fault", [optuna.exceptions.StorageInternalError("away"), RuntimeError("not the head any more")]
)
def test_a_fault_of_the_storage_is_no_refusal(tmp_path, monkeypatch, fault) -> None:
    ledger = opened(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(type(ledger._optuna._storage), "set_trial_param", lambda *a: (_ for _ in ()).throw(fault))
        with pytest.raises(type(fault)):
            ledger.ask()
    assert run_trial(ledger) == 0


def test_refusals_in_a_row_end_the_study_and_name_the_keys(tmp_path, monkeypatch) -> None:
    """A later launch tries again, and trials that are none of them have their say in between."""
    study = toy(config=Picky(steps=10), budget=Budget(trials=16))
    ledger = opened(tmp_path, study)
    run_trial(ledger)
    monkeypatch.setattr(Picky, "refused", lambda config: True)
    assert ledger.ask() is None
    monkeypatch.setattr(Picky, "refused", lambda config: False)
    assert ledger.ask() is None
    summary = ledger.conclude()
    assert summary.status == "failed"
    assert [t.state for t in summary.trials] == ["complete"] + ["failed"] * FUTILE
    last = summary.trials[-1]
    assert summary.reason == (
        f"the parameters of {FUTILE} trials in a row cannot be run, at last k={last.params['k']!r}, "
        f"width={last.params['width']}: {last.reason}; narrow the search space"
    )
    ledger.close([], 0)
    (end,) = (e for _, e in ledger.journal.read() if isinstance(e, Ended) and e.trial is None)
    assert end.reason == summary.reason
    again = opened(tmp_path, study)
    assert again.summary().reason is None
    assert run_trial(again) == 1 + FUTILE
    seen: set[float] = set()

    def mostly(config: Picky) -> bool:
        seen.add(config.k)
        return len(seen) % FUTILE != 0

    monkeypatch.setattr(Picky, "refused", mostly)
    assert again.ask() == 1 + 2 * FUTILE
    assert again.ask() is None
    assert again.summary().reason is None


def test_a_trial_that_leaves_its_nodes_is_handed_out_again_in_the_same_launch(tmp_path) -> None:
    """Its gang was told that a node goes away: it stops with a checkpoint, and that is no failure."""
    ledger = opened(tmp_path, toy(budget=Budget(trials=1)))
    number = ledger.ask()
    ledger.begin(number)
    assert ledger.ask() is None
    assert ledger.finish(number, 1, outcome("stopped", step=4, reason="a node is about to be taken away")) == (
        "interrupted"
    )
    shown = ledger.summary().trials[0]
    assert (shown.state, shown.reason) == ("interrupted", "a node is about to be taken away")
    assert ledger.ask() == number
    assert ledger.begin(number).attempt == 2
    ended = outcome("complete", ndcg_at_10=0.5)
    ledger.replicate_ended(number, 2, 0, ended)
    assert ledger.finish(number, 2, ended) == "complete"
    assert ledger.summary().trials[0].reason is None
    assert ledger.conclude().status == "finished"


def test_a_gang_that_is_lost_while_the_study_stops_costs_what_it_held(tmp_path) -> None:
    ledger = opened(tmp_path)
    number = ledger.ask()
    ledger.halt("stopped by hand")
    ledger._account._opened[number] -= 3000
    assert ledger.abandon(number, "lost") == "interrupted"
    assert 3000 <= ledger.summary().trials[0].worker_seconds < 3600
    assert ledger.summary().trials[0].worker_seconds == ledger.summary().trials[0].worker_seconds


NODE = "a" * 56


def test_a_fault_of_a_machine_is_none_of_its_trial(tmp_path) -> None:
    ledger = opened(tmp_path)
    handed = ledger.hand_out()
    ledger.begin(handed.number, handed.ticket)
    trouble = Trouble(Fault.NODE, "uncorrectable ECC error", NODE)
    assert ledger.trouble(handed.number, 1, trouble) == "interrupted"
    # The rest of the gang is lost with it, and Train starts it once more.
    assert ledger.begin(handed.number, handed.ticket) is None
    assert ledger.abandon(handed.number, "its gang was lost", handed.ticket) == "running"
    assert ledger.notices() == ["trial 0 goes on elsewhere or later: uncorrectable ECC error"]
    assert ledger.notices() == []
    again = ledger.hand_out()
    assert (again.number, again.ticket, again.tried) == (handed.number, handed.ticket + 1, {NODE})
    assert ledger.begin(again.number, again.ticket).attempt == 2
    ledger.replicate_ended(again.number, 2, 0, outcome("complete", ndcg_at_10=0.5))
    assert ledger.finish(again.number, 2, outcome("complete", ndcg_at_10=0.5)) == "complete"


def test_a_bad_machine_leaves_the_study_and_no_trial_fails(tmp_path) -> None:
    ledger = opened(tmp_path)
    for attempt in range(NODE_FAULTS):
        handed = ledger.hand_out()
        attempt = ledger.begin(handed.number, handed.ticket).attempt
        ledger.trouble(handed.number, attempt, Trouble(Fault.NODE, "uncorrectable ECC error", NODE))
    assert ledger.standing().left == {NODE}
    ledger.give_up("every node that has room for a trial has failed several times")
    assert ledger.standing().halted
    summary = ledger.conclude()
    assert (summary.status, [t.state for t in summary.trials]) == ("interrupted", ["interrupted"])
    assert ledger.lost() == "every node that has room for a trial has failed several times"


def test_what_all_trials_need_is_waited_for_and_then_the_study_is_interrupted(tmp_path) -> None:
    ledger = opened(tmp_path)
    now = 0.0
    ledger._faults = Faults(lambda: now)
    while not ledger.standing().halted:
        handed = ledger.hand_out()
        attempt = ledger.begin(handed.number, handed.ticket).attempt
        ledger.trouble(handed.number, attempt, Trouble(Fault.SHARED, "no space left on device"))
        now += 600
    assert ledger.conclude().status == "interrupted"
    assert ledger.lost() == "waited in vain for what all trials need: no space left on device"


def test_waiting_for_room_is_no_failure_however_long(tmp_path) -> None:
    ledger = opened(tmp_path)
    for _ in range(40):
        handed = ledger.hand_out()
        assert handed.number == 0
        ledger.give_back(0, handed.ticket, "its gang could not start: the cluster has no room for it", True)
    assert ledger.summary().trials[0].state == "interrupted"
    assert ledger.notices() == ["trial 0 waits: its gang could not start: the cluster has no room for it"] * 40


def test_a_gang_that_never_starts_fails_its_trial(tmp_path) -> None:
    ledger = opened(tmp_path)
    states = []
    while "failed" not in states:
        handed = ledger.hand_out()
        assert handed.number == 0
        states.append(ledger.give_back(0, handed.ticket, "its gang could not start: no such environment", False))
    assert states == ["interrupted"] * STARTS + ["failed"]


@pytest.mark.parametrize("at_a_time", [1, 4])
def test_failures_in_a_row_end_a_study_whatever_ended_before(tmp_path, at_a_time) -> None:
    """59 of 60 trials failed, and the study was finished."""
    ledger = opened(tmp_path, toy(budget=Budget(trials=60)))
    run_trial(ledger)
    failed = 0
    while (number := ledger.ask()) is not None:
        live = [number, *(n for _ in range(at_a_time - 1) if (n := ledger.ask()) is not None)]
        for number in live:
            ledger.begin(number)
            ledger.finish(number, 1, None, "RuntimeError: always")
            failed += 1
    assert failed == max(5, 2 * at_a_time)
    summary = ledger.conclude()
    assert summary.status == "failed"
    assert summary.reason.startswith(f"the last {failed} trials failed, one after the other, at last trial ")


def test_a_storage_that_is_away_changes_nothing_and_is_asked_again(tmp_path, monkeypatch) -> None:
    """Each call that a gang makes, at each of its writes: it raises, and once more it does what it should have."""

    @contextmanager
    def failing(ledger: Ledger, at: int) -> Iterator[None]:
        """The write of this number, from 1, raises."""
        left = at

        def write(done: Callable, *arguments):
            nonlocal left
            left -= 1
            if left == 0:
                raise OSError(errno.EIO, "Input/output error")
            return done(*arguments)

        with monkeypatch.context() as patch:
            for owner, name in ((ledger._trials, "store"), (ledger._trials, "tell"), (ledger.journal, "append")):
                patch.setattr(owner, name, partial(write, getattr(owner, name)))
            yield

    def calls(ledger: Ledger) -> Iterator[Callable[[], object]]:
        yield lambda: ledger.begin(0, 1)
        yield lambda: ledger.describe(0, 1, 0, {"hash.data_order": "d"})
        yield lambda: ledger.report(0, 1, 0, [record(1, **{"train.loss": 1.0}), record(2, ndcg_at_10=0.4)])
        yield lambda: ledger.replicate_ended(0, 1, 0, outcome("complete", ndcg_at_10=0.5))
        yield lambda: ledger.finish(0, 1, outcome("complete", ndcg_at_10=0.5))

    repeated = 0
    for at in range(1, 5):
        ledger = opened(tmp_path / str(at))
        ledger.hand_out()
        for call in calls(ledger):
            try:
                with failing(ledger, at):
                    call()
            except OSError:
                assert not ledger._rows[0].state.ended
                call()
                repeated += 1
        trial = ledger.summary().trials[0]
        assert (trial.state, trial.attempts, trial.steps) == ("complete", 1, 10), at
        told = trial_of(ledger, 0)
        assert (told.state.name, told.value, told.intermediate_values) == ("COMPLETE", 0.5, {2: 0.4})
        assert [r["step"] for _, e in ledger.journal.read() if isinstance(e, Metrics) for r in e.records] == [1, 2]
        ledger.close([], 0)
    assert repeated >= 9


def test_a_view_that_cannot_be_written_stops_nothing(tmp_path, monkeypatch) -> None:
    ledger = opened(tmp_path)

    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("study.ledger.view.write_whole", full)
    assert run_trial(ledger) == 0
    assert [n.partition(" just now")[0] for n in ledger.notices()] == ["summary.json is not written"]


def test_a_gang_that_has_left_cannot_come_back(tmp_path) -> None:
    """Train may start it once more, or lose it: neither touches the gang that has the trial now."""
    ledger = opened(tmp_path)
    handed = ledger.hand_out()
    number, ticket = handed.number, handed.ticket
    assert ledger.begin(number, ticket).attempt == 1
    # Train starts a gang again that has lost a worker.
    assert ledger.begin(number, ticket).attempt == 2
    ledger.finish(number, 2, outcome("stopped", step=4, reason="a node is about to be taken away"))
    assert ledger.begin(number, ticket) is None
    assert ledger.hand_out() == HandOut(number, ticket + 1)
    assert ledger.begin(number, ticket) is None
    assert ledger.abandon(number, "lost", ticket) == "running"
    assert ledger.begin(number, ticket + 1).attempt == 3
    assert ledger.abandon(number, "lost", ticket + 1) == "failed"


def test_a_gang_that_hangs_is_ended_and_its_trial_carried_on(tmp_path) -> None:
    ledger = opened(tmp_path)
    now = 0.0
    ledger._silence = Silence(clock=lambda: now)

    def passes(seconds: float) -> list:
        nonlocal now
        for _ in range(round(seconds)):
            now += 1
            if workers := ledger.silent():
                return workers
        return []

    for attempt in range(1, HANGS + 1):
        handed = ledger.hand_out()
        assert ledger.begin(handed.number, handed.ticket).attempt == attempt
        ledger.seat(handed.number, attempt, f"worker {attempt}", NODE)
        ledger.seat(handed.number, attempt - 1, "an earlier gang's", NODE)
        ledger.alive(handed.number, attempt, Phase.STEPS)
        ledger.report(handed.number, attempt, 0, [record(attempt, **{"train.loss": 1.0})])
        assert passes(599) == []
        assert passes(9) == [f"worker {attempt}"]
        assert passes(9) == []
        # Ray Train starts the gang again that has lost its workers.
        assert ledger.begin(handed.number, handed.ticket) is None
    row = ledger.summary().trials[0]
    reason = "its gang hangs: it steps, and has been silent for 601 s"
    assert (row.state, row.reason) == ("failed", f"{reason}, as it has several times")
    assert ledger.notices() == [f"trial 0 is carried on: {reason}"] * (HANGS - 1)
    told = [e.tags["fault"] for _, e in ledger.journal.read() if e.op == "trial" and "fault" in e.tags]
    assert told == [reason] * HANGS
    assert ledger.hand_out().number == 1


def test_what_auto_stands_for_is_fixed_by_the_first_trial(tmp_path) -> None:
    ledger = opened(tmp_path)
    assert ledger.compute_in("bf16") == "bf16"
    assert ledger.compute_in("float32") == "bf16"
    run_trial(ledger)
    dies(ledger)
    again = opened(tmp_path)
    assert again.compute_in("float32") == "bf16"
    run_trial(again)
    tagged = [e.tags.get("precision") for _, e in again.journal.read() if e.op in ("study", "inputs", "trial")]
    assert tagged == [None, "bf16", "bf16", "bf16", "bf16"]


def test_an_engine_that_lacks_what_all_need_waits_and_then_the_study_is_interrupted(tmp_path) -> None:
    ledger = opened(tmp_path)
    now = 0.0
    ledger._faults = Faults(lambda: now)
    while not ledger.standing().halted:
        ledger.wait_for("the database is locked")
        assert ledger.standing().pausing
        now += 600
    assert ledger.notices()[0] == "waiting 5 s for what all trials need: the database is locked"
    assert ledger.lost() == "waited in vain for what all trials need: the database is locked"
