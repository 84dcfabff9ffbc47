"""Backbones and tokenizers: loading them whole or not at all, turning texts into tokens, writing them back.

transformers is imported inside the functions: its modelling code takes seconds, and a config that is only
checked or planned needs none of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import torch

from trainables import gte, vocabulary
from trainables.config import TrainerConfig
from trainables.data.cut import cut
from trainables.evaluation.scoring import DENSE, Scorer
from trainables.faults import NodeFault
from trainables.places import MODEL, near_path

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from trainables.evaluation.retrieval import VectorStatistics

EMBEDDED = Path(__file__).parent / "embedded_encoder"
"""The encoder that ships with this package; the backbone `embedded`."""

ENCODE_ROWS = 64
"""Texts per forward pass of an evaluation."""

AnyConfig = TypeVar("AnyConfig", bound=TrainerConfig)
_TOKENIZER_FILES = ("tokenizer.json", "vocab*", "*.model", "*.spm", "*.bpe", "tokenizer*.py", "tokenization*.py")


@dataclass(frozen=True, slots=True)
class Tokens:
    """A padded batch; both tensors are (texts, longest text), int64, the mask 1 on tokens and 0 on padding."""

    ids: torch.Tensor
    mask: torch.Tensor


def load_masked_lm(
    backbone: str, *, trust_remote_code: bool = False
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The masked-LM model of a checkpoint in float32, and its tokenizer.

    `backbone` is `embedded`, a local folder in Hugging Face format or a hub name. ValueError where it does not
    open, or where any weight is missing from it, the masked-LM head first of all: transformers would fill the
    gap with random numbers and only log it. (Weights that the architecture ties to others may be absent.) So it is
    where the head cannot be found, and where the tokenizer is not this model's, see `vocabulary.check`. A checkpoint of
    the hub's architecture `new` opens as transformers' own `gte`, see `trainables.gte`, unless its own code is trusted.
    """
    from transformers import AutoModelForMaskedLM

    model, tokenizer = _load(AutoModelForMaskedLM, backbone, trust_remote_code, optional=())
    if not isinstance(getattr(model.get_output_embeddings(), "weight", None), torch.Tensor):
        raise ValueError(
            f"backbone {backbone!r}: {type(model).__name__} does not say which layer its logits come from "
            "(get_output_embeddings() gives none), so its masked-LM head cannot be used"
        )
    return model, tokenizer


