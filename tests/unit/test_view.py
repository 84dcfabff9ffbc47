"""`summary.json` is written after every event of a small study, and seldom where it takes long."""

from __future__ import annotations

import errno
from types import SimpleNamespace

from study.ledger import view
from study.ledger.view import View


def test_a_large_view_takes_a_small_share_of_the_time(tmp_path, monkeypatch) -> None:
    now = 0.0

    def make():
        nonlocal now
        now += 0.4
        return SimpleNamespace(text=lambda: "{}")

    monkeypatch.setattr(view, "time", SimpleNamespace(monotonic=lambda: now))
    shown = View(tmp_path / "summary.json", lambda message: None)
    spent = 0.0
    for _ in range(50_000):
        now += 0.01
        if shown.due:
            shown.write(make)
            spent += 0.4
    assert spent / now <= 0.011
    assert spent >= 0.005 * now


def test_a_small_view_is_always_up_to_date(tmp_path) -> None:
    shown = View(tmp_path / "summary.json", lambda message: None)
    for text in ("1", "2", "3"):
        assert shown.due
        shown.write(lambda text=text: SimpleNamespace(text=lambda: text))
        assert (tmp_path / "summary.json").read_text() == text


def test_what_cannot_be_written_is_said_once(tmp_path, monkeypatch) -> None:
    said: list[str] = []
    shown = View(tmp_path / "summary.json", said.append)

    def full(path, text):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(view, "write_whole", full)
            for _ in range(3):
                shown.stale = True
                shown.write(lambda: SimpleNamespace(text=lambda: "{}"))
                assert shown.stale
        shown.write(lambda: SimpleNamespace(text=lambda: "{}"))
        assert not shown.stale
    assert len(said) == 2
    assert said[0].startswith("summary.json is not written just now: ")
