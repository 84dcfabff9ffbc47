"""What the engine hands to Tune as nodes come, go and are announced to go. Ray's answers are stand-ins here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ray.tune.search import Searcher

from study.engine import executor
from study.engine.executor import LedgerSearcher
from study.protocol.messages import ActorName, GangSetting, HandOut
from study.spec import Resources


class Nodes:
    """A cluster of nodes of one CPU, and a ledger with these trials to hand out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int, trials: list[int]) -> None:
        self.count, self.trials, self.asked = count, trials, 0
        self.halted = False
        self.abandoned: list[tuple[int, int]] = []
        self.now = 0.0
        remote = {"hand_out": self._hand_out, "halted": lambda: self.halted, "abandon": self._abandon}
        self.ledger = SimpleNamespace(**{name: SimpleNamespace(remote=answer) for name, answer in remote.items()})
        monkeypatch.setattr(executor, "ray", SimpleNamespace(get=lambda answer: answer))
        monkeypatch.setattr(executor, "alive", self._alive)
        monkeypatch.setattr(executor, "request_resources", self._request)
        monkeypatch.setattr(executor, "time", SimpleNamespace(monotonic=lambda: self.now))

    def _hand_out(self) -> HandOut | None:
        return HandOut(self.trials.pop(0), 1) if self.trials else None

    def _abandon(self, number: int, error: str, ticket: int) -> None:
        self.abandoned.append((number, ticket))

    def _alive(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": 1.0}, "Labels": {}}] * self.count

    def _request(self, bundles: list[dict], bundle_label_selectors: list[dict]) -> None:
        self.asked = len(bundles)

    def searcher(self, **resources: Any) -> LedgerSearcher:
        setting = GangSetting(ActorName("ledger", "study"), "now", True, Resources(**resources), "scratch", "logs")
        return LedgerSearcher(self.ledger, setting)

    def later(self) -> None:
        self.now += 2 * executor.LOOK_EVERY_S


def number(suggested: Any) -> int | None:
    return suggested["number"] if isinstance(suggested, dict) else None


def test_as_many_as_there_is_room_for(monkeypatch) -> None:
    nodes = Nodes(monkeypatch, 1, [0, 1, 2])
    searcher = nodes.searcher()
    assert number(searcher.suggest("a")) == 0
    assert searcher.suggest("b") is None
    nodes.count = 2
    nodes.later()
    assert number(searcher.suggest("b")) == 1
    searcher.on_trial_complete("a")
    assert nodes.abandoned == [(0, 1)]
    assert number(searcher.suggest("c")) == 2
    nodes.later()
    assert searcher.suggest("d") is None
    for trial_id in ("b", "c"):
        searcher.on_trial_complete(trial_id)
    assert searcher.suggest("d") == Searcher.FINISHED


def test_a_trial_that_leaves_the_last_node_gets_another_one(monkeypatch) -> None:
    """Its nodes are gone and nothing else is to be run: the autoscaler is asked for a node all the same."""
    nodes = Nodes(monkeypatch, 1, [0])
    searcher = nodes.searcher(max_nodes=2)
    assert number(searcher.suggest("a")) == 0
    assert nodes.asked == 2
    nodes.later()
    nodes.count = 2
    assert searcher.suggest("b") is None
    nodes.later()
    assert searcher.suggest("b") is None
    assert nodes.asked == 0, "no node is wanted while the ledger has no trial"
    # The node is taken away: the gang leaves, and its trial is back in the ledger.
    nodes.count, nodes.trials = 0, [0]
    nodes.later()
    searcher.on_trial_complete("a")
    assert searcher.suggest("b") is None
    assert nodes.asked == 1
    nodes.count = 1
    nodes.later()
    assert number(searcher.suggest("b")) == 0


def test_a_study_that_is_halted_while_there_is_no_room_ends(monkeypatch) -> None:
    nodes = Nodes(monkeypatch, 0, [0])
    searcher = nodes.searcher()
    assert searcher.suggest("a") is None
    nodes.halted = True
    assert searcher.suggest("a") == Searcher.FINISHED
