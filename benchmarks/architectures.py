"""Which masked-LM architectures the three recipes work with: `python -m benchmarks.architectures [NAME ...]`.

Every architecture that the installed transformers names, with small random weights and a tokenizer made on the fly,
goes through each recipe as a study would take it: looked at by the input check, trained, evaluated, exported and
opened again, where short and long texts must get the vectors that they had. Without names the table of
docs/inputs.md is written anew. An architecture works or is refused with a sentence; anything else is an error.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import traceback
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from trainables import check, loop, overrides, trainers
from trainables.config import TrainerConfig
from trainables.context import Context

RECIPES = ("splade", "angle", "retromae")
PAGE = Path(__file__).resolve().parents[1] / "docs" / "inputs.md"
BEGIN, END = "<!-- made by benchmarks/architectures.py -->", "<!-- end -->"

VOCABULARY = """
the a of to and in is for on with open file read line write text sort list parse json send mail plot count make tree
walk node find path join split word token model train loss step score rank query page index term
"""
WORDS = VOCABULARY.split()
TEXTS = [" ".join((WORDS * 4)[i : i + 4 + (7 * i) % 9]) for i in range(24)]
LONG = " ".join(WORDS[(i * i) % len(WORDS)] for i in range(200))
"""A text that is longer than any that the recipes take."""
QUERY, DOCUMENT, POSITIONS = 8, 24, 64

SHAPE: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16,
    "intermediate_size": 48, "max_position_embeddings": POSITIONS, "embedding_size": 32,
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
    "n_layers": 2, "n_heads": 2, "dim": 32, "hidden_dim": 48, "emb_dim": 32,
}  # fmt: skip
"""Values for whichever of these names a configuration has."""

TEXT = {key: SHAPE[key] for key in list(SHAPE)[:7]} | {
    "vocab_size": 64, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3,
}  # fmt: skip
IMAGES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 32,
}

SHAPES: dict[str, dict[str, Any]] = {
    "albert": {"embedding_size": 16},
    "convbert": {"conv_kernel_size": 3},
    "funnel": {"block_sizes": [1, 1], "num_decoder_layers": 1, "n_head": 2, "d_head": 16, "d_inner": 48},
    "longformer": {"attention_window": 16},
    "luke": {"entity_vocab_size": 10, "entity_emb_size": 16},
    "mobilebert": {"embedding_size": 16, "intra_bottleneck_size": 16, "true_hidden_size": 16},
    "modernvbert": {"text_config": {"model_type": "modernbert", **TEXT}, "vision_config": IMAGES},
    "neomme": {"embedding_rank": 16, "embedding_dim": 8, "layer_types": None, "per_layer_config": None},
    "perceiver": {
        "num_latents": 16, "num_self_attends_per_block": 2, "num_self_attention_heads": 2,
        "num_cross_attention_heads": 2,
    },
    "reformer": {
        "axial_pos_shape": [8, 8], "axial_pos_embds_dim": [16, 16], "attention_head_size": 16, "feed_forward_size": 48,
        "is_decoder": False, "attn_layers": ["local", "lsh"], "local_attn_chunk_length": 8, "lsh_attn_chunk_length": 8,
    },
    "rembert": {"input_embedding_size": 16, "output_embedding_size": 24},
    "roc_bert": {"pronunciation_embed_dim": 16, "shape_embed_dim": 16},
    "ultrabert": {"prediction_head_size": 24},
    "ultravbert": {
        "text_config": {"model_type": "ultrabert", **TEXT, "prediction_head_size": 24}, "vision_config": IMAGES,
    },
    "xmod": {"languages": ["en_XX"], "default_language": "en_XX"},
}  # fmt: skip
"""Architecture -> values that it needs beyond those of `SHAPE`, or instead of them; sizes stand to each other as in its
published models."""


def names() -> list[str]:
    """Names of all masked-LM architectures of the installed transformers."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    return sorted(MODEL_FOR_MASKED_LM_MAPPING_NAMES)


def tokenizer(first: tuple[str, ...]) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: place for place, token in enumerate([*first, *WORDS])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")]
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    return PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=POSITIONS, **special)


def make(name: str, folder: Path) -> None:
    """A checkpoint of the architecture with random weights."""
    from transformers import CONFIG_MAPPING, AutoModelForMaskedLM

    known = CONFIG_MAPPING[name]().to_dict()
    roberta = known.get("pad_token_id") == 1
    made = tokenizer(
        ("[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]") if roberta else ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    )
    ids = {"bos": made.cls_token_id, "eos": made.sep_token_id} | {
        part: getattr(made, f"{part}_token_id") for part in ("pad", "cls", "sep", "mask")
    }
    values = {key: value for key, value in SHAPE.items() if key in known}
    values |= {f"{part}_token_id": id for part, id in ids.items() if f"{part}_token_id" in known}
    values |= {"vocab_size": len(made) + 3, **SHAPES.get(name, {})}
    torch.manual_seed(0)
    model = AutoModelForMaskedLM.from_config(CONFIG_MAPPING[name](**values))
    model.save_pretrained(folder)
    made.save_pretrained(folder)


