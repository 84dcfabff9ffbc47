"""Whole collections, read in slices: any number of processes read their parts, and none holds all documents.

A folder in BEIR layout is read once from end to end: that gives the digest of its corpus, the byte at which
every `STRIDE`-th document begins, and whether the judged documents are there. What was found is kept in the
cache, so that only a changed file is read again. An `ir_datasets` id has slices of its own.
"""

from __future__ import annotations

import hashlib
import shutil
from array import array
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from trainables.data import assemble, formats, kept, local
from trainables.digests import json_digest
from trainables.files import replacing

STRIDE = 256
"""Documents between two known places of a file; reading from anywhere passes over fewer than this many."""

_INDEX = 2
"""Format of an index."""

_SAMPLE = 100
"""Documents of an `ir_datasets` id that tell its identity and how long its texts are."""


class Corpus(Protocol):
    """Documents with positions from 0 in the source's order. The object itself is small, and can be sent to other
    processes."""

    @property
    def name(self) -> str: ...

    @property
    def identity(self) -> str:
        """sha256; equal identities mean equal documents in equal order."""
        ...

    @property
    def size(self) -> int:
        """Number of documents."""
        ...

    @property
    def document_bytes(self) -> float:
        """Mean size of a document in bytes, as it is stored."""
        ...

    def documents(self, start: int, stop: int) -> Iterator[tuple[str, str]]:
        """(id, text) of the documents at `start` and before `stop`."""
        ...


@dataclass(frozen=True, slots=True)
class Topics:
    """What is asked of a corpus: queries with a relevant document in it, and all their judgements."""

    queries: dict[str, str]
    qrels: dict[str, dict[str, int]] = field(repr=False)
    notes: tuple[str, ...] = ()
    """What was found empty or left out, a sentence each; empty documents of an `ir_datasets` id are not counted."""

    @property
    def identity(self) -> str:
        """sha256 over ids, texts and judgements."""
        rows = [list(self.queries.items()), [(query, sorted(row.items())) for query, row in self.qrels.items()]]
        return json_digest(rows)


