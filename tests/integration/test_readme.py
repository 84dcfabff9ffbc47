"""Commands of README and the tutorial, as they are printed, on a reader's own small files in the reader's folder."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

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


@pytest.mark.chaos
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
    assert second["tracking"]["pending"] == 0


def printed(page: str, start: str) -> list[str]:
    """The words of the only command of a page that begins so and is no plan."""
    text = (ROOT / page).read_text().replace("\\\n", " ")
    (found,) = (line for line in text.splitlines() if line.startswith(f"    {start}") and "--dry-run" not in line)
    return shlex.split(found)


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_the_tutorial_confirms_evaluates_and_shows(tmp_path) -> None:
    """The study file and the commands of the tutorial from its fifth step on, as they are printed."""
    own_files(tmp_path)
    for name in ("collection", "other-collection"):
        shutil.copytree(tmp_path / "data" / "my-beir-folder", tmp_path / "data" / name)
    page = (ROOT / "docs" / "tutorial.md").read_text()
    (content,) = re.findall(r"<!-- file: confirm_k\.py -->\n```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "confirm_k.py").write_text(content)
    env = {k: v for k, v in os.environ.items() if k != "MLFLOW_TRACKING_URI"} | {"PYTHONPATH": str(ROOT)}

    def run(words: list[str], *more: str) -> str:
        assert words[0] == "python"
        done = subprocess.run(
            [sys.executable, *words[1:], *more],
            cwd=tmp_path, env=env, capture_output=True, text=True, timeout=280, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    small = shlex.split("--set steps=2 --set batch_size=4 --set threads=1 --trials 2 --json")
    summary = json.loads(run(printed("docs/tutorial.md", "python -m study.run confirm_k.py"), *small))
    assert [(t["state"], len(t["replicates"])) for t in summary["trials"]] == [("complete", 3)] * 2
    run(printed("docs/tutorial.md", "python -m study.evaluate"), "--workers", "1")
    assert (tmp_path / "studies" / "medical-confirmed" / "evaluation" / "other-collection.md").exists()
    run(printed("docs/tutorial.md", "python -m study.export"))
    again = json.loads(run(printed("docs/tutorial.md", "python -m trainables.splade --from")))
    best = summary["trials"][summary["best"][0]]["replicates"][0]
    assert again["values"] == pytest.approx(best["values"])

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = printed("docs/tutorial.md", "mlflow ui")
    server = subprocess.Popen(
        [Path(sys.executable).with_name("mlflow"), *words[1:], "--port", str(port)],
        cwd=tmp_path, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        assert "MLflow" in page_at(f"http://127.0.0.1:{port}/", patience_s=90)
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)


def page_at(address: str, patience_s: float) -> str:
    """What a server answers once it does."""
    ends = time.monotonic() + patience_s
    while True:
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:
                return answer.read().decode()
        except OSError:
            if time.monotonic() > ends:
                raise
            time.sleep(0.3)


def test_an_activated_shell_has_the_commands() -> None:
    if not (ROOT / ".venv" / "bin" / "activate").exists():
        pytest.skip("no .venv in the project's folder: `make` makes it")
    done = subprocess.run(
        ["bash", "-c", "source .venv/bin/activate && python -m study.run --list"],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "splade_k_search" in done.stdout
