"""The import rules of docs/architecture.md: who may import what, and what stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from every_trainer import TRAINERS

from tests.imports import LIBRARIES, MAY_IMPORT, ROOT, circles, graph, layers, room, trespasses
from trainables import trainers

SOURCES = sorted([*(ROOT / "study").rglob("*.py"), *(ROOT / "trainables").rglob("*.py")])


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
    for library, modules in LIBRARIES.items():
        assert (library.lower() in names) == (where in modules), f"{library}, {where}"


CONFIGS = {name for name in graph(packages=["trainables"]) if name.endswith(".config")}


@pytest.mark.parametrize("name", sorted(CONFIGS | {f"{trainers.package_of(trainer)}.config" for trainer in TRAINERS}))
def test_config_modules_are_light(name: str) -> None:
    code = (
        f"import sys, {name}\n"
        "print(' '.join({'torch', 'ray', 'transformers', 'mlflow', 'optuna'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_no_circle() -> None:
    assert circles(graph()) == []


def test_rooms_import_only_what_they_may() -> None:
    everything = graph()
    assert {room(module) for module in everything} - {None} == set(MAY_IMPORT)
    assert trespasses(everything) == []
    forbidden = {
        "study.reporting.x": ["study.engine.x", "study.spec"],
        "study.engine.x": ["study.run", "study.ledger.x"],
    }
    assert trespasses({module: dict.fromkeys(names, frozenset()) for module, names in forbidden.items()}) == [
        "study.reporting.x imports study.engine.x",
        "study.engine.x imports study.run",
    ]


def test_circles_and_layers_of_imports_of_every_kind(tmp_path: Path) -> None:
    sources = {
        "__init__": "",
        "lowest": "import json",
        "one": "from some import lowest\nif TYPE_CHECKING:\n    from some.two import x",
        "two": "def x():\n    import some.three",
        "three": "from some.one import y",
        "top": "from some.two import x\nfrom some import lowest, three",
    }
    (tmp_path / "some").mkdir()
    for name, source in sources.items():
        (tmp_path / "some" / f"{name}.py").write_text(source)
    found = graph(tmp_path, ["some"])
    assert found["some.one"] == {"some.lowest": {"module"}, "some.two": {"typing"}}
    assert found["some.two"] == {"some.three": {"function"}}
    assert circles(found) == [["some.one", "some.three", "some.two"]]
    assert layers(found) == [["some", "some.lowest"], ["some.one", "some.three", "some.two"], ["some.top"]]


def test_mlflow_is_named_only_where_it_is_spoken_to() -> None:
    """In study/tracking and in what tells URIs apart; elsewhere in the help of an option alone."""
    named = {
        f"{where}: {line.strip()}"
        for path in SOURCES
        if (where := path.relative_to(ROOT).as_posix()).startswith("study/")
        if not where.startswith("study/tracking/") and where != "study/uris.py"
        for line in path.read_text().splitlines()
        if "mlflow" in line and not line.strip().startswith("help=")
    }
    assert named == set()
