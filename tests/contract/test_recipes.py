"""What every trainer must hold, found by glob: a new one is covered the day it appears."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from every_trainer import TRAINERS
from huggingface_hub import ModelCard

from tests.gang import run_gang
from trainables import again, cli, loop, overrides, trainers
from trainables.context import Context
from trainables.evaluation.retrieval import Retrieval
from trainables.training_record import TrainingRecord

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"

SMALL = {
    "steps": 6, "batch_size": 8, "evaluate_every": 3, "checkpoint_every": 2, "threads": 1,
    "evaluation.max_documents": 60, "evaluation.bm25": False, "train.limit": 64,
}  # fmt: skip


class Stopped(Context):
    """Told to stop at the first report at or after a step, as by Ctrl-C."""

    stop_at = 0
    records: list

    def report(self, records, wait):
        self.records = [*getattr(self, "records", []), *records]
        return "interrupted" if self.stop_at and records and records[-1]["step"] >= self.stop_at else None


def small_config(trainer: str, cache: Path, **more):
    config = trainers.module(trainer, "config").Config()
    known = overrides.keys(config)
    values = {key: value for key, value in SMALL.items() if key in known}
    return overrides.apply(config, values | {"cache": str(cache)} | more)


def run(trainer: str, config, folder: Path, stop_at: int = 0, attempt: int = 1, seed: int = 0):
    torch.set_num_threads(1)
    context = Stopped(seed=seed, folder=folder, device=torch.device("cpu"), attempt=attempt)
    context.stop_at = stop_at
    outcome = loop.run(trainers.module(trainer, "recipe"), config, context)
    return outcome, getattr(context, "records", [])


def losses(records) -> dict[int, float]:
    return {r["step"]: r["metrics"]["train.loss"] for r in records if "train.loss" in r["metrics"]}


@pytest.fixture(scope="module")
def cache(embedded_cache) -> Path:
    """Of the embedded inputs; the trainers' own files go into it, too."""
    return embedded_cache


@pytest.fixture(scope="module")
def finished(tmp_path_factory, cache):
    """One undisturbed run per trainer, shared by the tests below: trainer -> (outcome, records, folder)."""
    runs = {}

    def get(trainer: str):
        if trainer not in runs:
            folder = tmp_path_factory.mktemp(trainer)
            runs[trainer] = (*run(trainer, small_config(trainer, cache), folder), folder)
        return runs[trainer]

    return get


@pytest.mark.parametrize("trainer", TRAINERS)
def test_reports_what_it_declares(trainer, finished) -> None:
    outcome, records, _ = finished(trainer)
    check_reported(trainer, small_config(trainer, Path()), outcome, records)


@pytest.mark.parametrize(
    ("trainer", "changes"),
    [
        ("angle", {"dims": (4, 6), "retrieval.source": "embedded", "retrieval.max_documents": 60}),
        ("retromae", {"pretraining.objective": "none"}),
    ],
)
def test_what_it_reports_follows_its_config(trainer, changes, cache, tmp_path) -> None:
    config = small_config(trainer, cache, **{"steps": 2, "evaluate_every": 1}, **changes)
    check_reported(trainer, config, *run(trainer, config, tmp_path))


def check_reported(trainer: str, config, outcome, records) -> None:
    """What is declared is all that is reported, at each evaluation and of each split."""
    metrics = trainers.module(trainer, "config").metrics(config)
    assert outcome.state == "complete"
    assert sum(metric.cost for metric in metrics.values()) <= 1
    assert len({metric.label for metric in metrics.values()}) == len(metrics)
    for metric in metrics.values():
        assert metric.of is None or (metrics[metric.of].direction == metric.direction and metric.size is not None)
        items = () if metric.correlation is None else (metric.correlation.one, metric.correlation.other)
        assert all(name in found for name in items for found in outcome.per_item.values())
    names = {name for name in outcome.values if not name.startswith("train.")}
    initial = {name for name, metric in metrics.items() if metric.initial}
    measured = metrics.keys() - initial
    assert {name for name, metric in metrics.items() if metric.explains} <= initial
    assert names == {f"untrained.{name}" for name in initial} | {
        prefix + name for name in measured for prefix in ("", "test.", "untrained.", "untrained.test.")
    }
    assert [r["step"] for r in records] == list(range(config.total_steps + 1))
    evaluated = [r["metrics"] for r in records if r["step"] % config.evaluate_every == 0]
    assert all({name for name in found if "." not in name} == measured for found in evaluated)
    assert {name for name in records[0]["metrics"] if name.removeprefix("untrained.") in initial} == {
        f"untrained.{name}" for name in initial
    }


