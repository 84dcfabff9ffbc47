"""Trainers by name: packages of `trainables/`, and packages of a user's own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trainables import trainers


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Packages of the user's own: `ours_of_test.late` and one that lacks a module it needs."""
    for name, text in (("late", "VALUE = 1\n"), ("broken", "import no_such_package_anywhere\n")):
        folder = tmp_path / "ours_of_test" / name
        folder.mkdir(parents=True)
        (folder / "config.py").write_text(text)
        (folder / "recipe.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "ours_of_test"
    for module in [name for name in sys.modules if name.startswith("ours_of_test")]:
        del sys.modules[module]


def test_a_bare_name_is_a_package_of_trainables() -> None:
    assert trainers.module("splade", "config").__name__ == "trainables.splade.config"
    assert trainers.folder_of("splade") == Path(trainers.__file__).parent / "splade"


def test_a_dotted_name_is_any_package(own) -> None:
    assert trainers.module("ours_of_test.late", "recipe").VALUE == 1
    assert trainers.folder_of("ours_of_test.late") == own / "late"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("spade", "trainer 'spade': there is no module trainables.spade.config; did you mean 'splade'?"),
        ("zzz", "trainer 'zzz': there is no module trainables.zzz.config; there are angle, retromae, splade, and the "
         "dotted name of a package of your own is accepted too"),
        ("ours_of_test.lat", "trainer 'ours_of_test.lat': there is no module ours_of_test.lat.config; did you mean "
         "'ours_of_test.late'?"),
        ("nowhere.late", "trainer 'nowhere.late': there is no module nowhere.late.config in the current folder, on "
         "PYTHONPATH or installed"),
        ("json.late", "trainer 'json.late': there is no module json.late.config in the current folder, on PYTHONPATH "
         "or installed"),
        ("my/late", "trainer 'my/late': accepted are the name of a package of trainables/ and the dotted name of a "
         "package of your own"),
        ("", "trainer '': accepted are the name of a package of trainables/ and the dotted name of a package of your "
         "own"),
    ],
)  # fmt: skip
def test_an_unknown_name_is_one_sentence_with_what_was_looked_for(own, name, sentence) -> None:
    with pytest.raises(ValueError, match=r"^trainer") as refused:
        trainers.module(name, "config")
    assert str(refused.value) == sentence


def test_what_a_trainer_that_is_there_lacks_is_its_own_error(own) -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_package_anywhere"):
        trainers.module("ours_of_test.broken", "config")
