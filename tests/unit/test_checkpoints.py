"""Checkpoints are whole or not there, and only the newest attempt writes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from trainables.checkpoints import KEEP, Checkpoints, Foreign, StaleAttempt
from trainables.files import write_whole


def saved(folder: Path, *steps: int, attempt: int = 1) -> Checkpoints:
    checkpoints = Checkpoints(folder, attempt)
    checkpoints.claim()
    for step in steps:
        checkpoints.save(step, {"w": torch.full((3,), float(step))}, {"step": step})
    return checkpoints


def test_newest_is_found_and_old_ones_are_dropped(tmp_path) -> None:
    checkpoints = saved(tmp_path, 1, 2, 3, 20)
    assert checkpoints.newest() == 20
    tensors, meta = checkpoints.load(20)
    assert tensors["w"].tolist() == [20.0] * 3
    assert meta == {"step": 20}
    assert len(list(tmp_path.glob("step-*"))) == KEEP


@pytest.mark.parametrize("damage", ["cut", "flip", "lost", "no manifest", "half a manifest"])
def test_damaged_checkpoint_is_passed_over(tmp_path, damage) -> None:
    checkpoints = saved(tmp_path, 1, 2)
    newest = tmp_path / "step-00000002"
    tensors = newest / "tensors.safetensors"
    data = tensors.read_bytes()
    match damage:
        case "cut":
            tensors.write_bytes(data[:-1])
        case "flip":
            tensors.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        case "lost":
            tensors.unlink()
        case "no manifest":
            (newest / "manifest.json").unlink()
        case "half a manifest":
            (newest / "manifest.json").write_text('{"step": 2')
    assert checkpoints.newest() == 1


def test_older_attempt_is_refused_at_its_next_write(tmp_path) -> None:
    old = saved(tmp_path, 1, attempt=1)
    new = saved(tmp_path, attempt=2)
    with pytest.raises(StaleAttempt, match=r"attempt 1 .* superseded by attempt 2"):
        old.save(2, {"w": torch.zeros(1)}, {})
    with pytest.raises(StaleAttempt):
        old.finish({"state": "complete", "step": 2, "values": {}})
    with pytest.raises(StaleAttempt):
        Checkpoints(tmp_path, 1).claim()
    assert new.newest() == 1
    assert new.result() is None
    assert not list(tmp_path.glob(".*"))


def test_leftovers_of_a_killed_writer_are_cleared(tmp_path) -> None:
    saved(tmp_path, 1)
    (tmp_path / ".writing-1-step-00000002").mkdir()
    (tmp_path / ".result.json.1234").touch()
    saved(tmp_path, attempt=2)
    assert not list(tmp_path.glob(".*"))


def test_result_ends_the_replicate_and_frees_its_steps(tmp_path) -> None:
    checkpoints = saved(tmp_path, 1, 2)
    checkpoints.finish({"state": "complete", "step": 2, "values": {}})
    assert checkpoints.result() == {"state": "complete", "step": 2, "values": {}}
    assert checkpoints.newest() is None


def test_export_replaces_a_model_as_a_whole(tmp_path) -> None:
    checkpoints = saved(tmp_path)
    for text in ("one", "two"):
        checkpoints.export(lambda folder, text=text: (folder / "config.json").write_text(text))
    assert (tmp_path / "model" / "config.json").read_text() == "two"
    assert [p.name for p in (tmp_path / "model").iterdir()] == ["config.json"]


def test_write_text_leaves_nothing_beside(tmp_path) -> None:
    write_whole(tmp_path / "a.json", "1")
    write_whole(tmp_path / "a.json", "2")
    assert (tmp_path / "a.json").read_text() == "2"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize(
    ("theirs", "ours", "message"),
    [
        ("k-1", "k-2", "belongs to study k-1, and this run to study k-2"),
        ("k-1", None, "belongs to study k-1, and this run to no study"),
        (None, "k-2", "belongs to no study, and this run to study k-2"),
    ],
)
def test_what_another_study_has_written_is_refused(tmp_path, theirs, ours, message) -> None:
    """It was taken for this one's: nothing was trained, and its values came back."""
    written = Checkpoints(tmp_path, 1, theirs)
    written.claim()
    written.save(4, {"w": torch.zeros(1)}, {})
    assert written.newest() == 4
    with pytest.raises(Foreign, match=message):
        Checkpoints(tmp_path, 2, ours).newest()
    result = {"state": "complete", "step": 4, "values": {}}
    written.finish(result)
    assert written.result() == result
    with pytest.raises(Foreign, match=message):
        Checkpoints(tmp_path, 2, ours).result()