def load_encoder(backbone: str, *, trust_remote_code: bool = False) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The encoder of a checkpoint without any head, otherwise as `load_masked_lm`.

    The pooler of BERT-like models may be missing: nothing here uses it.
    """
    from transformers import AutoModel

    return _load(AutoModel, backbone, trust_remote_code, optional=("pooler.",))


def _load(auto: Any, backbone: str, trust_remote_code: bool, optional: tuple[str, ...]) -> tuple[Any, Any]:
    from transformers import AutoTokenizer, PreTrainedConfig
    from transformers.utils import logging

    source = _locate(backbone)
    logging.disable_progress_bar()
    try:
        config, _ = PreTrainedConfig.get_config_dict(source)
        settings: dict[str, Any] = {"trust_remote_code": trust_remote_code}
        if gte.is_new(config) and not trust_remote_code:
            settings["config"] = gte.translated(config)
        tokenizer = AutoTokenizer.from_pretrained(source, **settings)
        model, info = auto.from_pretrained(source, **settings, dtype=torch.float32, output_loading_info=True)
    except MemoryError:
        raise
    except Exception as error:
        raise ValueError(_unopened(backbone, source, error, trust_remote_code)) from error
    missing = sorted(key for key in info["missing_keys"] if not key.startswith(optional or ("\0",)))
    if missing:
        raise ValueError(
            f"backbone {backbone!r} lacks weights that {type(model).__name__} needs: {', '.join(missing)}; "
            "they would be random. A checkpoint that was saved with them is needed"
            + (", that is with its masked-LM head" if hasattr(model, "get_output_embeddings") else "")
        )
    vocabulary.check(backbone, model, tokenizer)
    return model, tokenizer


def _unopened(backbone: str, source: str, error: Exception, trust_remote_code: bool) -> str:
    """Why a backbone does not open, in a sentence: its own code and the tokenizer's files can make transformers raise
    anything."""
    said = str(error) if isinstance(error, (OSError, ValueError, ImportError)) else f"{type(error).__name__}: {error}"
    sentence = f"backbone {backbone!r} {_not_opened(backbone)}: {said}"
    folder = Path(source)
    if folder.is_dir() and not any(True for pattern in _TOKENIZER_FILES for _ in folder.glob(pattern)):
        sentence = (
            f"backbone {backbone!r} has no tokenizer files; put those that it was trained with, such as "
            f"tokenizer.json, beside its weights (transformers says: {said})"
        )
    elif trust_remote_code and not isinstance(error, (OSError, ImportError)):
        import transformers

        sentence += f" (its own code may have been written for another transformers than {transformers.__version__})"
    return sentence


def _locate(backbone: str) -> str:
    """What transformers should open; ValueError for a path where no model is."""
    if backbone == "embedded":
        return str(EMBEDDED)
    try:
        MODEL.check(backbone)
    except ValueError as error:
        raise ValueError(f"backbone {error}") from None
    return backbone if MODEL.parts(backbone) is None else str(Path(backbone).expanduser())


def _not_opened(backbone: str) -> str:
    """The refusal of a backbone that does not open; for a hub name it adds that no folder has this name, because it may
    be a mistyped path."""
    if backbone in MODEL.keywords or MODEL.parts(backbone) is not None:
        return "does not open"
    near = near_path(Path.cwd() / backbone)
    return f"is no folder here{f' (nearest: {near[0]})' if near else ''}, and does not open as a name on the hub"


def longest_input(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """Tokens that the model takes at most, special tokens included."""
    positions = getattr(model.config, "max_position_embeddings", tokenizer.model_max_length)
    # RoBERTa counts positions from pad_token_id + 1, so that many rows of its table are never reached.
    table = next((m for name, m in model.named_modules() if name.endswith("position_embeddings")), None)
    if isinstance(table, torch.nn.Embedding) and table.padding_idx is not None:
        positions -= table.padding_idx + 1
    return min(positions, tokenizer.model_max_length)


def check_lengths(
    lengths: Mapping[str, int], backbone: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> None:
    """ValueError that names the key of a length, in tokens, beyond what `backbone` takes."""
    longest = longest_input(model, tokenizer)
    for key, length in lengths.items():
        if length > longest:
            raise ValueError(f"{key} is {length}, but backbone {backbone!r} takes at most {longest} tokens")


def tokenize(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], length: int, device: torch.device) -> Tokens:
    """Tokens of the texts, each cut to `length` tokens, special ones included, and padded to the longest."""
    encoded = tokenizer(
        cut(tokenizer, texts, length), truncation=True, max_length=length, padding=True, return_tensors="pt",
        return_token_type_ids=False,
    )  # fmt: skip
    return Tokens(
        encoded["input_ids"].to(device, non_blocking=True), encoded["attention_mask"].to(device, non_blocking=True)
    )


def autocast(precision: Literal["auto", "float32", "bf16"], device: torch.device) -> AbstractContextManager[Any]:
    """The context that an encoder's forward pass runs in.

    `auto` is bf16 on a GPU that computes in it and float32 elsewhere. ValueError where bf16 is asked of a GPU
    that has none.
    """
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=computed_in(precision, device) == "bf16")


def computed_in(precision: Literal["auto", "float32", "bf16"], device: torch.device) -> Literal["float32", "bf16"]:
    """The precision that forward passes have on `device`, with `auto` decided; ValueError where bf16 is asked of a GPU
    that has none."""
    able = device.type != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False)
    if precision == "bf16" and not able:
        name = torch.cuda.get_device_name(device)
        raise ValueError(f"precision is 'bf16', which {name} does not compute in; 'auto' and 'float32' work")
    return "bf16" if precision == "bf16" or (precision == "auto" and device.type == "cuda" and able) else "float32"


def in_precision(config: AnyConfig, auto: Literal["float32", "bf16"], device: torch.device) -> AnyConfig:
    """The trainer's config with `precision="auto"` replaced by what that stands for in all trials of the study.

    Raises NodeFault where `device` does not compute in that.
    """
    try:
        return config.model_copy(update={"precision": computed_in(auto, device)})
    except ValueError as error:
        raise NodeFault(f"the study's first trial was computed in {auto}, and so are all others: {error}") from error


def encode(
    model: Callable[[Tokens], Any],
    tokens: Callable[[Sequence[str]], Tokens],
    texts: Sequence[str],
    precision: Literal["auto", "float32", "bf16"],
    scorer: Scorer = DENSE,
) -> Any:
    """Vectors of all texts in their order, of the kind that `scorer` knows, by forward passes of `ENCODE_ROWS`
    texts."""
    parts = []
    for start in range(0, len(texts), ENCODE_ROWS):
        batch = tokens(texts[start : start + ENCODE_ROWS])
        with autocast(precision, batch.ids.device):
            parts.append(model(batch))
    return scorer.joined(parts)


@dataclass(frozen=True)
class TextEncoder:
    """Queries and documents as vectors of one model, each cut to a length of its own; see `recipe.Encoder`.

    A recipe's encoder adds `open`, and `vectors` where they are not what the model returns.
    """

    scorer: ClassVar[Scorer] = DENSE
    statistics: ClassVar[VectorStatistics | None] = None
    model: Any
    tokenizer: Any
    config: Any
    """The trainer's config, which has `query_length`, `document_length` and `precision`."""
    device: torch.device

    @property
    def settings(self) -> dict[str, Any]:
        config = self.config
        return {
            "query_length": config.query_length,
            "document_length": config.document_length,
            "precision": computed_in(config.precision, self.device),
        }

    def queries(self, texts: list[str]) -> Any:
        return self._encode(texts, self.config.query_length)

    def documents(self, texts: list[str]) -> Any:
        return self._encode(texts, self.config.document_length)

    def vectors(self, tokens: Tokens) -> Any:
        """Vectors of texts, of the kind that the scorer knows."""
        return self.model(tokens)

    def tokens(self, texts: Sequence[str], length: int) -> Tokens:
        return tokenize(self.tokenizer, texts, length, self.device)

    def _encode(self, texts: list[str], length: int) -> Any:
        return encode(self.vectors, lambda part: self.tokens(part, length), texts, self.config.precision, self.scorer)


