"""One model on one whole collection, shard by shard: every shard is encoded once and searched on its own.

    CACHE/COLLECTION-ID/MODEL-SETTINGS/queries-ID/        vectors of the queries
    CACHE/COLLECTION-ID/MODEL-SETTINGS/shard-00012/       vectors, ids and statistics of its documents
    CACHE/COLLECTION-ID/MODEL-SETTINGS/hits-ID/00012.npy  best documents of each query in the shard

A shard is a run of documents in the source's order. Its bounds are a function of the collection alone, so that
the result is the same to the last bit whatever the number of workers. A folder is written aside and renamed into
place, with a manifest that names model, collection and settings and has the digests of the files: a shard that
is there is whole, one that was changed since is made again, and what is there is never encoded twice.

Memory of a process: the model, the texts of one shard (at most 65,536, and about 256 MiB), the queries' vectors,
one block of 256 documents with its scores, and `depth` results per query. In figures, for the 8,841,823 passages
and 6,980 queries of MS MARCO, depth 1,000: 135 shards of 65,536; texts of a shard 65,536 x 350 B = 23 MB;
queries 6,980 x 768 x 4 B = 21 MB; a block's scores 6,980 x 256 x (4 + 8) B = 21 MB; results 6,980 x 1,000 x 8 B
= 56 MB, twice while merging. About 0.2 GB beside the model and its libraries (1-2 GB), whatever the size of the
collection: 16 such workers take less than 40 GB. On disk, in the cache: 27 GB of vectors in float32, 13.6 GB in
float16, 8 GB for SPLADE with 150 terms a passage in float32; and 135 x 56 MB = 7.6 GB of hits. MaxSim on 80 vectors
of 128 a passage takes 362 GB on disk; in memory a block 10 MB, the queries with 32 vectors each 114 MB.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trainables.digests import file_digest, json_digest
from trainables.evaluation.measurement import Measurement, Precision
from trainables.evaluation.retrieval import length_blocks, total
from trainables.evaluation.search import best_of
from trainables.evaluation.vectors import Layout, Writer, blocks
from trainables.files import replacing
from trainables.recipe import Encoder

log = logging.getLogger(__name__)

FORMAT = 2


class ShardSearch:
    """The queries of a measurement, encoded, and ready to be searched for in any shard."""

    def __init__(self, measurement: Measurement, encoder: Encoder, device: torch.device) -> None:
        self.measurement, self.encoder, self.device = measurement, encoder, device
        corpus = measurement.corpus
        self.binding = {
            "format": FORMAT,
            "model": measurement.model_identity,
            "collection": corpus.identity,
            "trainer": measurement.trainer,
            "settings": encoder.settings,
            "vectors": encoder.scorer.name,
            "precision": measurement.precision,
            "shard_rows": measurement.shard_rows,
        }
        self.folder = (
            measurement.cache
            / f"{corpus.name.replace('/', '-')}-{corpus.identity[:12]}"
            / f"{measurement.model_identity[:12]}-{json_digest(self.binding)[:12]}"
        )
        for size in searched(measurement):
            hits_file(self.folder, measurement, 0, size).parent.mkdir(parents=True, exist_ok=True)
        self._vectors = self._encoded_queries(_queries_folder(self.folder, measurement.topics.queries))

    @torch.inference_mode()
    def search(self, shard: int) -> bool:
        """Encode the shard's documents unless that is done, and write the best of them for each query.

        Returns whether documents had to be encoded.
        """
        place, queries = _shard_folder(self.folder, shard), len(self.measurement.topics.queries)
        hits = {size: hits_file(self.folder, self.measurement, shard, size) for size in searched(self.measurement)}
        start, stop = self.measurement.bounds(shard)
        if place.is_dir() and all(read_hits(path, queries) is not None for path in hits.values()):
            return False
        manifest, encoded = _made(place, self.binding | {"start": start, "stop": stop}, self._encode(start, stop))
        scorer = self.encoder.scorer
        for size, path in hits.items():
            asked = self._vectors if size is None else scorer.prefix(self._vectors, size)
            scored = (
                (positions, scorer.kept_scores(asked, vectors if size is None else scorer.prefix(vectors, size)))
                for positions, vectors in blocks(place, scorer, Layout(**manifest["layout"]))
            )
            keys = best_of(scored, queries, self.measurement.depth).keys
            with replacing(path) as aside, aside.open("wb") as file:
                np.save(file, keys.cpu().numpy())
        return encoded

    def _encode(self, start: int, stop: int) -> Callable[[Path], dict[str, Any]]:
        def write(folder: Path) -> dict[str, Any]:
            corpus = self.measurement.corpus
            documents = list(corpus.documents(start, stop))
            if len(documents) != stop - start:
                raise ValueError(
                    f"{corpus.name} has {len(documents)} documents from {start} on, of {stop - start} that were there "
                    "when it was opened: it was changed meanwhile; run the same command again"
                )
            (folder / "ids.json").write_text(json.dumps([id for id, _ in documents]))
            texts = [text for _, text in documents]
            facts = self._write(folder, texts, start, self.encoder.documents, self.measurement.precision)
            facts["files"].append("ids.json")
            return facts

        return write

    def _write(
        self,
        folder: Path,
        texts: Sequence[str],
        start: int,
        encode: Callable[[list[str]], Any],
        precision: Precision,
    ) -> dict[str, Any]:
        """Vectors and statistics of `texts`, the first of which has the position `start`."""
        writer = Writer(folder, self.encoder.scorer, precision)
        measured = self.encoder.statistics
        summed: torch.Tensor | None = None
        for block in length_blocks(texts):
            vectors = encode([texts[position] for position in block])
            writer.add([start + position for position in block], vectors)
            if measured is not None:
                found = total(measured, vectors)
                summed = found if summed is None else summed + found
        layout, files = writer.close(), list(writer.files)
        if summed is not None:
            np.save(folder / "statistics.npy", summed.numpy())
            files.append("statistics.npy")
        return {"layout": asdict(layout), "files": files}

    @torch.inference_mode()
    def _encoded_queries(self, place: Path) -> Any:
        """Vectors of the queries in their order, as `Scorer.kept` makes them ready on the device.

        Every worker reads what the first one wrote, so that all search for the same numbers.
        """
        texts = list(self.measurement.topics.queries.values())
        manifest, _ = _made(
            place, self.binding | {"queries": json_digest(list(self.measurement.topics.queries.items()))},
            lambda folder: self._write(folder, texts, 0, self.encoder.queries, "float32"),
        )  # fmt: skip
        read = list(blocks(place, self.encoder.scorer, Layout(**manifest["layout"])))
        order = np.argsort([position for positions, _ in read for position in positions]).tolist()
        return self.encoder.scorer.kept([vectors for _, vectors in read], order, self.device)


def read_hits(path: Path, queries: int) -> torch.Tensor | None:
    """`TopK.keys` of a shard; None where there is no such file, or it is not whole."""
    try:
        keys = np.load(path)
    except (FileNotFoundError, EOFError, ValueError):
        return None
    return torch.from_numpy(keys) if keys.dtype == np.int64 and len(keys) == queries else None


def searched(measurement: Measurement) -> tuple[int | None, ...]:
    """What is searched with: whole vectors, None, and their prefixes of these sizes."""
    return (None, *measurement.counting.sizes[:-1])


def hits_file(folder: Path, measurement: Measurement, shard: int, size: int | None = None) -> Path:
    """Where the best documents of a shard are kept, in the folder of a measurement: those that whole vectors find, or
    prefixes of a `size`."""
    asked = json_digest(
        [list(measurement.topics.queries.items()), measurement.depth, *([] if size is None else [size])]
    )
    return folder / f"hits-{asked[:12]}" / f"{shard:05d}.npy"


def ids(folder: Path, shards: int) -> Iterator[str]:
    """Ids of all documents of a measurement that is done, in the order of their positions."""
    for shard in range(shards):
        yield from json.loads((_shard_folder(folder, shard) / "ids.json").read_text())


def settings(folder: Path) -> dict[str, Any]:
    """`Encoder.settings` that the vectors of a measurement were made with."""
    return json.loads((_shard_folder(folder, 0) / "manifest.json").read_text())["settings"]


def document_statistics(folder: Path, shards: int) -> torch.Tensor:
    """The encoder's statistics, summed over the documents of all shards."""
    parts = (np.load(_shard_folder(folder, shard) / "statistics.npy") for shard in range(shards))
    return torch.as_tensor(sum(parts, np.float64(0)))


