"""When a RetroMAE run is hopeless, told from its signals alone. Imports neither torch nor ray.

Each stage is judged by its own steps. What is typical of a window is its median, so that a single spike is no verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log

from trainables.collapse import Rule, Signals, at_chance, typical
from trainables.retromae.config import Config

NOTHING = 1e-3
"""Nats per token; an embedding that saves the decoder less tells it nothing."""


def rules(config: Config, entropy: float | None) -> tuple[Rule, ...]:
    """The rules that apply to `config`; `entropy` is that of the text's tokens, None where no text is used."""
    limits, before = config.collapse_limits, config.pretraining_steps
    window = limits.window
    grace = max(limits.grace * before, limits.decoder_grace)

    def no_better_than_frequencies(history: Sequence[Signals]) -> str | None:
        """A pre-training loss that does not come below the unigram entropy of the text."""
        if len(history) > before or entropy is None:
            return None
        predicting = "decoder" if config.pretraining.objective == "retromae" else "encoder"
        return at_chance(
            history,
            f"{predicting}_loss",
            entropy,
            "a model that knows only how frequent each token is",
            window=window,
            grace=grace,
            deadline=max(limits.deadline * before, grace),
            steps=before,
            # A basic decoder leaves this value slowly, by a few hundredths in hundreds of steps, and still learns.
            share=1.0,
        )

    def ignoring_the_embedding(history: Sequence[Signals]) -> str | None:
        """A decoder that does as well with the embedding of another text."""
        if len(history) > before or len(history) < grace:
            return None
        span = history[-limits.probes * config.pretraining.probe_every :]
        gains = [signals["embedding_gain"] for signals in span if "embedding_gain" in signals]
        if len(gains) < limits.probes or max(gains) >= NOTHING:
            return None
        return (
            f"the decoder ignores the embedding: at {limits.probes} measurements in a row another text's embedding "
            f"cost it at most {max(gains):.2g} nats per token"
        )

    def diverged(history: Sequence[Signals]) -> str | None:
        """A pre-training loss that jumps and stays where it is."""
        if len(history) > before or len(history) < 2 * window:
            return None
        now, earlier = typical(history, "loss", window), typical(history, "loss", window, ago=window)
        if now < limits.jump * earlier:
            return None
        return f"the loss jumped from {earlier:.4g} to {now:.4g} and has stayed there for {window} steps"

    def one_point(history: Sequence[Signals]) -> str | None:
        """Embeddings that have all become the same direction: their similarities carry nothing any more."""
        if len(history) < window:
            return None
        widest = max(signals["spread"] for signals in history[-window:])
        if widest >= limits.spread:
            return None
        return (
            f"all embeddings have become one direction: their mean squared distance from their centre was at most "
            f"{widest:.2g} for {window} steps"
        )

    def guessing(history: Sequence[Signals]) -> str | None:
        """A fine-tuning loss that stays that of a model that knows nothing."""
        own = history[before:]
        if not own:
            return None
        steps = config.stages[-1].steps
        return at_chance(
            own,
            "contrastive",
            log(own[-1]["candidates"]),
            "a model that knows nothing",
            window=window,
            grace=limits.grace * steps,
            deadline=limits.deadline * steps,
            steps=steps,
        )

    pretraining: tuple[Rule, ...] = (no_better_than_frequencies, diverged) if before else ()
    if config.pretraining.objective == "retromae":
        pretraining = (*pretraining, ignoring_the_embedding)
    return (*pretraining, one_point, guessing)
