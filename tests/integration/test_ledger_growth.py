"""What the ledger does for one trial does not grow with the others, and what it remembers is what its database has."""

from __future__ import annotations

import optuna
import pytest
from optuna.storages import RDBStorage

from study.spec import Budget, Pruner
from tests.ledgers import ledger_url
from tests.toy_ledger import opened, outcome, record, run_trial, toy

READ = "_build_frozen_trial_from_trial_model"


def searched(trials: int):
    return toy(budget=Budget(trials=trials), pruner=Pruner(kind="median"))


@pytest.mark.usefixtures("toy_trainer")
def test_a_report_reads_no_other_trial(tmp_path, monkeypatch) -> None:
    """Every report with an evaluation read all trials that ran, several times."""
    read: list[int] = []
    build = getattr(RDBStorage, READ)
    reads = {}
    for running in (2, 12):
        ledger = opened(tmp_path / str(running), searched(running))
        begun = [ledger.begin(ledger.ask()) and number for number in range(running)]
        with monkeypatch.context() as patch:
            patch.setattr(RDBStorage, READ, lambda self, trial: read.append(trial.trial_id) or build(self, trial))
            read.clear()
            ledger.report(begun[-1], 1, 0, [record(3, ndcg_at_10=0.5)])
            reads[running] = len(read)
            assert set(read) <= {running}, "ids in the database begin at 1"
        ledger.close([], 0.0)
    assert reads[2] == reads[12] > 0


@pytest.mark.usefixtures("toy_trainer")
def test_what_is_remembered_of_trials_is_what_the_database_has(tmp_path) -> None:
    ledger = opened(tmp_path, searched(8))
    for value in (0.1, 0.2):
        run_trial(ledger, value)
    running = [ledger.ask() for _ in range(3)]
    for number in running:
        ledger.report(number, ledger.begin(number).attempt, 0, [record(2, ndcg_at_10=0.1 * number)])
    ledger.finish(running[1], 1, outcome("collapsed", step=3, ndcg_at_10=0.0))
    ledger.ask()
    url = ledger_url(tmp_path)
    stored = optuna.load_study(study_name="toy", storage=url).get_trials()
    assert ledger._optuna.get_trials() == stored
    assert [trial.state.name for trial in stored] == ["COMPLETE"] * 2 + ["RUNNING", "PRUNED", "RUNNING", "RUNNING"]
    ledger.close([], 0.0)
