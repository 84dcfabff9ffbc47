"""A gang of four workers over two nodes trains as one worker does, for every recipe.

    python tests/chaos/gangs.py [TRAINER ...]

Each recipe's default, made small, is run by `study.run --address` on a cluster of three raylets: once by one worker
and once by four, of whom no node has room for more than two. Losses may differ by 1e-4.
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from cluster import Cluster
from launches import ROOT, database, say, steps_of, summary, until

STUDY = """
import importlib
from study.spec import Budget, Objective, Study
from trainables import overrides

config = importlib.import_module("trainables.{trainer}.config")
small = {{"steps": 6, "batch_size": 8, "evaluate_every": 6, "checkpoint_every": 6, "threads": 1, "collapse": False,
         "evaluation.max_documents": 60, "evaluation.bm25": False, "train.limit": 64, "precision": "float32"}}
known = overrides.keys(config.Config())
base = overrides.apply(config.Config(), {{key: value for key, value in small.items() if key in known}})
metric, declared = next(iter(config.metrics(base).items()))
STUDY = {{"small": Study(
    question="Does a gang train as one worker?", trainer="{trainer}", config=base, parameter="optimiser.lr",
    space=lambda trial: trial.suggest_float("optimiser.lr", 1e-4, 1e-3), points=({{"optimiser.lr": 5e-4}},),
    objectives=(Objective(name=metric, direction=declared.direction),),
    budget=Budget(trials=1),
)}}
"""
TOLERANCE = 1e-4


def losses(cluster: Cluster, folder: Path, trainer: str, workers: int) -> dict[int, float]:
    """Step -> loss of a study of one trial."""
    file = folder / f"{trainer}_small.py"
    file.write_text(STUDY.format(trainer=trainer))
    storage = folder / f"{trainer}-{workers}"
    done = subprocess.run(
        [sys.executable, "-m", "study.run", str(file), "--address", f"127.0.0.1:{cluster.port}",
         "--storage", str(storage), "--tracking-uri", database(storage), "--workers-per-trial", str(workers),
         "--resources", "cpus_per_worker=0.5", "--resources", "placement=SPREAD"],
        cwd=folder, env=cluster.with_token(PYTHONPATH=str(ROOT)), capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    logs = "\n".join(path.read_text()[-3000:] for path in (storage / "logs").glob("trial-*.log"))
    assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-3000:]}{logs}"
    (trial,) = summary(storage)["trials"]
    assert (trial["state"], trial["attempts"]) == ("complete", 1), trial
    found = {step: record["metrics"] for (_, _, step), record in steps_of(storage).items()}
    return {step: metrics["train.loss"] for step, metrics in found.items() if "train.loss" in metrics}


def check(folder: Path, trainers: list[str]) -> None:
    with Cluster(secrets.token_hex(32)) as cluster:
        cluster.head(0)
        for _ in range(2):
            cluster.node(1)
        until(lambda: cluster.nodes_alive() == 3, "two nodes beside the head", pause_s=0.5)
        for trainer in trainers:
            alone = losses(cluster, folder, trainer, 1)
            gang = losses(cluster, folder, trainer, 4)
            assert alone.keys() == gang.keys()
            assert len(alone) == 6
            worst = max(abs(gang[step] - alone[step]) for step in alone)
            assert worst < TOLERANCE, f"{trainer}: losses differ by {worst:.2g}: {alone}, {gang}"
            say(f"{trainer}: four workers on two nodes, largest difference of a loss to one worker {worst:.2g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = sorted(path.parent.name for path in (ROOT / "trainables").glob("*/recipe.py"))
    parser.add_argument("trainers", nargs="*", metavar="TRAINER", help=f"of {', '.join(every)}; all by default")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="gangs-"))
    check(folder, options.trainers or every)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
