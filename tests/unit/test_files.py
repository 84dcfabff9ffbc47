"""A file is there as a whole or not at all, whoever writes it and whatever happens meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainables.files import remove_asides, replacing, write_whole


def test_what_was_there_stays_until_the_end(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_whole(path, "old ü")
    with replacing(path) as aside:
        aside.write_text("new")
        assert path.read_bytes() == "old ü".encode()
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_the_old_file_alone(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "summary.json"
    write_whole(path, b"old")

    def fail() -> None:
        with replacing(path) as aside:
            aside.write_text("ne")
            raise error

    with pytest.raises(type(error)):
        fail()
    assert {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)} == {path.name: b"old"}


def test_two_writers_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    with replacing(path) as one:
        one.write_text("one")
        with replacing(path) as other:
            other.write_text("other")
        assert path.read_text() == "other"
    assert path.read_text() == "one"


def test_what_killed_writers_left_is_removed(tmp_path: Path) -> None:
    left = [tmp_path / ".summary.json.1234", tmp_path / ".summary.json.0a1b2c3d"]
    others = [tmp_path / "summary.json", tmp_path / ".study.json.1234"]
    for path in (*left, *others):
        path.touch()
    remove_asides(tmp_path / "summary.json")
    assert sorted(tmp_path.iterdir()) == sorted(others)


def test_a_file_is_as_readable_as_any(tmp_path: Path) -> None:
    """Several users share a cache."""
    (tmp_path / "plain").touch()
    write_whole(tmp_path / "whole", "")
    assert (tmp_path / "whole").stat().st_mode == (tmp_path / "plain").stat().st_mode
