"""The worker loop: restore, step, log, evaluate, checkpoint, stop. One loop for every recipe.

Everything that a step does is a function of (seed, step, state in the checkpoint): learning rate and
regulariser weights are computed from the step, batches are drawn by the step, and the random streams
are seeded anew for every step. So a resumed replicate repeats the losses of an undisturbed one, on
the CPU to the last bit.
"""

from __future__ import annotations

import hashlib
import logging
import math
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import torch

from trainables import card, collapse, distributed
from trainables.bins import Bin
from trainables.checkpoints import Checkpoints
from trainables.config import Optimiser, Split, Stage, TrainerConfig
from trainables.context import Context, Phase, Record
from trainables.errors import told
from trainables.history import History
from trainables.recipe import Recipe
from trainables.stored_checkpoints import StoredCheckpoints
from trainables.training_record import TrainingRecord

log = logging.getLogger(__name__)

REPORT_EVERY_S = 0.5
"""Records are handed to the ledger at most this often between evaluations."""

GO_ON, STOP, COLLAPSED = 0, 1, 2


@dataclass
class Result:
    """How a replicate ended, or that it was told to stop and can be resumed."""

    state: str
    """complete | collapsed | stopped; the ledger knows why it told a replicate to stop."""
    reason: str | None
    step: int
    values: dict[str, float] = field(default_factory=dict)
    """Final metrics: validation plain, `test.` for the test split, `untrained.` for those of step 0."""
    per_item: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    """`test`, `untrained.test`, ... -> metric -> query or pair id -> value."""
    seconds_per_step: float = 0.0
    seconds: float = 0.0
    """Seconds in the loop over all attempts, evaluation and checkpoints included."""


def learning_rate(optimiser: Optimiser, step: int, steps: int) -> float:
    """The rate used by step `step` (from 0) of `steps`: linear warm-up, then the schedule down to 0.

    >>> [round(learning_rate(Optimiser(lr=1.0, warmup=0.2), step, 10), 3) for step in (0, 1, 2, 6, 9)]
    [0.5, 1.0, 1.0, 0.5, 0.125]
    """
    warm = round(optimiser.warmup * steps)
    if step < warm:
        return optimiser.lr * (step + 1) / warm
    if optimiser.schedule == "constant":
        return optimiser.lr
    done = (step - warm) / max(1, steps - warm)
    return optimiser.lr * (1 - done if optimiser.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done)))


