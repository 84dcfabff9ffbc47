"""Two workers with half the batch each compute the loss and the gradients of one worker with the whole.

In float64, where only a wrong formula can make a difference.
"""

import json
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file

from tests.gang import run_gang

TERMS = ("loss", "contrastive", "regulariser", "distillation")
STEP = 7


def measure(rank: int, folder: Path, world_size: int) -> None:
    """Each term's value and parameter gradients at one step, summed over the gang, written by each rank."""
    from trainables import distributed
    from trainables.context import Context
    from trainables.splade.config import Config
    from trainables.splade.recipe import build

    torch.set_num_threads(1)
    if world_size > 1:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world_size)
    config = Config.model_validate_json((folder / "config.json").read_text())
    context = Context(seed=3, folder=folder, device=torch.device("cpu"), rank=rank, world_size=world_size)
    recipe = build(config, context)
    recipe.model.double().train()
    tensors = {}
    for term in TERMS:
        total, signals = recipe.loss(recipe.batch(STEP), STEP)
        value = total if term == "loss" else signals[term]
        value.backward()
        distributed.sum_gradients(recipe.model.parameters())
        tensors[f"{term}.value"] = value.detach().clone()
        for name, parameter in recipe.model.named_parameters():
            tensors[f"{term}.{name}"] = parameter.grad.clone()
        recipe.model.zero_grad()
    tensors |= {f"signals.{name}": torch.as_tensor(value).detach().double().clone() for name, value in signals.items()}
    for split, measured in recipe.evaluate(("validation", "test")).items():
        tensors |= {f"{split}.{name}": torch.tensor(value) for name, value in measured.values.items()}
    save_file(tensors, folder / f"{world_size}-{rank}.safetensors")
    if world_size > 1:
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """(one worker, [rank 0, rank 1]) of the same step."""
    from transformers import AutoTokenizer, ModernBertConfig, ModernBertForMaskedLM

    from trainables import encoders
    from trainables.splade.config import Config

    folder = tmp_path_factory.mktemp("world")
    tokenizer = AutoTokenizer.from_pretrained(encoders.EMBEDDED)
    torch.manual_seed(0)
    mlm = ModernBertForMaskedLM(ModernBertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_attention_heads=2, num_hidden_layers=2, intermediate_size=24,
        pad_token_id=0, bos_token_id=2, eos_token_id=3, cls_token_id=2, sep_token_id=3, max_position_embeddings=32,
    ))  # fmt: skip
    encoders.export(mlm, tokenizer, folder / "backbone")
    words = ["sort", "list", "open", "file", "read", "line", "parse", "json", "send", "make", "plot", "count"]
    texts = [f"{a} {b}" for a in words for b in words]
    (folder / "pairs.jsonl").write_text("".join(
        json.dumps({"query": a, "positive": a.split()[0], "negatives": [b, a + b], "scores": [9, i % 7, 1]}) + "\n"
        for i, (a, b) in enumerate(zip(texts, reversed(texts), strict=True))
    ))  # fmt: skip
    beir = folder / "beir"
    (beir / "qrels").mkdir(parents=True)
    for name, kind in (("corpus", "d"), ("queries", "q")):
        (beir / f"{name}.jsonl").write_text(
            "".join(json.dumps({"_id": f"{kind}{i}", "title": "", "text": text}) + "\n" for i, text in enumerate(words))
        )
    judged = "".join(f"q{i}\td{i}\t1\n" for i in range(len(words)))
    (beir / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    config = Config(
        backbone=str(folder / "backbone"), k=0.5, batch_size=8, hard_negatives=1, query_length=8, document_length=16,
        train={"source": str(folder / "pairs.jsonl")}, evaluation={"source": str(beir)},
        distillation="margin_mse", distillation_weight=0.1, lambda_query=0.3, lambda_document=0.2, ramp=0.1,
    )  # fmt: skip
    (folder / "config.json").write_text(config.model_dump_json())
    run_gang(measure, 2, folder, 2)
    measure(0, folder, 1)
    return load_file(folder / "1-0.safetensors"), [load_file(folder / f"2-{rank}.safetensors") for rank in (0, 1)]


@pytest.mark.parametrize("term", TERMS)
def test_value_and_gradients(measured, term):
    alone, gang = measured
    names = [name for name in alone if name.startswith(f"{term}.")]
    assert any(alone[name].abs().max() > 1e-3 for name in names if not name.endswith(".value"))
    for rank in gang:
        for name in names:
            torch.testing.assert_close(rank[name], alone[name], rtol=1e-9, atol=1e-9)


def test_signals_are_those_of_the_global_batch(measured):
    alone, gang = measured
    names = [name for name in alone if name.startswith("signals.")]
    assert alone["signals.candidates"] < 16, "the data repeat positives, so some candidates must be excluded"
    for rank in gang:
        for name in names:
            torch.testing.assert_close(rank[name], alone[name], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("split", ["validation", "test"])
def test_evaluation_is_equal_on_all_ranks(measured, split):
    alone, gang = measured
    names = {name for name in alone if name.startswith(f"{split}.")}
    assert f"{split}.flops" in names
    for rank in gang:
        for name in names:
            torch.testing.assert_close(rank[name], alone[name], rtol=1e-9, atol=1e-9)


def test_an_uneven_share_is_refused(measured):
    from trainables.context import Context
    from trainables.splade.config import Config
    from trainables.splade.recipe import build

    context = Context(seed=0, folder=Path(), device=torch.device("cpu"), world_size=3)
    with pytest.raises(ValueError, match="batch_size is 32, which 3 workers"):
        build(Config(), context)
