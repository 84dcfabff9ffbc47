"""Writes the storage folder of a study that never ran: known values, no training."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from statistics import fmean
from typing import Any

from study.protocol.journal import Metrics, StudyBegun, TrialBegun, encode
from study.protocol.states import TrialState
from study.protocol.summary import (
    ObjectiveSummary,
    ReplicateSummary,
    StudySummary,
    Tracking,
    TrialSummary,
    WorkerSeconds,
    read,
)
from trainables.angle import config as angle
from trainables.overrides import flat
from trainables.retromae import config as retromae
from trainables.splade import config as splade

QUERIES = 200
BEGAN = 1_767_607_200_000
"""Milliseconds since the epoch."""


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
            records.append({"step": step, "time": BEGAN + 200 * step, "metrics": metrics})
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


def with_journal(storage: Path, config: Any, trainer: str, **tags: str) -> None:
    """Put a launch, and the config of each trial, at the beginning of a study's journal, as the ledger does."""
    summary = read(storage / "summary.json")
    params = flat(config.model_dump(mode="json", exclude={"cache"})) | {"seed": 0, "trainer": trainer}
    known = {
        "git.commit": "3f9c1d2e4b5a69788796a5b4c3d2e1f001122334",
        "git.dirty": "false",
        "python": "3.11.9",
        "platform": "Linux-6.1.0-x86_64-with-glibc2.36",
        "version.retrieval-study": "0.2.0",
        "version.torch": "2.9.1",
        "version.transformers": "5.2.0",
        "command": f"python -m study.run {summary.study}",
    }
    begun = StudyBegun(
        id=summary.id, launch="0" * 32, name=summary.study, time=BEGAN,
        params=params | {"sampler": "tpe", "replicates": max(1, *(len(t.replicates) for t in summary.trials))},
        tags=known | tags,
    )  # fmt: skip
    trials = [TrialBegun(trial=t.number, params=params | t.params, time=BEGAN) for t in summary.trials]
    journal = storage / "journal.jsonl"
    rest = journal.read_text() if journal.exists() else ""
    journal.write_text("".join(map(encode, [begun, *trials])) + rest)


def angle_study(storage: Path) -> None:
    """Two arms of ten seeds at five sizes: better at three of them, in one only before the tests are corrected."""
    config = angle.Config()
    sizes, random_ = config.dims, random.Random(5)
    gains = dict(zip(sizes, (0.0, 0.0004, 0.0012, 0.0031, 0.0036), strict=False))
    trials = []
    for number, arm in enumerate(("chunked", "interleaved")):
        replicates = []
        for seed in range(10):
            shared = random.Random(seed).gauss(0, 0.004)
            values: dict[str, float] = {}
            for name, scale in (("spearman", 1.0), ("pearson", 0.6)):
                parts = {
                    f"{name}_{size}": 0.70 + 0.02 * i + shared + number * scale * gains.get(size, 0.004)
                    + random_.gauss(0, 0.0009)
                    for i, size in enumerate(sizes)
                }  # fmt: skip
                values |= parts | {name: fmean(parts.values())}
            both = {f"test.{name}": value for name, value in values.items()}
            values |= both | {"untrained.test.spearman": 0.41, "untrained.spearman": 0.41}
            replicates.append(ReplicateSummary(seed=seed, values=values))
            folder = storage / "trials" / f"{number:04d}" / f"replicate-{seed}"
            folder.mkdir(parents=True)
            noise = random.Random(f"{number} {seed}")
            pairs = {"label": {f"p{i}": float(i % 6) for i in range(80)}} | {
                f"cosine_{size}": {f"p{i}": i % 6 + noise.gauss(0, 2 - 0.1 * number) for i in range(80)}
                for size in sizes
            }
            (folder / "result.json").write_text(json.dumps({"values": values, "per_item": {"test": pairs}}))
        trials.append(
            TrialSummary(
                number=number, state="complete", params={"split": arm}, replicates=replicates, steps=1000,
                planned_steps=1000, worker_seconds=412.0, attempts=1, run_id=f"{number:032x}",
                values={key: fmean(r.values[key] for r in replicates) for key in replicates[0].values},
            )
        )  # fmt: skip
    storage.mkdir(parents=True, exist_ok=True)
    summary = StudySummary(
        study="angle_split_search", id="angle_split_search-0123456789ab", profile="embedded", status="finished",
        question="Does the interleaved split beat the chunked one, and is the difference real?", parameter="split",
        design="paired", objectives=[ObjectiveSummary(name="spearman", direction="maximize")],
        best=[1], planned_trials=2, trials=trials, worker_seconds=WorkerSeconds(used=824.0, overhead=61.0),
        wall_seconds=498.0, metrics=angle.metrics(config), updated="2026-01-05T10:06:12+00:00",
        dataset={"data.train": "embedded, 3,000 pairs", "data.train.identity": "sha256:" + "4d" * 32},
        tracking=Tracking(uri="http://127.0.0.1:5000", experiment="angle_split_search", run_id="a" * 32),
    )  # fmt: skip
    (storage / "summary.json").write_text(summary.text())
    journal = []
    for number in range(2):
        records = [
            {"step": step, "time": BEGAN + 200 * step,
             "metrics": {"train.loss": 2 + 3 * math.exp(-step / 20) + random_.gauss(0, 0.1)}
             | ({"spearman": 0.41 + 0.3 * (1 - math.exp(-step / 40))} if step % 50 == 0 else {})}
            for step in range(1, 101)
        ]  # fmt: skip
        journal.append(encode(Metrics(number, 0, records)))
    (storage / "journal.jsonl").write_text("".join(journal))
    with_journal(storage, config, "angle")


