"""Pages of the reference that are made from the code: `python docs/reference.py` writes them anew.

Settings come from the trainers' `Config` classes and from `study.spec`, commands from the parsers of the command
lines, metrics from what each trainer says that it reports, columns of tables from `study.reporting.frames`. `make docs`
fails where a page is not what this makes.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

MADE = "<!-- made by docs/reference.py from the code; edit the docstrings and help texts there -->"
KINDS = {int: "whole number", float: "number", str: "text", bool: "true or false"}
BOUNDS = {"gt": "above", "ge": "from", "lt": "below", "le": "to"}


def trainers() -> list[str]:
    """Names of the packages in `trainables/` that train."""
    return sorted(path.parent.name for path in (ROOT / "trainables").glob("*/recipe.py"))


def commands() -> dict[str, Callable[[], argparse.ArgumentParser]]:
    """Module -> its `parser`, of every command line of the project."""
    found: dict[str, Callable[[], argparse.ArgumentParser]] = {}
    for path in sorted((ROOT / "study").glob("*.py")):
        if re.search(r"^def parser\(\).*^def main\(", path.read_text(), re.MULTILINE | re.DOTALL):
            found[f"study.{path.stem}"] = importlib.import_module(f"study.{path.stem}").parser
    from trainables import cli

    for name in trainers():
        found[f"trainables.{name}"] = lambda name=name: cli.parser(name)  # type: ignore[misc]
    return found


def pages() -> dict[str, str]:
    """Name of each page that is made here -> its content."""
    return {
        "settings.md": settings_page(),
        "commands.md": commands_page(),
        "metrics.md": metrics_page(),
        "tables.md": tables_page(),
    }


# --- settings ----------------------------------------------------------------------------------


def settings_page() -> str:
    from study import spec

    lines = [
        "# Settings", "", MADE, "",
        "Every key of every trainer with its default, and what a study file declares beside them. A key of a trainer "
        "is changed for a run with `--set KEY=VALUE`, for a study in its file with `Config(...)`. A value that a key "
        "does not accept is refused with the key, the value and what would be accepted; so is a key that there is "
        "not. A profile of a study may set other defaults: `--dry-run` prints what applies.", "",
        *(f"- [`trainables.{name}`](#{name})" for name in trainers()),
        "- [Study files](#study-files)", "",
    ]  # fmt: skip
    for name in trainers():
        config = importlib.import_module(f"trainables.{name}.config").Config
        lines += [f"## {name}", "", _docstring(config), "", *_tables(config, config(), name)]
    lines += [
        "## Study files", "",
        "What a study declares around its trainer's `Config`; [how to write one](write-a-study.md). "
        "`--resources KEY=VALUE` changes those of `resources` for one command.", "",
        *_tables(spec.Study, None, "study", skipped=("config",)),
    ]  # fmt: skip
    return "\n".join(lines).rstrip() + "\n"


def _tables(
    model: type[BaseModel], given: BaseModel | None, anchor: str, prefix: str = "", skipped: tuple[str, ...] = ()
) -> Iterator[str]:
    """A table of the keys of `model`, then one for each section in it; defaults are those of `given`, if any."""
    texts = docstrings(model)
    rows, sections = [], []
    for key, field in model.model_fields.items():
        if key in skipped:
            continue
        value = default(field) if given is None else shown(getattr(given, key))
        if _section(field):
            sections.append((key, field))
        else:
            rows.append((f"`{prefix}{key}`", value, accepted(field), texts[key]))
    yield from _table(("key", "default", "accepted", "meaning"), rows)
    for key, field in sections:
        assert isinstance(field.annotation, type)
        name = f"{prefix}{key}"
        yield f"### {anchor}: {name}"
        yield ""
        yield texts.get(key) or _docstring(field.annotation)
        yield ""
        inner = field.get_default(call_default_factory=True) if given is None else getattr(given, key)
        known = inner if isinstance(inner, BaseModel) else None
        yield from _tables(field.annotation, known, anchor, f"{name}.")


def _section(field: FieldInfo) -> bool:
    return isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Key -> the string below it in the class that declares it; ValueError where a key that is no section has none."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if base in (BaseModel, object) or not issubclass(base, BaseModel):
            continue
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(body, ast.ClassDef)
        for node, below in zip(body.body, [*body.body[1:], None], strict=True):
            if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
                continue
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                found[node.target.id] = " ".join(str(below.value.value).split())
    for key, field in model.model_fields.items():
        if key not in found and not _section(field):
            raise ValueError(f"{model.__module__}.{model.__name__}.{key} has no docstring below it")
    return found


def default(field: FieldInfo) -> str:
    return "required" if field.is_required() else shown(field.get_default(call_default_factory=True))


def shown(value: Any) -> str:
    """A default as `--set` would be given it."""
    if value is None or value == "":
        return "none" if value is None else "empty"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple | list):
        return f"`[{', '.join(map(str, value))}]`" if value else "none"
    if isinstance(value, dict):
        return f"`{value}`" if value else "none"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def accepted(field: FieldInfo) -> str:
    return _accepted(field.annotation, field.metadata)


def _accepted(annotation: Any, metadata: list[Any]) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if hasattr(annotation, "__metadata__"):
        return _accepted(annotation.__origin__, [*annotation.__metadata__, *metadata])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin is Union or type(annotation).__name__ == "UnionType":
        parts = [_accepted(part, metadata) for part in arguments if part is not type(None)]
        return " or ".join(parts) + (" or `null`" if type(None) in arguments else "")
    if origin in (tuple, list):
        inner = next((part for part in arguments if part is not Ellipsis), str)
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            return f"a list of `{inner.__name__}`"
        return f"a list: {_accepted(inner, [])}"
    if origin is dict:
        return "a mapping"
    if annotation in KINDS:
        return " ".join([KINDS[annotation], *_bounds(metadata)])
    return "a function" if origin is not None and "Callable" in str(origin) else "text"


def _bounds(metadata: list[Any]) -> Iterator[str]:
    for item in metadata:
        for part in (item, *getattr(item, "metadata", ())):
            for name, word in BOUNDS.items():
                bound = getattr(part, name, None)
                if bound is not None:
                    yield f"{word} {bound:g}"


# --- commands ----------------------------------------------------------------------------------


def commands_page() -> str:
    lines = ["# Commands", "", MADE, ""]
    found = commands()
    lines += [*(f"- [`python -m {name}`](#{name.replace('.', '')})" for name in found), ""]
    for name, parser in found.items():
        module = sys.modules.get(name) or importlib.import_module(name)
        lines += [f"## {name}", "", *_command(parser(), module.__doc__ or "")]
        if name.startswith("trainables."):
            lines += [f"Keys of `--set`: [Settings](settings.md#{name.partition('.')[2]}).", ""]
    return "\n".join(lines).rstrip() + "\n"


def _command(parser: argparse.ArgumentParser, about: str) -> Iterator[str]:
    given = [action for action in parser._actions if not action.option_strings]
    words = [parser.prog, *(str(action.metavar or action.dest) for action in given), "[OPTIONS]"]
    yield f"```text\n{' '.join(words)}\n```"
    yield ""
    for paragraph in (parser.description or "", *about.split("\n\n")[1:]):
        yield " ".join(paragraph.split())
        yield ""
    rows = [(_option(action), _cell(_help(action))) for action in parser._actions if action.dest != "help"]
    yield from _table(("argument", "meaning"), rows)


def _option(action: argparse.Action) -> str:
    if not action.option_strings:
        return f"`{action.metavar or action.dest}`"
    value = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
    if action.choices:
        value = " " + "|".join(map(str, action.choices))
    # A stroke in a code span is read differently by different readers of Markdown.
    return ", ".join(f"`{name}{value}`" for name in action.option_strings).replace("|", " or ")


def _help(action: argparse.Action) -> str:
    text = (action.help or "").replace("%(default)s", str(action.default))
    if isinstance(action, argparse._AppendAction):
        text += "; may be given several times"
    elif "default:" not in text and (action.choices or (isinstance(action.default, int) and action.nargs != 0)):
        text += f" (default: {action.default})"
    return text


# --- metrics -----------------------------------------------------------------------------------


def metrics_page() -> str:
    lines = [
        "# Metrics", "", MADE, "",
        "What each trainer measures, under the names that `summary.json` and a study's objectives use; "
        "[MLflow](mlflow.md) has them in sections. A name without a prefix is a value on validation queries or pairs, "
        "which the search sees.", "",
        *_table(("prefix", "what"), [
            ("`test.`", "the same on test queries or pairs, measured once, at a replicate's end, and only reported"),
            ("`untrained.`, `untrained.test.`", "of the model before its first step"),
            (
                "`train.`",
                "a signal of the training steps, such as `train.loss`, on the batch; see the trainer's page. Where a "
                "record has several steps (`log_every`) it is their mean, with `.min` and `.max` behind the name their "
                "lowest and highest value, where these differ",
            ),
            ("`SUITE.COLLECTION.`", "from [`study.evaluate`](evaluate.md)"),
        ]),
        "All ranking metrics are as trec_eval defines them; a query without results scores 0. Search is exact, over "
        "all documents. A trial's value is the mean over its replicates.", "",
    ]  # fmt: skip
    for name in trainers():
        module = importlib.import_module(f"trainables.{name}.config")
        rows = [
            (f"`{'untrained.' * metric.initial}{key}`", metric.label, _better(metric), metric.meaning)
            for key, metric in module.metrics(module.Config()).items()
        ]
        lines += [f"## {name}", "", *_table(("name", "shown as", "better is", "what"), rows)]
    return "\n".join(lines).rstrip() + "\n"


def _better(metric: Any) -> str:
    return "–" if metric.initial else {"maximize": "more", "minimize": "less"}[metric.direction]


# --- tables ------------------------------------------------------------------------------------


def tables_page() -> str:
    from study.reporting import frames

    lines = [
        "# Tables", "", MADE, "",
        "`trials.csv`, `curves.csv` and `per_query.parquet` lie beside the report of a study: `python -m study.report` "
        "and the end of a study write them. [`study.open`](python.md#studyopen) gives the same tables as pandas "
        "DataFrames; the dtypes are those of the DataFrames.", "",
    ]  # fmt: skip
    rows = {
        "trials": "One row per trial.",
        "replicates": "One row per replicate that has ended, a DataFrame only.",
        "confirmation": "One row per fresh seed of each trial that confirms the search, a DataFrame only.",
        "curves": "One row per replicate, step and metric, of trials that are running, too.",
        "per_query": "One row per finished replicate, split, metric and query or pair.",
    }
    for name, columns in frames.TABLES.items():
        cells = [(f"`{column.name}`", column.dtype, column.meaning) for column in columns]
        lines += [f"## {name}", "", rows[name], "", *_table(("column", "dtype", "meaning"), cells)]
    return "\n".join(lines).rstrip() + "\n"


# --- Markdown ----------------------------------------------------------------------------------


def _table(head: tuple[str, ...], rows: list[Any]) -> list[str]:
    cells = [head, *rows]
    made = ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in cells]
    return [made[0], "|" + "---|" * len(head), *made[1:], ""]


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", " ".join(text.split()))


def _docstring(model: type[Any]) -> str:
    return inspect.cleandoc(model.__doc__ or "")


def main() -> int:
    for name, content in pages().items():
        (DOCS / name).write_text(content)
        print(f"docs/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
