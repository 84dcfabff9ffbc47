"""`python -m study.export`: what is taken away, its card, and every request that it refuses."""

from __future__ import annotations

import importlib
import json
import re
import shutil
from pathlib import Path

import pytest
import synthetic_study
import torch
from huggingface_hub import ModelCard
from object_store import BUCKET, S3

import study
from study import export
from study.protocol.summary import ReplicateSummary, StudySummary, read
from trainables import again, loop, onnx_export, overrides
from trainables.context import Context
from trainables.object_store import ObjectStore

ROOT = Path(__file__).resolve().parents[2]
CARRIED = ROOT / "tests" / "assets" / "carried"
VALUES = {
    "splade": {"k": 8, "train.source": CARRIED / "pairs.jsonl", "evaluation.source": CARRIED / "collection"},
    "angle": {"dims": [8, 32]}
    | {f"data.{split}": CARRIED / "graded" / f"{split}.jsonl" for split in ("train", "validation", "test")},
}


def train(trainer: str, folder: Path, seed: int = 0, store: str | None = None) -> loop.Result:
    """A replicate of two steps, in a folder or at a store."""
    torch.set_num_threads(1)
    base = importlib.import_module(f"trainables.{trainer}.config").Config()
    values = {key: str(value) if isinstance(value, Path) else value for key, value in VALUES[trainer].items()}
    config = overrides.apply(base, {"steps": 2, "batch_size": 4} | values)
    context = Context(seed=seed, folder=folder, device=torch.device("cpu"), study="k-0123", store=store)
    return loop.run(importlib.import_module(f"trainables.{trainer}.recipe"), config, context)


def rewritten(storage: Path, **changes) -> StudySummary:
    """The study's summary with trial 1 changed."""
    summary = read(storage / "summary.json")
    trials = [trial.model_copy(update=changes) if trial.number == 1 else trial for trial in summary.trials]
    summary = summary.model_copy(update={"trials": tuple(trials)})
    (storage / "summary.json").write_text(summary.text())
    return summary


@pytest.fixture(scope="module")
def storage(tmp_path_factory) -> Path:
    """A study of three trials whose best one, with two replicates, has models."""
    storage = tmp_path_factory.mktemp("made") / "k"
    grid = {1.0: {"test": 0.3, "untrained": 0.1}, 8.0: {"test": 0.4, "untrained": 0.1}}
    synthetic_study.write_study(storage, grid | {64.0: {"state": "pruned", "untrained": 0.1}})
    replicates = []
    for seed in (0, 1):
        folder = storage / "trials" / "0001" / f"replicate-{seed}"
        (folder / "result.json").unlink(missing_ok=True)
        replicates.append(ReplicateSummary(seed=seed, values=train("splade", folder, seed).values))
    rewritten(storage, replicates=tuple(replicates), checkpoint="trials/0001/replicate-1/model")
    return storage