def settings(config: type[TrainerConfig], folder: Path) -> dict[str, Any]:
    """What a trainer's config needs to be tried, of the keys that it has, with small inputs in `folder`."""

    def lines(name: str, rows: list[dict[str, Any]]) -> str:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    texts = [*TEXTS, LONG]
    pairs = lines("pairs.jsonl", [{"query": t, "positive": " ".join(t.split()[::-1])} for t in texts])
    graded = lines(
        "graded.jsonl",
        [{"sentence1": a, "sentence2": b, "label": n % 6} for n, (a, b) in enumerate(pairwise(texts))],
    )
    lines("beir/corpus.jsonl", [{"_id": str(n), "title": "", "text": text} for n, text in enumerate(texts)])
    lines("beir/queries.jsonl", [{"_id": str(n), "text": text} for n, text in enumerate(texts)])
    (folder / "beir" / "qrels").mkdir()
    (folder / "beir" / "qrels" / "test.tsv").write_text("".join(f"{n}\t{n}\t1\n" for n in range(len(texts))))
    small = {
        "steps": 4, "batch_size": 4, "precision": "float32", "threads": 1, "collapse": False,
        "train.source": pairs, "evaluation.source": str(folder / "beir"), "evaluation.bm25": False,
        "query_length": QUERY, "document_length": DOCUMENT,
        "k": 2.0,
        "data.train": graded, "data.validation": graded, "data.test": graded, "dims": [8, 16], "length": DOCUMENT,
        "pretraining.text.source": lines("text.jsonl", [{"text": text} for text in texts]),
        "pretraining.batch_size": 4, "pretraining.max_length": DOCUMENT, "pretraining.share": 0.5,
    }  # fmt: skip
    known = overrides.keys(config)
    return {key: value for key, value in small.items() if key in known}


def attempt(recipe: str, asked: dict[str, Any], folder: Path) -> str | None:
    """None where the recipe works with these settings, else the sentence that it is refused with.

    Raises whatever else happens.
    """
    module = trainers.module(recipe, "recipe")
    config = overrides.apply(trainers.module(recipe, "config").Config(), asked)
    try:
        check.step(recipe, config)
    except ValueError as error:
        return " ".join(str(error).split())
    context = Context(seed=0, folder=folder, device=torch.device("cpu"))
    made: list[Any] = []

    def build(*arguments: Any) -> Any:
        made.append(module.build(*arguments))
        return made[0]

    outcome = loop.run(SimpleNamespace(build=build), config, context)
    if outcome.state != "complete":
        raise RuntimeError(f"the run has ended as {outcome.state}: {outcome.reason}")
    opened = module.Encoder.open(folder / "model", config, context.device)
    made[0].model.eval()
    with torch.inference_mode():
        for kind in ("queries", "documents"):
            ours, theirs = (getattr(encoder, kind)([TEXTS[0], LONG, TEXTS[3]]) for encoder in (made[0].encoder, opened))
            if not ours.isfinite().all():
                raise RuntimeError(f"vectors of {kind} are not finite")
            torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=1e-4)
    return None


def answer(recipe: str, name: str) -> str:
    """`works`, with a setting where it takes one, or `refused: ` and the sentence."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        make(name, folder / name)
        asked = settings(trainers.module(recipe, "config").Config, folder) | {"backbone": str(folder / name)}
        refused = attempt(recipe, asked, folder / "run")
        if refused is not None and "rescale is 'tied'" in refused:
            refused = attempt(recipe, asked | {"rescale": "untied"}, folder / "untied")
            if refused is None:
                return "works with `rescale=untied`"
        return "works" if refused is None else "refused: " + refused.replace(f"{folder}/", "")


def table(rows: dict[str, dict[str, str]]) -> str:
    """Markdown, with equal sentences once, below it."""
    import transformers

    sentences: dict[str, int] = {}
    lines = [
        f"Architectures that transformers {transformers.__version__} names for masked language modelling, with small "
        "random weights:",
        "",
        "| architecture | SPLADE | AnglE | RetroMAE |",
        "|---|---|---|---|",
    ]
    for name, row in rows.items():
        cells = []
        for found in (row[recipe] for recipe in RECIPES):
            kind, _, sentence = found.partition(": ")
            cells.append(f"refused ({sentences.setdefault(sentence, len(sentences) + 1)})" if sentence else kind)
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *(f"{number}. {sentence}" for sentence, number in sentences.items())])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.architectures", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="model types; without any, all of them")
    asked = parser.parse_args(arguments).names
    rows: dict[str, dict[str, str]] = {}
    broken = 0
    for name in asked or names():
        rows[name] = {}
        for recipe in RECIPES:
            try:
                rows[name][recipe] = answer(recipe, name)
            except Exception:
                broken += 1
                rows[name][recipe] = "neither works nor is refused"
                traceback.print_exc()
            print(f"{name:22} {recipe:9} {rows[name][recipe]}", flush=True)
    if not asked and not broken:
        page = PAGE.read_text()
        before, after = page[: page.index(BEGIN)], page[page.index(END) :]
        PAGE.write_text(f"{before}{BEGIN}\n{table(rows)}\n{after}")
    return min(broken, 1)


if __name__ == "__main__":
    sys.exit(main())
