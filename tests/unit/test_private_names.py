"""Private names of Ray and Optuna are where they were, and in one module of ours."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from study import private_names
from study.private_names import NAMES, Private

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted([*(ROOT / "study").rglob("*.py"), *(ROOT / "trainables").rglob("*.py")])


OWN = set(re.findall(r"\b(?:def |self\.|class )(_[a-z]\w+)", "".join(path.read_text() for path in SOURCES)))
"""Private names of ours."""


def found(name: Private) -> Any:
    """What the name stands for; of an attribute of instances, its field or the constructor that sets it."""
    thing = importlib.import_module(name.module)
    for part in name.path.split("."):
        if part in getattr(thing, "__dataclass_fields__", {}):
            thing = thing.__dataclass_fields__[part]
        elif not hasattr(thing, part) and inspect.isclass(thing) and f"self.{part} = " in inspect.getsource(thing):
            thing = thing.__init__
        else:
            thing = getattr(thing, part)
    return thing


def broken(name: Private) -> str | None:
    """What is not as it was, and what that breaks."""
    needed = f"which {name.module}:{name.path} is needed for"
    try:
        thing = found(name)
    except (ImportError, AttributeError) as error:
        return f"{name.purpose}, {needed}: it is gone ({error})"
    missing = set(name.parameters) - set(inspect.signature(thing).parameters) if name.parameters else set()
    return f"{name.purpose}, {needed}: it takes no {', '.join(sorted(missing))} any more" if missing else None


@pytest.mark.parametrize("name", NAMES, ids=lambda name: f"{name.module}:{name.path}")
def test_it_is_where_it_was(name: Private) -> None:
    assert broken(name) is None, broken(name)


def test_what_broke_is_said() -> None:
    gone = Private("ray._private.state", "state.get_leaving_nodes", (), "nodes that go have no room")
    other = Private("optuna.samplers", "QMCSampler._find_sample_id", ("self", "trial"), "a trial has its place")
    assert "nodes that go have no room, which ray._private.state:state.get_leaving_nodes" in str(broken(gone))
    assert str(broken(other)).endswith("it takes no trial any more")


def test_names_that_are_texts() -> None:
    import ray
    from ray._common.constants import HEAD_NODE_RESOURCE_NAME

    assert HEAD_NODE_RESOURCE_NAME == private_names.HEAD
    assert f'kwargs.pop("{private_names.TEMPORARY_FOLDER}"' in inspect.getsource(ray.init)
    # Loggers have the names of their modules.
    assert [name for name in private_names.CHATTY if importlib.util.find_spec(name) is None] == []


OTHERS = {"_exit", "_actions", "_modules"}
"""Of Python, argparse and torch."""


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_other_module_has_one(path: Path) -> None:
    if path.name == "private_names.py":
        return
    text = path.read_text()
    nodes = list(ast.walk(ast.parse(text)))
    modules = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    attributes = [
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and re.match("_[a-z]", node.attr) and ast.unparse(node.value) != "self"
    ]
    names = {part for name in NAMES for part in name.path.split(".") if part.startswith("_")}
    assert [module for module in modules if re.match(r"(ray|optuna)\b.*\._", module)] == []
    assert [name for name in attributes if name not in OWN | OTHERS] == []
    assert re.findall(rf"\b(?:{'|'.join(names)}|ray\._private|_temp_dir|__internal_head__)\b", text) == []
