"""Does the interleaved split make Matryoshka AnglE better than the chunked one, and is the difference real?

AnglE reads an embedding as complex numbers. Chunked, the real parts are its first half: then the planes of a prefix
change with its length. Interleaved, they are its even coordinates, and every prefix keeps the planes of the longer
ones. Both arms start from the same weights and see the same pairs in the same order, seed by seed.
"""

from study.confirmation import Confirm
from study.spec import Budget, Objective, Power, Pruner, Resources, Study
from trainables.angle.config import Config
from trainables.config import Optimiser
from trainables.data.config import PairData

QUESTION = "Does the interleaved split beat the chunked one, at which prefix lengths, and is the difference real?"
ARMS = ({"split": "chunked"}, {"split": "interleaved"})
JGLUE = "datasets:json:https://raw.githubusercontent.com/yahoojapan/JGLUE/main/datasets/jsts-v1.3"


def split(trial):
    trial.suggest_categorical("split", ("chunked", "interleaved"))


def everything(trial):
    split(trial)
    trial.suggest_float("scale", 1, 40, log=True)
    trial.suggest_categorical("dim_weights", ("equal", "short", "long"))
    trial.suggest_float("optimiser.lr", 3e-4, 5e-3, log=True)


EMBEDDED = Study(
    question=QUESTION,
    purpose="both splits with ten seeds in minutes on a CPU, with what comes with the project",
    trainer="angle",
    parameter="split",
    design="paired",
    config=Config(steps=100, evaluate_every=100, checkpoint_every=100),
    space=split,
    points=ARMS,
    replicates=10,
    objectives=(Objective(name="spearman"),),
    budget=Budget(trials=len(ARMS)),
    # Measured by a run of it.
    power=Power(items=1500, item_deviation=0.1, seed_deviation=0.0065),
)

# JSTS v1.3 and a small Japanese sentence encoder. Files at hand: --set data.train=jsts/train-v1.3.json and so on;
# another encoder: --set backbone=NAME_OR_FOLDER.
JSTS = Study(
    question=QUESTION,
    purpose="both splits on Japanese JSTS with a small encoder; downloads both",
    trainer="angle",
    parameter="split",
    design="paired",
    config=Config(
        backbone="cl-nagoya/ruri-v3-30m",
        dims=(16, 32, 64, 128, 256),
        length=128,
        data=PairData(
            train=f"{JGLUE}/train-v1.3.json",
            validation=f"{JGLUE}/valid-v1.3.json",
            test=f"{JGLUE}/test-v1.3.json",
        ),
        scale=20,
        in_batch_weight=0,
        batch_size=32,
        steps=1167,  # 3 epochs
        evaluate_every=389,
        checkpoint_every=389,
        optimiser=Optimiser(lr=2e-5),
    ),
    space=split,
    points=ARMS,
    replicates=10,
    objectives=(Objective(name="spearman"),),
    budget=Budget(trials=len(ARMS)),
    resources=Resources(cpus_per_worker=2),
    # Seeds as measured on JSTS with a small encoder (docs/angle.md), items as on the embedded pairs.
    power=Power(
        items=1589,
        item_deviation=0.1,
        seed_deviation=0.0065,
        reported=0.0035,
        source="JSTS, ruri-v3-130m at 128, 256 and 512, Leverages' blog",
    ),
)

STUDY = {
    # Docstring and code of the installed packages, graded by closeness, and the encoder that ships with the project.
    "embedded": EMBEDDED,
    "jsts": JSTS,
    # The published setting. Five seeds: no exact test on them can go below p = 0.0625.
    "paper": JSTS.model_copy(
        update={
            "purpose": "the published setting: a larger encoder, five seeds",
            "config": JSTS.config.model_copy(
                update={"backbone": "cl-nagoya/ruri-v3-130m", "dims": (32, 64, 128, 256, 512)}
            ),
            "replicates": 5,
            # Ten fresh seeds of both arms: as many as it takes for a test at each of five sizes.
            "confirm": Confirm(finalists=2, seeds=10),
            "resources": Resources(cpus_per_worker=4, gpus_per_worker=1),
        }
    ),
    # The embedded inputs, searched: which setting is best, with lagging trials pruned.
    "search": EMBEDDED.model_copy(
        update={
            "purpose": "split, scale, weights and learning rate searched together, with pruning, on a CPU",
            "design": "search",
            "config": EMBEDDED.config.model_copy(update={"evaluate_every": 25}),
            "space": everything,
            "points": (),
            "replicates": 1,
            "pruner": Pruner(kind="median", first_step=25),
            "budget": Budget(trials=24),
            "power": Power(),
        }
    ),
}
