"""Exported models, opened by sentence-transformers as a user would: the vectors are those that were evaluated."""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path

import mlflow
import numpy as np
import pytest
import torch
from mlflow.tracking import MlflowClient
from sentence_transformers import SentenceTransformer, SparseEncoder

from study.tracking.model_process import ModelProcess, ModelRequest, loadable
from trainables import encoders, loop, onnx_export, overrides
from trainables.context import Context
from trainables.evaluation import sts
from trainables.evaluation.retrieval import Retrieval

TOLERANCE = 1e-5
"""Absolute and relative, in float32: texts meet in other batches there, so that sums are padded otherwise."""

CARRIED = Path(__file__).resolve().parents[1] / "assets" / "carried"
GRADED = CARRIED / "graded"
TEXTS = [
    "open a file", "", "  With white space,\tand CAPITALS around \n", "naïve café, 日本語 and 🙂", "x",
    "read every line of a file and parse it as json " * 20,
    "def parse(path): return [json.loads(line) for line in open(path)]\n" * 400,
]  # fmt: skip
"""Short ones and long ones; the last is so long that it is cut before it is tokenized."""

RETRIEVAL = {"train.source": CARRIED / "pairs.jsonl", "evaluation.source": CARRIED / "collection"}
STS = {f"data.{split}": GRADED / f"{split}.jsonl" for split in ("train", "validation", "test")}
PREFIXES = {
    "prefix": "text: ",
    "retrieval.source": CARRIED / "collection",
    "retrieval.query_prefix": "query: ",
    "retrieval.document_prefix": "passage: ",
}
SETTINGS = {
    "splade": {"splade": RETRIEVAL},
    "splade, k=8": {"splade": {"k": 8, "query_length": 6, "document_length": 17, **RETRIEVAL}},
    "splade, untied": {"splade": {"k": 8, "rescale": "untied", "rescale_bias": True, **RETRIEVAL}},
    "angle, mean": {"angle": {"pooling": "mean", **STS}},
    "angle, cls": {"angle": {"pooling": "cls", "split": "interleaved", "length": 9, **STS}},
    "angle, prefixes": {"angle": {"dims": [8, 32], **PREFIXES, **STS}},
    "retromae, cosine": {"retromae": {"pretraining.text.source": CARRIED / "texts.txt", **RETRIEVAL}},
    "retromae, dot": {
        "retromae": {"pretraining.objective": "none", "similarity": "dot", "query_length": 5, **RETRIEVAL}
    },
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Name of the settings -> (trainer, config, folder of the run, outcome), each trained once."""
    runs = {}

    def get(name: str):
        if name not in runs:
            torch.set_num_threads(1)
            ((trainer, values),) = SETTINGS[name].items()
            base = importlib.import_module(f"trainables.{trainer}.config").Config()
            small = {"steps": 2, "batch_size": 4, "evaluation.bm25": False, "pretraining.batch_size": 4}
            small = {key: value for key, value in small.items() if key in overrides.keys(base)}
            values = {key: str(value) if isinstance(value, Path) else value for key, value in values.items()}
            config = overrides.apply(base, small | values)
            folder = tmp_path_factory.mktemp(trainer)
            context = Context(seed=0, folder=folder, device=torch.device("cpu"))
            outcome = loop.run(importlib.import_module(f"trainables.{trainer}.recipe"), config, context)
            runs[name] = trainer, config, folder, outcome
        return runs[name]

    return get


def opened(trainer: str, folder: Path):
    return (SparseEncoder if trainer == "splade" else SentenceTransformer)(str(folder), device="cpu")


def encode(how, texts: list[str]) -> torch.Tensor:
    """Vectors as one tensor, not sparse."""
    found = how(texts, convert_to_tensor=True)
    return found.to_dense() if found.is_sparse else found


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("name", SETTINGS)
def test_vectors_are_those_of_the_recipe(name, trained) -> None:
    trainer, config, folder, _ = trained(name)
    module = importlib.import_module(f"trainables.{trainer}.recipe")
    own = module.Encoder.open(folder / "model", config, torch.device("cpu"))
    theirs = opened(trainer, folder / "model")
    with torch.inference_mode():
        queries, documents = own.queries(TEXTS), own.documents(TEXTS)
        # AnglE's are compared by cosine, whatever their length.
        scaled = torch.nn.functional.normalize if trainer == "angle" else torch.nn.Identity()
        close(scaled(encode(theirs.encode_query, TEXTS)), queries)
        close(scaled(encode(theirs.encode_document, TEXTS)), documents)
        if trainer != "angle":
            close(encode(theirs.encode, TEXTS), documents)
            return
        whole = own.encode(TEXTS, config.prefix)
        close(encode(theirs.encode, TEXTS), whole[:, : config.dims[-1]])
        for dim in config.dims:
            cut = SentenceTransformer(str(folder / "model"), truncate_dim=dim, device="cpu")
            close(encode(cut.encode, TEXTS), whole[:, :dim])


@pytest.mark.parametrize("name", SETTINGS)
def test_figures_are_those_that_were_reported(name, trained) -> None:
    trainer, config, folder, outcome = trained(name)
    module = importlib.import_module(f"trainables.{trainer}.recipe")
    theirs = opened(trainer, folder / "model")

    def ask(how):
        return lambda texts: encode(how, texts)

    if trainer == "angle":
        sets = module.pair_sets(config.data, None)
        (found,) = sts.evaluate({"test": sets["test"]}, ask(theirs.encode), config.dims).values()
    else:
        encoder = module.Encoder
        (found,) = (
            Retrieval(config.evaluation)
            .evaluate(
                ("test",), ask(theirs.encode_query), ask(theirs.encode_document), encoder.statistics, encoder.scorer
            )
            .values()
        )
    assert found.values
    for metric, value in found.values.items():
        assert value == pytest.approx(outcome.values[f"test.{metric}"], abs=TOLERANCE)


def test_the_model_of_an_earlier_stage_opens_too(trained) -> None:
    _, config, folder, _ = trained("retromae, cosine")
    module = importlib.import_module("trainables.retromae.recipe")
    own = module.Encoder.open(folder / "model-pretrain", config, torch.device("cpu"))
    theirs = opened("retromae", folder / "model-pretrain")
    with torch.inference_mode():
        close(encode(theirs.encode_query, TEXTS), own.queries(TEXTS))
        close(encode(theirs.encode_document, TEXTS), own.documents(TEXTS))
    assert not np.allclose(theirs.encode(TEXTS), opened("retromae", folder / "model").encode(TEXTS), atol=TOLERANCE)


def test_lengths_are_those_of_training(trained) -> None:
    _, config, folder, _ = trained("splade, k=8")
    theirs = opened("splade", folder / "model")
    long = [TEXTS[-1]]
    assert theirs.max_seq_length == config.document_length == 17
    for task, length in (("query", 6), ("document", 17)):
        assert theirs.preprocess(long, task=task)["input_ids"].shape == (1, length)


def test_a_prefix_that_is_shorter_than_the_embedding_is_what_is_given(trained) -> None:
    _, config, folder, _ = trained("angle, prefixes")
    theirs = opened("angle", folder / "model")
    assert theirs.get_embedding_dimension() == config.dims[-1] == 32
    assert json.loads((folder / "model" / "config_sentence_transformers.json").read_text())["matryoshka_dims"] == [
        8,
        32,
    ]
    whole = SentenceTransformer(str(folder / "model"), truncate_dim=128, device="cpu")
    assert whole.encode(["x"]).shape == (1, 128)


@pytest.mark.parametrize("name", ["splade, k=8", "angle, mean"])
def test_onnx_gives_the_same_vectors(name, trained, tmp_path) -> None:
    for package in onnx_export.PACKAGES:
        pytest.importorskip(package, reason=f"the extra onnx is not installed: there is no {package}")
    import onnxruntime

    trainer, config, folder, _ = trained(name)
    model = shutil.copytree(folder / "model", tmp_path / "model")
    path = onnx_export.write(model)
    assert path == model / "onnx" / "model.onnx"
    own = importlib.import_module(f"trainables.{trainer}.recipe").Encoder.open(model, config, torch.device("cpu"))
    length = own.settings.get("length", own.settings.get("document_length"))
    tokens = encoders.tokenize(own.tokenizer, TEXTS, length, torch.device("cpu"))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (states,) = session.run(None, {"input_ids": tokens.ids.numpy(), "attention_mask": tokens.mask.numpy()})
    mask = tokens.mask.numpy()[:, :, None].astype(np.float32)
    if trainer == "splade":
        found = np.log1p(np.maximum(states, 0) * mask).max(1)
    else:
        means = (states * mask).sum(1) / mask.sum(1)
        found = means / np.linalg.norm(means, axis=1, keepdims=True)
    with torch.inference_mode():
        expected = own.documents(TEXTS)
    torch.testing.assert_close(torch.from_numpy(found), expected, atol=1e-4, rtol=1e-3)


def test_onnx_names_the_packages_that_are_missing(monkeypatch) -> None:
    monkeypatch.setattr(onnx_export.importlib.util, "find_spec", lambda name: None if name != "onnx" else object())
    with pytest.raises(
        ValueError, match=r"--onnx needs onnxscript, onnxruntime, which are not .*retrieval-study\[onnx\]"
    ):
        onnx_export.check()


@pytest.mark.parametrize("name", ["splade", "angle, prefixes"])
def test_a_model_kept_in_mlflow_gives_the_same_vectors(name, trained, tmp_path, empty_tracking, monkeypatch) -> None:
    """Opened from there, as its id or as its registered name; kept once although it was asked twice."""
    monkeypatch.chdir(tmp_path)
    trainer, _, folder, _ = trained(name)
    uri = f"sqlite:///{shutil.copy(empty_tracking, tmp_path / 'mlflow.db')}"
    client = MlflowClient(uri)
    experiment = client.create_experiment("e", tmp_path.as_uri())
    run = client.create_run(experiment).info.run_id
    assert loadable(folder / "model")
    request = ModelRequest(uri, experiment, (run,), 2, "kept", {"study.trial": "0"}, str(folder / "model"), "named")
    for _ in range(2):
        with ModelProcess(request) as process:
            while not process.ended(within_s=60):
                pass
    (output,) = client.get_run(run).outputs.model_outputs
    mlflow.set_tracking_uri(uri)
    texts = ["open a file", "read every line of a file"]
    theirs = opened(trainer, folder / "model")
    for place in (f"models:/{output.model_id}", "models:/named/1"):
        model = mlflow.pyfunc.load_model(place)
        for side, how in (("query", theirs.encode_query), ("document", theirs.encode_document)):
            found = model.predict(texts, params={"side": side})
            expected = how(texts, convert_to_tensor=True)
            if trainer == "splade":
                assert found == [dict(terms) for terms in theirs.decode(expected)]
            else:
                close(torch.tensor(found), expected.cpu())
    with pytest.raises(ValueError, match="accepted are 'query' and 'document'"):
        model.predict(texts, params={"side": "both"})
    assert [version.version for version in client.search_model_versions("name = 'named'")] == [1]
