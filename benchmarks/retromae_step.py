"""A pre-training step of RetroMAE against a plain implementation of the published algorithm: time and peak memory.

    python -m benchmarks.retromae_step [--threads 1] [--json FILE]

- `ours`: `trainables.retromae`, enhanced decoding
- `plain`: the decoder's masks drawn in Python, position by position, with `random.sample`; the logits of all
  tokens of encoder and decoder at once, and `F.cross_entropy` on them

Both have the same model, texts and encoder masks. `masks` is the preparation of the decoder's masks alone, `step` is
that with forward and backward pass, without the optimiser, which is the same. Times are the best of interleaved
rounds in one process. Memory is what a process of its own needs at most on top of model and batch, the gradients
included.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F

from benchmarks.memory import peak

RATIO, ENCODER_RATIO = 0.5, 0.3
SHAPES = {
    # texts, tokens, vocabulary, width, layers, heads
    "B=32 L=128 V=8000 D=128 x3": (32, 128, 8000, 128, 3, 4),
    "B=32 L=512 V=8000 D=128 x3": (32, 512, 8000, 128, 3, 4),
    "B=16 L=128 V=30522 D=384 x6": (16, 128, 30522, 384, 6, 12),
    "B=4 L=512 V=30522 D=384 x6": (4, 512, 30522, 384, 6, 12),
}
Shape = tuple[int, int, int, int, int, int]
Step = Callable[[], object]


def python_masks(lengths: list[int], length: int, device: str) -> torch.Tensor:
    """Visible sets as a data collator makes them: row by row, an exact number of the other tokens."""
    rows = []
    for tokens in lengths:
        text = [[False] * length for _ in range(length)]
        for i in range(tokens):
            others = [j for j in range(tokens) if j != i]
            for j in random.sample(others, round((1 - RATIO) * len(others))):
                text[i][j] = True
        for i in range(1, length):
            text[i][0] = True
        rows.append(text)
    return torch.tensor(rows, device=device)


def variants(shape: Shape, device: str) -> dict[str, dict[str, Step]]:
    """Variant -> `masks` and `step`."""
    from transformers import BertConfig, BertForMaskedLM

    from trainables.retromae.decoder import Decoder
    from trainables.retromae.masking import visible_sets
    from trainables.retromae.model import RetroMAE

    texts, length, vocabulary, width, layers, heads = shape
    torch.manual_seed(0)
    random.seed(0)
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    mlm = BertForMaskedLM(config)
    model = RetroMAE(mlm, Decoder(mlm.base_model, 1)).to(device)
    decoder, backbone = model.decoder, model.backbone
    assert decoder is not None
    lengths = torch.randint(length * 3 // 4, length + 1, (texts,))
    mask = (torch.arange(length) < lengths.unsqueeze(1)).long().to(device)
    ids = torch.randint(5, vocabulary, (texts, length)).to(device)
    hidden = (torch.rand(texts, length).to(device) < ENCODER_RATIO) & mask.bool()
    hidden[:, 0] = False
    corrupted = ids.masked_fill(hidden, 4)
    wanted = mask.bool()
    wanted[:, 0] = False
    seeds = torch.arange(texts)

    def ours() -> torch.Tensor:
        visible = visible_sets(mask, RATIO, seeds)
        states = model.states(corrupted, mask)
        encoder = model.cross_entropy(states[hidden], ids[hidden], 512) / hidden.sum()
        states = decoder.enhanced(backbone, states[:, 0], ids, visible)
        return encoder + model.cross_entropy(states[wanted[:, 1:]], ids[wanted], 512) / wanted.sum()

    def plain() -> torch.Tensor:
        visible = python_masks(lengths.tolist(), length, device)
        states = model.states(corrupted, mask)
        logits = mlm.cls(states)
        encoder = F.cross_entropy(logits.flatten(0, 1), ids.masked_fill(~hidden, -100).flatten())
        logits = mlm.cls(decoder.enhanced(backbone, states[:, 0], ids, visible))
        return encoder + F.cross_entropy(logits.flatten(0, 1), ids.masked_fill(~wanted, -100)[:, 1:].flatten())

    def step(loss: Callable[[], torch.Tensor]) -> Step:
        def run() -> None:
            model.zero_grad(set_to_none=True)
            loss().backward()

        return run

    return {
        "ours": {"masks": lambda: visible_sets(mask, RATIO, seeds), "step": step(ours)},
        "plain": {"masks": lambda: python_masks(lengths.tolist(), length, device), "step": step(plain)},
    }


def seconds(shape: Shape, device: str, rounds: int) -> dict[str, dict[str, float]]:
    """Variant -> best time of `masks` and of `step` over interleaved rounds, after one to warm up."""
    made = variants(shape, device)
    best = {name: dict.fromkeys(parts, float("inf")) for name, parts in made.items()}
    for round_ in range(rounds + 1):
        for name, parts in made.items():
            for part, run in parts.items():
                start = time.perf_counter()
                run()
                if device == "cuda":
                    torch.cuda.synchronize()
                if round_:
                    best[name][part] = min(best[name][part], time.perf_counter() - start)
    return best


def peak_of(shape: Shape, device: str, variant: str, threads: int) -> float:
    """MiB that a variant needs at most, as `memory.peak` measures it, in a process of its own."""
    torch.set_num_threads(threads)
    run, small = (variants(size, device)[variant]["step"] for size in (shape, (2, 8, 50, 8, 1, 2)))
    return peak(run, small, device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = []
    print(
        f"{device}, {options.threads} thread(s), torch {torch.__version__}; ratios: plain to ours, memory ours to plain"
    )
    print(
        f"{'shape':29} {'variant':8} {'masks ms':>9} {'step ms':>8} {'MiB':>7}   {'masks':>6} {'step':>5} {'memory':>6}"
    )
    for shape_name, shape in SHAPES.items():
        times = seconds(shape, device, options.rounds)
        with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
            arguments = [(shape, device, name, options.threads) for name in times]
            memory = dict(zip(times, pool.starmap(peak_of, arguments, chunksize=1), strict=True))
        ratios = {part: times["plain"][part] / times["ours"][part] for part in ("masks", "step")}
        ratios["memory"] = memory["ours"] / memory["plain"]
        for name, taken in times.items():
            rows.append({
                "shape": shape_name, "variant": name, "mib": memory[name], "ratios": ratios,
                **{f"{part}_ms": value * 1e3 for part, value in taken.items()},
            })  # fmt: skip
            told = f"   {ratios['masks']:6.0f} {ratios['step']:5.2f} {ratios['memory']:6.2f}" if name == "plain" else ""
            print(
                f"{shape_name:29} {name:8} {taken['masks'] * 1e3:9.1f} {taken['step'] * 1e3:8.0f} {memory[name]:7.0f}"
                + told,
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps({"device": device, "threads": options.threads, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
