"""The card of an exported model, as people and the Hugging Face hub read it: FOLDER/README.md.

Its header and its order are those of sentence-transformers' cards. How to open the model is read from the files in its
folder, and what the recipe is from the docstring of its config, so that a new trainer has a card, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic_core import to_jsonable_python

from trainables import licences, overrides, paths, trainers
from trainables.places import EXAMPLES, MODEL, PAIRS, TEXTS
from trainables.training_record import FILE as RECORD
from trainables.training_record import TrainingRecord

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

    from trainables.config import TrainerConfig
    from trainables.report import Metric

FILE = "README.md"
ONNX = "onnx/model.onnx"
"""Where the graph is in a model's folder, as sentence-transformers' own ONNX backend looks for it."""
EXAMPLES_OF_USE = ("how do I open a file?", "with open(path) as file: return file.read()")
ALWAYS_SAID = ("backbone", "steps", "batch_size", "optimiser.lr")

Kind = Literal["SparseEncoder", "SentenceTransformer", "AutoModel"]
"""Classes that open a model: of sentence-transformers, or else of transformers."""


@dataclass(frozen=True)
class Interval:
    """95% confidence interval of a metric."""

    low: float
    high: float
    over: str
    """What the interval was computed over, such as `200 queries`."""


@dataclass(frozen=True)
class Section:
    """A part of the card that the caller writes, such as the answer of a study."""

    title: str
    text: str


def write(
    folder: Path,
    config: TrainerConfig,
    record: TrainingRecord,
    *,
    title: str | None = None,
    opening: Sequence[Section] = (),
    intervals: Mapping[str, Interval] | None = None,
) -> None:
    """Write the card of the model in `folder`, which `config` was trained with.

    `opening` comes before how it is used, `intervals` are those of the record's values, by their names.
    """
    name = title or _title(config, record)
    opened = _Opened(folder)
    parts = [
        f"---\n{_header(config, record, opened, name, intervals or {})}\n---",
        f"# {name}",
        _introduction(config, record, opened),
        *(f"## {section.title}\n\n{section.text}" for section in opening),
        f"## Usage\n\n{opened.usage()}",
        f"## Evaluation\n\n{_figures(record, _metrics(config, record), intervals or {})}",
        f"## Training\n\n{_training(config, record)}",
        f"## Train it again\n\n{_again(record)}",
        f"## Licence\n\n{_licences(config)}",
    ]
    (folder / FILE).write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def opened_by(folder: Path) -> Kind:
    """The class that opens the model in a folder."""
    return _Opened(folder).kind


class _Opened:
    """How a model's folder is opened, by the files that are in it."""

    def __init__(self, folder: Path) -> None:
        self.about = _json(folder / "config_sentence_transformers.json")
        self.lengths = _json(folder / "sentence_bert_config.json")
        self.onnx = (folder / ONNX).exists()
        self.sparse = self.about.get("model_type") == "SparseEncoder"
        self.kind: Kind = "SparseEncoder" if self.sparse else "SentenceTransformer" if self.lengths else "AutoModel"

    @property
    def tags(self) -> list[str]:
        if self.sparse:
            return ["sentence-transformers", "sparse-encoder", "sparse"]
        return ["sentence-transformers", "sentence-similarity", "feature-extraction"] if self.lengths else []

    @property
    def pipeline(self) -> str:
        return "sentence-similarity" if self.kind == "SentenceTransformer" else "feature-extraction"

    @property
    def package(self) -> str:
        return "sentence-transformers" if self.lengths else "transformers"

    def usage(self) -> str:
        if self.kind == "AutoModel":
            code = "from transformers import AutoModel, AutoTokenizer\n\n"
            code += 'model, tokenizer = AutoModel.from_pretrained("FOLDER"), AutoTokenizer.from_pretrained("FOLDER")'
            return f"```python\n{code}\n```"
        one, other = EXAMPLES_OF_USE
        longest = self.lengths.get("max_seq_length")
        prompts = self.about.get("prompts", {})
        lines = [f"from sentence_transformers import {self.kind}", "", f'model = {self.kind}("FOLDER")']
        if "query_length" in self.lengths or prompts.get("query") or prompts.get("document"):
            lines += [
                f'queries = model.encode_query(["{one}"])'
                f"  # cut to {self.lengths.get('query_length', longest)} tokens, as in training",
                f'documents = model.encode_document(["{other}"])'
                f"  # cut to {self.lengths.get('document_length', longest)}",
                "model.similarity(queries, documents)",
            ]
        else:
            lines += [
                f'vectors = model.encode(["{one}", "{other}"])  # cut to {longest} tokens, as in training',
                "model.similarity(vectors, vectors)",
            ]
        text = "```python\n" + "\n".join(lines) + "\n```"
        dims = self.about.get("matryoshka_dims")
        if dims:
            text += (
                f"\n\nThe first {', '.join(map(str, dims))} coordinates of a vector were trained to be vectors of "
                f'their own: `SentenceTransformer("FOLDER", truncate_dim={dims[0]})`.'
            )
        if self.about.get("default_prompt_name"):
            prompt = prompts[self.about["default_prompt_name"]]
            text += f"\n\n`encode` puts `{prompt}` before each text, as in training."
        if self.onnx:
            text += (
                f"\n\n`{ONNX}` is the transformer as ONNX: `input_ids` and `attention_mask` give what the last module "
                "pools."
            )
        return text


