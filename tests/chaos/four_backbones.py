"""The same question for four backbones whose heads differ by a known factor."""

from study.spec import Budget, Group, Objective, Resources, Study
from trainables.data.config import EvaluationData, TrainData
from trainables.splade.config import Config

SCALES = (1, 4, 16, 4096)
"""The last one is beyond what any of these k can mend."""
GRID = (4.0, 16.0)

STUDY = {
    "embedded": Study(
        question="Which k does the head of each backbone need?",
        trainer="splade",
        parameter="k",
        config=Config(
            steps=40,
            batch_size=16,
            evaluate_every=20,
            checkpoint_every=40,
            threads=1,
            rescale="untied",
            train=TrainData(limit=640),
            evaluation=EvaluationData(max_documents=200),
        ),
        space=lambda trial: trial.suggest_categorical("k", GRID),
        points=tuple({"k": k} for k in GRID),
        controls=({"k": 1.0},),
        group=Group(key="backbone", values=tuple(f"models/times {scale}" for scale in SCALES)),
        objectives=(Objective(name="ndcg_at_10"),),
        budget=Budget(trials=1 + len(GRID)),
        resources=Resources(concurrency=2),
    ),
}