def test_the_best_model_is_copied_with_a_card_that_answers_the_question(storage, tmp_path, capsys) -> None:
    moved = shutil.copytree(storage, tmp_path / "moved")
    target = tmp_path / "new" / "model"
    assert export.main(["splade_k_search", str(target), "--storage", str(moved)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{target}\n"
    assert err == "trial 1, k = 8; README.md says how it is opened and trained again\n"
    source = moved / "trials" / "0001" / "replicate-0" / "model"
    names = {path.relative_to(source) for path in source.rglob("*")}
    assert {path.relative_to(target) for path in target.rglob("*")} == names
    assert again.compared(source, target).endswith("to the last bit")
    assert list(target.parent.iterdir()) == [target]

    card = ModelCard.load(target / "README.md")
    assert "Which rescale factor k makes this encoder trainable as SPLADE?" in card.text
    assert "**Best k = 8: test nDCG@10 0.400 (95% CI " in card.text
    assert "This is trial 1 (k = 8), seed 0: the best of 2 finished trials on validation" in card.text
    assert "It is one of 2 models that differ in their seed" in card.text
    result = json.loads((source.parent / "result.json").read_text())
    (found,) = [one for one in card.data.eval_results if one.metric_type == "ndcg_at_10"]
    assert (found.metric_name, found.task_type) == ("nDCG@10", "sparse-information-retrieval")
    assert found.metric_value == result["values"]["test.ndcg_at_10"]
    queries = len(result["per_item"]["test"]["ndcg_at_10"])
    assert found.metric_args["over"] == f"{queries} queries"
    assert found.metric_args["low_95"] < found.metric_value < found.metric_args["high_95"]
    row = re.search(r"^\| nDCG@10 \| (.*) \| (.*) to (.*) \| (.*) queries \|", card.text, re.MULTILINE)
    assert row is not None
    assert float(row[2]) < float(row[1]) < float(row[3])


def test_another_trial_and_replicate(storage, tmp_path) -> None:
    command = ["k.py", str(tmp_path / "model"), "--storage", str(storage), "--trial", "1", "--replicate", "1"]
    assert export.main(command) == 0
    assert json.loads((tmp_path / "model" / "training.json").read_text())["seed"] == 1
    with (storage / "summary.json").open() as file:
        before = file.read()
    try:
        summary = read(storage / "summary.json").model_copy(update={"best": (0,)})
        (storage / "summary.json").write_text(summary.text())
        assert export.main([*command[:1], str(tmp_path / "other"), *command[2:]]) == 0
    finally:
        (storage / "summary.json").write_text(before)
    told = (tmp_path / "other" / "README.md").read_text()
    assert (
        "This is trial 1 (k = 8), seed 1, and **not** the best of the study's 2 finished trials: that is trial 0"
        in told
    )


def test_intervals_of_correlations_are_over_pairs(tmp_path) -> None:
    storage = tmp_path / "angle"
    synthetic_study.write_study(storage, {8.0: {"test": 0.3, "untrained": 0.1}}, parameter="split", metric="spearman")
    folder = storage / "trials" / "0000" / "replicate-0"
    (folder / "result.json").unlink()
    outcome = train("angle", folder)
    assert export.main(["angle", str(tmp_path / "model"), "--storage", str(storage)]) == 0
    card = ModelCard.load(tmp_path / "model" / "README.md")
    found = {one.metric_type: one for one in card.data.eval_results}
    assert {"spearman", "spearman_8", "pearson_32"} <= found.keys()
    pairs = len(outcome.per_item["test"]["label"])
    for one in found.values():
        assert one.task_type == "semantic-similarity"
        assert one.metric_args["over"] == f"{pairs} pairs"
        assert one.metric_args["low_95"] < one.metric_value < one.metric_args["high_95"]


def test_a_model_on_an_object_store(storage, tmp_path, monkeypatch) -> None:
    with S3() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        trial = f"s3://{BUCKET}/k-0123/trials/0001"
        train("splade", tmp_path / "work", store=f"{trial}/replicate-0")
        assert ObjectStore(f"{trial}/replicate-0").has("model/training.json")
        copy = shutil.copytree(storage, tmp_path / "copy")
        shutil.rmtree(copy / "trials" / "0001")
        rewritten(copy, checkpoint=f"{trial}/replicate-0/model")
        assert export.main(["k", str(tmp_path / "model"), "--storage", str(copy)]) == 0
        opened = study.open(copy).best.model_folder()
    source = storage / "trials" / "0001" / "replicate-0" / "model"
    assert again.compared(source, tmp_path / "model").endswith("to the last bit")
    assert opened.is_relative_to(copy / "cache")
    assert study.open(copy).best.model_folder() == opened, "the copy is there by now, and the store is away"
    assert again.compared(source, opened).endswith("to the last bit")
    assert " queries |" in (tmp_path / "model" / "README.md").read_text()


def test_a_model_of_an_earlier_version_comes_without_a_card(storage, tmp_path, capsys) -> None:
    copy = shutil.copytree(storage, tmp_path / "copy")
    for name in ("training.json", "README.md"):
        (copy / "trials" / "0001" / "replicate-0" / "model" / name).unlink()
    assert export.main(["k", str(tmp_path / "model"), "--storage", str(copy)]) == 0
    assert "it has no card" in capsys.readouterr().err
    assert (tmp_path / "model" / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--trial", "7"], ("--trial 7", "has no trial 7", "finished are 0, 1")),
        (["--trial", "two"], ("--trial two", "give 'best', or the number of a trial", "finished are 0, 1")),
        (["--trial", "2"], ("--trial 2", "is pruned", "finished are 0, 1")),
        (["--replicate", "2"], ("replicate 2", "are 0 to 1")),
        (["--replicate", "-1"], ("replicate -1",)),
        (["--trial", "0"], ("trials/0000/replicate-0/model does not exist",)),
        (["--profile", "paper"], ("paper",)),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_what_there_is_not_is_refused(storage, tmp_path, refuses, more, told) -> None:
    refuses(export.main, ["k", str(tmp_path / "model"), "--storage", str(storage), *more], *told)
    assert list(tmp_path.iterdir()) == []


def test_onnx_without_its_packages_is_refused_before_anything_is_copied(
    storage, tmp_path, refuses, monkeypatch
) -> None:
    monkeypatch.setattr(onnx_export, "PACKAGES", ("onnx_that_nobody_has",))
    command = ["k", str(tmp_path / "model"), "--storage", str(storage), "--onnx"]
    refuses(export.main, command, "--onnx needs onnx_that_nobody_has", "pip install 'retrieval-study[onnx]'")
    assert list(tmp_path.iterdir()) == []


def test_onnx_lies_beside_the_weights_and_stands_in_the_card(storage, tmp_path) -> None:
    for package in onnx_export.PACKAGES:
        pytest.importorskip(package, reason=f"the extra onnx is not installed: there is no {package}")
    assert export.main(["k", str(tmp_path / "model"), "--storage", str(storage), "--onnx"]) == 0
    assert (tmp_path / "model" / "onnx" / "model.onnx").stat().st_size > 1_000_000
    assert "`onnx/model.onnx`" in (tmp_path / "model" / "README.md").read_text()


def test_nothing_is_written_over(storage, tmp_path, refuses) -> None:
    command = ["--storage", str(storage)]
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    refuses(export.main, ["k", str(tmp_path / "full"), *command], "FOLDER", "files in it", "new or empty")
    refuses(export.main, ["k", str(tmp_path / "file"), *command], "FOLDER", "file is a file")
    refuses(export.main, ["k", str(tmp_path / "file" / "below"), *command], "FOLDER", "/file is a file")
    (tmp_path / "empty").mkdir()
    assert export.main(["k", str(tmp_path / "empty"), *command]) == 0
    assert (tmp_path / "empty" / "README.md").exists()


def test_a_study_that_is_opened_gives_its_models(storage) -> None:
    """By sentence-transformers and by the trainer's own encoder, with the same vectors."""
    best = study.open(storage).best
    assert best.model_folder(1) == storage / "trials" / "0001" / "replicate-1" / "model"
    model, encoder = best.model(1), best.encoder(1)
    assert type(model).__name__ == "SparseEncoder"
    texts = ["open a file", "def parse(path): return [json.loads(line) for line in open(path)]\n" * 20]
    with torch.inference_mode():
        torch.testing.assert_close(model.encode_query(texts).to_dense(), encoder.queries(texts), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(
            model.encode_document(texts).to_dense(), encoder.documents(texts), atol=1e-5, rtol=1e-5
        )


def test_the_notebook_of_the_documentation_runs(storage, tmp_path, monkeypatch) -> None:
    """Every cell, on a study with real models in the place of the one that it names."""
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "splade_k_search").symlink_to(storage)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.syspath_prepend(ROOT / "docs")
    cells = [cell for cell in importlib.import_module("notebook").executed(tmp_path).cells if cell.cell_type == "code"]
    shown = ["".join(str(output.get("data", output.get("text"))) for output in cell.outputs) for cell in cells]
    assert "splade_k_search: Best k = 8: test nDCG@10 0.400" in shown[0]
    assert "trial 1 against trial 0, " in "".join(shown)
    assert sum("image/png" in text for text in shown) == 1
    assert "tensor([[" in shown[-2]
