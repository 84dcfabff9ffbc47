"""What a study computes in is the same in all of its trials, whatever card each one comes to."""

from __future__ import annotations

import pytest
import torch

from trainables.config import TrainerConfig
from trainables.encoders import in_precision
from trainables.faults import Fault, fault_of

CUDA = torch.device("cuda", 0)


def test_auto_becomes_what_the_study_computes_in() -> None:
    for fixed in ("float32", "bf16"):
        assert in_precision(TrainerConfig(), fixed, torch.device("cpu")).precision == fixed


def test_a_card_that_cannot_is_a_fault_of_its_machine(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla V100")
    assert in_precision(TrainerConfig(), "float32", CUDA).precision == "float32"
    with pytest.raises(RuntimeError, match=r"was computed in bf16, and so are all others.*Tesla V100") as refused:
        in_precision(TrainerConfig(), "bf16", CUDA)
    assert fault_of(refused.value) == Fault.NODE
