"""When a RetroMAE run is hopeless, told from its signals alone. Imports neither torch nor ray.

Each stage is judged by its own steps.
"""

from __future__ import annotations

from trainables import collapse
from trainables.collapse import Rule, at_chance, one_point, trend, unless_improving, warm
from trainables.history import History
from trainables.retromae.config import Config

NOTHING = 1e-3
"""An embedding that lowers the decoder's loss by less than this, in nats per token, tells it nothing."""


def rules(config: Config, entropy: float | None) -> tuple[Rule, ...]:
    """The rules that apply to `config`; `entropy` is that of the text's tokens, None where no text is used."""
    limits = config.collapse_limits
    # The last stage is fine-tuning; where there is pre-training it is the first.
    pretraining, finetuning = config.stages[0], config.stages[-1]
    predicting = "decoder" if config.pretraining.objective == "retromae" else "encoder"

    def no_better_than_frequencies(history: History) -> str | None:
        """Stops pre-training whose loss does not come below the unigram entropy of the text."""
        if history.stage != "pretrain" or entropy is None:
            return None
        window, grace = history.window(limits.window), new_layers(history)
        return at_chance(
            history,
            f"{predicting}_loss",
            entropy,
            "a model that knows only how frequent each token is",
            window=window,
            grace=grace,
            deadline=max(limits.deadline * history.steps, grace),
            # A basic decoder leaves this value slowly, by a few hundredths in hundreds of steps, and still learns.
            share=1.0,
        )

    def ignoring_the_embedding(history: History) -> str | None:
        """Stops pre-training whose decoder does as well with the embedding of another text."""
        span = max(history.window(limits.window), limits.probes * config.pretraining.probe_every)
        if history.stage != "pretrain" or history.done < max(span, new_layers(history)):
            return None
        gains = [block.middle for block in history.past("embedding_gain", span)]
        gain = max(gains, default=NOTHING)
        if gain >= NOTHING:
            return None
        return (
            f"the decoder ignores the embedding: for {span} steps another text's embedding cost it at most "
            f"{gain:.2g} nats per token"
        )

    def diverged(history: History) -> str | None:
        """Stops pre-training whose loss jumps up and stays there."""
        window = history.window(limits.window)
        if history.stage != "pretrain" or history.done < 2 * window:
            return None
        loss = trend(history, "loss", window)
        if loss.now < limits.jump * loss.before or not loss.stays(1.0):
            return None
        return f"the loss jumped from {loss.before:.4g} to {loss.now:.4g} and has stayed there for {window} steps"

    def guessing(history: History) -> str | None:
        """Stops fine-tuning whose loss stays at the level of guessing."""
        if history.stage != finetuning.name:
            return None
        steps, window = history.steps, history.window(limits.window)
        grace = max(limits.grace * steps, warm(finetuning.optimiser.warmup, steps) + window)
        deadline = max(limits.deadline * steps, grace + window)
        return collapse.guessing(history, window=window, grace=grace, deadline=deadline, queries=config.batch_size)

    def new_layers(history: History) -> float:
        """Number of steps that the decoder's new layers are given before pre-training must have learnt anything."""
        warmed = warm(pretraining.optimiser.warmup, history.steps)
        return max(limits.grace * history.steps, warmed + history.window(limits.window), limits.decoder_grace)

    found: tuple[Rule, ...] = (no_better_than_frequencies, diverged) if pretraining is not finetuning else ()
    if config.pretraining.objective == "retromae":
        found = (*found, ignoring_the_embedding)
    judged = (one_point(limits.window, limits.spread), guessing)
    return (*found, *(unless_improving("ndcg_at_10", limits.window, rule) for rule in judged))
