"""Seconds per trivial trial: the pattern of Ray's documentation against this platform's, in one run.

Both run the same trials one after the other on a Ray of their own: a Tune function that trains with one
Ray Train worker, which imports torch and makes ten steps of nothing. The documented pattern is a
`TorchTrainer` that reports every step through `TuneReportCallback`; here it is `study.engine.gang.Gang` under
the settings of `study.engine.executor`, whose workers report to an actor.

    python benchmarks/engine.py [--trials 4]
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import tempfile
import time

STEPS = 10


def documented(config) -> None:
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer
    from ray.tune.integration.ray_train import TuneReportCallback

    TorchTrainer(
        documented_worker,
        scaling_config=ScalingConfig(num_workers=1),
        run_config=RunConfig(name=config["name"], storage_path=config["storage"], callbacks=[TuneReportCallback()]),
    ).fit()


def documented_worker() -> None:
    import torch
    from ray import train

    for step in range(STEPS):
        train.report({"loss": torch.zeros(1).item(), "step": step})


def lean(config) -> None:
    from ray.train.v2.api.config import RunConfig, ScalingConfig

    from study.engine.gang import Gang

    Gang(
        lean_worker,
        own_cluster=True,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=1),
        run_config=RunConfig(name=config["name"], storage_path=config["storage"]),
    ).fit()


def lean_worker(config) -> None:
    import ray
    import torch

    recorder = ray.get_actor("recorder", "benchmark")
    for step in range(STEPS):
        ray.get(recorder.report.remote(step, torch.zeros(1).item()))


class Recorder:
    def report(self, step: int, loss: float) -> None:
        """Stands for the ledger, which would note the step here."""


def measure(pattern: str, trials: int) -> float:
    """Seconds from the first trial's start to the last one's end, per trial; in a process of its own."""
    import ray
    from ray import tune

    here = pattern == "lean"
    if here:
        from study.engine.executor import EVERYWHERE, HEAD, OWN_CLUSTER

        for name, value in (EVERYWHERE | OWN_CLUSTER).items():
            os.environ.setdefault(name, value)
    with tempfile.TemporaryDirectory(prefix="study-") as folder:
        quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
        ray.init(num_cpus=2, object_store_memory=200 * 2**20, include_dashboard=not here, _temp_dir=folder, **quiet)
        if here:
            recorder = ray.remote(num_cpus=0)(Recorder).options(name="recorder", namespace="benchmark").remote()
            function = tune.with_resources(lean, tune.PlacementGroupFactory([{HEAD: 0.001}]))
        else:
            function = tune.with_resources(documented, {"cpu": 1})
        tuner = tune.Tuner(
            function,
            param_space={"name": tune.grid_search([f"{pattern}-{n}" for n in range(trials)]), "storage": folder},
            tune_config=tune.TuneConfig(max_concurrent_trials=1, reuse_actors=here),
            run_config=tune.RunConfig(name="tune", storage_path=folder, verbose=0),
        )
        started = time.monotonic()
        results = tuner.fit()
        seconds = (time.monotonic() - started) / trials
        if results.errors:
            raise RuntimeError(f"{len(results.errors)} trials failed: {results.errors[0]}")
        if here:
            ray.kill(recorder)
        ray.shutdown()
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("--pattern", choices=("documented", "lean"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.pattern:
        print(f"seconds {measure(options.pattern, options.trials)}")
        return 0
    seconds = {}
    for pattern in ("documented", "lean"):
        command = [sys.executable, __file__, "--pattern", pattern, "--trials", str(options.trials)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        seconds[pattern] = float(
            next(line for line in done.stdout.splitlines() if line.startswith("seconds")).split()[1]
        )
        print(f"{pattern:<12}{seconds[pattern]:7.1f} s per trivial trial", flush=True)
    print(f"ratio       {seconds['documented'] / seconds['lean']:7.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
