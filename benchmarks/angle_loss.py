"""Time and memory of the Matryoshka AnglE loss, forward and backward, beside sentence-transformers' in one run.

Embeddings of 768 coordinates, prefixes 32 to 512, labels with 26 values as in JSTS, one thread. Each figure is
from a process of its own: the shortest of the repetitions, and how far memory rose above what was held before.
sentence-transformers computes the ranking term pair by pair of pairs up to 6.1 and by running sums from 6.2 on; an
older one is measured too where it is found:

    pip install --no-deps --target older sentence-transformers==6.1.0
    python -m benchmarks.angle_loss [--older older] [--pairs 64 512 4096]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

DIMS = (32, 64, 128, 256, 512)
WIDTH = 768
SECONDS = 3.0
"""A contender repeats for about as long as this, at least three times."""


def loss_here(split: str) -> Callable:
    from trainables.angle import losses

    return lambda x, y, labels: losses.cosent(losses.angle(x, y, DIMS, split), labels, 20.0).sum()


def loss_there() -> Callable:
    from sentence_transformers.losses import AnglELoss, MatryoshkaLoss
    from torch import nn

    class Given(nn.Module):
        """Stands for a model whose embeddings are there already."""

        def forward(self, features: dict) -> dict:
            return dict(features)

        def get_embedding_dimension(self) -> int:
            return WIDTH

        get_sentence_embedding_dimension = get_embedding_dimension

    model = Given()
    loss = MatryoshkaLoss(model, AnglELoss(model), matryoshka_dims=list(DIMS))
    return lambda x, y, labels: loss([{"sentence_embedding": x}, {"sentence_embedding": y}], labels)


def measure(contender: str, pairs: int) -> dict[str, float | str]:
    import torch

    from benchmarks.memory import peak

    torch.set_num_threads(1)
    torch.manual_seed(0)
    loss = loss_there() if contender == "sentence-transformers" else loss_here(contender.split()[-1])
    x = torch.randn(pairs, WIDTH)
    y = x + torch.randn(pairs, WIDTH)
    labels = torch.randint(0, 26, (pairs,)) / 5
    x.requires_grad_()
    y.requires_grad_()
    small = (x[:8].detach().requires_grad_(), y[:8].detach().requires_grad_(), labels[:8])
    x.grad, y.grad = torch.zeros_like(x), torch.zeros_like(y)
    mib = peak(lambda: loss(x, y, labels).backward(), lambda: loss(*small).backward(), "cpu")
    value = loss(x, y, labels)
    times: list[float] = []
    while len(times) < 3 or sum(times) < SECONDS:
        began = time.perf_counter()
        loss(x, y, labels).backward()
        times.append(time.perf_counter() - began)
    return {"ms": 1000 * min(times), "mib": mib, "value": value.item()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, nargs="+", default=[64, 512, 4096])
    parser.add_argument("--older", type=Path, help="folder of an older sentence-transformers")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one[0], int(options.one[1]))))
        return
    runs = [("here, chunked", None), ("here, interleaved", None), ("sentence-transformers", None)]
    if options.older:
        runs.append(("sentence-transformers", options.older))
    print(f"{'pairs':>6}  {'loss':<30} {'ms':>9} {'MiB':>8}  value")
    for pairs in options.pairs:
        for contender, older in runs:
            path = [str(older.resolve())] if older else []
            environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([*path, os.getcwd()])}
            command = [sys.executable, "-m", "benchmarks.angle_loss", "--one", contender, str(pairs)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            found = json.loads(done.stdout.splitlines()[-1])
            name = f"{contender} {version(older)}" if contender == "sentence-transformers" else contender
            print(f"{pairs:>6}  {name:<30} {found['ms']:>9.2f} {found['mib']:>8.1f}  {found['value']:.6f}", flush=True)


def version(folder: Path | None) -> str:
    from importlib.metadata import distributions, version

    if folder is None:
        return version("sentence-transformers")
    return next(d.version for d in distributions(path=[str(folder)]) if d.name == "sentence-transformers")


if __name__ == "__main__":
    main()
