"""Which rescale factor k makes a masked-LM encoder trainable as SPLADE?

k divides the decoder matrix of the masked-LM head before the first step (arXiv 2606.18811). Too small
and the first logits are so large that training never recovers; too large and the head has nothing left
to start from.
"""

from study.confirmation import Confirm
from study.spec import Budget, Group, Objective, Power, Pruner, Resources, Study
from trainables.config import Optimiser
from trainables.data.config import EvaluationData, Pool, TrainData
from trainables.splade.config import Config

QUESTION = "Which rescale factor k makes this encoder trainable as SPLADE?"
BACKBONES = (
    "google-bert/bert-base-uncased", "distilbert/distilbert-base-uncased", "albert/albert-base-v2",
    "Alibaba-NLP/gte-en-mlm-base", "FacebookAI/roberta-base", "answerdotai/ModernBERT-base",
    "jhu-clsp/ettin-encoder-150m",
)  # fmt: skip
"""The seven backbones of arXiv 2606.18811."""
GRID = (1 / 64, 1 / 8, 1 / 2, 1, 2, 4, 8, 32, 128)


def space(trial):
    trial.suggest_float("k", GRID[0], GRID[-1], log=True)


def space_with_rate(trial):
    """k interacts with the learning rate: Adam's relative step on the head grows with k."""
    trial.suggest_float("k", 1 / 4, 64, log=True)
    trial.suggest_float("optimiser.lr", 3e-4, 3e-3, log=True)


def space_of_backbones(trial):
    trial.suggest_float("k", 1, 64, log=True)


EMBEDDED = Study(
    question=QUESTION,
    purpose="the curve over k in minutes on a CPU, with what comes with the project",
    trainer="splade",
    parameter="k",
    config=Config(steps=100, evaluate_every=50, checkpoint_every=50),
    space=space,
    points=tuple({"k": k} for k in GRID),
    objectives=(Objective(name="ndcg_at_10"),),
    budget=Budget(trials=len(GRID)),
    # Measured by a first run of it; one seed cannot tell how much seeds differ.
    power=Power(items=600, item_deviation=0.25),
)

STUDY = {
    # Finding the code of a docstring, in the installed packages; the encoder is the one that ships with the project.
    "embedded": EMBEDDED,
    # The same inputs, searched: k and the learning rate together, lagging trials pruned.
    "search": EMBEDDED.model_copy(
        update={
            "purpose": "k and the learning rate searched together, with pruning, on a CPU",
            "space": space_with_rate,
            "points": (),
            "pruner": Pruner(kind="median", first_step=50),
            "budget": Budget(trials=24),
        }
    ),
    # The question once for each of seven backbones, on MS MARCO triples with the schedule of SPLADE v2 (arXiv
    # 2109.10086), one GPU a trial. The head as it comes, k = 1, is each backbone's control.
    # The suites are for afterwards: python -m study.evaluate splade_k_search --suite beir13
    "paper": Study(
        question=QUESTION,
        purpose="the published setting: seven backbones on MS MARCO",
        trainer="splade",
        parameter="k",
        config=Config(
            backbone="answerdotai/ModernBERT-base",
            train=TrainData(source="ir_datasets:msmarco-passage/train/triples-small"),
            # BM25's candidates stay in the pool, so that a model must tell them from the relevant passage.
            evaluation=EvaluationData(
                source="ir_datasets:msmarco-passage/dev/small",
                pool=Pool(queries=1_000, documents=100_000, hard=50),
                test_source="ir_datasets:beir/scifact/test",
            ),
            hard_negatives=1,
            query_length=64,
            document_length=256,
            batch_size=128,
            steps=150_000,
            evaluate_every=5_000,
            checkpoint_every=5_000,
            optimiser=Optimiser(lr=2e-5, warmup=0.04),
            lambda_query=3e-4,
            lambda_document=1e-4,
            ramp=1 / 3,
        ),
        space=space_of_backbones,
        group=Group(key="backbone", values=BACKBONES),
        controls=({"k": 1},),
        points=tuple({"k": k} for k in (2, 4, 8, 16, 32, 64)),
        objectives=(Objective(name="ndcg_at_10"),),
        # All trials may run at once, and median has nothing to compare them with then. k = 1 is never pruned.
        pruner=Pruner(kind="successive_halving", first_step=15_000),
        budget=Budget(trials=7),
        resources=Resources(cpus_per_worker=4, gpus_per_worker=1),
        confirm=Confirm(finalists=3, seeds=5),
        # Assumed until it is measured: nDCG@10 of two models differs by 0.3 from query to query.
        power=Power(
            items=300,
            item_deviation=0.3,
            reported=0.278,
            source="BEIR-13, ModernBERT, k = 16 against 1, arXiv 2606.18811",
        ),
    ),
}
