"""Who imports whom in study/ and trainables/; `python -m tests.imports` prints the layers, lowest first, and circles.

Every import statement counts: those inside of functions and those for the type checker too. What is imported by a name
that is put together, as a trainer is, does not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("study", "trainables")

Kind = Literal["module", "function", "typing"]
"""Where an import stands: run with the module, run by a function, or read by the type checker alone."""
Graph = Mapping[str, Mapping[str, frozenset[Kind]]]
"""Module -> each module that it imports -> the kinds of these imports."""


def graph(root: Path = ROOT, packages: Sequence[str] = PACKAGES) -> Graph:
    """All modules of these packages, sorted; imports of anything else are left out."""
    paths = {_name(path.relative_to(root)): path for package in packages for path in (root / package).rglob("*.py")}
    found: dict[str, dict[str, frozenset[Kind]]] = {}
    for module, path in sorted(paths.items()):
        imported: dict[str, frozenset[Kind]] = {}
        for names, kind in _imports(ast.parse(path.read_text(encoding="utf-8")), "module"):
            # `from package import module` names a module, `from module import thing` a thing in one.
            name = next((name for name in names if name in paths), module)
            if name != module:
                imported[name] = imported.get(name, frozenset()) | {kind}
        found[module] = imported
    return found


def circles(graph: Graph) -> list[list[str]]:
    """Sets of two and more modules each of which reaches all others, sorted."""
    reached = {module: _reached(graph, module) for module in graph}
    sets = {frozenset({module, *(other for other in reached[module] if module in reached[other])}) for module in graph}
    return sorted(sorted(found) for found in sets if len(found) > 1)


def layers(graph: Graph) -> list[list[str]]:
    """Modules that import none; those that import only these; and so on. The modules of a circle share a layer."""
    circle_of = {module: found[0] for found in circles(graph) for module in found}
    heads: dict[str, set[str]] = {}
    for module, imported in graph.items():
        head = circle_of.get(module, module)
        heads.setdefault(head, set()).update({circle_of.get(name, name) for name in imported} - {head})
    height: dict[str, int] = {}
    for head in TopologicalSorter(heads).static_order():
        height[head] = 1 + max((height[name] for name in heads[head]), default=-1)
    found: list[list[str]] = [[] for _ in range(1 + max(height.values(), default=-1))]
    for module in sorted(graph):
        found[height[circle_of.get(module, module)]].append(module)
    return found


COMMANDS = (
    "__main__", "run", "submit", "evaluate", "report", "export", "status", "watch", "list", "compare", "remove", "new",
    "notebook",
)  # fmt: skip
"""The command lines, and what `study.open` gives: they import all rooms, and nobody but `study` itself imports them."""
MAY_IMPORT = {
    "ground": (),
    "stats": (),
    "protocol": ("ground",),
    "tracking": ("ground", "protocol"),
    "ledger": ("ground", "protocol", "tracking"),
    "engine": ("ground", "protocol", "ledger"),
    "request": ("ground", "protocol", "ledger"),
    "planning": ("ground", "stats", "protocol", "tracking", "ledger"),
    "submission": ("ground", "protocol", "planning", "request"),
    "suites": ("ground", "protocol", "engine"),
    "reporting": ("ground", "stats", "protocol"),
}
"""Room of study/ -> the rooms that it may import beside its own; `ground` and `request` are files, not folders."""
GROUND = ("confirmation", "databases", "home", "notify", "private_names", "spec", "terminal", "uris", "values")
REQUEST = ("profiles", "request", "selection")

LIBRARIES = {
    "Ray": {
        "study/engine/executor.py",
        "study/engine/gang.py",
        "study/engine/lost_gangs.py",
        "study/engine/trial.py",
        "study/private_names.py",
        "study/run.py",
        "study/submission/job_server.py",
        "study/submit.py",
        "study/suites/worker_pool.py",
        "trainables/context.py",
        "trainables/patience.py",
    },
    "Optuna": {
        "study/ledger/groups.py",
        "study/ledger/optuna_study.py",
        "study/ledger/queue.py",
        "study/ledger/rehearsal.py",
        "study/ledger/sampling.py",
        "study/ledger/space.py",
        "study/ledger/trials.py",
        "study/ledger/variants.py",
    },
    "MLflow": {
        "study/tracking/keep_model.py",
        "study/tracking/loadable.py",
        "study/tracking/mlflow_runs.py",
    },
}
"""What few modules import, and all of these."""


def room(module: str) -> str | None:
    """The room of a module of study/; None for it itself, for a command line, and for what is no part of study/."""
    package, _, name = module.partition(".")
    if package != "study" or not name or name in COMMANDS:
        return None
    top, _, inner = name.partition(".")
    if inner or (top in MAY_IMPORT and top != "request"):
        return top
    return "request" if top in REQUEST else "ground" if top in GROUND else top


def trespasses(graph: Graph) -> list[str]:
    """Each import of study/ that leads from a room to one that it may not import, or to a command line."""
    commands = {f"study.{name}" for name in COMMANDS}
    found = []
    for module, imported in graph.items():
        own = room(module)
        for other in imported:
            theirs = room(other)
            if (other in commands and module != "study") or (
                own and theirs and theirs != own and theirs not in MAY_IMPORT.get(own, ())
            ):
                found.append(f"{module} imports {other}")
    return found


def _name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _imports(node: ast.AST, kind: Kind) -> Iterator[tuple[tuple[str, ...], Kind]]:
    """(what an import may name, the longest first; its kind) of all imports below `node`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (((alias.name,), kind) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            if child.level:
                raise ValueError(f"line {child.lineno}: imports here are absolute")
            yield from (((f"{child.module}.{alias.name}", str(child.module)), kind) for alias in child.names)
        elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from _imports(child, "function")
        elif isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            yield from _imports(child, "typing")
        else:
            yield from _imports(child, kind)


def _reached(graph: Graph, module: str) -> set[str]:
    reached: set[str] = set()
    ahead = [module]
    while ahead:
        new = graph[ahead.pop()].keys() - reached
        reached |= new
        ahead += new
    return reached


if __name__ == "__main__":
    everything = graph()
    for number, modules in enumerate(layers(everything)):
        print(f"{number:2}  {', '.join(modules)}")
    print(f"trespasses: {'; '.join(trespasses(everything)) or 'none'}")
    print(f"circles: {'; '.join(', '.join(modules) for modules in circles(everything)) or 'none'}")