def _title(config: TrainerConfig, record: TrainingRecord) -> str:
    base = config.backbone if _on_hub(config) else Path(config.backbone).name
    return f"{base}, trained by {record.trainer or type(config).__name__}"


def _on_hub(config: TrainerConfig) -> bool:
    return config.backbone not in MODEL.keywords and MODEL.parts(config.backbone) is None


def _header(
    config: TrainerConfig, record: TrainingRecord, opened: _Opened, name: str, intervals: Mapping[str, Interval]
) -> str:
    from huggingface_hub import ModelCardData

    measured = list(_measured(record, _metrics(config, record), intervals, opened.sparse))
    data = ModelCardData(
        base_model=config.backbone if _on_hub(config) else None,
        datasets=_datasets(config) or None,
        eval_results=measured or None,
        library_name=opened.package,
        license="unknown",
        metrics=list(dict.fromkeys(result.metric_type for result in measured)) or None,
        model_name=name if measured else None,
        pipeline_tag=opened.pipeline,
        tags=[*opened.tags, *([record.trainer] if record.trainer else [])],
    )
    return str(data.to_yaml()).strip()


def _datasets(config: TrainerConfig) -> list[str]:
    """Names on the hub of the data sets that the model was trained with."""
    found = []
    for key, place in paths.places(config).items():
        value = paths.value_of(config, key)
        if place in (EXAMPLES, TEXTS, PAIRS) and isinstance(value, str) and value.startswith("datasets:"):
            name = value.split(":")[1]
            if place.parts(value) is None and "://" not in value:
                found.append(name)
    return list(dict.fromkeys(found))


def _metrics(config: TrainerConfig, record: TrainingRecord) -> dict[str, Metric]:
    """What the recipe says of the metrics that the record has."""
    if not record.trainer:
        return {}
    return dict(trainers.module(record.trainer, "config").metrics(config))


def _label(name: str, metrics: Mapping[str, Metric]) -> str:
    return metrics[name].label if name in metrics else name


def _measured(
    record: TrainingRecord, metrics: Mapping[str, Metric], intervals: Mapping[str, Interval], sparse: bool
) -> Iterator[EvalResult]:
    """What a `model-index` holds: the figures of the test split, or of validation where nothing else is known."""
    from huggingface_hub import EvalResult

    split = "test" if any(name.startswith("test.") for name in record.values) else "validation"
    for metric, value in _of_split(record, split).items():
        said = [part for name, part in metrics.items() if metric in (name, part.of)]
        graded = any(part.correlation for part in said)
        task = (
            "semantic-similarity" if graded else "sparse-information-retrieval" if sparse else "information-retrieval"
        )
        data = _data_of(record, split, graded)
        interval = intervals.get(f"test.{metric}" if split == "test" else metric)
        yield EvalResult(
            task_type=task,
            task_name=task.replace("-", " ").title(),
            dataset_type=re.sub(r"[^\w./-]+", "-", data).strip("-"),
            dataset_name=data,
            dataset_split=split,
            metric_type=metric,
            metric_name=_label(metric, metrics),
            metric_value=value,
            metric_args={"low_95": interval.low, "high_95": interval.high, "over": interval.over} if interval else None,
        )


def _data_of(record: TrainingRecord, split: str, graded: bool) -> str:
    """Name of what a split is measured on."""
    keys = [f"{split}.data"] if graded else [f"retrieval.{split}.collection", f"{split}.collection"]
    return next((str(record.facts[key]) for key in keys if key in record.facts), split)