def seed_streams(*parts: int) -> None:
    """Seed every random stream of this process from `parts`, such as (seed, step, rank)."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    random.seed(digest)
    numpy.random.seed(int.from_bytes(digest[:4], "little"))
    torch.manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def fingerprint(value: Any) -> str:
    """Digest of nested tensors, dataclasses and plain values: equal content gives an equal digest.

    >>> fingerprint([torch.ones(2), "a"]) == fingerprint([torch.ones(2), "a"]) != fingerprint([torch.ones(2), "b"])
    True
    """
    digest = hashlib.sha256()

    def feed(item: Any) -> None:
        if isinstance(item, torch.Tensor):
            digest.update(f"{item.dtype} {tuple(item.shape)}".encode())
            digest.update(item.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        elif is_dataclass(item):
            for part in fields(item):
                feed(getattr(item, part.name))
        elif isinstance(item, dict):
            for key, part in item.items():
                feed((key, part))
        elif isinstance(item, (list, tuple)):
            digest.update(f"{len(item)}".encode())
            for part in item:
                feed(part)
        else:
            digest.update(repr(item).encode())

    feed(value)
    return digest.hexdigest()[:16]


def run(recipe_module: Any, config: TrainerConfig, context: Context) -> Result:
    """Train one replicate to its end, from its newest checkpoint if it has one.

    `recipe_module` is the module `recipe` of the trainer's package. Every rank of the gang calls this with
    equal arguments but for `context.rank`. A finished replicate only returns its recorded result.
    """
    context.enter(Phase.STARTS)
    checkpoints = _checkpoints(context)
    recorded = distributed.broadcast_object(checkpoints.result() if context.rank == 0 else None)
    if isinstance(recorded, dict):
        records = recorded.pop("records", [])
        if context.rank == 0:
            # A kill may have come after the result was written and before the folders were dropped.
            checkpoints.drop_steps()
            if records:
                context.report(records, True)
        return Result(**recorded)
    if context.rank == 0:
        checkpoints.claim()
    return _Run(recipe_module, config, context, checkpoints).train()


def _checkpoints(context: Context) -> Checkpoints:
    if context.store is None:
        return Checkpoints(context.folder, context.attempt, context.study)
    return StoredCheckpoints(context.folder, context.attempt, context.store, context.study)


class _Run:
    """The state of a replicate between two steps; what a checkpoint holds."""

    def __init__(self, recipe_module: Any, config: TrainerConfig, context: Context, checkpoints: Checkpoints) -> None:
        self.config, self.context, self.checkpoints = config, context, checkpoints
        seed_streams(context.seed)
        self.recipe: Recipe = recipe_module.build(config, context)
        self._begin(config.stages[0])
        self.history = History(config.stages[0].name, config.stages[0].steps)
        self.bin = Bin()
        """Steps that no record has yet."""
        self.facts = dict(self.recipe.description) | {
            "hash.initialisation": fingerprint(dict(_model_tensors(self.recipe.model))),
            "hash.data_order": fingerprint([self.recipe.batch(step) for step in range(min(3, config.total_steps))]),
        }
        self.step = 0
        self.values: dict[str, float] = {}
        self.per_item: dict[str, dict[str, dict[str, float]]] = {}
        self.unsent: list[Record] = []
        self.unsure: list[Record] = []
        """Records that were handed over, but may not have reached the journal: a checkpoint must carry them and the
        unsent ones."""
        self.seconds = self.step_seconds = 0.0
        self.started = self.last_report = time.monotonic()

    def _begin(self, stage: Stage) -> None:
        """A stage's optimiser, with no moments yet."""
        asked = stage.optimiser
        self.optimiser = torch.optim.AdamW(
            self.recipe.parameter_groups(asked.weight_decay),
            lr=asked.lr,
            betas=(asked.beta1, asked.beta2),
            eps=asked.epsilon,
        )
        self.parameters = [p for group in self.optimiser.param_groups for p in group["params"]]

    def train(self) -> Result:
        self._restore()
        if self.context.rank == 0:
            self.context.describe(self.facts)
        stop: str | None = self._flush(wait=True)
        self.context.enter(Phase.STEPS)
        if self.step == 0 and not self.values:
            stop = self._evaluate(("validation", "test"), "untrained.") or stop
        while self.step < self.config.total_steps:
            stage, place = self.config.stage_of(self.step)
            if place == 0 and self.step > 0:
                self._begin(stage)
                self.history = self.history.then(stage.name, stage.steps)
            reason = self._advance(stage, place)
            if reason is not None:
                self._flush(wait=True)
                return self._finish("collapsed", reason)
            last = self.step == self.config.total_steps
            if last or (stage.evaluated and self.step % self.config.evaluate_every == 0):
                stop = self._evaluate(("validation", "test") if last else ("validation",), "")
            elif time.monotonic() - self.last_report > REPORT_EVERY_S and self._answered():
                stop = self._flush(wait=False)
            code = distributed.broadcast_code(GO_ON if stop is None or last else STOP, self.context.device)
            if code == STOP:
                self._flush(wait=True)
                self._save()
                return Result("stopped", stop, self.step, dict(self.values), {}, self._rate(), self._elapsed())
            if place + 1 == stage.steps:
                if not last and self.context.rank == 0:
                    with self._phase(Phase.EXPORTS):
                        self.checkpoints.export(partial(self._export, stage=stage.name), stage.name)
                self._save()
            elif self.step % self.config.checkpoint_every == 0:
                self._save()
        return self._finish("complete", None)

    def _advance(self, stage: Stage, place: int) -> str | None:
        """One optimiser step; returns the reason if the run has collapsed."""
        began = time.monotonic()
        seed_streams(self.context.seed, self.step, self.context.rank)
        rate = learning_rate(stage.optimiser, place, stage.steps)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.recipe.model.train()
        loss, signals = self.recipe.loss(self.recipe.batch(self.step), self.step)
        loss.backward()
        distributed.sum_gradients(self.parameters)
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, stage.optimiser.max_grad_norm)
        measured = _floats({**signals, "loss": loss.detach(), "grad_norm": norm})
        self.history.add(measured)
        reason = collapse.judge(self.history, self.recipe.rules) if self.config.collapse else None
        collapsed = distributed.broadcast_code(GO_ON if reason is None else COLLAPSED, self.context.device)
        # A non-finite gradient must not reach the weights even where collapse rules are switched off.
        if collapsed == GO_ON and math.isfinite(measured["grad_norm"]):
            self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.step += 1
        self.bin.add({f"train.{name}": value for name, value in measured.items()} | {"train.lr": rate})
        if collapsed == COLLAPSED or place + 1 == stage.steps or self.step % self.config.recorded_together == 0:
            self._record(self.bin.take())
        self.step_seconds += time.monotonic() - began
        return (reason or "collapsed on rank 0") if collapsed == COLLAPSED else None

    def _evaluate(self, splits: tuple[Split, ...], prefix: str) -> str | None:
        """Measure the splits, record them, and ask whether to go on."""
        seed_streams(self.context.seed, self.step, -1)
        self.recipe.model.eval()
        with self._phase(Phase.EVALUATES), torch.inference_mode():
            measured = self.recipe.evaluate(splits)
            initial = self.recipe.initial() if prefix else {}
        logged = {prefix + name: value for name, value in initial.items()}
        self.values |= logged
        for split, evaluation in measured.items():
            where = prefix if split == "validation" else f"{prefix}test."
            self.values |= {where + name: value for name, value in evaluation.values.items()}
            if evaluation.per_item:
                self.per_item[prefix + split] = evaluation.per_item
            logged |= {where + name: value for name, value in evaluation.values.items()}
            if split == "validation":
                logged |= evaluation.values
                self.history.evaluated(evaluation.values)
        self._record(logged)
        return self._flush(wait=True)

    @contextmanager
    def _phase(self, phase: Phase) -> Iterator[None]:
        """What is done between two steps."""
        self.context.enter(phase)
        yield
        self.context.enter(Phase.STEPS)

    def _record(self, metrics: dict[str, float]) -> None:
        """Add metrics to the record of the step just made; each record is stamped with its time once."""
        if self.unsent and self.unsent[-1]["step"] == self.step:
            self.unsent[-1]["metrics"] |= metrics
            return
        self.unsent.append({"step": self.step, "time": time.time_ns() // 1_000_000, "metrics": dict(metrics)})

    def _flush(self, wait: bool) -> str | None:
        """Hand the unsent records over on rank 0; a reason to stop, or None."""
        records, self.unsent = self.unsent, []
        self.last_report = time.monotonic()
        reason = self.context.report(records, wait) if self.context.rank == 0 else None
        if reason is not None:
            # The ledger that says stop may not have taken these records; those it has, it drops when they come again.
            self.unsure += records
        else:
            # The answer to one report shows that all earlier ones have arrived.
            self.unsure = [] if wait else records
        return reason

    def _answered(self) -> bool:
        """Whether rank 0 may report without waiting; where its ledger is slow, records gather meanwhile."""
        return self.context.rank != 0 or self.context.ready()

    def _save(self) -> None:
        if self.context.rank != 0:
            return
        with self._phase(Phase.SAVES):
            tensors = {f"model.{name}": tensor.detach() for name, tensor in _model_tensors(self.recipe.model)}
            tensors |= {f"optimiser.{name}": tensor for name, tensor in self._optimiser_tensors()}
            self.checkpoints.save(
                self.step,
                {name: tensor.contiguous().cpu() for name, tensor in tensors.items()},
                {
                    "history": self.history.state(),
                    "bin": self.bin.state(),
                    "values": self.values,
                    "per_item": self.per_item,
                    "records": self.unsure + self.unsent,
                    "seconds": self._elapsed(),
                    "step_seconds": self.step_seconds,
                },
            )

    def _restore(self) -> None:
        """Carry on from the newest checkpoint; its records may never have reached the ledger, so they go again."""
        step = distributed.broadcast_object(self.checkpoints.newest() if self.context.rank == 0 else None)
        if not isinstance(step, int):
            return
        try:
            self._take(step, *self.checkpoints.load(step))
        except KeyError as error:
            raise ValueError(
                f"the checkpoint of step {step} in {self.context.folder} is of another model or version "
                f"(it lacks {told(error)}); use that one, or remove the folder to train from the start"
            ) from error

    def _take(self, step: int, tensors: dict[str, torch.Tensor], meta: dict[str, Any]) -> None:
        if 0 < step < self.config.total_steps:
            # The moments are those of the stage that the checkpoint was written in.
            self._begin(self.config.stage_of(step - 1)[0])
        names = {id(p): name for name, p in self.recipe.model.named_parameters()}
        with torch.no_grad():
            for name, tensor in _model_tensors(self.recipe.model):
                tensor.copy_(tensors[f"model.{name}"])
        for parameter in self.parameters:
            prefix = f"optimiser.{names[id(parameter)]}."
            self.optimiser.state[parameter] = {
                key.removeprefix(prefix): value.to(parameter.device) if value.ndim else value.clone()
                for key, value in tensors.items()
                if key.startswith(prefix) and key.removeprefix(prefix) in ("step", "exp_avg", "exp_avg_sq")
            }
        self.step = step
        self.values, self.per_item = meta["values"], meta["per_item"]
        self.history = self._history(meta["history"])
        # A checkpoint of an earlier release has all steps among its records.
        self.bin = Bin.restored(meta.get("bin", {}))
        self.seconds, self.step_seconds = meta["seconds"], meta["step_seconds"]
        self.unsent = meta["records"]
        log.info("carrying on from step %d", self.step)

    def _history(self, saved: Any) -> History:
        """The history in a checkpoint; a checkpoint of an earlier release has the signals of every step instead."""
        if not isinstance(saved, list):
            return History.restored(saved)
        stage, place = self.config.stage_of(self.step - 1)
        history = History(stage.name, stage.steps, self.step - 1 - place)
        validation = [name for name in self.values if "." not in name]
        history.evaluated({name: self.values[f"untrained.{name}"] for name in validation}, step=0)
        for signals in saved[history.before :]:
            history.add(signals)
        history.evaluated({name: self.values[name] for name in validation})
        return history

    def _optimiser_tensors(self):
        names = {id(p): name for name, p in self.recipe.model.named_parameters()}
        for parameter, state in self.optimiser.state.items():
            for key, value in state.items():
                yield f"{names[id(parameter)]}.{key}", value

    def _finish(self, state: str, reason: str | None) -> Result:
        result = Result(state, reason, self.step, self.values, self.per_item, self._rate(), self._elapsed())
        self.context.enter(Phase.EXPORTS)
        if self.context.rank == 0:
            if state == "complete":
                self.checkpoints.export(self._export)
            # Records that a replaced ledger has refused are kept for the one that follows.
            refused = {"records": self.unsure} if self.unsure else {}
            self.checkpoints.finish(asdict(result) | refused)
        return result

    def _export(self, folder: Path, stage: str | None = None) -> None:
        """The model, beside it what trained it, and a card that tells people."""
        self.recipe.export(folder)
        record = TrainingRecord.of(self.config, self.context, self.facts, self.values, self.step, stage)
        record.write(folder)
        card.write(folder, self.config, record)

    def _elapsed(self) -> float:
        return self.seconds + time.monotonic() - self.started

    def _rate(self) -> float:
        return self.step_seconds / self.step if self.step else 0.0


def _model_tensors(model: torch.nn.Module):
    """Parameters, tied ones once, and buffers that are part of the model's state."""
    yield from model.named_parameters()
    saved = model.state_dict().keys()
    yield from ((name, buffer) for name, buffer in model.named_buffers() if name in saved)


def _floats(signals: dict[str, torch.Tensor | float]) -> dict[str, float]:
    """All signals as floats with one transfer from the device."""
    tensors = {name: value for name, value in signals.items() if isinstance(value, torch.Tensor)}
    moved = dict(zip(tensors, torch.stack([t.detach().double() for t in tensors.values()]).tolist(), strict=True))
    return {name: moved[name] if name in moved else float(value) for name, value in signals.items()}
