"""What the `paper` profiles name, at toy size and under its own names: files as `ir_datasets` keeps them after a
download, and a server that answers as the hub does.

`write` makes them in a folder, `serve` serves them, and `environment` points the libraries there: the profiles then
open their sources and backbones by the names that they have. Passages speak of topics of four words each that no other
topic has, and a query names three words of its topic: who finds words finds the passages.
"""

from __future__ import annotations

import csv
import hashlib
import http.server
import itertools
import json
import random
import re
import sys
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests import paper_backbones
from trainables.evaluation.suites import SUITES

MODELS = {
    "google-bert/bert-base-uncased": "bert", "distilbert/distilbert-base-uncased": "distilbert",
    "albert/albert-base-v2": "albert", "Alibaba-NLP/gte-en-mlm-base": "gte", "FacebookAI/roberta-base": "roberta",
    "answerdotai/ModernBERT-base": "modernbert", "jhu-clsp/ettin-encoder-150m": "ettin",
    "cl-nagoya/ruri-v3-130m": "modernbert",
}  # fmt: skip
"""Name on the hub -> the kind of `paper_backbones` that stands for it."""
BEIR = (
    "arguana", "climate-fever", "dbpedia-entity", "fever", "fiqa", "hotpotqa", "nfcorpus", "nq", "quora", "scidocs",
    "scifact", "trec-covid",
)  # fmt: skip
FORUMS = (
    "android", "english", "gaming", "gis", "mathematica", "physics", "programmers", "stats", "tex", "unix",
    "webmasters", "wordpress",
)  # fmt: skip
NANO = (*BEIR[:-1], "msmarco", "webis-touche2020")
TOPICS = 60
PASSAGES = 240
QUERIES = 60
CANDIDATES = 30
"""Passages that a first system has for each query of MS MARCO, without scores."""
DOCUMENTS = 40
"""Of each collection of a suite, which has 12 queries."""
COMMIT = "1" * 40


def write(folder: Path, backbones: Mapping[str, str] = MODELS) -> None:
    """Make everything below `folder`, with these of `MODELS`; it is there as a whole once `folder/made` is."""
    if (folder / "made").exists():
        return
    texts = list(passages(PASSAGES, seed=0).values())
    for name, kind in backbones.items():
        paper_backbones.write(kind, folder / "hub" / "models" / name, texts)
    _datasets(folder / "hub" / "datasets", texts)
    _jsts(folder / "files")
    home = folder / "ir_datasets"
    _msmarco(home / "msmarco-passage")
    for name in (*BEIR, "webis-touche2020/v2"):
        _archive(home / "beir" / name / "source.zip", {name.split("/")[0]: _collection(name)})
    forums = {f"cqadupstack/{forum}": _collection(forum) for forum in FORUMS}
    _archive(home / "beir" / "cqadupstack" / "source.zip", forums)
    for name in NANO:
        _nano(home / "nano-beir" / name, name)
    for name in SUITES["beir18"].licensed:
        for file, content in _collection(name).items():
            path = folder / "licensed" / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
    (folder / "made").touch()


def environment(folder: Path, address: str) -> dict[str, str]:
    """Variables for processes that are to take what `folder` has, served at `address`, for the published."""
    return {
        "HF_ENDPOINT": address, "HF_HOME": str(folder / "hf"), "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1", "IR_DATASETS_HOME": str(folder / "ir_datasets"),
    }  # fmt: skip


def files(address: str) -> str:
    """Where the plain files are: another host than the hub, whose addresses `datasets` takes for repositories."""
    return address.replace("127.0.0.1", "localhost") + "/files"


# --- texts ---------------------------------------------------------------------------------------------


def topic(number: int) -> list[str]:
    """Four words that no other topic has."""
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    return [syllables[number % 60] + syllables[(7 * number + 11 * i) % 60] + "nrst"[i] for i in range(4)]


def passages(count: int, seed: int | str) -> dict[str, str]:
    """Id -> text; passage n is of topic n modulo `TOPICS`."""
    chance = random.Random(seed)
    common = ["the", "of", "a", "in", "to", "and", "is", "was", "for", "on", "with", "as", "by", "that", "from"]
    found = {}
    for number in range(count):
        words = topic(number % TOPICS) * 2 + chance.choices(common, k=12)
        chance.shuffle(words)
        found[str(number)] = " ".join(words)
    return found


def questions(count: int, seed: int | str) -> dict[str, str]:
    """Id -> text; query n is of topic n modulo `TOPICS`."""
    chance = random.Random(seed)
    return {str(1000 + n): "what is " + " ".join(chance.sample(topic(n % TOPICS), 3)) for n in range(count)}


