"""False stops and misses of the collapse rules, on recorded runs that were not stopped.

    python -m study.run splade_k_search --storage studies/recorded --set collapse=false
    python benchmarks/collapse_rates.py studies/recorded [...]

Replays the signals of every finished replicate through its recipe's rules. A run has learned if its final
validation metric is above that of the same model untrained by at least `--gain`; stopping such a run is a
false stop, and not stopping one that has not learned is a miss.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections import defaultdict
from pathlib import Path

from study.ledger.journal import Journal
from study.protocol.journal import Metrics, ReplicateBegun, TrialBegun
from study.protocol.states import TrialState
from study.protocol.summary import read
from trainables import collapse, overrides, trainers
from trainables.history import History


def recorded(storage: Path):
    """(trial number, replicate) -> step -> its metrics, in order; the same -> facts; trial number -> logged params."""
    metrics: dict[tuple[int, int], dict[int, dict[str, float]]] = defaultdict(dict)
    facts: dict[tuple[int, int], dict[str, str]] = {}
    params: dict[int, dict] = {}
    for _, entry in Journal(storage / "journal.jsonl").read():
        if isinstance(entry, TrialBegun):
            params[entry.trial] = entry.params
        elif isinstance(entry, ReplicateBegun):
            facts[entry.trial, entry.replicate] = entry.tags
        elif isinstance(entry, Metrics):
            for record in entry.records:
                metrics[entry.trial, entry.replicate].setdefault(record["step"], {}).update(record["metrics"])
    return {key: {s: steps[s] for s in sorted(steps)} for key, steps in metrics.items()}, facts, params


def rules_of(trainer: str, config, facts: dict[str, str]):
    """The collapse rules that the recipe itself applied."""
    rules = importlib.import_module(f"{trainers.package_of(trainer)}.rules").rules
    if trainer == "splade":
        return rules(config, int(facts["vocabulary"]))
    if trainer == "retromae":
        return rules(config, float(facts["text.unigram_entropy"]) if "text.unigram_entropy" in facts else None)
    return rules(config)


def stop(config, steps: dict[int, dict[str, float]], rules) -> tuple[int, str] | None:
    """Step and reason of the first verdict, or None."""
    history = History(config.stages[0].name, config.stages[0].steps)
    for step, metrics in steps.items():
        signals = {k.removeprefix("train."): v for k, v in metrics.items() if k.startswith("train.")}
        if step and signals:
            stage, place = config.stage_of(step - 1)
            if stage.name != history.stage:
                history = history.then(stage.name, stage.steps)
            history.add(signals, place + 1)
            reason = collapse.judge(history, rules)
            if reason is not None:
                return step, reason
        history.evaluated({name: value for name, value in metrics.items() if "." not in name})
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("storage", type=Path, nargs="+")
    parser.add_argument("--trainer", default="splade")
    parser.add_argument("--gain", type=float, default=0.02)
    options = parser.parse_args()
    config_type = trainers.module(options.trainer, "config").Config
    counts = {"learned": 0, "false stops": 0, "dead": 0, "misses": 0}
    for storage in options.storage:
        summary = read(storage / "summary.json")
        metric = summary.objectives[0].name
        metrics, facts, params = recorded(storage)
        for (number, replicate), steps in sorted(metrics.items()):
            trial = summary.trials[number]
            if trial.state != TrialState.COMPLETE:
                continue
            values = trial.replicates[replicate].values
            known = overrides.keys(config_type)
            config = overrides.apply(config_type(), {k: v for k, v in params[number].items() if k in known})
            learned = values[metric] >= values[f"untrained.{metric}"] + options.gain
            verdict = stop(config, steps, rules_of(options.trainer, config, facts[number, replicate]))
            counts["learned" if learned else "dead"] += 1
            counts["false stops"] += learned and verdict is not None
            counts["misses"] += not learned and verdict is None
            told = f"step {verdict[0]}: {verdict[1]}" if verdict else "goes on"
            shown = " ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in trial.params.items())
            print(f"{shown:<12} {values[f'untrained.{metric}']:.3f} -> {values[metric]:.3f}  {told}")
    print(
        f"{counts['false stops']} false stops in {counts['learned']} runs that learned, "
        f"{counts['misses']} misses in {counts['dead']} that did not"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
