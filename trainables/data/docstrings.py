"""Docstrings and code of installed packages, read from their sources and never imported."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainables.data import kept
from trainables.digests import file_digest, text_digest

STDLIB = "stdlib"
"""The name under which the standard library is asked for."""

# fmt: off
_SKIPPED_FOLDERS = frozenset({
    # Tests repeat the names of what they test, vendored copies and generated tables repeat other packages.
    "test", "tests", "testing", "idlelib", "lib2to3", "turtledemo", "site-packages",
    "dist-packages", "encodings", "pydoc_data", "_vendor", "_vendored", "vendor", "vendored",
    "third_party", "thirdparty", "ensurepip", "lib-dynload", "__pycache__",
})
# fmt: on
_QUERY_WORDS = (4, 40)
_QUERY_CHARACTERS = 240
_BODY_CHARACTERS = (24, 4_000)

_ROLE = re.compile(r":[\w:+.-]+:`(?:~[\w.]*\.)?([^`<]+?)\s*(?:<[^`>]*>)?`")
_MARKUP = re.compile(r"[`*|]+")
_SIGNATURE = re.compile(r"^[\w.]+\(.*\)\s*(?:->\s*[\w\[\].]+)?\s*")
_SENTENCE = re.compile(r"^.{12,}?[.!?](?<!e\.g\.)(?<!i\.e\.)(?<!etc\.)(?<!vs\.)(?=\s|$)")
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]+")


@dataclass(frozen=True, slots=True)
class Pair:
    """One documented function: what its docstring says first, and its source without the docstring."""

    module: str
    name: str
    """Qualified name inside the module: `JSONDecoder.decode`."""
    query: str
    code: str

    @property
    def id(self) -> str:
        """`module:name`, unique within the pairs of a package."""
        return f"{self.module}:{self.name}"


@dataclass(frozen=True, slots=True)
class Package:
    """An installed package's sources: a folder, or a single file for a one-module package."""

    name: str
    version: str
    root: Path

    def modules(self) -> Iterator[tuple[str, Path]]:
        """Every module's dotted name and file, in the order of the names."""
        if self.root.is_file():
            yield self.name, self.root
            return
        found = []
        for folder, folders, files in os.walk(self.root):
            folders[:] = [f for f in folders if f not in _SKIPPED_FOLDERS and f.isidentifier()]
            parts = Path(folder).relative_to(self.root).parts
            prefix = parts if self.name == STDLIB else (self.name, *parts)
            for file in files:
                stem, suffix = os.path.splitext(file)
                if suffix == ".py" and stem.isidentifier() and not stem.startswith("test_"):
                    module = ".".join(prefix if stem == "__init__" else (*prefix, stem))
                    found.append((module, Path(folder, file)))
        yield from sorted(found)


def find_package(name: str) -> Package | None:
    """The package imported as `name` (or `stdlib`); None where it is not installed as Python source."""
    if name == STDLIB:
        version = ".".join(map(str, sys.version_info[:3]))
        return Package(STDLIB, version, Path(sysconfig.get_path("stdlib")))
    # PathFinder and not find_spec: the latter answers from sys.modules and imports parents of dotted names.
    spec = importlib.machinery.PathFinder.find_spec(name) if name.isidentifier() else None
    if spec is None or not (spec.origin or "").endswith(".py"):
        return None
    root = Path(spec.origin or "")
    root = root.parent if spec.submodule_search_locations else root
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        version = _fingerprint(Package(name, "", root))
    return Package(name, version, root)


def read_pairs(package: Package, cache: Path | None = None) -> list[Pair]:
    """The documented functions of a package in the order of its sources.

    With `cache` (a folder, created if missing) the result is kept there as JSONL, keyed by the package's
    version and by this reader's own source, so that neither an upgrade nor a new rule meets an old file.
    """
    if cache is None:
        return list(_extract(package))
    reader = file_digest(Path(__file__))
    key = text_digest(f"{package.version}\n{package.root}\n{reader}")[:16]
    file = cache / f"pairs-{package.name}-{key}.jsonl"
    found = kept.rows(file, lambda: ([pair.module, pair.name, pair.query, pair.code] for pair in _extract(package)))
    return [Pair(*row) for row in found]


