"""The embedded data: what is read from sources, how it is split, and that nothing leaks."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from trainables.data import docstrings, embedded
from trainables.data.docstrings import Pair, find_package, query_of, read_pairs
from trainables.data.types import Collection, TrainingSet

PACKAGE = "embedded_sample"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of 60 modules with 3 documented functions each, on the path but never imported."""
    root = tmp_path / "lib" / PACKAGE
    root.mkdir(parents=True)
    (root / "__init__.py").write_text("raise RuntimeError('the package was imported')\n")
    for number in range(60):
        functions = [
            textwrap.dedent(f'''
                def grow_{name}_{number}(plants):
                    """Return the {name} plants of garden number{"x" * number} after a season.

                    More words, which are no part of the query.
                    """
                    # {name} plants grow slowly
                    grown = [plant + {number} for plant in plants]
                    return grown, "{name}"
            ''')
            for name in ("tall", "small", "green")
        ]
        (root / f"garden_{number}.py").write_text("".join(functions))
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    return root


@pytest.fixture
def sample(package: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """The sample package as the whole of what is installed."""
    monkeypatch.setattr(embedded, "DEFAULT_PACKAGES", (PACKAGE,))
    return (PACKAGE,)


@pytest.fixture(scope="module")
def standard(embedded_cache: Path) -> tuple[TrainingSet, Collection]:
    """The real defaults, read once."""
    return embedded.embedded_training_set(cache=embedded_cache), embedded.embedded_collection(embedded_cache)


def module_of(id: str) -> str:
    return id.partition(":")[0]


def test_a_pair_is_the_first_sentence_and_the_code_without_it(package: Path) -> None:
    found = find_package(PACKAGE)
    assert found is not None
    assert read_pairs(found)[0] == Pair(
        module=f"{PACKAGE}.garden_0",
        name="grow_tall_0",
        query="Return the tall plants of garden number after a season.",
        code="def grow_tall_0(plants):\n"
        "    # tall plants grow slowly\n"
        "    grown = [plant + 0 for plant in plants]\n"
        '    return grown, "tall"',
    )
    assert PACKAGE not in sys.modules


@pytest.mark.parametrize(
    ("docstring", "query"),
    [
        ("Parse a :class:`~a.b.Message` from *bytes*, e.g. of a file.  Then stop.",
         "Parse a Message from bytes, e.g. of a file."),
        ("parse(text) -> Message\n\nWhat it does is said later.", None),
        ("parse(text) -> Message. Parse the text of a message.", "Parse the text of a message."),
        ("Too short.", None),
        (">>> add(1, 2) and some more words here", None),
        ("Über die Gärten in der Stadt und am Fluss.", None),
        ("x" * 50 + " and " + "very " * 60 + "long", None),
    ],
)  # fmt: skip
def test_queries_are_sentences(docstring: str, query: str | None) -> None:
    assert query_of(docstring) == query


@pytest.mark.parametrize(
    "body",
    [
        'def f(): "Return the sum of the two numbers."; return 1 + 1 + 1 + 1 + 1',
        'def f():\n    """Return the sum of the two numbers."""\n    pass',
        'def f():\n    """Return the sum of the two numbers."""\n    raise NotImplementedError("some words")',
        'def f():\n    """Return the sum of the two numbers."""\n    return 1',
        'def f():\n    """Return the sum of the two numbers."""\n    return "' + "a" * 5_000 + '"',
        'def f(:\n    """Return the sum of the two numbers."""\n    return [1, 2, 3, 4, 5, 6, 7, 8, 9]',
    ],
    ids=["one line", "pass", "abstract", "tiny", "huge", "syntax error"],
)
def test_functions_without_a_body_worth_searching_are_left_out(package: Path, body: str) -> None:
    for file in package.iterdir():
        file.unlink()
    (package / "__init__.py").write_text(body + "\n")
    found = find_package(PACKAGE)
    assert found is not None
    assert read_pairs(found) == []


def test_the_cache_gives_what_the_sources_give(sample: tuple[str, ...], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    plain = embedded.embedded_training_set(sample)
    assert embedded.embedded_training_set(sample, cache) == plain
    files = list(cache.iterdir())
    assert [file.suffix for file in files] == [".jsonl"]
    assert embedded.embedded_training_set(sample, cache) == plain
    collection = embedded.embedded_collection(packages=sample)
    assert embedded.embedded_collection(cache, packages=sample) == collection
    assert list(cache.iterdir()) == files


def test_the_cache_is_read_and_a_changed_package_is_read_anew(
    sample: tuple[str, ...], package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    before = embedded.embedded_training_set(sample, cache)
    with monkeypatch.context() as context:
        context.setattr(docstrings, "parse", lambda file: pytest.fail("the sources were read"))
        assert embedded.embedded_training_set(sample, cache) == before
    for file in package.glob("garden_*.py"):
        file.write_text(file.read_text().replace("season", "long winter"))
    assert embedded.embedded_training_set(sample, cache).identity != before.identity


def test_repeated_texts_occur_once_and_never_on_both_sides(sample: tuple[str, ...], package: Path) -> None:
    held_out, trained = "", ""
    for file in sorted(package.glob("garden_*.py")):
        if embedded.is_held_out(f"{PACKAGE}.{file.stem}"):
            held_out = held_out or file.read_text()
        elif not trained:
            trained = file.read_text()
    (package / "copies_a.py").write_text(held_out.replace("after a season", "after a year"))
    (package / "copies_b.py").write_text(held_out.replace("plant +", "plant -"))
    (package / "copies_c.py").write_text(trained)
    examples = embedded.embedded_training_set(sample).examples
    documents = embedded.embedded_collection(packages=sample)
    assert len({example.query.lower() for example in examples}) == len(examples)
    assert len({example.positive for example in examples}) == len(examples)
    assert not {example.query for example in examples} & set(documents.queries.values())
    assert not {example.positive for example in examples} & set(documents.documents.values())


def test_boilerplate_is_dropped(sample: tuple[str, ...], package: Path) -> None:
    for number in range(8):
        body = f'def f():\n    """Set the value of the attribute."""\n    return [{number}, "the values"]\n'
        (package / f"boilerplate_{number}.py").write_text(body)
    texts = [example.query for example in embedded.embedded_training_set(sample).examples]
    assert "Set the value of the attribute." not in texts


def test_texts_for_pre_training_leave_held_out_modules_out(sample: tuple[str, ...]) -> None:
    texts = list(embedded.embedded_texts(sample))
    held_out = embedded.embedded_collection(packages=sample)
    assert "tall plants grow slowly" in texts
    assert not set(held_out.documents.values()) & set(texts)
    assert not any(text.startswith(query) for query in held_out.queries.values() for text in texts)


@pytest.mark.parametrize("packages", ["numpy", "", (), ("numpy", "no_such_package")])
def test_packages_that_cannot_be_read_are_refused(packages: str | tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"'stdlib'|stdlib, .*numpy"):
        embedded.embedded_training_set(packages)


def test_sizes_that_make_no_collection_are_refused() -> None:
    with pytest.raises(ValueError, match="test_queries is 0"):
        embedded.embedded_collection(test_queries=0)


def test_the_real_data_have_the_promised_sizes(standard: tuple[TrainingSet, Collection]) -> None:
    training, collection = standard
    validation, test = embedded.embedded_query_split(collection)
    assert len(training.examples) > 3_000
    assert len(collection.documents) == 1_000
    assert (len(validation), len(test)) == (200, 600)
    assert all(len(query.split()) >= 4 and len(query) <= 240 for query in collection.queries.values())
    assert all('"""' not in code.split("\n")[1] for code in collection.documents.values() if "\n" in code)


def test_the_real_data_are_split_by_module(standard: tuple[TrainingSet, Collection]) -> None:
    training, collection = standard
    trained = {module_of(example.positive_id or "") for example in training.examples}
    validation, test = ({module_of(q) for q in part} for part in embedded.embedded_query_split(collection))
    assert not validation & test
    assert not trained & {module_of(id) for id in collection.documents}
    queries = {query.lower() for query in collection.queries.values()}
    assert not queries & {example.query.lower() for example in training.examples}


def test_every_query_has_its_one_document(standard: tuple[TrainingSet, Collection]) -> None:
    _, collection = standard
    assert list(collection.qrels) == list(collection.queries)
    assert all(collection.qrels[q] == {q: 1} and q in collection.documents for q in collection.queries)
    assert len(set(collection.queries.values())) == len(collection.queries)


def test_smaller_collections_are_parts_of_larger_ones(
    standard: tuple[TrainingSet, Collection], embedded_cache: Path
) -> None:
    small = embedded.embedded_collection(embedded_cache, documents=100, validation_queries=5, test_queries=7)
    assert small.documents.items() <= standard[1].documents.items()
    assert [len(part) for part in embedded.embedded_query_split(small)] == [5, 7]
