"""Writes the storage folder of a study that never ran: known values, no training."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

from study.protocol.journal import Metrics, encode
from study.protocol.states import TrialState
from study.protocol.summary import (
    ObjectiveSummary,
    ReplicateSummary,
    StudySummary,
    Tracking,
    TrialSummary,
    WorkerSeconds,
)
from trainables.angle import config as angle
from trainables.splade import config as splade

QUERIES = 200


def write_study(
    storage: Path,
    grid: dict[Any, dict[str, Any]],
    *,
    status: str = "finished",
    seeds: int = 1,
    metric: str = "ndcg_at_10",
    parameter: str = "k",
    cost: bool = True,
    **extra: Any,
) -> StudySummary:
    """`grid`: value of the parameter -> {state, reason, test, untrained, steps, params, attempts}; returns the summary.

    `extra` are fields of the summary that are to be others.

    Per-query test values lie symmetrically around `test`, so that their mean is exact.
    """
    storage.mkdir(parents=True, exist_ok=True)
    trials, journal = [], []
    for n, (value, spec) in enumerate(grid.items()):
        state, steps = spec.get("state", "complete"), spec.get("steps", 200)
        done = state == "complete"
        k = value if isinstance(value, float) else n + 1.0
        values = {f"untrained.{metric}": spec["untrained"], f"untrained.test.{metric}": spec["untrained"]}
        if done:
            values |= {metric: spec["test"] + 0.01, f"test.{metric}": spec["test"]}
        if cost:
            values |= {"untrained.flops": 40 / k**2, "untrained.test.flops": 40 / k**2}
        if done and cost:
            values |= {
                "flops": 6 / k,
                "test.flops": 6 / k,
                "active_query": 30 / k,
                "active_document": 90 / k,
            }
        replicates = []
        for r in range(seeds if done else 1):
            shift = 0.008 * (r - (seeds - 1) / 2) if done else 0.0
            own = {k: v + shift if k.endswith(metric) else v for k, v in values.items()}
            replicates.append(ReplicateSummary(seed=r, values=own))
            per_item = {"untrained.test": {metric: spread(spec["untrained"], 1)}}
            if done:
                per_item["test"] = {metric: spread(spec["test"] + shift, n + 2)}
            folder = storage / "trials" / f"{n:04d}" / f"replicate-{r}"
            folder.mkdir(parents=True)
            (folder / "result.json").write_text(json.dumps({"values": own, "per_item": per_item}))
            journal.append(encode(Metrics(n, r, _records(spec, k, steps, metric, cost, n))))
        trials.append(
            TrialSummary(
                number=n,
                state=state,
                reason=spec.get("reason"),
                params={parameter: value} | spec.get("params", {}),
                values=values,
                replicates=replicates,
                steps=steps,
                planned_steps=200,
                worker_seconds=steps * 0.2,
                attempts=spec.get("attempts", 1),
                run_id=f"{n:032x}",
            )
        )
    finished = [t for t in trials if t.state == TrialState.COMPLETE]
    fields: dict[str, Any] = {
        "study": "splade_k_search",
        "id": "splade_k_search-0123456789ab",
        "profile": "embedded",
        "status": status,
        "objectives": [ObjectiveSummary(name=metric, direction="maximize")],
        "best": [max(finished, key=lambda t: t.values[metric]).number] if finished else [],
        "trials": trials,
        "worker_seconds": WorkerSeconds(used=312.0, saved=95.0, overhead=41.0),
        "tracking": Tracking(uri="sqlite:///studies/mlflow.db", experiment="splade_k_search", run_id="a" * 32),
        "parameter": parameter,
        "parameter_log": True,
        "planned_trials": len(trials),
        "metrics": angle.metrics(angle.Config()) | splade.metrics(splade.Config()),
        "baselines": {"bm25": {metric: 0.41, f"test.{metric}": 0.4}},
        "question": "Which rescale factor k makes this encoder trainable as SPLADE?",
        "dataset": {
            "train": "embedded, 85,000 pairs",
            "evaluation.source": "embedded",
            "evaluation.identity": "sha256:1f3a",
        },
        "updated": "2026-01-05T10:06:12+00:00",
        "wall_seconds": 372.0,
    }
    summary = StudySummary(**fields | extra)
    (storage / "summary.json").write_text(summary.text())
    (storage / "journal.jsonl").write_text("".join(journal))
    return summary


def spread(centre: float, seed: int, width: float = 0.3) -> dict[str, float]:
    """Query -> value: `QUERIES` values whose mean is `centre`, half as far above as below."""
    random_ = random.Random(seed)
    reach = [random_.uniform(0, width) for _ in range(QUERIES // 2)]
    values = [centre + x for x in reach] + [centre - x for x in reach]
    random_.shuffle(values)
    return {f"q{i}": value for i, value in enumerate(values)}


def _records(spec: dict[str, Any], k: float, steps: int, metric: str, cost: bool, seed: int) -> list[dict[str, Any]]:
    random_ = random.Random(seed)
    collapsed = spec.get("state") == "collapsed"
    top = 3.47 if collapsed else 3.0 + 40 / k**2
    records = []
    for step in range(steps + 1):
        metrics: dict[str, Any] = {}
        if step:
            fall = 0.0 if collapsed else 1 - math.exp(-step / 40)
            loss = top - (top - 0.4 - 0.1 * abs(math.log2(k))) * fall
            metrics["train.loss"] = loss * math.exp(random_.gauss(0, 0.08))
        if step % 50 == 0:
            share = 1 - math.exp(-step / 60)
            goal = spec.get("test", spec["untrained"] / 2)
            metrics[metric] = spec["untrained"] + (goal + 0.01 - spec["untrained"]) * share
            if cost:
                metrics["flops"] = 40 / k**2 * (1 - share) + 6 / k * share
        if collapsed and step == steps and k < 1:
            metrics["train.loss"] = "nan"
        if metrics:
            records.append({"step": step, "time": 1_767_607_200_000 + 200 * step, "metrics": metrics})
    return records


K_STUDY: dict[float, dict[str, Any]] = {
    0.25: {"state": "collapsed", "reason": "loss is nan at step 24", "untrained": 0.05, "steps": 24},
    0.5: {"test": 0.332, "untrained": 0.11},
    1.0: {"test": 0.417, "untrained": 0.19},
    2.0: {"test": 0.431, "untrained": 0.219, "attempts": 2},
    4.0: {"test": 0.402, "untrained": 0.17},
    8.0: {"test": 0.285, "untrained": 0.12},
    16.0: {
        "state": "pruned",
        "reason": "pruned at step 100: ndcg_at_10 0.04 lags behind the other trials",
        "untrained": 0.06,
        "steps": 100,
    },
    32.0: {
        "state": "collapsed",
        "reason": "loss flat at 3.47 = ln(32) for 60 steps",
        "untrained": 0.03,
        "steps": 80,
    },
    64.0: {
        "state": "collapsed",
        "reason": "all document vectors are zero for 20 steps <b>&amp;</b>",
        "untrained": 0.01,
        "steps": 20,
    },
}