def parse(file: Path) -> tuple[str, ast.Module] | None:
    """Source text and syntax tree of a file; None where it is not UTF-8 or not this Python's syntax."""
    try:
        source = file.read_bytes().decode("utf-8")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return source, ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None


def functions(tree: ast.Module, source: str) -> Iterator[tuple[str, str, str]]:
    """(qualified name, docstring or "", code without it) of the functions of a module and of its classes."""
    lines = source.splitlines()
    stack: list[tuple[str, ast.AST]] = [("", tree)]
    while stack:
        prefix, parent = stack.pop()
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, ast.ClassDef):
                stack.append((f"{prefix}{node.name}.", node))
            elif isinstance(node, (ast.If, ast.Try, ast.With)):
                stack.append((prefix, node))
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                code = code_without_docstring(node, lines)
                if code is not None:
                    yield f"{prefix}{node.name}", ast.get_docstring(node) or "", code


def code_without_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> str | None:
    """Signature and body, dedented, without decorators; None where no body worth searching is left."""
    body = node.body
    documented = ast.get_docstring(node, clean=False) is not None
    first = body[1:2] if documented else body[:1]
    if not first or (len(body) == 1 + documented and isinstance(first[0], (ast.Pass, ast.Raise))):
        return None
    head_end = body[0].lineno - 1
    if node.lineno > head_end:  # one line: def f(): "text"; return 1
        return None
    tail_start = (body[0].end_lineno or 0) if documented else head_end
    head, tail = lines[node.lineno - 1 : head_end], lines[tail_start : node.end_lineno]
    if not _BODY_CHARACTERS[0] <= sum(len(line.strip()) for line in tail) <= _BODY_CHARACTERS[1]:
        return None
    return "\n".join(line[node.col_offset :].rstrip() for line in (*head, *tail) if line.strip())


def query_of(docstring: str) -> str | None:
    """The first sentence of a docstring as plain text; None where it is no sentence of natural language.

    >>> query_of("Return the number of ``free`` slots.  Never negative.")
    'Return the number of free slots.'
    >>> query_of("x(y) -> z") is None
    True
    """
    paragraph = docstring.strip().partition("\n\n")[0]
    text = " ".join(_MARKUP.sub("", _ROLE.sub(r"\1", paragraph)).split())
    text = _SIGNATURE.sub("", text).lstrip(" .,:;-")
    sentence = _SENTENCE.match(text)
    text = sentence.group() if sentence else text
    words = _WORD.findall(text)
    letters = sum(map(len, words))
    if (
        not _QUERY_WORDS[0] <= min(len(words), len(text.split())) <= _QUERY_WORDS[1]
        or len(text) > _QUERY_CHARACTERS
        or not text.isascii()
        or letters < 0.7 * len(text.replace(" ", ""))
        or any(mark in text for mark in (">>>", "::", "@", "{", "---", "==="))
    ):
        return None
    return text


def _extract(package: Package) -> Iterator[Pair]:
    for module, file in package.modules():
        parsed = parse(file)
        seen = set()
        for name, docstring, code in functions(parsed[1], parsed[0]) if parsed else ():
            query = query_of(docstring) if docstring else None
            if query is not None and name not in seen:
                seen.add(name)  # a property's setter or an alternative definition comes second
                yield Pair(module, name, query, code)


def _fingerprint(package: Package) -> str:
    """A digest in place of a version, for a package without metadata: it changes when one of the sources does."""
    stats = [(module, file.stat()) for module, file in package.modules()]
    text = "\n".join(f"{module} {stat.st_size} {stat.st_mtime_ns}" for module, stat in stats)
    return f"unversioned-{text_digest(text)[:12]}"
