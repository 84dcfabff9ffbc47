"""A study whose trials train for a few seconds, for tests of what surrounds them."""

from study.spec import Budget, Objective, Pruner, Resources, Study
from trainables.config import Optimiser
from trainables.data.config import EvaluationData, TrainData
from trainables.splade.config import Config


def space(trial):
    trial.suggest_float("k", 0.5, 8, log=True)


def space_with_rate(trial):
    trial.suggest_float("k", 1, 8, log=True)
    trial.suggest_float("optimiser.lr", 1e-9, 1e30, log=True)


KILLS = Study(
    question="Does a study that is killed end as one that is not?",
    trainer="splade",
    parameter="k",
    config=Config(
        steps=16,
        batch_size=8,
        evaluate_every=4,
        checkpoint_every=3,
        threads=1,
        collapse=False,
        train=TrainData(limit=96),
        evaluation=EvaluationData(max_documents=60),
    ),
    space=space,
    # The first trials are given; the sampler has to come to the same ones after them.
    points=({"k": 4.0}, {"k": 1.0}),
    objectives=(Objective(name="ndcg_at_10"),),
    budget=Budget(trials=4),
    resources=Resources(concurrency=1),
)

# One healthy trial as a yardstick; then, in turn, trials that blow up and trials that learn nothing and lag behind.
BLOWS_UP = {"k": 4.0, "optimiser.lr": 1e30}
LAGS = {"k": 4.0, "optimiser.lr": 1e-9}
STOPS = KILLS.model_copy(
    update={
        "question": "Does a trial that stops early leave anything behind?",
        "config": KILLS.config.model_copy(update={"collapse": True, "optimiser": Optimiser(warmup=0.0)}),
        "space": space_with_rate,
        "points": ({"k": 4.0, "optimiser.lr": 1e-3}, *(LAGS if n % 2 else BLOWS_UP for n in range(100))),
        "pruner": Pruner(kind="median", startup_trials=1, first_step=12),
    }
)

STUDY = {"kills": KILLS, "stops": STOPS}
