"""Docs check: links lead somewhere, files that are named are there, every command works, made pages are up to date.

A command of README or docs/ is in one of four kinds, and anything else fails:

- `python -m study.*`, `python -m trainables.*`: given to the command line's own parser; its study and profile
  are looked up, and its `--set` values are given to the study's config, which checks them as a launch does.
- `make TARGET` and `python -m benchmarks.*`: the target, the module and its options exist.
- executed by a test as it stands: `EXECUTED` names it.
- in a block below `<!-- needs: WHAT -->`, for what no test has: a cluster, a hub, several GPUs, ...
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import reference  # noqa: E402

from study import __version__, request, spec  # noqa: E402
from study.ledger.space import check_settings  # noqa: E402
from study.suites.suites import SUITES  # noqa: E402
from trainables import cli, overrides, trainers  # noqa: E402

LINK = re.compile(r"!?\[[^\]]*\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
NEEDS = re.compile(r"<!-- needs: ([^>]+?) -->")
SPAN = re.compile(r"(?<!`)`((?:python|make) [^`]+)`(?!`)")
FILE = re.compile(r"<!-- file: (\S+\.py) -->\s*```python\n(.*?)```", re.DOTALL)
SHELL = ("", "sh", "bash", "shell", "console")
MODULES = re.compile(r"(?<![\w/.])(?:study|trainables|tests|benchmarks)/[\w/*]*(?:\{([\w,]+)\}[\w/*]*)?\.py\b")
"""Files of the project as pages name them, `study/{run,submit}.py` being two."""
PLACEHOLDER = re.compile(r"\.\.\.|\b[A-Z][A-Z_]+\b")
"""NAME, FOLDER and other words that stand for the reader's."""
EXECUTED = {
    "mlflow ui --backend-store-uri sqlite:///studies/mlflow.db": "test_the_tutorial_confirms_evaluates_and_shows",
    "optuna-dashboard sqlite:///studies/splade_k_search/ledger.db": "test_optuna_dashboard_tells_collapsed_from_pruned",
    "source .venv/bin/activate": "test_an_activated_shell_has_the_commands",
}
"""A command -> the test in `TESTS` that runs it as it is printed."""
TESTS = ("tests/integration/test_readme.py", "tests/integration/test_pages.py")


@dataclass(frozen=True)
class Command:
    """One command of a page, a line of a block or a span of code."""

    text: str
    needs: str | None
    """What it needs that no test has, where its block says so."""
    block: bool


def commands(text: str) -> Iterator[Command]:
    """The commands of a page of Markdown: in blocks that are indented or fenced as shell, and in spans of code."""
    plain, needs, block, fence = [], None, [], None
    before = ""
    for line in [*text.splitlines(), "", "end"]:
        if fence is not None:
            if line.strip() == fence[0]:
                yield from _of_block(block, needs) if fence[1] in SHELL else ()
                block, fence, needs = [], None, None
            else:
                block.append(line)
            continue
        opening = re.match(r"\s*(`{3,}|~{3,})\s*(\w*)", line)
        if opening:
            fence = (opening[1], opening[2])
        elif line.startswith("    ") and line.strip() and (block or not before.strip()):
            block.append(line[4:])
        elif block and not line.strip():
            block.append("")
        else:
            if block:
                yield from _of_block(block, needs)
                block, needs = [], None
            found = NEEDS.search(line)
            if found:
                needs = found[1]
            elif line.strip():
                needs = None
            plain.append(line)
        before = line
    for span in SPAN.findall("\n".join(plain)):
        yield Command(span.replace("\\|", "|"), None, block=False)


def _of_block(lines: list[str], needs: str | None) -> Iterator[Command]:
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        words = " ".join(line.split()).removeprefix("$ ")
        if words and not words.startswith("#"):
            yield Command(words, needs, block=True)


