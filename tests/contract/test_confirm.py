"""Search, then confirm, by the real ledger: finalists are decided once and run with the same fresh seeds, whatever
kills the study; sampler and pruner learn nothing of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest

from study.confirmation import Confirm
from study.ledger import sampling
from study.ledger.optuna_study import Different, outlook
from study.protocol.journal import TrialBegun
from study.protocol.messages import Outcome
from study.protocol.states import ReplicateState, StudyStatus, TrialState
from study.protocol.summary import TrialSummary
from study.spec import Budget, Group, Pruner, Study
from tests.synthetic_search import ENOUGH, REPORTED, Studied, provide_trainer, toy

POINTS = tuple({"k": k, "width": 3} for k in (0.5, 1.0, 2.0, 4.0, 8.0))
TWO = Confirm(finalists=2, seeds=3)
FRESH = (1, 2, 3)


@pytest.fixture(autouse=True)
def toy_trainer(monkeypatch) -> None:
    provide_trainer(monkeypatch)


def value(params: dict[str, Any], seed: int) -> float:
    """By seed 0 of the search k = 2 is best, by any other k = 1 is; a control is in between."""
    k = params.get("k", 3.0)
    lucky = 1.0 if seed == 0 and k == 2.0 else 0.0
    return lucky - math.log10(k) ** 2


class Confirmed(Studied):
    """A study whose trials run one after the other, all seeds of each."""

    def run_trial(self, *, until: int | None = None, end: Callable[[int, int], None] | None = None) -> int | None:
        """Run the next trial, or its first `until` replicates; `end` is called with number and attempt instead."""
        number = self.ledger.ask()
        if number is None:
            return None
        begun = self.ledger.begin(number)
        if end is not None:
            end(number, begun.attempt)
            return number
        for replicate, seed in enumerate(begun.seeds[:until]):
            metrics = {"ndcg_at_10": value(self.params(number), seed), "flops": 1.0}
            outcome = Outcome(ReplicateState.COMPLETE, None, REPORTED[-1], metrics, seconds=1.0)
            if replicate < len(self.ledger._rows[number].replicates):
                continue
            for step in REPORTED:
                record = {"step": step, "time": step, "metrics": metrics}
                assert self.ledger.report(number, begun.attempt, replicate, [record]) is None
            self.ledger.replicate_ended(number, begun.attempt, replicate, outcome)
        if until is None:
            self.ledger.finish(number, begun.attempt, outcome)
        return number

    def run_all(self) -> None:
        while self.run_trial() is not None:
            pass

    def again(self, **options: Any) -> None:
        self.die()
        self.open(**options)


def searched(**changes: Any) -> Study:
    given = {"points": POINTS, "budget": Budget(trials=6), "controls": ({"arm": True},), "confirm": TWO}
    return toy("tpe", "none", **given | changes)


def told(run: TrialSummary) -> tuple[int | None, tuple[int, ...], Any]:
    return run.confirms, tuple(one.seed for one in run.replicates), run.params


def test_the_winner_is_the_finalist_that_fresh_seeds_show(monkeypatch, tmp_path) -> None:
    studied = Confirmed(monkeypatch, tmp_path, searched())
    studied.run_all()
    summary = studied.ledger.conclude()
    assert summary.status == StudyStatus.FINISHED
    assert [trial.confirms for trial in summary.trials] == [None] * 6
    assert summary.trials[summary.best[0]].params["k"] == 2.0
    found = summary.confirmation
    (group,) = found.groups
    assert (found.finalists, found.seeds, found.planned) == (2, FRESH, 3)
    assert (group.finalists, group.controls, group.missing, group.winner) == ((3, 2), (0,), 0, 2)
    assert list(map(told, found.runs)) == [
        (0, FRESH, {"arm": True}), (3, FRESH, {"k": 2.0, "width": 3}), (2, FRESH, {"k": 1.0, "width": 3}),
    ]  # fmt: skip
    assert [run.control for run in found.runs] == [True, False, False]
    assert found.run_of(2) is found.runs[2]
    assert summary.worker_seconds.used == pytest.approx(sum(run.worker_seconds for run in summary.runs), abs=0.01)
    entries = [entry for _, entry in studied.ledger.journal.read() if isinstance(entry, TrialBegun)]
    assert [entry.tags["phase"] for entry in entries] == ["search"] * 6 + ["confirmation"] * 3
    assert [(entry.tags["confirms"], entry.replicates, entry.params["seed"]) for entry in entries[6:]] == [
        ("0", 3, 1), ("3", 3, 1), ("2", 3, 1)
    ]  # fmt: skip


def test_nothing_is_decided_while_a_trial_of_the_search_runs(monkeypatch, tmp_path) -> None:
    studied = Confirmed(monkeypatch, tmp_path, searched())
    for _ in range(5):
        studied.run_trial()
    last = studied.ledger.ask()
    assert (studied.ledger.ask(), studied.ledger.summary().confirmation) == (None, None)
    attempt = studied.ledger.begin(last).attempt
    ended = Outcome(ReplicateState.COMPLETE, None, 81, {"ndcg_at_10": 5.0, "flops": 1.0})
    studied.ledger.replicate_ended(last, attempt, 0, ended)
    studied.ledger.finish(last, attempt, ended)
    assert studied.ledger.ask() == 6
    assert studied.ledger.summary().confirmation.groups[0].finalists == (last, 3)


@pytest.mark.parametrize("kills", range(4))
def test_kills_change_neither_finalists_nor_seeds(kills, monkeypatch, tmp_path) -> None:
    whole = Confirmed(monkeypatch, tmp_path / "whole", searched())
    whole.run_all()
    wanted = whole.ledger.summary().confirmation
    killed = Confirmed(monkeypatch, tmp_path / "killed", searched())
    for _ in range(6):
        killed.run_trial()
    if kills == 0:
        # After the decision and before anything of it is queued.
        monkeypatch.setattr(optuna.Study, "enqueue_trial", _dies)
        with pytest.raises(KeyboardInterrupt):
            killed.ledger.ask()
        monkeypatch.undo()
        provide_trainer(monkeypatch)
        monkeypatch.setattr("study.ledger.optuna_study._database", lambda url, fence=None: killed.storage)
        # Nobody decides again.
        monkeypatch.setattr("study.confirmation.finalists", _dies)
    elif kills == 1:
        killed.run_trial(until=1)
    elif kills == 2:
        killed.run_trial()
        killed.ledger._optuna.ask()
    else:
        killed.run_trial(until=2)
        killed.again()
        killed.run_trial()
        killed.run_trial(until=3)
    killed.again()
    killed.run_all()
    found = killed.ledger.summary().confirmation
    assert found.groups == wanted.groups
    assert list(map(told, found.runs)) == list(map(told, wanted.runs))
    assert [run.values for run in found.runs] == [run.values for run in wanted.runs]
    assert killed.ledger.ask() is None


def _dies(*arguments: Any, **keywords: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("groups", [None, Group(key="shape", values=("round", "square"))])
def test_sampler_and_pruner_never_see_a_confirmation(groups, monkeypatch, tmp_path) -> None:
    """Its values are the worst of all, and would be pruned."""
    seen: list[set[int]] = []
    inner = sampling.Sampler.sample_independent

    def watched(self, study, trial, name, distribution):
        seen.append({one.number for one in study.get_trials(deepcopy=False)})
        return inner(self, study, trial, name, distribution)

    monkeypatch.setattr(sampling.Sampler, "sample_independent", watched)
    study = searched(
        group=groups, pruner=Pruner(kind="median", startup_trials=1, first_step=1), budget=Budget(trials=8)
    )
    studied = Confirmed(monkeypatch, tmp_path, study)
    asked: list[Any] = []
    monkeypatch.setattr(
        optuna.Trial, "should_prune", lambda trial: bool(asked.append(trial.number)) and False, raising=True
    )
    each = 8 * len(study.groups)
    for _ in range(each):
        studied.run_trial()
    before = len(seen), len(asked)
    studied.run_all()
    assert studied.ledger.summary().confirmation.planned == 3 * len(study.groups)
    assert (len(seen), len(asked)) == before
    assert all(len(numbers) <= 8 for numbers in seen)
    frozen = studied.ledger._trials.frozen(each)
    assert (frozen.state.name, frozen.intermediate_values) == ("COMPLETE", {})


def test_groups_are_confirmed_apart_and_fewer_complete_ones_are_all_taken(monkeypatch, tmp_path) -> None:
    study = searched(
        group=Group(key="shape", values=("round", "square", "flat")), confirm=Confirm(finalists=4, seeds=2)
    )
    studied = Confirmed(monkeypatch, tmp_path, study)

    def fails(number: int, attempt: int) -> None:
        studied.ledger.finish(number, attempt, Outcome(ReplicateState.COLLAPSED, "flat", 3, {}))

    for place in range(18):
        # "square" has two complete trials beside its control, "flat" none.
        group = place % 3
        studied.run_trial(end=fails if (group == 1 and place > 8) or (group == 2 and place > 2) else None)
    studied.run_all()
    found = studied.ledger.conclude().confirmation
    assert [(one.name, len(one.finalists), one.missing, len(one.controls)) for one in found.groups] == [
        ("round", 4, 0, 1), ("square", 2, 2, 1), ("flat", 0, 4, 1),
    ]  # fmt: skip
    assert [one.winner for one in found.groups] == [6, 7, None]
    assert [run.group for run in found.runs] == ["round"] * 5 + ["square"] * 3
    alone = studied.ledger.summary().alone(studied.ledger.summary().groups[1])
    assert [(run.group, run.confirms) for run in alone.confirmation.runs] == [(None, 1), (None, 7), (None, 4)]


def test_a_finalist_that_collapses_cannot_win_and_is_not_run_again(monkeypatch, tmp_path) -> None:
    studied = Confirmed(monkeypatch, tmp_path, searched())
    for _ in range(8):
        studied.run_trial()
    studied.run_trial(
        end=lambda number, attempt: studied.ledger.finish(
            number, attempt, Outcome(ReplicateState.COLLAPSED, "loss is nan", 3, {})
        )
    )
    assert studied.ledger.ask() is None
    summary = studied.ledger.conclude()
    assert [run.state for run in summary.confirmation.runs] == [*[TrialState.COMPLETE] * 2, TrialState.COLLAPSED]
    assert (summary.status, summary.confirmation.groups[0].winner) == (StudyStatus.FINISHED, 3)


def test_a_failed_confirmation_is_run_again_and_no_trial_of_the_search(monkeypatch, tmp_path) -> None:
    studied = Confirmed(monkeypatch, tmp_path, searched())

    def fails(number: int, attempt: int) -> None:
        studied.ledger.finish(number, attempt, None, "ValueError: no")

    studied.run_trial()
    studied.run_trial(end=fails)
    for _ in range(4):
        studied.run_trial()
    studied.run_trial(end=fails)
    studied.run_all()
    studied.again(retry_failed=True)
    studied.run_all()
    found = studied.ledger.summary().confirmation
    assert [(run.confirms, run.state, run.retry_of) for run in found.runs] == [
        (0, "failed", None), (3, "complete", None), (2, "complete", None), (0, "complete", 6),
    ]  # fmt: skip
    assert found.run_of(0).state == TrialState.COMPLETE
    assert len(studied.ledger.summary().trials) == 6


def test_a_finished_search_is_confirmed_later_and_then_closed(monkeypatch, tmp_path) -> None:
    studied = Confirmed(monkeypatch, tmp_path, searched(confirm=None))
    studied.run_all()
    assert studied.ledger.conclude().confirmation is None
    study = studied.ledger._optuna
    assert outlook(study, studied.study).idle
    studied.study = searched()
    assert outlook(study, studied.study).confirming == 3
    studied.again()
    studied.run_trial()
    assert outlook(studied.ledger._optuna, studied.study).confirming == 2
    studied.study = searched(budget=Budget(trials=9))
    studied.again()
    studied.run_all()
    assert outlook(studied.ledger._optuna, studied.study).idle
    assert len(studied.ledger.summary().trials) == 6
    studied.die()
    studied.study = searched(confirm=Confirm(finalists=3, seeds=5))
    with pytest.raises(Different, match=r"decided for --confirm 2x3, and that is carried on; 3x5 was asked for"):
        studied.open()


@pytest.mark.parametrize("limit", ["wall_clock_s", "worker_hours"])
def test_the_search_leaves_the_confirmation_its_share_of_the_budget(limit, monkeypatch, tmp_path) -> None:
    """Of 6 + 3 x 3 replicates: 40% of what is spent is the search's."""
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    study = searched(budget=Budget(**{"trials": 6, limit: 100.0 if limit == "wall_clock_s" else 100 / 3600}))
    assert study.reserved == pytest.approx(0.6)
    studied = Confirmed(monkeypatch, tmp_path, study)
    for _ in range(2):
        studied.run_trial()
    number = studied.ledger.ask()
    attempt = studied.ledger.begin(number).attempt
    clock[0] = 41.0
    record = {"step": 1, "time": 1, "metrics": {"ndcg_at_10": 0.0}}
    stop = studied.ledger.report(number, attempt, 0, [record])
    assert stop == "the search's share of the budget is spent"
    studied.ledger.finish(number, attempt, Outcome(ReplicateState.STOPPED, stop, 1, {}))
    assert studied.run_trial() == 3
    found = studied.ledger.summary().confirmation
    assert (found.groups[0].finalists, found.groups[0].missing) == ((1,), 1)
    number = studied.ledger.ask()
    attempt = studied.ledger.begin(number).attempt
    clock[0] = 101.0
    assert studied.ledger.report(number, attempt, 0, [record]) == "budget spent"


def test_confirming_needs_one_objective(monkeypatch) -> None:
    with pytest.raises(ValueError, match="confirm=2x3 with 2 objectives"):
        searched(objectives=ENOUGH)


def test_a_kill_finds_what_it_asked_for(tmp_path: Path, monkeypatch) -> None:
    """Without `confirm` a decided confirmation waits, and the search stays closed."""
    studied = Confirmed(monkeypatch, tmp_path, searched())
    for _ in range(7):
        studied.run_trial()
    studied.study = searched(confirm=None)
    studied.again()
    assert studied.ledger.ask() is None
    assert outlook(studied.ledger._optuna, studied.study).idle
    studied.study = searched()
    studied.again()
    assert studied.ledger.ask() == 7
