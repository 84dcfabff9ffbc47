"""`python -m trainables.NAME`, as somebody with one GPU and no study uses it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from trainables import cli

ROOT = Path(__file__).resolve().parents[2]
CARRIED = ROOT / "tests" / "assets" / "carried"
SMALL = [
    word for value in (
        f"train.source={CARRIED / 'pairs.jsonl'}", f"evaluation.source={CARRIED / 'collection'}", "batch_size=4",
        "evaluation.bm25=false", "threads=1", "checkpoint_every=100", "evaluate_every=100",
    ) for word in ("--set", value)
]  # fmt: skip


def test_another_configuration_does_not_get_the_result_that_is_there(tmp_path, capsys) -> None:
    """It was answered with the old figures and exit code 0."""
    command = ["--folder", str(tmp_path / "run"), *SMALL, "--set", "steps=2"]
    assert cli.main("splade", command) == 0
    first = json.loads(capsys.readouterr().out)
    assert cli.main("splade", command) == 0
    assert json.loads(capsys.readouterr().out) == first
    for more, told in ((["--set", "k=64"], "k was 1.0, now 64.0"), (["--seed", "9"], "seed was 0, now 9")):
        assert cli.main("splade", [*command, *more]) == 2
        assert re.fullmatch(rf"error: --folder {tmp_path}/run: .*{told}.*another folder\n", capsys.readouterr().err)
    (tmp_path / "run" / "run.json").unlink()
    assert cli.main("splade", command) == 2
    assert "settings are not on record" in capsys.readouterr().err


def test_a_run_that_was_refused_is_begun_with_other_settings(tmp_path, capsys) -> None:
    command = ["--folder", str(tmp_path / "run"), *SMALL, "--set", "steps=1"]
    assert cli.main("splade", [*command, "--set", "train.positive=answer"]) == 2
    assert "no column 'answer'" in capsys.readouterr().err
    assert cli.main("splade", command) == 0


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Folder of a run of two steps, on data that may be moved."""
    folder = tmp_path_factory.mktemp("own")
    shutil.copy(CARRIED / "pairs.jsonl", folder / "pairs.jsonl")
    values = ["--set", f"train.source={folder / 'pairs.jsonl'}", "--set", "steps=2", "--seed", "5"]
    assert cli.main("splade", ["--folder", str(folder / "run"), *SMALL, *values]) == 0
    return folder


def test_a_model_is_trained_again_with_data_that_have_moved_and_with_no_other(run, tmp_path, refuses) -> None:
    """Its own folder says how; what it begins with is looked at before the first step."""
    command = ["--from", str(run / "run" / "model"), "--folder", str(tmp_path / "again")]
    moved = (run / "pairs.jsonl").rename(tmp_path / "moved.jsonl")
    main = partial(cli.main, "splade")
    refuses(main, command, "train.source", "nothing there")
    other = tmp_path / "other.jsonl"
    other.write_text("".join(moved.read_text().splitlines(keepends=True)[1:]))
    at_other = [*command, "--set", f"train.source={other}"]
    refuses(main, at_other, "data are not those", "train (pairs.jsonl) was", "--set KEY=PATH")
    refuses(main, [*command, "--set", "k=8"], "--set k", "as it was trained", "train.source")
    refuses(main, [*command, "--seed", "5"], "--seed 5", "the seed on record, 5")
    refuses(main, [*command[:2], "--folder", str(run / "run")], "name another folder")
    refuses(partial(cli.main, "angle"), command, "was trained by splade", "python -m trainables.splade")
    assert cli.main("splade", [*command, "--set", f"train.source={moved}"]) == 0
    assert (tmp_path / "again" / "model" / "model.safetensors").read_bytes() == (
        run / "run" / "model" / "model.safetensors"
    ).read_bytes()
    moved.rename(run / "pairs.jsonl")


def test_a_backbone_with_other_weights_is_refused(run, tmp_path, capsys) -> None:
    from trainables import encoders

    mlm, tokenizer = encoders.load_masked_lm("embedded")
    mlm.get_output_embeddings().bias.data += 1
    encoders.export(mlm, tokenizer, tmp_path / "backbone")
    command = ["--from", str(run / "run" / "model"), "--folder", str(tmp_path / "again")]
    command += ["--set", f"backbone={tmp_path / 'backbone'}"]
    assert cli.main("splade", command) == 2
    assert "gives other weights to begin with" in capsys.readouterr().err.splitlines()[-1]


def test_what_is_no_exported_model_is_not_trained_again(run, tmp_path, refuses) -> None:
    main = partial(cli.main, "splade")
    refuses(main, ["--from", str(tmp_path / "no")], f"{tmp_path}/no has no training.json", "no exported model")
    record = json.loads((run / "run" / "model" / "training.json").read_text())
    for content, told in (
        ("{", "is not a record of a training"),
        (json.dumps({"trainer": "splade"}), "is not a record of a training"),
        (json.dumps(record | {"config": record["config"] | {"kk": 1}}), "cannot train what is recorded there"),
    ):
        (tmp_path / "training.json").write_text(content)
        refuses(main, ["--from", str(tmp_path)], told)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_stop_checkpoints_and_the_same_command_carries_on(tmp_path, capsys, number) -> None:
    command = ["--folder", str(tmp_path / "run"), *SMALL, "--set", "steps=60"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    python = [sys.executable, "-m", "trainables.splade"]
    with subprocess.Popen([*python, *command], env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        next(line for line in process.stderr if re.search(r"step +[1-9]", line))
        process.send_signal(number)
        told = process.stderr.read()
        assert process.wait(60) == 130
    step = re.search(rf"stopped by {number.name} at step (\d+); the same command carries on\n$", told)
    assert step
    assert "Traceback" not in told
    assert (tmp_path / "run" / f"step-{int(step[1]):08d}" / "manifest.json").exists()
    assert cli.main("splade", command) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "complete"
