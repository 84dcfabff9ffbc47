"""How many gangs fit: against a brute-force packing."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from study.engine.capacity import room
from study.spec import Resources


def node(cpus: float, gpus: float = 0, *, alive: bool = True, labels=None, accelerator: str | None = None) -> dict:
    resources = {"CPU": cpus, "GPU": gpus} | ({f"accelerator_type:{accelerator}": 1.0} if accelerator else {})
    return {"Alive": alive, "Resources": resources, "Labels": labels or {}}


def spread_gangs(places: list[int], workers: int) -> int:
    """Most gangs that take `workers` different nodes each, by trying all ways to place them one after the other."""
    best = 0
    for chosen in itertools.combinations(range(len(places)), workers):
        if all(places[i] for i in chosen):
            rest = [count - (i in chosen) for i, count in enumerate(places)]
            best = max(best, 1 + spread_gangs(rest, workers))
    return best


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=4), st.integers(1, 3))
def test_a_gang_with_a_node_for_each_worker(places, workers) -> None:
    wanted = Resources(workers=workers, placement="STRICT_SPREAD")
    assert room(wanted, [node(float(count)) for count in places]) == spread_gangs(places, workers)


@pytest.mark.parametrize(("changes", "expected"), [
    ({}, 10), ({"workers": 5}, 2), ({"workers": 5, "placement": "STRICT_PACK"}, 1),
    ({"cpus_per_worker": 3}, 3), ({"gpus_per_worker": 1}, 2), ({"gpus_per_worker": 0.5}, 4),
    ({"accelerator": "H100"}, 4), ({"accelerator": "A100"}, 0),
    ({"labels": {"market": "spot"}}, 6), ({"labels": {"market": "!spot"}}, 4), ({"labels": {"zone": "x"}}, 0),
])  # fmt: skip
def test_what_a_worker_needs_must_be_on_one_node(changes, expected) -> None:
    nodes = [
        node(4, 2, accelerator="H100"), node(6, labels={"market": "spot"}), node(64, 8, alive=False),
    ]  # fmt: skip
    assert room(Resources(**changes), nodes) == expected
