"""`python -m trainables.NAME`, as somebody with one GPU and no study uses it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_stop_checkpoints_and_the_same_command_carries_on(tmp_path, number) -> None:
    command = [sys.executable, "-m", "trainables.splade", "--folder", "run", *SMALL, "--set", "steps=60"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        next(line for line in process.stderr if re.search(r"step +[1-9]", line))
        process.send_signal(number)
        told = process.stderr.read()
        assert process.wait(60) == 130
    step = re.search(rf"stopped by {number.name} at step (\d+); the same command carries on\n$", told)
    assert step
    assert "Traceback" not in told
    assert (tmp_path / "run" / f"step-{int(step[1]):08d}" / "manifest.json").exists()
    again = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["state"] == "complete"
