"""An exported model as ONNX, too: FOLDER/onnx/model.onnx, where sentence-transformers' own ONNX backend looks for it.

The graph is the transformer's: `input_ids` and `attention_mask` (texts, tokens) give `logits` of a masked-LM model,
which SPLADE pools, or `last_hidden_state` of an encoder. torch's exporter writes it. The packages that this needs are
the extra `onnx`.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trainables import encoders
from trainables.card import ONNX
from trainables.errors import first_line

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
TOLERANCE = 1e-3
"""Largest difference allowed between the outputs of graph and model: absolute, and relative to the largest output."""
TEXTS = ("open a file", "read every line of a file, parse it as json, and collect what is found in a list")


def check() -> None:
    """ValueError unless the packages are there that `write` needs."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(
            f"--onnx needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed: "
            "pip install 'retrieval-study[onnx]'"
        )


def write(folder: Path, *, trust_remote_code: bool = False) -> Path:
    """Write the graph beside the weights in `folder`, and see that it computes what they do; returns its path.

    ValueError where the architecture cannot be exported, or computes something else as a graph.
    """
    about = folder / "sentence_bert_config.json"
    fills = about.exists() and json.loads(about.read_text()).get("transformer_task") == "fill-mask"
    load, output = (encoders.load_masked_lm, "logits") if fills else (encoders.load_encoder, "last_hidden_state")
    model, tokenizer = load(str(folder), trust_remote_code=trust_remote_code)
    model.eval()
    given = tokenizer(list(TEXTS), padding=True, return_tensors="pt", return_token_type_ids=False)
    path = folder / ONNX
    path.parent.mkdir(exist_ok=True)
    axes = {0: "texts", 1: "tokens"}
    # The exporter tells of every pass that it makes.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(
                _Output(model, output).eval(),
                (given["input_ids"], given["attention_mask"]),
                path,
                input_names=["input_ids", "attention_mask"],
                output_names=[output],
                dynamic_shapes={"input_ids": axes, "attention_mask": axes},
                dynamo=True,
                external_data=False,
                verbose=False,
            )
        except torch.onnx.errors.OnnxExporterError as error:
            raise ValueError(
                f"{type(model).__name__} cannot be exported to ONNX by torch: {first_line(error)}"
            ) from error
        _compare(path, model, tokenizer, output)
    return path


class _Output(nn.Module):
    """A model of transformers as a function of two tensors with one."""

    def __init__(self, model: Any, output: str) -> None:
        super().__init__()
        self.model, self.output = model, output

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return getattr(self.model(input_ids=input_ids, attention_mask=attention_mask), self.output)


def _compare(path: Path, model: Any, tokenizer: Any, output: str) -> None:
    """Compare graph and model on other numbers and lengths of texts than the graph was made with, so that a size that
    was taken for a constant shows."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    texts = [" ".join(TEXTS), *TEXTS]
    given = tokenizer(texts, padding=True, return_tensors="pt", return_token_type_ids=False)
    (found,) = session.run([output], {name: tensor.numpy() for name, tensor in given.items()})
    expected = getattr(model(**given), output)[given["attention_mask"].bool()]
    gap = (torch.from_numpy(found)[given["attention_mask"].bool()] - expected).abs().max()
    if not gap <= TOLERANCE * max(1.0, float(expected.abs().max())):
        raise ValueError(f"{type(model).__name__} computes something else as ONNX: {output} differs by {gap:.2g}")
