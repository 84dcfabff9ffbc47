"""How many gangs the nodes of a cluster have room for: pure arithmetic on what Ray says of its nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from study.spec import Resources

Node = Mapping[str, Any]
"""An entry of `ray.nodes()`."""


def per_worker(wanted: Resources) -> dict[str, float]:
    """Resource -> amount that one worker of a gang holds."""
    return {"CPU": wanted.cpus_per_worker} | ({"GPU": wanted.gpus_per_worker} if wanted.gpus_per_worker else {})


def elsewhere(nodes: Iterable[str]) -> dict[str, str]:
    """A label selector by which a gang goes to none of these nodes, which are given by their ids.

    >>> elsewhere(["b1", "a0"]), elsewhere([])
    ({'ray.io/node-id': '!in(a0,b1)'}, {})
    """
    ids = ",".join(sorted(nodes))
    return {"ray.io/node-id": f"!in({ids})"} if ids else {}


def room(wanted: Resources, nodes: Sequence[Node]) -> int:
    """Gangs that the nodes that are alive could hold at a time if nothing else ran there.

    >>> node = {"Alive": True, "Resources": {"CPU": 4.0}, "Labels": {}}
    >>> [room(Resources(workers=w), [node, node]) for w in (1, 3, 9)]
    [8, 2, 0]
    >>> [room(Resources(workers=2, placement=p), [node, node, node]) for p in ("STRICT_PACK", "STRICT_SPREAD")]
    [6, 6]
    """
    places = [_workers(wanted, node) for node in nodes if node["Alive"]]
    match wanted.placement:
        case "STRICT_PACK":
            return sum(count // wanted.workers for count in places)
        case "STRICT_SPREAD":
            # A gang takes a place on each of its nodes, so a node serves as many gangs as it has places.
            gangs = sum(places) // wanted.workers
            while gangs and sum(min(count, gangs) for count in places) < gangs * wanted.workers:
                gangs -= 1
            return gangs
        case _:
            return sum(places) // wanted.workers


def _workers(wanted: Resources, node: Node) -> int:
    """Workers of a gang that fit on the node."""
    have, labels = node["Resources"], node.get("Labels") or {}
    if wanted.accelerator is not None and f"accelerator_type:{wanted.accelerator}" not in have:
        return 0
    if not all(_matches(labels.get(key), value) for key, value in wanted.labels.items()):
        return 0
    return min(int(have.get(kind, 0) // amount) for kind, amount in per_worker(wanted).items())


def _matches(label: str | None, selector: str) -> bool:
    return label != selector[1:] if selector.startswith("!") else label == selector
