"""The import rules of docs/architecture.md: who may import what, and what stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted([*(ROOT / "study").rglob("*.py"), *(ROOT / "trainables").rglob("*.py")])

RAY = {
    "study/executor.py",
    "study/gang.py",
    "study/sharded.py",
    "study/job_server.py",
    "study/submit.py",
    "study/trial.py",
    "study/run.py",
    "study/private_names.py",
    "trainables/context.py",
}
OPTUNA = {"study/ledger.py", "study/sampling.py", "study/space.py", "study/stored.py", "study/variants.py"}
MLFLOW = {"study/tracking.py", "study/tracking_evaluation.py", "study/tracking_runs.py", "study/tracking_uri.py"}


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_layers(path: Path) -> None:
    where, names = str(path.relative_to(ROOT)), imported(path)
    if where.startswith("trainables/"):
        assert "study" not in names
    for package, allowed in (("ray", RAY), ("optuna", OPTUNA), ("mlflow", MLFLOW)):
        if package in names:
            assert where in allowed, f"{where} imports {package}"


@pytest.mark.parametrize("path", sorted((ROOT / "trainables").glob("*/config.py")), ids=lambda path: path.parent.name)
def test_config_modules_are_light(path: Path) -> None:
    code = (
        f"import sys, trainables.{path.parent.name}.config\n"
        "print(' '.join({'torch', 'ray', 'transformers', 'mlflow', 'optuna'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
