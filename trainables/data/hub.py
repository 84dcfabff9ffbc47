"""Published data by name: `ir_datasets` ids and `datasets` names. Either library is imported when asked for.

Useful ids: msmarco-passage/train/triples-small (training), msmarco-passage/dev/small, beir/scifact/test,
nano-beir/scifact (evaluation; other BEIR and NanoBEIR sets likewise). Downloads stay in the libraries' own
caches (`~/.ir_datasets` or IR_DATASETS_HOME, `HF_HOME`), which all studies share.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from trainables.data import assemble, kept, pools
from trainables.data.config import EvaluationData, Pool, TrainData
from trainables.data.types import Collection, Example, TrainingSet
from trainables.digests import text_digest
from trainables.errors import one_line
from trainables.places import FILE_BUILDERS

_PAIRS_PER_LOOKUP = 10_000


def ir_datasets_examples(id: str, data: TrainData, cache: Path | None) -> TrainingSet:
    """The document pairs of an `ir_datasets` id: document a is the positive, document b the negative.

    Looking up a million passages takes about a minute, so the texts are kept in `cache` where there is one.
    ValueError where the id is unknown or has no document pairs.
    """
    dataset = ir_dataset(id, ("docs", "queries", "docpairs"))
    if cache is None:
        return assemble.training_set(id, (_example(*row) for row in _pairs(dataset, data.limit)))
    key = text_digest(f"{id} {data.limit}")[:16]
    path = cache / "ir_datasets" / f"{key}.jsonl"
    found = kept.rows(path, lambda: _pairs(dataset, data.limit))
    return assemble.training_set(id, (_example(*row) for row in found))


def ir_datasets_collection(
    id: str, data: EvaluationData, cache: Path | None = None, *, pooled: bool = True
) -> Collection:
    """Documents, queries and qrels of an `ir_datasets` id, all in memory; of `data.pool` where that is wanted and
    `pooled`. Its documents are kept in `cache` where there is one: drawing them reads the whole collection.

    A document's text is the library's `default_text` (title and body where it has both). One without any
    text is kept: the published figures were measured with it. ValueError where the id is unknown or lacks
    one of the three.
    """
    pool = data.pool if pooled else None
    dataset = ir_dataset(id, ("docs", "queries", "qrels", *(["scoreddocs"] if pool is not None and pool.hard else [])))
    if pool is not None:
        return _pool(id, dataset, pool, cache)

    def lookup(ids: list[str]) -> Iterator[tuple[str, str]]:
        found = dataset.docs_store().get_many(ids)
        return ((id, found[id].default_text()) for id in ids if id in found)

    documents = ((document.doc_id, document.default_text()) for document in dataset.docs_iter())
    return assemble.collection(id, documents, queries_of(dataset), dataset.qrels_dict(), data.max_documents, lookup)


def ir_datasets_texts(id: str) -> Iterator[str]:
    """The documents of an `ir_datasets` id in its order, as their text; one may be blank.

    ValueError where the id is unknown or has no documents.
    """
    dataset = ir_dataset(id, ("docs",))
    return (
        assemble.text(document.default_text(), f"ir_datasets:{id}, document {document.doc_id!r}")
        for document in dataset.docs_iter()
    )


def _pool(id: str, dataset: Any, pool: Pool, cache: Path | None) -> Collection:
    qrels = dataset.qrels_dict()
    queries = pools.drawn_queries(id, queries_of(dataset), qrels, pool)

    def drawn() -> Iterator[tuple[str, str]]:
        wanted = {document for query in queries for document in qrels[query]}
        if pool.hard:
            ranked = ((one.query_id, one.doc_id, one.score) for one in dataset.scoreddocs_iter())
            wanted |= pools.hard_documents(ranked, queries, pool)
        documents = ((document.doc_id, document.default_text()) for document in dataset.docs_iter())
        return pools.drawn_documents(id, documents, wanted, pool)

    key = text_digest(f"{id} {pool.model_dump_json()}")[:16]
    path = cache / "ir_datasets" / f"pool-{key}.jsonl" if cache is not None else None
    found: Iterable[Any] = drawn() if path is None else kept.rows(path, drawn)
    return assemble.collection(id, found, queries, {query: qrels[query] for query in queries})


def queries_of(dataset: Any) -> dict[str, str]:
    """Id -> text of each query, which may be blank."""
    return {
        query.query_id: assemble.text(
            query.default_text(), f"ir_datasets:{dataset.dataset_id()}, query {query.query_id!r}"
        )
        for query in dataset.queries_iter()
    }


def datasets_examples(name: str, data: TrainData) -> TrainingSet:
    """Examples of `NAME[:CONFIG]`: a hub name, a folder, or a builder of FILE_BUILDERS with a path or URL.

    ValueError where `datasets` does not find or open it, or a column is missing.
    """
    rows = datasets_rows(name, data.split)
    if data.limit is not None:
        rows = rows.select(range(min(data.limit, len(rows))))
    read = (assemble.example(row, data, f"datasets:{name}, row {number}") for number, row in enumerate(rows))
    return assemble.training_set(name, read)


def datasets_rows(name: str, split: str, streaming: bool = False) -> Any:
    """A split of `NAME[:CONFIG]` as `datasets` opens it, or of a folder that its `save_to_disk` wrote.

    ValueError as `datasets_examples`. With `streaming` nothing is downloaded before it is read.
    """
    import datasets

    builder, _, rest = name.partition(":")
    try:
        if _saved(Path(name)):
            return _from_disk(name, split, streaming)
        if builder in FILE_BUILDERS:
            if not rest:
                raise ValueError(f"{builder} needs a file: datasets:{builder}:PATH_OR_URL")
            return datasets.load_dataset(builder, data_files={split: rest}, split=split, streaming=streaming)
        return datasets.load_dataset(builder, rest or None, split=split, streaming=streaming)
    except Exception as error:
        # A hub or a disk that is away is the machine's matter; all else that the library says is about the source.
        causes = [error] if error.__cause__ is None else [error, error.__cause__]
        if any(isinstance(e, (OSError, MemoryError)) and not isinstance(e, FileNotFoundError) for e in causes):
            raise
        said = one_line(": ".join(map(str, causes)))
        raise ValueError(f"datasets:{name}, split {split!r}: {said}") from error


def has_splits(name: str) -> bool:
    """Whether data sets called `NAME[:CONFIG]` have splits of their own: a file has none, nor has one saved split."""
    return name.partition(":")[0] not in FILE_BUILDERS and not (Path(name) / "state.json").is_file()


def _saved(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("state.json", "dataset_dict.json"))


def _from_disk(name: str, split: str, streaming: bool) -> Any:
    """One split of what was saved: of several by its name, a single one under the name it was saved with."""
    import datasets

    try:
        saved = datasets.load_from_disk(name)
    except (FileNotFoundError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"save_to_disk wrote this folder, and it is not whole any more ({error!r})") from None
    splits = saved if isinstance(saved, dict) else {split if saved.split is None else str(saved.split): saved}
    if split not in splits:
        raise ValueError(f"the folder has the splits {', '.join(splits)}")
    return splits[split].to_iterable_dataset() if streaming else splits[split]


def ir_dataset(id: str, needed: tuple[str, ...]) -> Any:
    """The dataset of an id that has all of `needed`; ValueError otherwise, with the nearest ids."""
    import ir_datasets

    try:
        dataset = ir_datasets.load(id)
    except KeyError:
        near = difflib.get_close_matches(id, list(ir_datasets.registry), n=3, cutoff=0.5)
        hint = f"; nearest: {', '.join(near)}" if near else ""
        raise ValueError(f"ir_datasets has no id {id!r}{hint} (all of them: https://ir-datasets.com)") from None
    missing = [entity for entity in needed if not dataset.has(entity)]
    if missing:
        has = [entity for entity in ("docs", "queries", "qrels", "docpairs") if dataset.has(entity)]
        others = [other for other in ir_datasets.registry if other.startswith(f"{id}/")]
        able = [other for other in others if all(ir_datasets.load(other).has(entity) for entity in needed)]
        hint = f"; below it, these have all: {', '.join(able[:8])}" if able else ""
        raise ValueError(f"ir_datasets:{id} has {', '.join(has)} but no {' or '.join(missing)}, needed here{hint}")
    return dataset


def _pairs(dataset: Any, limit: int | None) -> Iterator[tuple[str, ...]]:
    """Arguments of `_example` in the order of the pairs; documents are looked up thousands at a time."""
    pairs = islice(dataset.docpairs_iter(), limit)
    queries = {query.query_id: query.default_text() for query in dataset.queries_iter()}
    store = dataset.docs_store()
    while block := list(islice(pairs, _PAIRS_PER_LOOKUP)):
        found = store.get_many({id for pair in block for id in (pair.doc_id_a, pair.doc_id_b)})
        documents = {id: document.default_text() for id, document in found.items()}
        for pair in block:
            ids = (pair.query_id, pair.doc_id_a, pair.doc_id_b)
            found_texts = (queries.get(ids[0]), documents.get(ids[1]), documents.get(ids[2]))
            texts = (
                assemble.text(body, f"ir_datasets:{dataset.dataset_id()}: text of {id!r} in pair {ids}")
                for id, body in zip(ids, found_texts, strict=True)
            )
            yield (*texts, *ids[1:])


def _example(query: str, positive: str, negative: str, positive_id: str, negative_id: str) -> Example | None:
    if not query.strip() or not positive.strip():
        return None
    return Example(query, positive, (negative,), positive_id=positive_id, negative_ids=(negative_id,))
