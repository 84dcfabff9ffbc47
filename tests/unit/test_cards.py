"""Which GPUs a plan sees, by a stand-in for nvidia-smi on PATH, and which ones a worker uses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from study import run
from study.engine.capacity import room
from study.planning import cards
from study.spec import Resources

SMI = """#!/bin/sh
echo "0, GPU-aaaa1111, NVIDIA H200"
echo "1, GPU-bbbb2222, NVIDIA L4"
"""


@pytest.fixture
def two_cards(tmp_path, monkeypatch) -> Path:
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(SMI)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return program


@pytest.mark.parametrize(
    ("hidden", "names"),
    [
        (None, ["NVIDIA H200", "NVIDIA L4"]),
        ("", []),
        ("1", ["NVIDIA L4"]),
        ("1,0", ["NVIDIA L4", "NVIDIA H200"]),
        ("GPU-bbbb", ["NVIDIA L4"]),
        ("0,-1,1", ["NVIDIA H200"]),
        ("7", []),
        ("NoDevFiles", []),
    ],
)
def test_cards_that_a_process_may_use(two_cards, monkeypatch, hidden, names) -> None:
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert cards.visible() == names


@pytest.mark.parametrize("broken", ["exit 9", "echo 'NVIDIA-SMI has failed'", None])
def test_without_nvidia_smi_the_driver_is_asked(two_cards, tmp_path, monkeypatch, broken) -> None:
    two_cards.write_text(f"#!/bin/sh\n{broken}\n")
    if broken is None:
        monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(cards, "DRIVER", tmp_path / "gpus")
    assert cards.visible() == []
    (tmp_path / "gpus" / "0000:01:00.0").mkdir(parents=True)
    (tmp_path / "gpus" / "0000:01:00.0" / "information").write_text("Model: \t NVIDIA L4\nGPU UUID: \t GPU-cccc\n")
    assert cards.visible() == ["NVIDIA L4"]


def test_a_plan_says_which_cards_it_sees(two_cards, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)

    def told(*arguments: str) -> str:
        assert run.main(["splade_k_search", "--dry-run", *arguments]) == 0
        return next((line for line in capsys.readouterr().out.splitlines() if line.startswith("GPUs  ")), "")

    assert told() == (
        "GPUs        2 visible here (NVIDIA H200, NVIDIA L4); trials train on the CPU: --resources gpus_per_worker=1 "
        "gives each worker one"
    )
    assert told("--resources", "gpus_per_worker=1").endswith("(NVIDIA H200, NVIDIA L4); a trial takes 1")
    assert "a trial takes 4: name a cluster" in told("--resources", "gpus_per_worker=2", "--workers-per-trial", "2")
    assert told("--address", "127.0.0.1:6379") == ""


def test_room_for_trials_with_and_without_gpus() -> None:
    node = {"Alive": True, "Resources": {"CPU": 16.0, "GPU": 2.0}}
    wanted = [Resources(), Resources(gpus_per_worker=1), Resources(gpus_per_worker=0.25), Resources(gpus_per_worker=4)]
    assert [room(one, [node]) for one in wanted] == [16, 2, 8, 0]
