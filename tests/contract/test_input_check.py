"""What the input check finds before any trial starts: tokenizers that fit neither model nor texts, and whatever a
library raises on the longest and the strangest texts, in one sentence.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from every_trainer import TRAINERS

from benchmarks import architectures
from trainables import check, encoders, overrides, trainers, vocabulary
from trainables.data import local

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data"
KANJI = "草地の上で牛と男性が立っています"


def config(trainer: str, folder: Path, **values):
    made = trainers.module(trainer, "config").Config()
    return overrides.apply(made, architectures.settings(type(made), folder) | values)


def checked(trainer: str, made, capsys, changes=({},)) -> tuple[int, str]:
    """(exit code, last line)."""
    code = check.main(trainer, made.model_dump_json(), json.dumps(list(changes)))
    return code, capsys.readouterr().out.splitlines()[-1]


@pytest.fixture
def backbone(tmp_path):
    def make(name: str = "bert") -> Path:
        architectures.make(name, tmp_path / name)
        return tmp_path / name

    return make


def recipe_class(trainer: str) -> type:
    module = trainers.module(trainer, "recipe")
    (found,) = (
        one for name, one in vars(module).items() if name.endswith("Recipe") and one.__module__ == module.__name__
    )
    return found


def edit(path: Path, **changes) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_step_of_every_stage_and_an_evaluation_are_made(trainer, tmp_path, backbone, capsys, monkeypatch) -> None:
    kind = recipe_class(trainer)
    seen: list[str] = []

    def noted(name):
        method = getattr(kind, name)

        def call(self, *arguments):
            seen.append(name)
            return method(self, *arguments)

        return call

    for name in ("loss", "evaluate"):
        monkeypatch.setattr(kind, name, noted(name))
    made = config(trainer, tmp_path, backbone=str(backbone()))
    code, last = checked(trainer, made, capsys)
    assert code == 0, last
    assert json.loads(last)["notes"] == []
    assert seen == ["loss"] * len(made.stages) + ["evaluate"]


@pytest.mark.parametrize("trainer", TRAINERS)
def test_every_backbone_that_trials_will_take_is_tried(trainer, tmp_path, backbone, capsys) -> None:
    good, bad = backbone("bert"), backbone("roberta")
    (bad / "tokenizer.json").unlink()
    made = config(trainer, tmp_path, backbone=str(good))
    changes = [{"backbone": str(good)}, {"backbone": str(bad)}]
    code, last = checked(trainer, made, capsys, changes)
    assert code == 2
    assert str(bad) in last


@pytest.mark.parametrize("trainer", TRAINERS)
def test_what_a_library_raises_is_one_sentence_that_names_the_input(
    trainer, tmp_path, backbone, capsys, monkeypatch
) -> None:
    def broken(self, *_):
        raise RuntimeError("index out of\nrange in self")

    monkeypatch.setattr(recipe_class(trainer), "evaluate", broken)
    code, last = checked(trainer, config(trainer, tmp_path, backbone=str(backbone())), capsys)
    assert code == 2
    assert last.endswith("RuntimeError: index out of range in self")
    assert f"backbone {str(tmp_path / 'bert')!r} cannot take the longest and the strangest texts of" in last
    assert "graded.jsonl" in last or "pairs.jsonl, beir" in last


def test_changes_that_differ_in_real_numbers_only_are_tried_once(tmp_path) -> None:
    made = config("splade", tmp_path)
    changes = [
        {"k": 1.0},
        {"k": 2.0},
        {"k": 4.0, "backbone": "a"},
        {"rescale": "untied"},
        {"backbone": "a", "steps": 9},
    ]
    assert check.distinct(made, changes) == [{"k": 1.0}, {"rescale": "untied"}, {"k": 4.0, "backbone": "a"}]


# The tokenizer.


@pytest.mark.parametrize("name", [
    "albert", "bart", "bert", "deberta", "deberta-v2", "distilbert", "electra", "eurobert", "modernbert", "mpnet",
    "reformer", "roberta", "xlm-roberta",
])  # fmt: skip
@pytest.mark.parametrize("load", [encoders.load_masked_lm, encoders.load_encoder])
def test_a_checkpoint_without_tokenizer_files_is_refused(name, load, backbone) -> None:
    folder = backbone(name)
    for path in folder.iterdir():
        if path.name not in ("config.json", "model.safetensors"):
            path.unlink()
    with pytest.raises(ValueError, match=r"has no (vocabulary|tokenizer files).*such as tokenizer\.json"):
        load(str(folder))


@pytest.mark.parametrize("load", [encoders.load_masked_lm, encoders.load_encoder])
def test_more_tokens_than_embeddings_are_refused(load, backbone) -> None:
    folder = backbone()
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.add_tokens(["one", "two", "three"]) == 3
    tokenizer.save_pretrained(folder)
    load(str(folder))  # as many as there are embeddings
    tokenizer.add_tokens(["four"])
    tokenizer.save_pretrained(folder)
    with pytest.raises(
        ValueError, match=r"has embeddings for \d+ tokens, but its tokenizer gives numbers up to \d+ \('four'\)"
    ):
        load(str(folder))


@pytest.mark.parametrize("load", [encoders.load_masked_lm, encoders.load_encoder])
def test_a_tokenizer_without_padding_is_refused(load, backbone) -> None:
    folder = backbone()
    edit(folder / "tokenizer_config.json", pad_token=None)
    with pytest.raises(ValueError, match=r"a tokenizer without a padding token.*pad_token in its tokenizer_config"):
        load(str(folder))


def lines(path: Path, rows: list[dict]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.parametrize(("unknown", "code"), [(0, 0), (3, 0), (9, 2)])
def test_texts_of_another_language_are_said_or_refused(unknown, code, tmp_path, backbone, capsys) -> None:
    """Of each text's ten words so many are in a script that the vocabulary lacks."""
    words = ["sort", "list", "open", "file", "read"] * 2
    text = " ".join([*["草"] * unknown, *words[unknown:]])
    rows = [{"query": f"{text} {word}", "positive": f"{word} {text}"} for word in architectures.WORDS]
    made = config("splade", tmp_path, backbone=str(backbone()), **{"train.source": lines(tmp_path / "own.jsonl", rows)})
    found, last = checked("splade", made, capsys)
    assert found == code
    share = f"{unknown / 11:.0%} of the tokens of own.jsonl are unknown to the tokenizer of backbone"
    notes = [last] if code else json.loads(last)["notes"]
    assert code or json.loads(last)["facts"].get("data.notes", "") == "; ".join(notes), "the report shows them too"
    assert [share in note and "'草'" in note for note in notes] == [True] * (unknown > 0)