def relevant(queries: int, documents: int) -> Iterator[tuple[str, str]]:
    """(query, passage) of the same topic."""
    for query, passage in itertools.product(range(queries), range(documents)):
        if query % TOPICS == passage % TOPICS:
            yield str(1000 + query), str(passage)


# --- files as the libraries keep them ------------------------------------------------------------------


def _tsv(path: Path, rows: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        csv.writer(file, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_NONE).writerows(rows)


def _msmarco(home: Path) -> None:
    asked = questions(QUERIES, seed=0)
    chance = random.Random(0)
    found = list(relevant(QUERIES, PASSAGES))
    triples = [(query, passage, str(_of_another(int(passage), chance))) for query, passage in found]
    chance.shuffle(triples)
    _tsv(home / "collection.tsv", passages(PASSAGES, seed=0).items())
    (home / "irds_version.txt").write_text("v2")
    _tsv(home / "train" / "queries.tsv", asked.items())
    _tsv(home / "train" / "small.triples.qidpid.tsv", triples)
    ranked = ((query, first + n) for first, query in enumerate(asked) for n in range(CANDIDATES))
    _tsv(home / "dev" / "ms.run", ranked)
    for split in ("dev", "dev/small", "trec-dl-2019"):
        _tsv(home / split / "queries.tsv", questions(QUERIES, seed=2).items())
        judged = [(query, "0", passage, 2) for query, passage in found]
        (home / split / "qrels").write_text("".join(" ".join(map(str, row)) + "\n" for row in judged))


def _of_another(passage: int, chance: random.Random) -> int:
    return (passage + chance.randrange(1, TOPICS)) % PASSAGES


def _collection(name: str) -> dict[str, str]:
    """File of a collection in BEIR layout -> its content, with the fields that any of them has."""
    empty: dict[str, Any] = {"year": 2000} | {key: [] for key in ("authors", "cited_by", "references", "tags")}
    texts = ("url", "pubmed_id", "stance", "query", "narrative", "description")
    more = {"metadata": empty | dict.fromkeys(texts, "")}
    corpus = passages(DOCUMENTS, name).items()
    documents = [{"_id": id, "title": text.split()[0], "text": text} | more for id, text in corpus]
    queries = [{"_id": id, "text": text} | more for id, text in questions(12, name).items()]
    qrels = "query-id\tcorpus-id\tscore\n" + "".join(f"{q}\t{d}\t1\n" for q, d in relevant(12, DOCUMENTS))
    rows = {"corpus.jsonl": documents, "queries.jsonl": queries}
    found = {file: "".join(json.dumps(row) + "\n" for row in content) for file, content in rows.items()}
    return found | {f"qrels/{split}.tsv": qrels for split in ("train", "dev", "test")}


def _archive(path: Path, collections: Mapping[str, Mapping[str, str]]) -> None:
    """The archive that is downloaded, under the name that it is kept under."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, files in collections.items():
            for file, content in files.items():
                archive.writestr(f"{name}/{file}", content)


def _nano(home: Path, name: str) -> None:
    _parquet(home / "corpus.parquet", [{"_id": id, "text": text} for id, text in passages(DOCUMENTS, name).items()])
    _parquet(home / "queries.parquet", [{"_id": id, "text": text} for id, text in questions(12, name).items()])
    _parquet(home / "qrels.parquet", [{"query-id": q, "corpus-id": d} for q, d in relevant(12, DOCUMENTS)])


def _parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow
    from pyarrow import parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def _datasets(home: Path, texts: list[str]) -> None:
    articles = [{"id": str(n), "url": "", "title": text.split()[0], "text": text} for n, text in enumerate(texts)]
    _repository(home / "wikimedia" / "wikipedia", "20231101.en", articles)
    _repository(home / "SamuelYang" / "bookcorpus", "default", [{"text": text} for text in texts])
    asked = questions(QUERIES, seed=0)
    triplets = [
        {"query": asked[query], "positive": texts[int(passage)]}
        | {f"negative_{n}": texts[(int(passage) + n) % PASSAGES] for n in range(1, 51)}
        for query, passage in relevant(QUERIES, PASSAGES)
    ]
    _repository(home / "sentence-transformers" / "msmarco-msmarco-distilbert-base-tas-b", "triplet-50", triplets)


def _repository(home: Path, configuration: str, rows: list[dict[str, Any]]) -> None:
    """A data set of the hub in two files."""
    for part in range(2):
        _parquet(home / configuration / f"train-0000{part}-of-00002.parquet", rows[part::2])
    files = f"  data_files:\n  - split: train\n    path: {configuration}/train-*\n"
    (home / "README.md").write_text(f"---\nconfigs:\n- config_name: {configuration}\n{files}---\n")


def _jsts(home: Path) -> None:
    """JSTS v1.3: a JSON object a line, labels from 0 to 5 by how many words the sentences share."""
    home.mkdir(parents=True, exist_ok=True)
    for seed, split in enumerate(("train", "valid")):
        chance = random.Random(seed)
        rows = []
        for number in range(240):
            first, other = topic(chance.randrange(TOPICS)), topic(chance.randrange(TOPICS))
            shared = chance.randrange(5)
            second = first[:shared] + other[shared:]
            rows.append({
                "sentence_pair_id": str(number), "yjcaptions_id": f"{number}_0-{number}_1",
                "sentence1": " ".join(first), "sentence2": " ".join(second), "label": 1.25 * shared,
            })  # fmt: skip
        (home / f"{split}-v1.3.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = (home / "valid-v1.3.json").read_text().splitlines(keepends=True)
    (home / "test-v1.3.json").write_text("".join(lines[::-1]))


# --- the hub -------------------------------------------------------------------------------------------


class Hub(http.server.BaseHTTPRequestHandler):
    """Answers for `folder/hub` as the hub does, and with the plain files of `folder/files`."""

    protocol_version = "HTTP/1.1"
    folder: Path

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if found := re.fullmatch(r"/api/(models|datasets)/([^/]+/[^/]+)(?:/(revision|tree|paths-info)/(.+))?", path):
            self._api(*found.groups())
        elif found := re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)/resolve/[^/]+/(.+)", path):
            self._file(self.folder / "hub" / (found[1] or "models") / found[2], found[3])
        elif path.startswith("/files/"):
            self._file(self.folder / "files", path.removeprefix("/files/"))
        else:
            self._missing("RepoNotFound")

    do_HEAD = do_POST = do_GET  # noqa: N815  (the names that http.server looks for)

    def _api(self, kind: str, name: str, what: str | None, rest: str | None) -> None:
        asked = parse_qs(self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode())
        home = self.folder / "hub" / kind / name
        if not home.is_dir():
            self._missing("RepoNotFound")
            return
        found: Any
        if what == "paths-info":
            found = [_entry(home, home / path) for path in asked["paths"] if (home / path).exists()]
        elif what == "tree":
            below = home / (rest or "").partition("/")[2]
            if not below.is_dir():
                self._missing("EntryNotFound")
                return
            found = [
                _entry(home, path)
                for path in sorted(below.rglob("*") if "recursive=true" in self.path.lower() else below.iterdir())
            ]
        else:
            files = [{"rfilename": str(path.relative_to(home))} for path in sorted(home.rglob("*")) if path.is_file()]
            found = {"id": name, "sha": COMMIT, "siblings": files, "tags": [], "private": False}
        self._answer(json.dumps(found).encode())

    def _file(self, home: Path, name: str) -> None:
        if not home.is_dir():
            self._missing("RepoNotFound")
        elif not (home / name).is_file():
            self._missing("EntryNotFound")
        else:
            self._answer((home / name).read_bytes())

    def _missing(self, code: str) -> None:
        self.send_response(404)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _answer(self, data: bytes) -> None:
        whole = len(data)
        span = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if span:
            first, last = int(span[1]), min(int(span[2] or whole - 1), whole - 1)
            data = data[first : last + 1]
        self.send_response(206 if span else 200)
        if span:
            self.send_header("Content-Range", f"bytes {first}-{last}/{whole}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *arguments: object) -> None:
        """Nothing: who asks says what went wrong."""


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is no matter of the server's."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _entry(home: Path, path: Path) -> dict[str, Any]:
    name = str(path.relative_to(home))
    id = hashlib.sha1(name.encode()).hexdigest()
    if path.is_dir():
        return {"type": "directory", "oid": id, "size": 0, "path": name}
    return {"type": "file", "oid": id, "size": path.stat().st_size, "path": name}


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """The address at which `folder` is served; the same one for the same folder, as a study keeps addresses."""
    kept = folder / "port"
    port = int(kept.read_text()) if kept.exists() else 0
    handler = type("Served", (Hub,), {"folder": folder})
    with _Server(("127.0.0.1", port), handler) as server:
        kept.write_text(str(server.server_port))
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
