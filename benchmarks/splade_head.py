"""The SPLADE head, forward and backward, against what a user would pick instead: time and peak memory.

    python -m benchmarks.splade_head [--threads 1] [--json FILE]

- `ours`: `trainables.splade.pooling.max_log1p_relu`
- `plain`: log1p(relu(hidden @ W.T + b)), masked, max over tokens, as the papers write it
- `sentence-transformers`: a linear layer and its `SpladePooling`

Each is given the same hidden states, weights and masks, with all terms active (an untrained head) and with few
(a trained one). Times are the best of interleaved rounds in one process. Memory is what a process of its own
needs at most on top of its inputs, the gradients that every variant returns included.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.memory import peak

SHAPES = {"B=32 L=48 V=8000 D=128": (32, 48, 8000, 128), "B=32 L=128 V=30522 D=384": (32, 128, 30522, 384)}
BIAS = {"all active": 0.0, "few active": -3.2}
Step = Callable[[], None]


def inputs(shape: tuple[int, int, int, int], bias: float, device: str) -> tuple[torch.Tensor, ...]:
    """hidden (B, L, D), weight (V, D), bias (V,), mask (B, L) of texts between half and full length."""
    texts, length, vocabulary, width = shape
    torch.manual_seed(0)
    hidden = torch.randn(texts, length, width).to(device).requires_grad_()
    weight = (torch.randn(vocabulary, width) / width**0.5).to(device).requires_grad_()
    lengths = torch.randint(length // 2, length + 1, (texts, 1))
    mask = (torch.arange(length) < lengths).long().to(device)
    return hidden, weight, torch.full((vocabulary,), bias).to(device).requires_grad_(), mask


def steps(shape: tuple[int, int, int, int], bias: float, device: str) -> dict[str, Step]:
    """Variant -> one forward and backward pass."""
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    from trainables.splade.pooling import max_log1p_relu

    hidden, weight, offset, mask = inputs(shape, bias, device)
    pooling = SpladePooling("max").train()
    linear = torch.nn.functional.linear

    def plain() -> torch.Tensor:
        weights = torch.log1p(torch.relu(linear(hidden, weight, offset)))
        return (weights * mask.unsqueeze(2)).amax(1)

    def theirs() -> torch.Tensor:
        features = {"token_embeddings": linear(hidden, weight, offset), "attention_mask": mask}
        return pooling(features)["sentence_embedding"]

    def step(forward: Callable[[], torch.Tensor]) -> Step:
        def run() -> None:
            for leaf in (hidden, weight, offset):
                leaf.grad = None
            forward().square().sum().backward()
            if device == "cuda":
                torch.cuda.synchronize()

        return run

    return {
        "ours": step(lambda: max_log1p_relu(hidden, mask, weight, offset)),
        "plain": step(plain),
        "sentence-transformers": step(theirs),
    }


def seconds(variants: dict[str, Step], rounds: int) -> dict[str, float]:
    """Best time of each variant over interleaved rounds, after one to warm up."""
    best = dict.fromkeys(variants, float("inf"))
    for round_ in range(rounds + 1):
        for name, run in variants.items():
            start = time.perf_counter()
            run()
            if round_:
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def peak_of(shape: tuple[int, int, int, int], bias: float, device: str, variant: str, threads: int) -> float:
    """MiB that a variant needs at most, as `memory.peak` measures it, in a process of its own."""
    torch.set_num_threads(threads)
    run, small = (steps(size, bias, device)[variant] for size in (shape, (2, 4, 50, 8)))
    return peak(run, small, device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = []
    print(f"{device}, {options.threads} thread(s), torch {torch.__version__}; ratios are to ours")
    print(f"{'shape':26} {'terms':11} {'variant':22} {'ms':>8} {'ratio':>6} {'MiB':>7} {'ratio':>6}")
    for shape_name, shape in SHAPES.items():
        for terms, bias in BIAS.items():
            times = seconds(steps(shape, bias, device), options.rounds)
            with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
                arguments = [(shape, bias, device, name, options.threads) for name in times]
                memory = dict(zip(times, pool.starmap(peak_of, arguments, chunksize=1), strict=True))
            for name, taken in times.items():
                row = {
                    "shape": shape_name, "terms": terms, "variant": name, "ms": taken * 1e3, "mib": memory[name],
                    "time_ratio": taken / times["ours"], "memory_ratio": memory[name] / memory["ours"],
                }  # fmt: skip
                rows.append(row)
                print(
                    f"{shape_name:26} {terms:11} {name:22} {row['ms']:8.1f} {row['time_ratio']:6.2f} "
                    f"{row['mib']:7.0f} {row['memory_ratio']:6.2f}",
                    flush=True,
                )
    if options.json:
        options.json.write_text(json.dumps({"device": device, "threads": options.threads, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