def export(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write model and tokenizer in Hugging Face format, weights as safetensors; `backbone = <folder>` opens them
    again."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@dataclass(frozen=True, slots=True)
class Prefixes:
    """Texts that are put before queries, before documents, and before texts that are neither."""

    query: str
    document: str
    any: str


def export_pooling(
    folder: Path,
    *,
    size: int,
    lengths: dict[str, int],
    pooling: Literal["mean", "cls"],
    similarity: Literal["cosine", "dot"],
    normalise: bool = False,
    prefixes: Prefixes | None = None,
    dims: Sequence[int] = (),
) -> None:
    """Add to an exported encoder of `size` coordinates what `SentenceTransformer(folder)` reads.

    It cuts texts to as many tokens as `lengths` say, `max_seq_length` for all or `query_length` and `document_length`
    for either kind, puts `prefixes` before them, and gives the longest of `dims`, the prefixes of a vector that were
    trained, unless its caller says otherwise.
    """
    modes = {f"pooling_mode_{mode}": mode.startswith(pooling) for mode in ("mean_tokens", "cls_token")}
    about: dict[str, Any] = {"similarity_fn_name": similarity}
    if prefixes is not None:
        about["prompts"] = {"query": prefixes.query, "document": prefixes.document}
        if prefixes.any:
            about["prompts"]["sentence"] = prefixes.any
            about["default_prompt_name"] = "sentence"
    if dims:
        about["matryoshka_dims"] = list(dims)
        if dims[-1] < size:
            about["truncate_dim"] = dims[-1]
    modules = [
        ("sentence_transformers.models.Pooling", {"word_embedding_dimension": size, "include_prompt": True} | modes)
    ]
    if normalise:
        modules.append(("sentence_transformers.models.Normalize", {}))
    export_modules(folder, lengths, modules, about)


def export_modules(
    folder: Path, transformer: dict[str, Any], modules: list[tuple[str, dict[str, Any]]], about: dict[str, Any]
) -> None:
    """Add sentence-transformers' own files: the transformer in the folder itself, then (class, settings) of modules."""
    entries = [("sentence_transformers.models.Transformer", "")]
    for place, (kind, settings) in enumerate(modules, start=1):
        path = f"{place}_{kind.rpartition('.')[2]}"
        entries.append((kind, path))
        if settings:
            (folder / path).mkdir()
            _write_json(folder / path / "config.json", settings)
    _write_json(
        folder / "modules.json",
        [{"idx": place, "name": str(place), "path": path, "type": kind} for place, (kind, path) in enumerate(entries)],
    )
    _write_json(folder / "sentence_bert_config.json", {**transformer, "do_lower_case": False})
    _write_json(folder / "config_sentence_transformers.json", about)


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")
