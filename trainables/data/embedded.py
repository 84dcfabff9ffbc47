"""The embedded data: docstring -> code pairs of the Python packages that are installed anyway.

Nothing is downloaded: sources are read at run time, so the data are a function of the installed versions,
which `name` lists and `identity` pins. A module is held out or trained on by a hash of its dotted name,
whatever package it is in. Queries of the held-out collection are split into validation and test by module.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from trainables.data import docstrings, kept
from trainables.data.docstrings import (
    STDLIB,
    Package,
    Pair,
    find_package,
    functions,
    parse,
    query_of,
    read_pairs,
)
from trainables.data.types import Collection, Example, TrainingSet
from trainables.digests import parts_digest, text_digest

INSTALLED = "installed"
"""The value of `packages` that stands for the standard library and every package of `DEPENDENCIES` that is
installed."""

DEFAULT_PACKAGES = (STDLIB, "numpy")
"""The packages that are read by default: present wherever the project is, and read in some three seconds."""

# fmt: off
DEPENDENCIES = (
    "aiohttp", "alembic", "click", "cryptography", "datasets", "docker", "fastapi", "flask", "fsspec",
    "graphene", "huggingface_hub", "ir_datasets", "jinja2", "lxml", "matplotlib", "mlflow", "mpmath",
    "networkx", "numba", "numpy", "optuna", "pandas", "pyarrow", "pydantic", "ranx", "ray", "requests",
    "rich", "scipy", "sklearn", "sqlalchemy", "sympy", "tokenizers", "torch", "tqdm", "transformers",
    "urllib3", "yaml",
)
# fmt: on
"""Packages of the project's own dependency tree that are documented well enough to read."""

HELD_OUT_PERCENT = 24
"""Share of modules (not of functions) that is never trained on."""

_VALIDATION_SHARE = 0.25
_BOILERPLATE = 4
_TEXT_WORDS = 8
_COMMENT = re.compile(r"^\s*#+:?\s?(.*)$")


def embedded_training_set(packages: str | tuple[str, ...] = DEFAULT_PACKAGES, cache: Path | None = None) -> TrainingSet:
    """Docstring -> code pairs of the modules that are not held out.

    `packages` is "stdlib", "installed" or a tuple of import names (with "stdlib" among them or not). A pair
    whose docstring or code also occurs in a held-out module is left out. `cache` is a folder for what was
    read; None reads the sources each time (some seconds). ValueError where a package is not installed.
    """
    chosen = _find(packages)
    pairs = {package: read_pairs(package, cache) for package in {*chosen, *_find(DEFAULT_PACKAGES)}}
    kept_out = [pair for found in pairs.values() for pair in found if is_held_out(pair.module)]
    queries, codes = _texts_of(kept_out)
    trained = [
        pair
        for pair in _unique(itertools.chain.from_iterable(pairs[package] for package in chosen))
        if not is_held_out(pair.module) and pair.query.lower() not in queries and _squeeze(pair.code) not in codes
    ]
    examples = [Example(pair.query, pair.code, positive_id=pair.id) for pair in trained]
    identity = parts_digest(part for pair in trained for part in (pair.id, pair.query, pair.code))
    return TrainingSet(f"embedded({_describe(chosen)})", identity, examples)


def embedded_collection(
    cache: Path | None = None,
    *,
    packages: str | tuple[str, ...] = DEFAULT_PACKAGES,
    documents: int = 1_000,
    validation_queries: int = 200,
    test_queries: int = 600,
) -> Collection:
    """The held-out modules as a test collection; the three sizes are upper bounds.

    Documents are functions without their docstrings, a query is the docstring of one of them and has that
    one as its only relevant document (its id is the same). `embedded_query_split` tells validation queries
    from test queries. Which functions are taken depends on a hash of their ids only.
    """
    sizes = {"documents": documents, "validation_queries": validation_queries, "test_queries": test_queries}
    for size, value in sizes.items():
        if value < 1:
            raise ValueError(f"{size} is {value}: a collection needs at least 1")
    chosen = _find(packages)
    found = _unique(itertools.chain.from_iterable(read_pairs(package, cache) for package in chosen))
    kept_out = [pair for pair in found if is_held_out(pair.module)]
    if len({pair.module for pair in kept_out}) < 2:
        raise ValueError(
            f"packages {packages!r} hold {len(kept_out)} documented functions in held-out modules, too few "
            "for validation and test queries of different modules: name a larger package, such as 'stdlib'"
        )
    pairs = sorted(sorted(kept_out, key=lambda pair: text_digest(pair.id))[:documents], key=lambda pair: pair.id)
    asked = _split([pair.id for pair in pairs])
    limits = zip(asked, (validation_queries, test_queries), strict=True)
    queries_kept = {id for ids, limit in limits for id in sorted(ids, key=text_digest)[:limit]}
    texts = {pair.id: pair.code for pair in pairs}
    queries = {pair.id: pair.query for pair in pairs if pair.id in queries_kept}
    qrels = {id: {id: 1} for id in queries}
    identity = parts_digest(part for id in texts for part in (id, texts[id], queries.get(id, "")))
    return Collection(f"embedded-held-out({_describe(chosen)})", identity, texts, queries, qrels)


def embedded_query_split(collection: Collection) -> tuple[list[str], list[str]]:
    """(validation, test) query ids of an embedded collection, a function of its document ids alone.

    Disjoint, together all queries, and no module has queries in both.
    """
    validation, test = map(set, _split(list(collection.documents)))
    return [q for q in collection.queries if q in validation], [q for q in collection.queries if q in test]


