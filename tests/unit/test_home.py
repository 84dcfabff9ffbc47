"""Whoever has no home that can be written gets one."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

import pytest

from study import home


@pytest.fixture
def temporary(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    # Set first, so that what `provide` sets is taken back.
    for name in ("HOME", "USER", "HF_HOME", "IR_DATASETS_HOME"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return tmp_path


def nobody(monkeypatch) -> None:
    def unknown(number):
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.setattr("pwd.getpwuid", unknown)


def test_a_home_that_can_be_written_is_left_alone(temporary, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(temporary))
    home.provide()
    assert os.environ["HOME"] == str(temporary)
    assert "HF_HOME" not in os.environ
    assert list(temporary.iterdir()) == []


def test_an_unknown_user_without_a_home(temporary, monkeypatch) -> None:
    nobody(monkeypatch)
    for name in ("LOGNAME", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    for _ in range(2):
        home.provide()
        assert Path.home() == temporary / f"study-home-{os.getuid()}"
    assert Path.home().stat().st_mode & 0o777 == 0o700
    assert getpass.getuser() == f"uid-{os.getuid()}"


@pytest.mark.parametrize("place", ["/dev/null/home", "/nonexistent"])
def test_a_home_that_is_missing_or_read_only(temporary, monkeypatch, place) -> None:
    monkeypatch.setenv("HOME", place)
    home.provide()
    assert Path.home() == temporary / f"study-home-{os.getuid()}"


def test_what_a_read_only_home_has_is_still_read(temporary, monkeypatch) -> None:
    (temporary / "mine" / ".cache" / "huggingface").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(temporary / "mine"))
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    home.provide()
    assert os.environ["HF_HOME"] == str(temporary / "mine" / ".cache" / "huggingface")
    assert "IR_DATASETS_HOME" not in os.environ


def test_a_folder_of_somebody_else_is_not_taken(temporary, monkeypatch) -> None:
    nobody(monkeypatch)
    (temporary / "study-home-12345").mkdir()
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    home.provide()
    assert Path.home().parent == temporary
    assert Path.home().name not in ("study-home-12345", "")


def test_nowhere_to_write_at_all(temporary, monkeypatch) -> None:
    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.setattr("tempfile.gettempdir", lambda: "/dev/null")
    with pytest.raises(ValueError, match=r"HOME=/nonexistent: cannot be written, .* that can be with HOME or TMPDIR"):
        home.provide()
