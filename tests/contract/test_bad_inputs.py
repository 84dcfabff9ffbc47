"""Data and models that cannot be used, made by damaging good ones: each is refused in one sentence that names it."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from every_trainer import TRAINERS

from trainables import check, overrides, trainers


def lines(rows: list[dict]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def beir(folder: Path) -> None:
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(lines([{"_id": f"d{n}", "title": "", "text": f"text {n}"} for n in range(9)]))
    (folder / "queries.jsonl").write_text(lines([{"_id": f"q{n}", "text": f"query {n}"} for n in range(9)]))
    judged = "".join(f"q{n}\td{n}\t1\n" for n in range(9))
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> Path:
    """Small inputs of every kind, and a model, all of them usable."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing
    from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("good")
    pairs = [{"query": f"query {n}", "positive": f"text {n}"} for n in range(40)]
    (folder / "pairs.jsonl").write_text(lines(pairs))
    (folder / "pairs.json").write_text(json.dumps(pairs))
    (folder / "pairs.tsv").write_text("query\tpositive\n" + "".join(f"query {n}\ttext {n}\n" for n in range(40)))
    (folder / "pairs.jsonl.gz").write_bytes(gzip.compress(lines(pairs).encode()))
    graded = [{"sentence1": f"one {n}", "sentence2": f"two {n}", "label": n % 6} for n in range(40)]
    (folder / "graded.jsonl").write_text(lines(graded))
    (folder / "texts.txt").write_text("\n\n".join(f"a text of some words {n}" for n in range(40)))
    (folder / "texts.jsonl").write_text(lines([{"text": f"a text of some words {n}"} for n in range(40)]))
    beir(folder / "beir")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "query", "text", "one", "two", "a", "of", "some", "words"]
    inner = Tokenizer(WordLevel({word: n for n, word in enumerate([*words, *map(str, range(40))])}, "[UNK]"))
    inner.pre_tokenizer = Whitespace()
    inner.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]",
    ).save_pretrained(folder / "model")  # fmt: skip
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    BertForMaskedLM(BertConfig(vocab_size=53, **sizes)).save_pretrained(folder / "model")
    return folder


USES = {
    "train.source": "pairs.jsonl", "evaluation.source": "beir", "pretraining.text.source": "texts.txt",
    **{f"data.{part}": "graded.jsonl" for part in ("train", "validation", "test")}, "dims": [8],
}  # fmt: skip
"""Inputs; a trainer takes those that its config has."""


@pytest.fixture
def inputs(good, tmp_path) -> Path:
    shutil.copytree(good, tmp_path, dirs_exist_ok=True)
    return tmp_path


def asked(folder: Path, recipe: str, **changes: object) -> object:
    config = trainers.module(recipe, "config").Config()
    uses = {key: value for key, value in USES.items() if key in overrides.keys(config)}
    given = {"backbone": "model"} | uses | {k.replace("__", "."): v for k, v in changes.items()}
    here = {key: str(folder / v) if isinstance(v, str) and (folder / v).exists() else v for key, v in given.items()}
    return overrides.apply(config, here)


def second_line(content: bytes) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        first, _, *rest = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join([first, content + b"\n", *rest]))

    return damage


def content(data: bytes) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.write_bytes(data)

    return damage


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def folder_instead(path: Path) -> None:
    path.unlink()
    path.mkdir()


def file_instead(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("a file")


def columns(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"query", b"q u").replace(b"sentence1", b"s 1").replace(b"text", b"t t"))


NOISE = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8

DAMAGES: dict[str, list[tuple[str, Callable[[Path], None], tuple[str, ...]]]] = {
    # end of a file's name -> what is done to it, what the sentence names besides the file
    ".jsonl": [
        ("half a line", second_line(b'{"query": "a", "sentence1": "b", "text": '), ("line 2", "not JSON")),
        ("a list", second_line(b"[1, 2]"), ("line 2",)),
        ("a number", second_line(b"7"), ("line 2",)),
        ("lists", second_line(b'{"query": [], "positive": [], "sentence1": [], "text": [], "_id": []}'), ("line 2",)),
        ("not UTF-8", second_line(b'{"query": "\xff\xfe"}'), ("line 2", "not UTF-8")),
        ("UTF-16", content('{"query": "a"}\n'.encode("utf-16")), ("line 1",)),
        ("empty", content(b""), ()),
        ("blank lines", content(b"\n \n\n"), ()),
        ("noise", content(NOISE), ("line 1",)),
        ("no column", columns, ("line 1", "no column")),
        ("a folder", folder_instead, ("a folder",)),
        ("missing", Path.unlink, ()),
    ],
    ".json": [
        ("half", cut, ("JSON",)), ("an object", content(b'{"query": "a"}'), ()), ("empty", content(b""), ()),
        ("a number", content(b"[1, 2]"), ()), ("noise", content(NOISE), ()), ("no column", columns, ("no column",)),
    ],
    ".tsv": [
        ("a cell too many", second_line(b"a\tb\tc\td"), ("line 2",)), ("a cell", second_line(b"a"), ("line 2",)),
        ("no column", columns, ("no column",)), ("empty", content(b""), ()), ("noise", content(NOISE), ()),
    ],
    ".gz": [
        ("half", cut, ("gzip",)), ("not packed", content(b'{"query": "a"}\n'), ("gzip",)), ("empty", content(b""), ()),
        ("noise", content(NOISE), ("gzip",)),
    ],
    ".txt": [
        ("empty", content(b""), ()), ("blank", content(b"\n \n"), ()), ("noise", content(NOISE), ("line 1",)),
        ("a folder", folder_instead, ()), ("missing", Path.unlink, ()),
    ],
}  # fmt: skip