def _of_split(record: TrainingRecord, split: str, before: str = "") -> dict[str, float]:
    """Metric -> value on one split; with `before` = `untrained.`, the values from before the first step."""
    prefix = before + ("test." if split == "test" else "")
    found = {name.removeprefix(prefix): v for name, v in record.values.items() if name.startswith(prefix)}
    return {name: value for name, value in found.items() if "." not in name}


def _introduction(config: TrainerConfig, record: TrainingRecord, opened: _Opened) -> str:
    said = " ".join((type(config).__doc__ or "").strip().partition("\n\n")[0].split())
    base = (
        f"[{config.backbone}](https://huggingface.co/{config.backbone})" if _on_hub(config) else f"`{config.backbone}`"
    )
    stage = f" It is the model at the end of the stage `{record.stage}`." if record.stage else ""
    vectors = "sparse vectors over its vocabulary" if opened.sparse else "vectors"
    trained = f"It was trained from {base} by the recipe `{record.trainer}`: {said}"
    return f"This model maps texts to {vectors}. {trained}{stage}"


def _figures(record: TrainingRecord, metrics: Mapping[str, Metric], intervals: Mapping[str, Interval]) -> str:
    test, validation = _of_split(record, "test"), _of_split(record, "validation")
    if not test and not validation:
        return "Nothing was measured at the end of this stage."
    before = _of_split(record, "test" if test else "validation", "untrained.")
    known = bool(intervals)
    head = ["metric", "test", *(["95% interval", "over"] if known else []), "validation", "before training"]
    rows = []
    for metric in test or validation:
        interval = intervals.get(f"test.{metric}")
        between = [f"{interval.low:.4g} to {interval.high:.4g}", interval.over] if interval else ["", ""]
        rows.append(
            [_label(metric, metrics), _number(test.get(metric)), *(between if known else []),
             _number(validation.get(metric)), _number(before.get(metric))]
        )  # fmt: skip
    text = _table(head, rows)
    if record.precision != "float32":
        text += f"\n\nForward passes were computed in {record.precision}; the weights are float32."
    if test:
        text += (
            "\n\nTest queries (or pairs) were scored once, at the end; whatever was decided was decided on validation. "
            "The last column is the model on the test split before its first step."
        )
    return text


def _training(config: TrainerConfig, record: TrainingRecord) -> str:
    data = []
    for key, identity in record.facts.items():
        if not key.endswith(".identity"):
            continue
        part = key.removesuffix(".identity")
        own = {name.removeprefix(f"{part}."): v for name, v in record.facts.items() if name.startswith(f"{part}.")}
        name = own.get("data", own.get("collection", ""))
        size = ", ".join(f"{v:,} {kind}" for kind, v in own.items() if isinstance(v, int) and "." not in kind)
        data.append([part, str(name), size, f"`{identity}`"])
    base = type(config)()
    keys = [key for key in overrides.keys(config) if key != "cache"]
    values = {key: paths.value_of(config, key) for key in keys}
    said = [key for key in keys if key in ALWAYS_SAID or values[key] != paths.value_of(base, key)]
    shown = to_jsonable_python({key: values[key] for key in said})
    settings = [[f"`{key}`", f"`{json.dumps(value)}`"] for key, value in shown.items()] + [["seed", str(record.seed)]]
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    workers = "1 worker" if record.workers == 1 else f"{record.workers} workers"
    return "\n\n".join(
        [
            _table(["data", "name", "size", "identity (sha256)"], data),
            f"Settings, as far as they are not the recipe's defaults; `{RECORD}` has all:",
            _table(["key", "value"], settings),
            f"{record.step:,} steps by {workers} ({record.device}), computed in {record.precision}; {versions}.",
        ]
    )


def _again(record: TrainingRecord) -> str:
    return (
        f"```bash\npython -m {trainers.package_of(record.trainer)} --from FOLDER\n```\n\n"
        f"trains it from what `{RECORD}` in this folder records: settings, seed, data by their identities. On the same "
        "machine with the same versions a CPU gives the same weights to the last bit. Data or backbones that lie "
        "elsewhere now are named with `--set`; other data than those are refused."
    )


def _licences(config: TrainerConfig) -> str:
    rows = [
        [f"`{key}`", f"`{value}`", licences.of(place, value)]
        for key, place in paths.places(config).items()
        if isinstance(value := paths.value_of(config, key), str) and key != "cache"
    ]
    return (
        "Whether and how this model may be used follows from the licences of what it was made of. What is known of "
        "them:\n\n" + _table(["key", "input", "licence"], rows)
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