@pytest.mark.parametrize("trainer", TRAINERS)
def test_prepare_reads_the_inputs(trainer, cache) -> None:
    module = trainers.module(trainer, "config")
    prepared = module.prepare(small_config(trainer, cache))
    assert prepared.facts
    assert all(isinstance(value, str) for value in prepared.facts.values())


@pytest.mark.parametrize("trainer", TRAINERS)
def test_resume_repeats_the_losses_to_the_last_bit(trainer, finished, cache, tmp_path) -> None:
    whole, records, _ = finished(trainer)
    config = small_config(trainer, cache)
    stopped, first = run(trainer, config, tmp_path, stop_at=3)
    assert stopped.state == "stopped"
    assert stopped.step < config.steps
    resumed, second = run(trainer, config, tmp_path, attempt=2)
    assert resumed.state == "complete"
    assert losses(first) | losses(second) == losses(records)
    assert resumed.values == whole.values


@pytest.mark.parametrize("trainer", TRAINERS)
def test_finished_run_only_returns_its_result(trainer, finished, cache) -> None:
    outcome, _, folder = finished(trainer)
    again, records = run(trainer, small_config(trainer, cache), folder, attempt=2)
    assert dataclasses.asdict(again) == json.loads(json.dumps(dataclasses.asdict(outcome)))
    assert records == []


@pytest.mark.parametrize("trainer", TRAINERS)
def test_export_loads_in_transformers(trainer, finished) -> None:
    from transformers import AutoModel, AutoTokenizer

    _, _, folder = finished(trainer)
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    model = AutoModel.from_pretrained(folder / "model")
    batch = tokenizer(["open a file"], return_tensors="pt")
    assert model(**batch).last_hidden_state.isfinite().all()


@pytest.mark.parametrize("trainer", TRAINERS)
def test_the_export_encodes_as_the_recipe_was_evaluated(trainer, finished, cache) -> None:
    """Full evaluations open the exported model with `Encoder`; on the study's own test queries it scores the same."""
    outcome, _, folder = finished(trainer)
    config = small_config(trainer, cache)
    encoder = trainers.module(trainer, "recipe").Encoder
    opened = encoder.open(folder / "model", config, torch.device("cpu"))
    assert json.loads(json.dumps(opened.settings)) == opened.settings
    texts = ["open a file and read all of its lines into a list", "close it"]
    with torch.inference_mode():
        asked, documents, alone = opened.queries(["close it"]), opened.documents(texts), opened.documents(texts[1:])
        scores = encoder.scorer.scores(asked, documents)
        assert scores.shape == (1, 2)
        assert scores.isfinite().all()
        assert torch.allclose(scores[:, 1:], encoder.scorer.scores(asked, alone), rtol=1e-5, atol=1e-5)
        assert torch.allclose(scores, encoder.scorer.scores(asked, encoder.scorer.joined([documents, alone]))[:, :2])
    if encoder.scorer.matching_only:
        assert (documents >= 0).all()
    if not hasattr(config, "evaluation"):
        return
    retrieval = Retrieval(config.evaluation, cache)
    found = retrieval.evaluate(
        ("validation", "test"), opened.queries, opened.documents, encoder.statistics, encoder.scorer
    )
    for name, value in found["test"].values.items():
        assert value == pytest.approx(outcome.values[f"test.{name}"], rel=1e-9)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_an_export_is_trained_again_to_the_last_bit(trainer, finished, cache, tmp_path, capsys) -> None:
    """From its folder alone, which records settings, seed and the identities of the data."""
    outcome, _, folder = finished(trainer)
    command = ["--from", str(folder / "model"), "--folder", str(tmp_path), "--set", f"cache={cache}"]
    assert cli.main(trainer, command) == 0
    told, progress = capsys.readouterr()
    assert json.loads(told)["values"] == outcome.values
    assert f"{tmp_path}/model has the weights of {folder}/model to the last bit" in progress
    before, after = (again.weights(place) for place in (folder / "model", tmp_path / "model"))
    assert before.keys() == after.keys()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    for name in ("training.json", "README.md"):
        assert (tmp_path / "model" / name).read_text() == (folder / "model" / name).read_text()


