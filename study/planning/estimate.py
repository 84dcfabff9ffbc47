"""What a study will cost, before anything is started: operations, GPU-hours, disk and memory, with what is assumed."""

from __future__ import annotations

from study.ledger.retention import most_kept
from study.spec import Study
from trainables import overrides
from trainables.config import TrainerConfig
from trainables.shapes import Shape, shape_of

PEAK = {"V100": 125e12, "T4": 65e12, "L4": 121e12, "A10G": 70e12, "A100": 312e12, "H100": 989e12, "H200": 989e12}
"""Dense half-precision operations a second, as the vendor states them."""
ASSUMED = "A100"
UTILISATION = 0.35
"""Share of the peak that training of small encoders reaches; short texts reach less."""

STATE = 12
"""Bytes of a parameter in a checkpoint: the weight and two moments in float32."""
HELD = 16
"""Bytes of a parameter in a GPU's memory: the weight, two moments and the gradient in float32."""


def estimate(study: Study, keep: int | None = None) -> list[str]:
    """Lines for a plan: (name, text) aligned as `--dry-run` prints them; says so where nothing can be estimated. `keep`
    is how many best trials of each group keep their models, None keeps all."""
    points = (*study.controls, *study.points) or ({},)
    given = [overrides.apply(study.config, group | values) for group in study.groups for values in points]
    first = given[-1]
    shapes = {backbone: shape_of(backbone) for backbone in dict.fromkeys(config.backbone for config in given)}
    unknown = [backbone for backbone, shape in shapes.items() if shape is None]
    if unknown:
        return [f"cost        not estimated: no config.json of backbone {', '.join(unknown)} at hand"]
    if not first.step_costs:
        return [f"cost        not estimated: trainer {study.trainer} does not say what a step computes"]
    costs = [_operations(config, shapes) for config in given]
    mean, runs = sum(costs) / len(costs), study.trials * study.replicates
    confirming = study.confirmations * study.confirm.seeds if study.confirm else 0
    kind = study.resources.accelerator if study.resources.accelerator in PEAK else ASSUMED
    hours = mean / (PEAK[kind] * UTILISATION * 3600)
    largest = max(shape.parameters for shape in shapes.values() if shape is not None)
    models = len(first.stages) * (most_kept(study, keep) * study.replicates + confirming)
    confirmed = f", {mean * confirming:.2g} more to confirm" if confirming else ""
    more = f", {hours * confirming:,.1f} more to confirm" if confirming else ""
    return [
        f"operations  {mean:.2g} per replicate, {mean * runs:.2g} in all{confirmed}, evaluation left out",
        f"GPU-hours   {hours * study.replicates:,.1f} per trial, {hours * runs:,.1f} in all{more}, on {kind} at "
        f"{UTILISATION:.0%} of {PEAK[kind] / 1e12:.0f} TFLOP/s",
        f"disk        {_bytes(4 * largest * models)} for {models} model(s), {_bytes(2 * STATE * largest)} per running "
        "trial for its checkpoints",
        f"GPU memory  {_bytes(HELD * largest)} per worker for weights, gradients and moments; activations beside them",
    ]


def _operations(config: TrainerConfig, shapes: dict[str, Shape | None]) -> float:
    """Floating-point operations of a replicate's training; a backward pass counts as two forward passes."""
    shape = shapes[config.backbone]
    assert shape is not None
    return sum(3 * part.steps * shape.forward(part.tokens, part.projected, part.layers) for part in config.step_costs)


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