def retromae_study(storage: Path) -> None:
    """Sixteen pairs of mask ratios beside a control without pre-training; some were pruned."""
    random_ = random.Random(11)
    grid: dict[Any, dict[str, Any]] = {}
    for n in range(15):
        encoder, decoder = round(random_.uniform(0.1, 0.5), 3), round(random_.uniform(0.1, 0.9), 3)
        hill = math.exp(-(((encoder - 0.3) / 0.15) ** 2) - ((decoder - 0.5) / 0.4) ** 2)
        more = {"decoder_mask_ratio": decoder, "decoding": "enhanced" if n % 3 else "basic",
                "pretraining.optimiser.lr": 10 ** random_.uniform(-4, -2.7)}  # fmt: skip
        spec = {"test": 0.29 + 0.11 * hill + random_.gauss(0, 0.004), "untrained": 0.12, "params": more}
        if n % 5 == 4:
            spec |= {"state": "pruned", "steps": 110, "reason": "pruned at step 110: lags behind the other trials"}
        grid[encoder] = spec
    retromae_config = retromae.Config()
    summary = write_study(
        storage, grid | {"none": {"test": 0.31, "untrained": 0.12}}, parameter="encoder_mask_ratio", cost=False,
        plane=("encoder_mask_ratio", "decoder_mask_ratio"), study="retromae_mask_search", parameter_log=False,
        importances={"encoder_mask_ratio": 0.55, "decoder_mask_ratio": 0.31, "pretraining.optimiser.lr": 0.09,
                     "decoding": 0.05},
        metrics=retromae.metrics(retromae_config),
        question="Which pair of mask ratios pre-trains the best retrieval encoder?",
    )  # fmt: skip
    *searched, last = summary.trials
    control = last.model_copy(update={"control": True, "params": {"pretraining.objective": "none"}})
    chosen = max((t for t in searched if t.state == TrialState.COMPLETE), key=lambda t: t.values["ndcg_at_10"])
    summary = summary.model_copy(update={"trials": (*searched, control), "best": (chosen.number,)})
    (storage / "summary.json").write_text(summary.text())
    with_journal(storage, retromae_config, "retromae")


def backbones_study(storage: Path, status: str = "finished") -> None:
    """Forty trials of seven backbones: the right k differs between them, and large ones collapse some."""
    backbones = ("google-bert/bert-base-uncased", "distilbert/distilbert-base-uncased", "albert/albert-base-v2",
                 "Alibaba-NLP/gte-en-mlm-base", "FacebookAI/roberta-base", "answerdotai/ModernBERT-base",
                 "jhu-clsp/ettin-encoder-150m")  # fmt: skip
    random_ = random.Random(2)
    grid: dict[Any, dict[str, Any]] = {}
    for n in range(40):
        backbone, k = n % 7, round(2 ** random_.uniform(-2, 6), 6)
        apart = abs(math.log2(k) - (backbone - 1) * 0.8)
        params = {"backbone": backbones[backbone]}
        spec = {"test": 0.43 - 0.035 * apart + random_.gauss(0, 0.006), "untrained": 0.02 + 0.01 * backbone}
        if apart > 3.6:
            spec = {"state": "collapsed", "steps": 60, "untrained": 0.02,
                    "reason": "loss flat at 3.47 = ln(32) for 60 steps: nothing is learnt any more"}  # fmt: skip
        elif apart > 2.7:
            spec |= {"state": "pruned", "steps": 100, "reason": "pruned at step 100: lags behind the other trials"}
        grid[k] = spec | {"params": params}
    write_study(storage, grid, study="splade_k_search.paper", profile="paper", status=status, planned_trials=49)
    with_journal(storage, splade.Config(backbone="answerdotai/ModernBERT-base", batch_size=128), "splade")