@pytest.mark.parametrize("trainer", TRAINERS)
def test_an_export_has_a_card_that_the_hub_reads(trainer, finished) -> None:
    outcome, _, folder = finished(trainer)
    card = ModelCard.load(folder / "model" / "README.md")
    assert card.data.to_dict()["library_name"] in ("sentence-transformers", "transformers")
    assert card.data.license == "unknown"
    assert trainer in card.data.tags
    reported = {result.metric_type: result.metric_value for result in card.data.eval_results}
    assert reported == {
        name.removeprefix("test."): value for name, value in outcome.values.items() if name.startswith("test.")
    }
    assert {result.dataset_split for result in card.data.eval_results} == {"test"}
    for title in ("Usage", "Evaluation", "Training", "Train it again", "Licence"):
        assert f"\n## {title}\n" in card.text
    record = TrainingRecord.read(folder / "model")
    identities = [value for key, value in record.facts.items() if key.endswith(".identity")]
    assert identities
    assert all(identity in card.text for identity in identities)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_batch_is_a_function_of_seed_and_step(trainer, cache, tmp_path) -> None:
    module = trainers.module(trainer, "recipe")
    config = small_config(trainer, cache)

    def batch(seed: int, step: int):
        context = Context(seed=seed, folder=tmp_path, device=torch.device("cpu"))
        loop.seed_streams(seed)
        recipe = module.build(config, context)
        recipe.batch(0)
        loop.seed_streams(seed, step, 0)
        return repr(recipe.batch(step))

    drawn = batch(0, 5)
    assert drawn == batch(0, 5)
    assert drawn != batch(0, 4)
    assert drawn != batch(1, 5)


CARRIED = ROOT / "tests" / "assets" / "carried"

ON_CARRIED_DATA = {
    "train.source": str(CARRIED / "pairs.jsonl"),
    "pretraining.text.source": str(CARRIED / "texts.txt"),
    "evaluation.source": str(CARRIED / "collection"),
    "data.train": str(CARRIED / "graded" / "train.jsonl"),
    "data.validation": str(CARRIED / "graded" / "validation.jsonl"),
    "data.test": str(CARRIED / "graded" / "test.jsonl"),
}
"""Inputs that are the same wherever the tests run; a trainer takes those that its config has."""


def compare_with_golden(path: Path, found: dict[int, float], facts: dict[str, str], write: bool) -> bool:
    """Whether the inputs are those of the golden losses; asserts that the losses are, too."""
    if write:
        path.write_text(json.dumps({"inputs": facts, "losses": found}, indent=2) + "\n")
    golden = json.loads(path.read_text())
    if golden["inputs"] != facts:
        return False
    assert found == pytest.approx({int(step): loss for step, loss in golden["losses"].items()}, rel=2e-3)
    return True


@pytest.mark.parametrize("trainer", TRAINERS)
def test_golden_losses(trainer, cache, tmp_path, request) -> None:
    """A refactoring that moves these is a change of behaviour; `pytest --write-golden` writes them anew."""
    base = small_config(trainer, cache)
    carried = {key: value for key, value in ON_CARRIED_DATA.items() if key in overrides.keys(base)}
    _, records = run(trainer, overrides.apply(base, carried), tmp_path)
    path = GOLDEN / f"{trainer}.json"
    assert compare_with_golden(path, losses(records), {}, request.config.getoption("--write-golden"))


@pytest.mark.parametrize("trainer", TRAINERS)
def test_golden_losses_of_the_embedded_inputs(trainer, finished, cache, request) -> None:
    """The embedded inputs are read from the installed packages, so that other versions of these have others."""
    _, records, _ = finished(trainer)
    facts = trainers.module(trainer, "config").prepare(small_config(trainer, cache)).facts
    path = GOLDEN / f"{trainer}.embedded.json"
    if not compare_with_golden(path, losses(records), facts, request.config.getoption("--write-golden")):
        pytest.skip("the golden losses are those of other versions of the packages that the inputs are read from")


def work(rank: int, configs: dict[str, Any], folder: Path) -> None:
    """One worker of a gang of two that trains with each config, one after the other; rank 0 writes what it reported."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    for trainer, config in configs.items():
        seen: list[Any] = []
        context = Context(
            seed=0, folder=folder / trainer, device=torch.device("cpu"), rank=rank, world_size=2, on_records=seen.extend
        )
        outcome = loop.run(trainers.module(trainer, "recipe"), config, context)
        if rank == 0:
            found = {"values": outcome.values, "losses": [r["metrics"].get("train.loss") for r in seen]}
            (folder / f"{trainer}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def gang_of_two(tmp_path_factory, cache) -> Path:
    """A folder with what two workers reported, a file for each trainer; the same two processes train them all."""
    folder = tmp_path_factory.mktemp("gang")
    run_gang(work, 2, {trainer: small_config(trainer, cache) for trainer in TRAINERS}, folder)
    return folder


@pytest.mark.parametrize("trainer", TRAINERS)
def test_two_workers_train_as_one(trainer, finished, gang_of_two) -> None:
    """The global batch decides, not the number of workers that share it."""
    whole, records, _ = finished(trainer)
    shared = json.loads((gang_of_two / f"{trainer}.json").read_text())
    assert shared["losses"][1:] == pytest.approx(list(losses(records).values()), rel=1e-4)
    for name, value in shared["values"].items():
        if name.startswith("untrained."):
            assert value == pytest.approx(whole.values[name], rel=1e-4, abs=1e-6)
