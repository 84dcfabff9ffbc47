"""Writes the storage folder of a study of four backbones that never ran: what is best for each is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from study.protocol.summary import GroupSummary, StudySummary
from tests.unit.synthetic_study import write_study

KEY = "backbone"
GRID = (2.0, 4.0, 8.0, 16.0)
NORMS = {"mild": 0.9, "medium": 1.8, "steep": 15.0, "broken": 900.0}
"""Row norm of the head of each backbone: the larger it is, the larger is the k that it needs."""
BEST = {"mild": 2.0, "medium": 4.0, "steep": 16.0, "broken": None}
"""The best of the searched k. `mild` is better off without any, at k = 1, and `broken` collapses at every k."""
VALUES: dict[str, dict[float, float | None]] = {
    "mild": {1.0: 0.45, 2.0: 0.38, 4.0: 0.33, 8.0: 0.2, 16.0: 0.1},
    "medium": {1.0: 0.30, 2.0: 0.36, 4.0: 0.41, 8.0: 0.31, 16.0: 0.22},
    "steep": {1.0: None, 2.0: None, 4.0: 0.12, 8.0: 0.33, 16.0: 0.52},
    "broken": {1.0: None, 2.0: None, 4.0: None, 8.0: None, 16.0: None},
}
"""Group -> k -> its value on test queries, None for a trial that collapses. Of all, the best is that of `steep`."""


def write_groups(storage: Path, status: str = "finished") -> StudySummary:
    """Trials go round the groups, as a ledger hands them out; k = 1 is the control of each."""
    grid: dict[str, dict[str, Any]] = {}
    for k in (1.0, *GRID):
        for group in NORMS:
            value = VALUES[group][k]
            ended = {"state": "collapsed", "reason": "loss flat at 3.47 = ln(32) for 60 steps", "steps": 80}
            done: dict[str, Any] = ended if value is None else {"test": value}
            grid[f"{group} {k:g}"] = done | {"untrained": 0.05, "params": {"k": k}}
    summary = write_study(storage, grid, status=status)
    names = list(NORMS)
    trials = []
    for trial in summary.trials:
        group, k = names[trial.number % len(names)], trial.params["k"]
        norms = {
            "untrained.backbone_head_row": NORMS[group],
            "untrained.head_row": NORMS[group] / k,
        }
        params = {"params": {"k": k}, "group": group, "control": k == 1, "values": dict(trial.values) | norms}
        trials.append(trial.model_copy(update=params))
    groups = tuple(
        GroupSummary(
            name=group,
            value=f"models/{group}",
            best=tuple(t.number for t in trials if t.group == group and BEST[group] == t.params["k"]),
            planned_trials=1 + len(GRID),
        )
        for group in names
    )
    found = summary.model_copy(
        update={
            "trials": tuple(trials),
            "groups": groups,
            "group": KEY,
            "best": tuple(number for group in groups for number in group.best),
        }
    )
    (storage / "summary.json").write_text(found.text())
    return found
