"""README's example of own data, as it is printed, with a reader's own small files in a folder of the reader's."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.xdist_group("ray")
SMALL = "--set steps=4 --set evaluate_every=2 --set batch_size=8 --set threads=1 --workers-per-trial 2 --json"


def example() -> list[str]:
    """The words of the command under "Use your own model and data"."""
    section = (ROOT / "README.md").read_text().partition("## Use your own model and data")[2]
    (block,) = re.findall(r"\n\n((?: {4}.*\n)+)", section.partition("\n`--set`")[0])
    words = shlex.split(block.replace("\\\n", " "))
    assert words[:3] == ["python", "-m", "study.run"]
    return words[3:]


def own_files(folder: Path) -> None:
    """A model, pairs and a collection at the paths that the example names."""
    from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

    words = [a + b for a in ("ba", "ke", "li", "mo", "nu", "ra", "se", "ti") for b in ("da", "fe", "gi", "ho", "ju")]
    model = folder / "models" / "my-encoder"
    model.mkdir(parents=True)
    (model / "vocab.txt").write_text("\n".join(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words)) + "\n")
    BertTokenizerFast(str(model / "vocab.txt")).save_pretrained(model)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    BertForMaskedLM(BertConfig(vocab_size=5 + len(words), **sizes)).save_pretrained(model)

    source = random.Random(0)
    texts = [" ".join(source.choices(words, k=12)) for _ in range(90)]
    rows = {
        "pairs.jsonl": [{"query": text[:20], "answer": text} for text in texts[:60]],
        "my-beir-folder/corpus.jsonl": [{"_id": f"d{n}", "title": "", "text": t} for n, t in enumerate(texts[60:])],
        "my-beir-folder/queries.jsonl": [{"_id": f"q{n}", "text": t[8:28]} for n, t in enumerate(texts[60:])],
    }
    (folder / "data" / "my-beir-folder" / "qrels").mkdir(parents=True)
    for name, found in rows.items():
        (folder / "data" / name).write_text("".join(json.dumps(row) + "\n" for row in found))
    judged = "".join(f"q{n}\td{n}\t1\n" for n in range(30))
    (folder / "data" / "my-beir-folder" / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")


@pytest.mark.timeout(600)
def test_own_model_and_data_train_in_a_gang_and_may_move(tmp_path) -> None:
    """The workers of a gang run in folders of Ray's; the reader's paths are relative to the reader's."""
    own_files(tmp_path)

    def run(words: list[str]) -> dict:
        env = {k: v for k, v in os.environ.items() if k != "MLFLOW_TRACKING_URI"} | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-m", "study.run", *words, *shlex.split(SMALL)],
            cwd=tmp_path, env=env, capture_output=True, text=True, timeout=280, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout)

    first = run([*example(), "--trials", "1"])
    assert [(t["state"], t["steps"]) for t in first["trials"]] == [("complete", 4)]
    assert (tmp_path / "studies" / "medical" / "report.html").exists()

    (tmp_path / "archive").mkdir()
    for name in ("models", "data"):
        (tmp_path / name).rename(tmp_path / "archive" / name)
    words = [re.sub("=(models|data)/", r"=archive/\1/", word) for word in example()]
    second = run([*words, "--trials", "2"])
    assert [t["state"] for t in second["trials"]] == ["complete", "complete"]
    assert second["trials"][0] == first["trials"][0] | {"gpu_hours": second["trials"][0]["gpu_hours"]}
    # A parameter that changed its value would be refused by MLflow for ever.
    assert second["mlflow"]["pending"] == 0