def test_japanese_read_with_an_english_vocabulary_is_said() -> None:
    folder = SHARED / "models" / "splade-tiny"
    if not folder.is_dir():
        pytest.skip(f"needs {folder}, which is not here")
    _, tokenizer = encoders.load_masked_lm(str(folder))
    (said,) = vocabulary.remarks("splade-tiny", tokenizer, {"JSTS": [KANJI] * 5, "English": ["cows on grass"] * 5})
    assert "of the tokens of JSTS are unknown to the tokenizer of backbone 'splade-tiny' (such as '草'" in said


def test_a_text_that_the_tokenizer_cannot_read_is_quoted(backbone) -> None:
    _, tokenizer = encoders.load_encoder(str(backbone()))
    with pytest.raises(ValueError, match=r"cannot read the text 'broken \\ud83d emoji': TypeError"):
        vocabulary.unknown(tokenizer, ["fine", "broken \ud83d emoji"])


def test_the_first_state_is_no_embedding_where_texts_begin_with_a_word(tmp_path, backbone, capsys) -> None:
    folder = backbone()
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer | {"post_processor": None}))
    for trainer, more in (("angle", {"pooling": "cls"}), ("retromae", {})):
        found, last = checked(trainer, config(trainer, tmp_path / trainer, backbone=str(folder), **more), capsys)
        assert found == 2
        assert f"backbone {str(folder)!r} does not begin its texts with a special token" in last
    assert checked("angle", config("angle", tmp_path / "mean", backbone=str(folder)), capsys)[0] == 0


# Code of a checkpoint's own.

HEAD = """
from transformers import BertConfig, BertForMaskedLM, BertModel

class OwnConfig(BertConfig):
    model_type = "own"
"""
CODE = {
    "a package": (HEAD + "import no_such_package_anywhere\nclass Own(BertForMaskedLM):\n    config_class = OwnConfig\n",
                  "no_such_package_anywhere"),
    "a list of tied weights": (
        HEAD + "class Own(BertForMaskedLM):\n    config_class = OwnConfig\n"
        "    _tied_weights_keys = ['cls.predictions.decoder.weight']\n",
        "written for another transformers than"),
    "no output embeddings": (
        HEAD + "class Own(BertForMaskedLM):\n    config_class = OwnConfig\n"
        "    def get_output_embeddings(self):\n        return None\n",
        "does not say which layer its logits come from"),
}  # fmt: skip


@pytest.mark.parametrize("what", CODE)
def test_code_of_its_own_that_does_not_run_here_is_refused(what, tmp_path, backbone, capsys, monkeypatch) -> None:
    from transformers import dynamic_module_utils

    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder = backbone()
    code, sentence = CODE[what]
    (folder / "own.py").write_text(code)
    edit(
        folder / "config.json",
        model_type="own",
        architectures=["Own"],
        auto_map={"AutoConfig": "own.OwnConfig", "AutoModelForMaskedLM": "own.Own"},
    )
    for trainer in ("splade", "retromae"):
        made = config(trainer, tmp_path / trainer, backbone=str(folder), trust_remote_code=True)
        found, last = checked(trainer, made, capsys)
        assert found == 2
        assert last.startswith(f"backbone {str(folder)!r}")
        assert sentence in last
        assert "Traceback" not in last


def test_one_backbone_is_in_memory_at_a_time(tmp_path, backbone, capsys, monkeypatch) -> None:
    import gc

    alive: list[int] = []
    load = encoders._load

    def counted(*arguments, **options):
        gc.collect()
        alive.append(sum(isinstance(thing, torch.nn.Module) and hasattr(thing, "mlm") for thing in gc.get_objects()))
        return load(*arguments, **options)

    monkeypatch.setattr(encoders, "_load", counted)
    made = config("splade", tmp_path, backbone=str(backbone()))
    before = sum(isinstance(thing, torch.nn.Module) and hasattr(thing, "mlm") for thing in gc.get_objects())
    code, _ = checked("splade", made, capsys, [{}, {"backbone": str(backbone("distilbert"))}])
    assert code == 0
    assert alive == [before, before]


def test_data_are_read_once_whatever_the_number_of_models(tmp_path, backbone, capsys, monkeypatch) -> None:
    read: list[str] = []
    real = local.read_examples, local.read_beir
    monkeypatch.setattr(local, "read_examples", lambda *a: (read.append("examples"), real[0](*a))[1])
    monkeypatch.setattr(local, "read_beir", lambda *a: (read.append("collection"), real[1](*a))[1])
    made = config("splade", tmp_path, backbone=str(backbone()))
    code, _ = checked("splade", made, capsys, [{}, {"backbone": str(backbone("distilbert"))}])
    assert code == 0
    assert read == ["examples", "collection"]