@dataclass(frozen=True, slots=True)
class FolderCorpus:
    """`corpus.jsonl` of a folder in BEIR layout; a document is its title and text."""

    name: str
    identity: str
    size: int
    document_bytes: float
    path: Path
    offsets: tuple[int, ...] = field(repr=False)
    """Where documents 0, STRIDE, 2 * STRIDE, ... begin, in bytes."""

    def documents(self, start: int, stop: int) -> Iterator[tuple[str, str]]:
        if start >= min(stop, self.size):
            return
        with self.path.open("rb") as file:
            file.seek(self.offsets[start // STRIDE])
            rows = (row for row in _lines(file) if row.strip())
            for position, row in enumerate(islice(rows, start % STRIDE, stop - start + start % STRIDE), start=start):
                where = f"{self.path}, document {position}"
                yield local.document(local.json_object(row, where), where)


@dataclass(frozen=True, slots=True)
class HubCorpus:
    """The documents of an `ir_datasets` id. Each process opens them in the library's own cache."""

    id: str
    name: str
    identity: str
    size: int
    document_bytes: float

    def documents(self, start: int, stop: int) -> Iterator[tuple[str, str]]:
        import ir_datasets

        for document in ir_datasets.load(self.id).docs_iter()[start : min(stop, self.size)]:
            yield document.doc_id, document.default_text()


def open_corpus(source: str, cache: Path, qrels_split: str = "test") -> tuple[Corpus, Topics]:
    """What `source` names: a folder in BEIR layout (`qrels/<qrels_split>.tsv`) or `ir_datasets:ID`.

    `cache` gets an index of a folder, and its corpus where that is compressed. ValueError where something is
    missing or wrong, with file and line.
    """
    if source.startswith("ir_datasets:"):
        return _open_hub(source.removeprefix("ir_datasets:"))
    return _open_folder(Path(source), cache, qrels_split)


def _open_hub(id: str) -> tuple[HubCorpus, Topics]:
    from trainables.data.hub import ir_dataset, queries_of

    dataset = ir_dataset(id, ("docs", "queries", "qrels"))
    queries, qrels = queries_of(dataset), dataset.qrels_dict()
    judged = assemble.relevant_rows(id, queries, qrels)
    store = dataset.docs_store()
    present = store.get_many({document for row in judged.values() for document in row})
    sample = [(document.doc_id, document.default_text()) for document in dataset.docs_iter()[:_SAMPLE]]
    if not sample:
        raise ValueError(f"ir_datasets:{id}: no documents")
    size = store.count()
    corpus = HubCorpus(
        # The library checks its downloads against digests of its own: number and first texts tell which they are.
        id, id, json_digest([dataset.docs_namespace(), size, sample]), size,
        sum(len(text.encode()) for _, text in sample) / len(sample),
    )  # fmt: skip
    return corpus, _topics(id, queries, qrels, judged, present, sample[0][0])


def _open_folder(folder: Path, cache: Path, qrels_split: str) -> tuple[FolderCorpus, Topics]:
    corpus, queries_file, qrels_file = formats.beir_files(folder, qrels_split)
    # A resolved path: workers on the same machine have working folders of their own.
    corpus = corpus.resolve()
    queries = dict(local.read_texts(queries_file))
    qrels, notes = local.read_qrels(qrels_file)
    judged = assemble.relevant_rows(folder.name, queries, qrels)
    wanted = {document for row in judged.values() for document in row}
    place = cache / "corpora"
    place.mkdir(parents=True, exist_ok=True)
    stamp = corpus.stat()
    file = [str(corpus), stamp.st_size, stamp.st_mtime_ns]
    if corpus.suffix in formats.COMPRESSIONS:
        corpus = _decompressed(corpus, place / f"{folder.name}-{json_digest(file)[:12]}.jsonl")
    index_path = place / f"{folder.name}-{json_digest([_INDEX, file, sorted(wanted)])[:12]}.json"
    (index,) = kept.rows(index_path, lambda: [_index(corpus, wanted)])
    found = FolderCorpus(
        folder.name, index["sha256"], index["size"], corpus.stat().st_size / index["size"], corpus,
        tuple(index["offsets"]),
    )  # fmt: skip
    present = set(index["present"])
    topics = _topics(folder.name, queries, qrels, judged, present, index["first"], index["empty"])
    return found, replace(topics, notes=notes + topics.notes)


def _topics(
    name: str,
    queries: dict[str, str],
    qrels: Mapping[str, dict[str, int]],
    judged: dict[str, dict[str, int]],
    present: Container[str],
    corpus_id: str,
    empty: int = 0,
) -> Topics:
    kept = assemble.answerable(name, queries, judged, present, corpus_id)
    notes = assemble.collection_notes(name, queries, qrels, kept, empty)
    return Topics(kept, {query: judged[query] for query in kept}, notes)


def _index(path: Path, wanted: set[str]) -> dict[str, Any]:
    """One pass over a corpus: every line checked, eight bytes kept for each id."""
    digest, hashes, offsets, present = hashlib.sha256(), array("q"), [], set()
    offset, empty, first = 0, 0, None
    with local.opened(path) as file:
        for number, raw in enumerate(file, start=1):
            digest.update(raw)
            where = f"{path}, line {number}"
            row = local.decoded(raw, number == 1, where)
            if row.strip():
                id, body = local.document(local.json_object(row, where), where)
                if len(hashes) % STRIDE == 0:
                    offsets.append(offset)
                hashes.append(hash(id))
                empty += not body.strip()
                first = id if first is None else first
                if id in wanted:
                    present.add(id)
            offset += len(raw)
    if first is None:
        raise ValueError(f"{path.parent.name}: no documents")
    _refuse_repeated(path, np.frombuffer(hashes, dtype=np.int64))
    return {
        "sha256": digest.hexdigest(), "size": len(hashes), "offsets": offsets, "present": sorted(present),
        "first": first, "empty": empty,
    }  # fmt: skip


def _refuse_repeated(path: Path, hashes: np.ndarray) -> None:
    """ValueError where an id comes twice. Equal hashes are only a suspicion, so their ids are read again."""
    values, counts = np.unique(hashes, return_counts=True)
    suspects = set(values[counts > 1].tolist())
    if not suspects:
        return
    seen: Counter[str] = Counter()
    with path.open("rb") as file:
        for row in filter(str.strip, _lines(file)):
            id, _ = local.document(local.json_object(row, str(path)), str(path))
            if hash(id) in suspects:
                seen[id] += 1
                if seen[id] > 1:
                    raise ValueError(f"{path}: _id {id!r} comes a second time")


def _lines(file: Any) -> Iterator[str]:
    first = file.tell() == 0
    for raw in file:
        yield local.decoded(raw, first, file.name)
        first = False


def _decompressed(source: Path, target: Path) -> Path:
    """A compressed file has no places to start reading from, so it is unpacked once."""
    if not target.exists():
        with replacing(target) as aside, aside.open("wb") as file, local.opened(source) as packed:
            shutil.copyfileobj(packed, file)
    return target
