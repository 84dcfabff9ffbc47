"""Which rescale factor k makes a masked-LM encoder trainable as SPLADE?

k divides the decoder matrix of the masked-LM head before the first step (arXiv 2606.18811). Too small
and the first logits are so large that training never recovers; too large and the head has nothing left
to start from.
"""

from study.spec import Budget, Objective, Study
from trainables.splade.config import Config

QUESTION = "Which rescale factor k makes this encoder trainable as SPLADE?"
GRID = (0.0625, 0.25, 0.5, 1, 2, 4, 8, 16, 64)


def space(trial):
    trial.suggest_float("k", 1 / 16, 64, log=True)


def space_with_rate(trial):
    """k interacts with the learning rate: Adam's relative step on the head grows with k."""
    trial.suggest_float("k", 1 / 4, 64, log=True)
    trial.suggest_float("optimiser.lr", 5e-6, 1e-4, log=True)


STUDY = {
    "embedded": Study(
        question=QUESTION,
        trainer="splade",
        parameter="k",
        config=Config(steps=100, evaluate_every=50, checkpoint_every=50),
        space=space,
        points=tuple({"k": k} for k in GRID),
        objectives=(Objective(name="ndcg_at_10"),),
        budget=Budget(trials=len(GRID)),
    ),
}