def query_statistics(folder: Path, queries: dict[str, str]) -> torch.Tensor:
    """The encoder's statistics, summed over the queries."""
    return torch.from_numpy(np.load(_queries_folder(folder, queries) / "statistics.npy"))


def _shard_folder(folder: Path, shard: int) -> Path:
    return folder / f"shard-{shard:05d}"


def _queries_folder(folder: Path, queries: dict[str, str]) -> Path:
    return folder / f"queries-{json_digest(list(queries.items()))[:12]}"


def _made(place: Path, binding: dict[str, Any], write: Callable[[Path], dict[str, Any]]) -> tuple[dict[str, Any], bool]:
    """The manifest of a whole folder that is bound to `binding`, and whether `write` had to make it.

    `write(folder)` returns what the manifest says besides, with `files`, the names of what it wrote.
    """
    manifest = _whole(place, binding)
    if manifest is not None:
        return manifest, False
    aside = place.with_name(f".writing-{_process()}-{place.name}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    facts = write(aside)
    manifest = binding | facts | {"sha256": {name: file_digest(aside / name) for name in facts["files"]}}
    (aside / "manifest.json").write_text(json.dumps(manifest))
    while True:
        try:
            aside.rename(place)
            return manifest, True
        except OSError:
            # Another worker was first, or what is there is damaged.
            theirs = _whole(place, binding)
            if theirs is not None:
                shutil.rmtree(aside)
                return theirs, False
            if not place.exists():
                raise
            shutil.rmtree(place, ignore_errors=True)


def _whole(place: Path, binding: dict[str, Any]) -> dict[str, Any] | None:
    try:
        manifest = json.loads((place / "manifest.json").read_text())
        if any(manifest[key] != value for key, value in binding.items()):
            raise ValueError("it belongs to something else")
        changed = [name for name, sha256 in manifest["sha256"].items() if file_digest(place / name) != sha256]
        if changed:
            raise ValueError(f"changed since it was written: {', '.join(changed)}")
    except (OSError, ValueError, KeyError) as error:
        if place.exists():
            log.warning("%s is made again: %s", place, error)
        return None
    return manifest


def _process() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"
