"""The trainers that contract tests hold for: those of `trainables/`, and the fixtures, each by its name."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TRAINERS = [
    *sorted(path.parent.name for path in (ROOT / "trainables").glob("*/recipe.py")),
    *sorted(f"tests.fixtures.{path.parent.name}" for path in (ROOT / "tests" / "fixtures").glob("*/recipe.py")),
]
