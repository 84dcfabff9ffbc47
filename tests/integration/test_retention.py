"""What a study keeps of its trials' models and checkpoints, and that nothing else is removed."""

from __future__ import annotations

import types
from pathlib import Path

import pytest

from study.engine import leftovers
from study.ledger.ledger import Ledger
from study.protocol.messages import Leftover
from study.spec import Budget, Objective
from tests.toy_ledger import dies, opened, outcome, run_trial, toy

pytestmark = pytest.mark.usefixtures("toy_trainer")


def numbers(ledger: Ledger) -> list[int]:
    return [left.number for left in ledger.surplus()]


def searched(**changes):
    return toy(budget=Budget(trials=12), **changes)


def test_the_best_few_and_controls_keep_their_models(tmp_path) -> None:
    ledger = opened(tmp_path, searched(controls=({"k": 1.0, "width": 4},)), keep=2)
    seen = []
    for value in (0.1, 0.5, 0.4, None, 0.6):
        run_trial(ledger, value or 0.3, "complete" if value else "collapsed")
        seen.append(numbers(ledger))
    assert seen == [[], [], [], [3], [2]], "trial 0 is the control, and trial 4 takes the place of trial 2"
    failed = ledger.ask()
    ledger.finish(failed, ledger.begin(failed).attempt, None, "ValueError: no")
    assert numbers(ledger) == [failed]
    running = ledger.ask()
    ledger.begin(running)
    assert numbers(ledger) == [], "what runs is left alone, and nothing is told twice"
    ledger.close([], 0.0)


def test_what_a_killed_launch_did_not_remove_the_next_one_does(tmp_path) -> None:
    ledger = opened(tmp_path, searched(), keep=1)
    for value in (0.1, 0.2, 0.3):
        run_trial(ledger, value)
    assert numbers(ledger) == [0, 1]
    ledger.emptied(0)
    dies(ledger)
    ledger = opened(tmp_path, searched(), keep=1)
    assert numbers(ledger) == [1]
    assert ledger.summary().trials[0].checkpoint is None
    ledger.close([], 0.0)
    ledger = opened(tmp_path, searched())
    assert numbers(ledger) == [], "where all is kept"
    ledger.close([], 0.0)


def test_a_pareto_front_is_kept_however_long(tmp_path) -> None:
    both = (Objective(name="ndcg_at_10"), Objective(name="flops", direction="minimize"))
    ledger = opened(tmp_path, searched(objectives=both), keep=1)
    for value, cost in [(0.1, 1.0), (0.2, 2.0), (0.15, 3.0), (0.3, 4.0)]:
        number = ledger.ask()
        attempt = ledger.begin(number).attempt
        ended = outcome("complete", ndcg_at_10=value, flops=cost)
        ledger.replicate_ended(number, attempt, 0, ended)
        ledger.finish(number, attempt, ended)
    assert numbers(ledger) == [2]
    ledger.close([], 0.0)


def test_all_arms_of_a_paired_design_are_kept(tmp_path) -> None:
    ledger = opened(tmp_path, searched(design="paired", replicates=2), keep=1)
    for value in (0.1, 0.2, 0.3):
        number = ledger.ask()
        attempt = ledger.begin(number).attempt
        for replicate in range(2):
            ended = outcome("complete", ndcg_at_10=value)
            ledger.replicate_ended(number, attempt, replicate, ended)
        ledger.finish(number, attempt, ended)
    assert numbers(ledger) == []
    ledger.close([], 0.0)


def written(replicate: Path) -> None:
    for name in ("step-00000002", "step-00000004", "model", "model-pretrain"):
        (replicate / name).mkdir(parents=True)
        (replicate / name / "tensors").write_text("large")
    (replicate / "result.json").write_text("{}")
    (replicate / "attempt").write_text("1")


@pytest.mark.parametrize("stored", [False, True])
def test_a_gang_removes_models_and_checkpoints_and_leaves_results(tmp_path, monkeypatch, stored) -> None:
    trial = tmp_path / "trials" / "0003"
    for replicate in range(2):
        written(trial / f"replicate-{replicate}")
    written(tmp_path / "trials" / "0004" / "replicate-0")
    left = Leftover(3, str(tmp_path if stored else trial), f"file://{trial}" if stored else None, 2)
    told: list[int] = []
    ledger = types.SimpleNamespace(
        surplus=types.SimpleNamespace(remote=lambda: [left]), emptied=types.SimpleNamespace(remote=told.append)
    )
    monkeypatch.setattr(leftovers, "answer", lambda ask: ask())
    leftovers.clear(ledger)
    for replicate in trial.iterdir():
        assert sorted(path.name for path in replicate.iterdir()) == ["attempt", "result.json"]
    assert len(list((tmp_path / "trials" / "0004" / "replicate-0").iterdir())) == 6
    assert told == [3]


def test_what_cannot_be_removed_stays_on_record(tmp_path, monkeypatch, caplog) -> None:
    written(tmp_path / "0003" / "replicate-0")
    left = Leftover(3, str(tmp_path / "0003"), None, 1)
    told: list[int] = []
    ledger = types.SimpleNamespace(
        surplus=types.SimpleNamespace(remote=lambda: [left]), emptied=types.SimpleNamespace(remote=told.append)
    )

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(leftovers, "answer", lambda ask: ask())
    monkeypatch.setattr("trainables.checkpoints.shutil.rmtree", refuse)
    leftovers.clear(ledger)
    assert told == []
    assert "the checkpoints of trial 3 stay for now" in caplog.text
