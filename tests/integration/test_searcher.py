"""What the engine hands to Tune as nodes come, go and are announced to go. Ray's answers are stand-ins here."""

from __future__ import annotations

import errno
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from ray.tune.search import Searcher

from study.engine import executor
from study.engine.executor import LedgerSearcher
from study.protocol.messages import ActorName, GangSetting, HandOut, Standing
from study.spec import Resources


class Away(Exception):
    """As Ray's of a remote call."""


class Nodes:
    """A cluster of nodes of one CPU, and a ledger with these trials to hand out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int, trials: list[int]) -> None:
        self.count, self.trials, self.asked = count, trials, 0
        self.standing = Standing(halted=False, pausing=False, left=frozenset(), seated=0)
        self.gave_up: list[str] = []
        self.held = 0
        self.tried: frozenset[str] = frozenset()
        self.away: Exception | None = None
        self.abandoned: list[tuple[int, int]] = []
        self.waits_for: list[str] = []
        self.now = 0.0
        remote = {"hand_out": self._hand_out, "standing": lambda: self.standing, "abandon": self._abandon,
                  "give_up": self._give_up, "wait_for": self.waits_for.append}  # fmt: skip
        self.ledger = SimpleNamespace(**{name: SimpleNamespace(remote=answer) for name, answer in remote.items()})
        stand_in = SimpleNamespace(get=lambda answer: answer, exceptions=SimpleNamespace(RayTaskError=Away))
        monkeypatch.setattr(executor, "ray", stand_in)
        monkeypatch.setattr(executor, "answer", lambda ask: ask())
        monkeypatch.setattr(executor, "unheld", lambda nodes: nodes[self.held :])
        monkeypatch.setattr(executor, "alive", self._alive)
        monkeypatch.setattr(executor, "request_resources", self._request)
        monkeypatch.setattr(executor, "time", SimpleNamespace(monotonic=lambda: self.now))

    def _hand_out(self) -> HandOut | None:
        if self.away is not None:
            raise self.away
        return HandOut(self.trials.pop(0), 1, self.tried) if self.trials else None

    def _give_up(self, reason: str) -> None:
        self.gave_up.append(reason)
        self.standing = replace(self.standing, halted=True)

    def _abandon(self, number: int, error: str, ticket: int) -> None:
        self.abandoned.append((number, ticket))

    def _alive(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "NodeID": f"n{n}", "Resources": {"CPU": 1.0}, "Labels": {}} for n in range(self.count)]

    def _request(self, bundles: list[dict], bundle_label_selectors: list[dict]) -> None:
        self.asked = len(bundles)

    def searcher(self, own_cluster: bool = True, **resources: Any) -> LedgerSearcher:
        name, wanted = ActorName("ledger", "study"), Resources(**resources)
        setting = GangSetting(name, "now", own_cluster, wanted, "scratch", "logs")
        return LedgerSearcher(self.ledger, setting, lambda: None)

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
    nodes.standing = replace(nodes.standing, halted=True)
    nodes.later()
    assert searcher.suggest("a") == Searcher.FINISHED


def test_what_others_hold_is_no_room(monkeypatch) -> None:
    """Two studies on one cluster: a gang of the second waits in its ledger, however long, and not in Ray."""
    nodes = Nodes(monkeypatch, 2, [0, 1])
    nodes.held = 2
    searcher = nodes.searcher(own_cluster=False)
    for _ in range(1000):
        assert searcher.suggest("a") is None
        nodes.later()
    nodes.held = 1
    nodes.later()
    assert number(searcher.suggest("a")) == 0
    # Its place still looks free until its gang has it.
    nodes.later()
    assert searcher.suggest("b") is None
    nodes.standing = replace(nodes.standing, seated=1)
    nodes.later()
    assert number(searcher.suggest("b")) == 1


def test_a_node_that_has_failed_gets_no_more_trials(monkeypatch) -> None:
    nodes = Nodes(monkeypatch, 2, [0, 1])
    nodes.standing = replace(nodes.standing, left=frozenset({"n0"}))
    searcher = nodes.searcher()
    suggested = searcher.suggest("a")
    assert (suggested["number"], suggested["avoid"]) == (0, ["n0"])
    assert searcher.suggest("b") is None, "one of two nodes is left"
    searcher.on_trial_complete("a")
    nodes.standing = replace(nodes.standing, left=frozenset({"n0", "n1"}))
    nodes.later()
    assert searcher.suggest("b") is None
    assert nodes.gave_up == ["every node that has room for a trial has failed several times"]
    nodes.later()
    assert searcher.suggest("b") == Searcher.FINISHED


def test_a_trial_goes_elsewhere_if_there_is_elsewhere(monkeypatch) -> None:
    nodes = Nodes(monkeypatch, 2, [0, 0])
    nodes.tried = frozenset({"n1"})
    searcher = nodes.searcher()
    assert searcher.suggest("a")["avoid"] == ["n1"]
    nodes.count = 1
    nodes.tried = frozenset({"n0"})
    searcher.on_trial_complete("a")
    nodes.later()
    assert searcher.suggest("a")["avoid"] == []


def test_a_ledger_whose_storage_is_away_is_asked_again(monkeypatch) -> None:
    nodes = Nodes(monkeypatch, 1, [0])
    nodes.away = Away()
    nodes.away.cause = OSError(errno.EIO, "Input/output error")
    searcher = nodes.searcher()
    assert searcher.suggest("a") is None
    assert nodes.waits_for == ["input/output error"]
    nodes.away.cause = ValueError("a fault of the code")
    nodes.later()
    with pytest.raises(Away):
        searcher.suggest("a")
    nodes.away = None
    nodes.later()
    assert number(searcher.suggest("a")) == 0


def test_nothing_is_handed_out_during_a_pause(monkeypatch) -> None:
    nodes = Nodes(monkeypatch, 1, [0])
    nodes.standing = replace(nodes.standing, pausing=True)
    searcher = nodes.searcher()
    assert searcher.suggest("a") is None
    nodes.standing = replace(nodes.standing, pausing=False)
    nodes.later()
    assert number(searcher.suggest("a")) == 0