def problems(page: Path, text: str | None = None) -> list[str]:
    """What is wrong with a page, a sentence each."""
    text = page.read_text() if text is None else text
    found = []
    for target, anchor in LINK.findall(text):
        if "://" in target or target.startswith("mailto:"):
            continue
        there = page.parent / target if target else page
        if not there.exists():
            found.append(f"link to {target} leads nowhere")
        elif page.parent.name == "docs" and target.startswith(".."):
            found.append(f"link to {target} leaves docs/, and the site has no more than that")
        elif anchor and there.suffix == ".md" and anchor not in anchors(there.read_text() if target else text):
            found.append(f"link to {target}#{anchor}: no such heading")
    found += [f"there is no {path}" for path in modules(text) if not any(ROOT.glob(path))]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        # A study file that the page prints is the one that its commands name.
        for name, content in FILE.findall(text):
            Path(name).write_text(content)
        for command in commands(text):
            found += [f"`{command.text}`: {problem}" for problem in command_problems(command)]
    return found


def markdown(notebook: Path) -> str:
    """The cells of a notebook that are text; what the others do a test tries."""
    cells = json.loads(notebook.read_text())["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def modules(text: str) -> list[str]:
    """The files of the project that a page names, but for those with a name for the reader to put in."""
    found = [
        named[0].replace(f"{{{named[1]}}}", choice)
        for named in MODULES.finditer(text)
        for choice in (named[1] or "").split(",")
    ]
    return [path for path in dict.fromkeys(found) if not PLACEHOLDER.search(path)]


def anchors(text: str) -> set[str]:
    """Of the headings of a page, as the site and GitHub make them, and those that a heading names itself."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        named = re.search(r"\{\s*#([\w-]+)\s*\}", heading)
        plain = re.sub(r"[`*]|\{.*\}", "", heading).strip().lower()
        found |= {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", plain))} | ({named[1]} if named else set())
    return found


def command_problems(command: Command) -> list[str]:
    try:
        words = shlex.split(command.text, comments=True)
    except ValueError as error:
        return [f"no shell reads it ({error})"]
    while words and re.fullmatch(r"\w+=.*", words[0]):
        words = words[1:]
    for stop in ("|", "&", "&&", ">", "2>&1"):
        words = words[: words.index(stop)] if stop in words else words
    shown = shlex.join(words)
    if not words or shown in EXECUTED:
        return []
    module = words[2] if words[0].rpartition("/")[2].startswith("python") and words[1:2] == ["-m"] else ""
    rest = words[3:]
    if words[0] == "sbatch" and "deploy/study.sbatch" in words:
        module, rest = "study.run", words[words.index("deploy/study.sbatch") + 1 :]
    if PLACEHOLDER.fullmatch(module):
        return []
    if _parser(module) is not None:
        return _parsed(module, rest) + _unmarked(command, module, rest)
    if module.startswith("benchmarks."):
        source = ROOT / f"{module.replace('.', '/')}.py"
        if not source.exists():
            return [f"there is no {module}"]
        options = [word for word in rest if word.startswith("--")]
        return [f"{module} has no option {o}" for o in options if f'"{o}"' not in source.read_text()]
    if words[0] == "make" and len(words) > 1:
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        return [f"there is no target {target}" for target in words[1:] if target not in targets]
    if (ROOT / module / "__main__.py").exists() and module:
        return [] if not rest else [f"{module} takes no arguments"]
    if command.needs is None and command.block:
        return ["neither executed by a test nor marked by <!-- needs: ... --> before its block"]
    if module and not command.needs and not (ROOT / f"{module.replace('.', '/')}.py").exists():
        return [f"there is no module {module}"]
    return []


def _parser(module: str) -> argparse.ArgumentParser | None:
    """That of a command line of the project, or of a trainer elsewhere in it; None for other modules."""
    if module in reference.commands():
        return reference.commands()[module]()
    elsewhere = module and (ROOT / module.replace(".", "/") / "recipe.py").exists()
    return cli.parser(module) if elsewhere else None


def _unmarked(command: Command, module: str, words: list[str]) -> list[str]:
    """A cluster's and a hub's commands are not tried by any test, and say so."""
    if not command.block or command.needs or "--dry-run" in words:
        return []
    suite = words[words.index("--suite") + 1] if "--suite" in words else ""
    elsewhere = (
        "a cluster" if module == "study.submit" or "--address" in words else
        "a hub" if suite in SUITES else ""
    )  # fmt: skip
    return [f"its block is not marked by <!-- needs: {elsewhere} -->"] if elsewhere else []


def _parsed(module: str, words: list[str]) -> list[str]:
    """What the command line itself would refuse before it looks at files, servers or a cluster."""
    parser = _parser(module)
    assert parser is not None
    known = {name for action in parser._actions for name in action.option_strings}
    found = [f"no option {w}" for w in words if w.startswith("--") and w.partition("=")[0] not in known]
    if found:
        return found
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            options = parser.parse_args(words)
    except SystemExit as ending:
        # --help ends with 0; a command in a sentence may leave out what it needs.
        refused = said.getvalue().strip().rpartition("error: ")[2]
        return [refused] if ending.code and "required" not in refused else []
    return _asked(module, options)


def _asked(module: str, options: object) -> list[str]:
    settings = [text for text in getattr(options, "set", None) or [] if not PLACEHOLDER.search(text.partition("=")[2])]
    try:
        if not module.startswith("study."):
            config = trainers.module(module.removeprefix("trainables."), "config").Config()
            overrides.apply(config, {"cache": "cache"} | overrides.parse(settings))
            return []
        name = getattr(options, "name", None)
        if module == "study.new" or name is None or PLACEHOLDER.fullmatch(name):
            return []
        if name.endswith(".py") and not Path(name).exists():
            name = str(ROOT / name)
            if not Path(name).exists():
                return []
        found = spec.profiles(spec.find(name)[1])
        profile, _ = spec.chosen(found, spec.find(name)[1], options.profile)  # type: ignore[attr-defined]
        if module in ("study.run", "study.submit"):
            given = overrides.parse(settings)
            study = spec.changed(found[profile], given, request.changes(options))  # type: ignore[arg-type]
            check_settings(study, given)
    except ValueError as error:
        return [str(error)]
    return []


def stale() -> list[str]:
    """Pages that are made from the code and are not what it makes now."""
    return [
        f"docs/{name}: not what the code says now; `make reference` writes it"
        for name, content in reference.pages().items()
        if not (reference.DOCS / name).exists() or (reference.DOCS / name).read_text() != content
    ]


def unheld() -> list[str]:
    """Entries of `EXECUTED` whose test is not there."""
    tests = "".join((ROOT / path).read_text() for path in TESTS)
    return [
        f"EXECUTED: `{command}` names {name}, which {' and '.join(TESTS)} do not have"
        for command, name in EXECUTED.items()
        if f"def {name}(" not in tests
    ]


def astray() -> list[str]:
    """Pages that `nav` in mkdocs.yml does not name, and names in it that are no page."""
    named = set(re.findall(r"[\w-]+\.(?:md|ipynb)\b", (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]))
    there = {path.name for path in (ROOT / "docs").iterdir() if path.suffix in (".md", ".ipynb")}
    return [f"mkdocs.yml: nav lacks {name}" for name in sorted(there - named)] + [
        f"mkdocs.yml: nav names {name}, which is not there" for name in sorted(named - there)
    ]


def uncited() -> list[str]:
    """Where CITATION.cff names another version than the project has."""
    named = f"version: {__version__}" in (ROOT / "CITATION.cff").read_text().splitlines()
    return [] if named else [f"CITATION.cff: version must be {__version__}, as in study/__init__.py"]


def main() -> int:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    notebooks = sorted((ROOT / "docs").glob("*.ipynb"))
    texts = {page: page.read_text() for page in pages} | {page: markdown(page) for page in notebooks}
    failures = [
        f"{page.relative_to(ROOT)}: {problem}" for page, text in texts.items() for problem in problems(page, text)
    ]
    failures += stale() + unheld() + astray() + uncited()
    print("\n".join(failures) or f"{len(texts)} pages checked")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