FILES = [
    ("splade", "train.source", "pairs.jsonl"), ("splade", "train.source", "pairs.json"),
    ("splade", "train.source", "pairs.tsv"), ("splade", "train.source", "pairs.jsonl.gz"),
    ("retromae", "train.source", "pairs.jsonl"), ("retromae", "pretraining.text.source", "texts.txt"),
    ("retromae", "pretraining.text.source", "texts.jsonl"), ("angle", "data.train", "graded.jsonl"),
    ("angle", "data.test", "graded.jsonl"),
]  # fmt: skip


def data() -> Iterator[tuple]:
    for recipe, key, file in FILES:
        for what, damage, names in DAMAGES[Path(file).suffix]:
            yield pytest.param(recipe, {key: file}, file, damage, (file, *names), id=f"{recipe} {key}={file} {what}")
    for file, what, damage, names in COLLECTION:
        for recipe, key in (("splade", "evaluation.source"), ("angle", "retrieval.source")):
            parts = (Path(file).name, *names) if names else ("beir",)
            yield pytest.param(recipe, {key: "beir"}, f"beir/{file}", damage, parts, id=f"{recipe} {key} {file} {what}")


NO_COLUMNS = ("no column", "a folder")
COLLECTION = [
    *((f, *row) for f in ("corpus.jsonl", "queries.jsonl") for row in DAMAGES[".jsonl"] if row[0] not in NO_COLUMNS),
    ("corpus.jsonl", "a folder", folder_instead, ("no corpus.jsonl",)),
    ("queries.jsonl", "a folder", folder_instead, ("no queries.jsonl",)),
    ("corpus.jsonl", "an id twice", second_line(b'{"_id": "d0", "text": "b"}'), ("d0",)),
    ("corpus.jsonl", "no id", second_line(b'{"id": "d0", "text": "b"}'), ("line 2", "_id")),
    ("qrels/test.tsv", "empty", content(b""), ()),
    ("qrels/test.tsv", "a grade", second_line(b"q0\td0\thigh"), ("line 2", "high")),
    ("qrels/test.tsv", "a column", second_line(b"q0"), ("line 2",)),
    ("qrels/test.tsv", "noise", content(NOISE), ()),
    ("qrels/test.tsv", "missing", Path.unlink, ()),
    ("qrels/test.tsv", "a folder", folder_instead, ()),
    ("qrels/test.tsv", "strangers", content(b"query-id\tcorpus-id\tscore\nx\ty\t1\n"), ()),
]  # fmt: skip


def refused_inputs(capsys, refusal, recipe: str, config, names: tuple[str, ...]) -> None:
    code = check.main(recipe, config.model_dump_json())
    sentence = capsys.readouterr().out.splitlines()[-1]
    refusal(code, f"error: {sentence}", *names)


@pytest.mark.parametrize("recipe", TRAINERS)
def test_the_undamaged_inputs_are_accepted(inputs, capsys, recipe) -> None:
    assert check.main(recipe, asked(inputs, recipe).model_dump_json()) == 0, capsys.readouterr().out


@pytest.mark.parametrize(("recipe", "changes", "file", "damage", "names"), [*data()])
def test_data(inputs, capsys, refusal, recipe, changes, file, damage, names) -> None:
    config = asked(inputs, recipe, **changes)
    damage(inputs / file)
    refused_inputs(capsys, refusal, recipe, config, names)


MODEL = [
    *((name, what, damage) for name in ("config.json", "model.safetensors", "tokenizer.json") for what, damage in (
        ("empty", content(b"")), ("noise", content(NOISE)), ("half", cut), ("a folder", folder_instead),
        ("a list", content(b"[1]")))),
    ("config.json", "missing", Path.unlink), ("model.safetensors", "missing", Path.unlink),
    ("config.json", "unknown kind", content(b'{"model_type": "no-such-model"}')),
    ("config.json", "no kind", content(b"{}")),
    (".", "a file", file_instead),
]  # fmt: skip


@pytest.mark.parametrize("recipe", TRAINERS)
@pytest.mark.parametrize(("name", "what", "damage"), MODEL, ids=[f"{row[0]} {row[1]}" for row in MODEL])
def test_model(inputs, capsys, refusal, recipe, name, what, damage) -> None:
    config = asked(inputs, recipe)
    damage(inputs / "model" / name)
    refused_inputs(capsys, refusal, recipe, config, (str(inputs / "model"),))