def embedded_text_set(
    packages: str | tuple[str, ...] = DEFAULT_PACKAGES, cache: Path | None = None
) -> tuple[str, list[str]]:
    """Name and distinct texts of `embedded_texts` that have `_TEXT_WORDS` words or more.

    With `cache` they are kept there, keyed as those of `docstrings.read_pairs`.
    """
    chosen = _find(packages)
    name = f"embedded-texts({_describe(chosen)})"
    rules = "".join(Path(module).read_text("utf-8") for module in (__file__, docstrings.__file__))
    key = parts_digest([name, *(str(package.root) for package in chosen), text_digest(rules)])[:16]

    def texts() -> list[str]:
        return [t for t in dict.fromkeys(embedded_texts(packages, cache)) if len(t.split()) >= _TEXT_WORDS]

    return name, texts() if cache is None else kept.rows(cache / f"texts-{key}.jsonl", texts)


def embedded_texts(packages: str | tuple[str, ...] = INSTALLED, cache: Path | None = None) -> Iterator[str]:
    """Plain texts for unsupervised pre-training: docstrings, comment blocks and code, each on its own.

    A docstring and its function are separate texts, not neighbours to be paired. Held-out modules, and
    functions elsewhere whose first sentence or code is also found in one, are left out. Not deduplicated.
    """
    chosen = _find(packages)
    kept_out = (pair for package in {*chosen, *_find(DEFAULT_PACKAGES)} for pair in read_pairs(package, cache))
    queries, codes = _texts_of(pair for pair in kept_out if is_held_out(pair.module))
    for package in chosen:
        for module, file in package.modules():
            parsed = None if is_held_out(module) else parse(file)
            if parsed is None:
                continue
            source, tree = parsed
            yield from _comments(source)
            for node in ast.walk(tree):
                if isinstance(node, (ast.Module, ast.ClassDef)):
                    yield from filter(None, [ast.get_docstring(node)])
            for _, docstring, code in functions(tree, source):
                if (query_of(docstring) or "").lower() not in queries and _squeeze(code) not in codes:
                    yield from filter(None, (docstring, code))


def is_held_out(module: str) -> bool:
    """Whether a module of that dotted name is kept for validation and test.

    >>> is_held_out("email.parser"), is_held_out("email.message")
    (True, False)
    """
    return int(text_digest(f"held out {module}")[:8], 16) % 100 < HELD_OUT_PERCENT


def _find(packages: str | tuple[str, ...]) -> list[Package]:
    """The packages in the order asked for, each once."""
    if packages == INSTALLED:
        return [package for name in (STDLIB, *DEPENDENCIES) if (package := find_package(name))]
    names = (packages,) if packages == STDLIB else packages
    if isinstance(names, str) or not names:
        raise ValueError(
            f"packages is {packages!r}; accepted are {STDLIB!r}, {INSTALLED!r} or a tuple of import names "
            f"such as ({STDLIB!r}, 'numpy')"
        )
    chosen = {name: find_package(name) for name in names}
    missing = [name for name, package in chosen.items() if package is None]
    if missing:
        known = [STDLIB, *(name for name in DEPENDENCIES if find_package(name))]
        raise ValueError(
            f"packages names {', '.join(map(repr, missing))}, not installed here as Python source; "
            f"among those that are: {', '.join(known)}"
        )
    return [package for package in chosen.values() if package is not None]


def _unique(pairs: Iterable[Pair]) -> list[Pair]:
    """The first pair of each docstring and of each code; sentences repeated `_BOILERPLATE` times go entirely.

    Deduplicated before the split, so a repeated text has one owner whatever side it is on.
    """
    pairs = list(pairs)
    times = Counter(pair.query.lower() for pair in pairs)
    kept, queries, codes = [], set(), set()
    for pair in pairs:
        query, code = pair.query.lower(), _squeeze(pair.code)
        if times[query] < _BOILERPLATE and query not in queries and code not in codes:
            kept.append(pair)
            queries.add(query)
            codes.add(code)
    return kept


def _split(ids: list[str]) -> tuple[list[str], list[str]]:
    """Document ids of the validation modules and of the test modules.

    Modules in the order of their hash go to validation until it has its share, so that the sizes of modules,
    which differ a hundredfold, hardly move the proportion.
    """
    sizes = Counter(id.partition(":")[0] for id in ids)
    validation: set[str] = set()
    wanted, taken = _VALIDATION_SHARE * len(ids), 0
    for module in sorted(sizes, key=text_digest):
        if not validation or (taken + sizes[module] <= wanted and len(validation) < len(sizes) - 1):
            validation.add(module)
            taken += sizes[module]
    parts: tuple[list[str], list[str]] = ([], [])
    for id in ids:
        parts[id.partition(":")[0] not in validation].append(id)
    return parts


def _texts_of(pairs: Iterable[Pair]) -> tuple[set[str], set[str]]:
    pairs = list(pairs)
    return {pair.query.lower() for pair in pairs}, {_squeeze(pair.code) for pair in pairs}


def _comments(source: str) -> Iterator[str]:
    """Blocks of neighbouring comment lines that hold at least a few words."""
    matches = map(_COMMENT.match, source.splitlines())
    for is_comment, lines in itertools.groupby(matches, key=bool):
        if is_comment:
            block = "\n".join(line[1] for line in lines if line)
            if len(block.split()) >= 4:
                yield block


def _squeeze(code: str) -> str:
    """Code without comment lines and white space, for comparison."""
    return "".join("".join(line.split()) for line in code.splitlines() if not line.lstrip().startswith("#"))


def _describe(packages: list[Package]) -> str:
    return ", ".join(f"{package.name} {package.version}" for package in packages)
