"""The forms that data come in, as small inputs: what `benchmarks.data_forms` reads, and what has to come of it."""

from __future__ import annotations

import bz2
import codecs
import gzip
import json
import lzma
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROWS: dict[str, list[dict[str, Any]]] = {
    "pairs": [{"query": f"ask {i}", "positive": f"naïve 漢字 {i}", "negatives": [f"wrong {i}"]} for i in range(3)],
    "texts": [{"text": f"naïve 漢字 {i}"} for i in range(3)],
    "graded": [{"sentence1": f"one {i}", "sentence2": f"naïve 漢字 {i}", "label": i} for i in range(3)],
}
COLUMN = {"pairs": "positive", "texts": "text", "graded": "sentence2"}
"""Reader -> a column that must hold a text."""

SAME, REFUSED = "same", "refused"


@dataclass(frozen=True)
class Case:
    """A form for one reader; `make` writes it below a folder and returns the source that names it."""

    form: str
    reader: str
    make: Callable[[Path], str]
    expected: str | int
    """What must come of the form: SAME (the content of the plain form), a number of records, or REFUSED."""
    options: dict[str, Any] = field(default_factory=dict)


def cases() -> Iterator[Case]:
    yield from _files()
    yield from _columns()
    yield from _data_sets()
    yield from _collections()


def _written(name: str, content: bytes | str) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return str(folder / name)

    return make


def _jsonl(rows: list[dict[str, Any]], ascii: bool = False) -> str:
    return "".join(json.dumps(row, ensure_ascii=ascii) + "\n" for row in rows)


def _tsv(rows: list[dict[str, Any]], end: str = "\n") -> str:
    cells = [[v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for v in row.values()] for row in rows]
    return "".join("\t".join(line) + end for line in [list(rows[0]), *cells])


def _files() -> Iterator[Case]:
    """Formats, encodings, line ends, compressions, sizes and cells, for each reader of files."""
    for reader, rows in ROWS.items():
        column, plain = COLUMN[reader], _jsonl(rows)

        def odd(value: Any, rows: list[dict[str, Any]] = rows, column: str = column) -> str:
            return _jsonl([*rows, rows[0] | {column: value}], ascii=True)

        forms: list[tuple[str, str, bytes | str, str | int]] = [
            ("JSONL", "a.jsonl", plain, SAME),
            ("JSON, one array", "a.json", json.dumps(rows, indent=1), SAME),
            ("JSON, an object per line", "a.json", plain, SAME),
            ("JSON, an object of lists", "a.json", json.dumps({column: ["a"]}, indent=1), REFUSED),
            ("TSV with a header", "a.tsv", _tsv(rows), SAME),
            ("TSV, a row with too many cells", "a.tsv", _tsv(rows) + "a\t" * 9 + "\n", REFUSED),
            ("TSV, two columns of one name", "a.tsv", f"{column}\t{column}\na\tb\n", REFUSED),
            ("CSV", "a.csv", "a,b\n", REFUSED),
            ("Parquet", "a.parquet", b"PAR1", REFUSED),
            ("no ending", "data", plain, REFUSED),
            ("gzip", "a.jsonl.gz", gzip.compress(plain.encode()), SAME),
            ("bzip2", "a.jsonl.bz2", bz2.compress(plain.encode()), SAME),
            ("xz", "a.jsonl.xz", lzma.compress(plain.encode()), SAME),
            ("Zstandard", "a.jsonl.zst", b"\x28\xb5\x2f\xfd", REFUSED),
            ("gzip, cut off", "a.jsonl.gz", gzip.compress(plain.encode())[:-9], REFUSED),
            ("gzip, not called so", "a.jsonl", gzip.compress(plain.encode()), REFUSED),
            ("UTF-8 with a byte order mark", "a.jsonl", codecs.BOM_UTF8 + plain.encode(), SAME),
            ("UTF-8 with a byte order mark, TSV", "a.tsv", codecs.BOM_UTF8 + _tsv(rows).encode(), SAME),
            ("UTF-16", "a.jsonl", plain.encode("utf-16"), REFUSED),
            ("Latin-1", "a.jsonl", plain.replace("漢字", "").encode("latin-1"), REFUSED),
            ("line ends of Windows", "a.jsonl", plain.replace("\n", "\r\n"), SAME),
            ("line ends of Windows, TSV", "a.tsv", _tsv(rows, "\r\n"), SAME),
            ("carriage returns alone", "a.jsonl", plain.replace("\n", "\r"), REFUSED),
            ("carriage returns alone, TSV", "a.tsv", _tsv(rows, "\r"), REFUSED),
            ("no line end after the last line, blank lines", "a.jsonl", "\n\n" + plain.strip(), SAME),
            ("an empty file", "a.jsonl", "", REFUSED),
            ("TSV, a header alone", "a.tsv", "\t".join(rows[0]) + "\n", REFUSED),
            ("a text of 5 MB", "a.jsonl", odd("word and " * 600_000), 4),
            ("a line separator (U+2028) in a text", "a.jsonl", plain + _jsonl([rows[0] | {column: "a\u2028b"}]), 4),
            ("a zero byte in a text", "a.jsonl", odd("a\0b"), 4),
            ("half of a surrogate pair", "a.jsonl", odd("emoji \ud83d"), REFUSED),
            ("an empty text", "a.jsonl", odd(""), SAME),
            ("a text of white space", "a.jsonl", odd(" \n"), SAME),
            ("null for a text", "a.jsonl", odd(None), SAME),
            ("a number for a text", "a.jsonl", odd(5), REFUSED),
            ("nothing but empty texts", "a.jsonl", _jsonl([row | {column: ""} for row in rows]), REFUSED),
            ("a column that is missing", "a.jsonl", plain + '{"other": "a"}\n', REFUSED),
            ("columns that are not asked for", "a.jsonl", _jsonl([row | {"id": 7, "more": [1]} for row in rows]), SAME),
            ("rows that repeat", "a.jsonl", plain * 2, 6),
            ("a line that is no JSON", "a.jsonl", plain + "{'a': 1}\n", REFUSED),
            ("a line that is no object", "a.jsonl", plain + "[1]\n", REFUSED),
            ("brackets 100,000 deep", "a.jsonl", plain + "[" * 100_000 + "\n", REFUSED),
            ("brackets 100,000 deep, JSON", "a.json", "[" * 100_000, REFUSED),
            ("a number of 5,000 digits", "a.jsonl", plain + '{"a": ' + "1" * 5_000 + "}\n", REFUSED),
        ]  # fmt: skip
        for form, name, content, expected in forms:
            yield Case(form, reader, _written(name, content), expected)
        yield Case("zip", reader, _zipped(plain), REFUSED)
        yield Case("a folder", reader, str, REFUSED)
        yield Case("nothing there", reader, lambda folder: str(folder / "no.jsonl"), REFUSED)
    paragraphs = "\n\n".join(row["text"] for row in ROWS["texts"])
    yield Case("plain text, paragraphs", "texts", _written("a.txt", paragraphs), SAME)
    yield Case("plain text, Windows", "texts", _written("a.txt", paragraphs.replace("\n", "\r\n")), SAME)
    yield Case("plain text, gzip", "texts", _written("a.txt.gz", gzip.compress(paragraphs.encode())), SAME)


def _zipped(content: str) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        with zipfile.ZipFile(folder / "a.jsonl.zip", "w") as packed:
            packed.writestr("a.jsonl", content)
        return str(folder / "a.jsonl.zip")

    return make


def _columns() -> Iterator[Case]:
    """Columns of training pairs and of graded pairs."""
    rows = ROWS["pairs"]
    bare = [{name: row[name] for name in ("query", "positive")} for row in rows]

    def pairs(form: str, change: dict[str, Any], expected: str | int = SAME, **options: Any) -> Case:
        return Case(form, "pairs", _written("a.jsonl", _jsonl([row | change for row in bare])), expected, options)

    one = [row | {"negatives": row["negatives"][0]} for row in rows]
    numbered = [b | {"negative_1": row["negatives"][0], "negative_2": None} for b, row in zip(bare, rows, strict=True)]
    yield Case("negatives: one text", "pairs", _written("a.jsonl", _jsonl(one)), SAME)
    yield Case("negatives: `negative_1`, `negative_2`, ...", "pairs", _written("a.jsonl", _jsonl(numbered)), SAME)
    yield pairs("negatives: none", {}, 3)
    yield pairs("negatives: null", {"negatives": None}, 3)
    yield pairs("negatives: one of them empty", {"negatives": ["a", ""]}, 3)
    yield pairs("negatives: one of them null", {"negatives": ["a", None]}, REFUSED)
    yield pairs("negatives: a number", {"negatives": 4}, REFUSED)
    yield pairs("scores: one for each text", {"negatives": ["n"], "scores": [3, 1.5]}, 3)
    yield pairs("scores: too few", {"negatives": ["n"], "scores": [3]}, REFUSED)
    yield pairs("scores: NaN", {"negatives": ["n"], "scores": [3, float("nan")]}, REFUSED)
    yield pairs("scores: a text", {"scores": "3"}, REFUSED)
    yield pairs("columns by other names", {"question": "q"}, 3, query="question")
    yield pairs("a name that was asked for and is no column", {}, REFUSED, negatives="hard")

    def graded(form: str, label: Any, expected: str | int = 4, **options: Any) -> Case:
        found = [*ROWS["graded"], ROWS["graded"][0] | {"label": label}]
        return Case(form, "graded", _written("a.jsonl", _jsonl(found)), expected, options)

    yield graded("label: a decimal", 2.5)
    yield graded("label: a number in quotes", "2.5")
    yield graded("label: a decimal comma", "2,5", REFUSED)
    yield graded("label: true among numbers", True, REFUSED)
    yield graded("label: an unknown word", "good", REFUSED)
    yield graded("label: null", None, REFUSED)
    yield graded("label: NaN", float("nan"), REFUSED)
    yield graded("label: outside of `data.lowest` to `data.highest`", -1, REFUSED)
    yield graded("label: negative, with `data.lowest=-1 data.highest=2`", -1, 4, lowest=-1.0, highest=2.0)
    for name, words in (("yes and no", ("no", "yes", "No")), ("true and false", (False, True, False))):
        labelled = [row | {"label": word} for row, word in zip(ROWS["graded"], words, strict=True)]
        yield Case(f"labels: {name}", "graded", _written("a.jsonl", _jsonl(labelled)), 3)
    equal = [row | {"label": 1} for row in ROWS["graded"]]
    yield Case("label: the same everywhere", "graded", _written("a.jsonl", _jsonl(equal)), REFUSED)
    stsb = "".join(
        f"news\tf\t2012\t{r['label']}\t{r['label']}.0\t{r['sentence1']}\t{r['sentence2']}\n" for r in ROWS["graded"]
    )
    yield Case("STS-Benchmark's own file", "graded", lambda f: "stsb:" + _written("a.csv", stsb)(f), SAME)
    short = stsb + "news\tf\t2012\t1\t3\n"
    yield Case("STS-Benchmark, a row too short", "graded", lambda f: "stsb:" + _written("a.csv", short)(f), REFUSED)


def _data_sets() -> Iterator[Case]:
    """Cases of what the library `datasets` opens."""
    for reader, rows in ROWS.items():
        splits = {"train": rows, "validation": rows, "test": rows}

        def folder(place: Path, splits: dict[str, Any] = splits) -> str:
            for name, part in splits.items():
                (place / f"{name}.jsonl").write_text(_jsonl(part))
            return f"datasets:{place}"

        def saved(place: Path, splits: dict[str, Any] = splits) -> str:
            import datasets

            parts = {name: datasets.Dataset.from_list(part) for name, part in splits.items()}
            datasets.DatasetDict(parts).save_to_disk(place / "saved")
            return f"datasets:{place}/saved"

        def one_split(place: Path, rows: list[dict[str, Any]] = rows) -> str:
            import datasets

            datasets.Dataset.from_list(rows).save_to_disk(place / "saved")
            return f"datasets:{place}/saved"

        def emptied(place: Path, saved: Callable[[Path], str] = saved) -> str:
            source = saved(place)
            for file in place.rglob("*.arrow"):
                file.unlink()
            return source

        def damaged(place: Path, saved: Callable[[Path], str] = saved) -> str:
            source = saved(place)
            for file in place.rglob("state.json"):
                file.write_text("{}")
            return source

        def parquet(place: Path, rows: list[dict[str, Any]] = rows) -> str:
            import datasets

            datasets.Dataset.from_list(rows).to_parquet(place / "a.parquet")
            return f"datasets:parquet:{place}/a.parquet"

        def with_nulls(place: Path, rows: list[dict[str, Any]] = rows, column: str = COLUMN[reader]) -> str:
            (place / "a.jsonl").write_text(_jsonl([*rows, rows[0] | {column: None}]))
            return f"datasets:json:{place}/a.jsonl"

        yield Case("`datasets:FOLDER` with a file per split", reader, folder, SAME)
        yield Case("`datasets:FOLDER` that `save_to_disk` wrote", reader, saved, SAME)
        yield Case("`datasets:FOLDER` of one split that `save_to_disk` wrote", reader, one_split, SAME)
        yield Case("`datasets:parquet:FILE`", reader, parquet, SAME)
        yield Case("`datasets:json:FILE` with a null", reader, with_nulls, SAME)
        yield Case(
            "`datasets:json:FILE` that is no JSON",
            reader,
            lambda f: "datasets:json:" + _written("a.jsonl", "{oops\n")(f),
            REFUSED,
        )
        yield Case(
            "`datasets:parquet:FILE` that is no Parquet",
            reader,
            lambda f: "datasets:parquet:" + _written("a.parquet", "PAR1")(f),
            REFUSED,
        )
        yield Case("`datasets:FOLDER` that is empty", reader, lambda f: f"datasets:{f}", REFUSED)
        yield Case("`datasets:FOLDER` that is not there", reader, lambda f: f"datasets:{f}/no", REFUSED)
        yield Case("`datasets:FOLDER` that `save_to_disk` wrote, without its data", reader, emptied, REFUSED)
        yield Case("`datasets:FOLDER` that `save_to_disk` wrote, damaged", reader, damaged, REFUSED)
        yield Case("`datasets:json` without a file", reader, lambda place: "datasets:json", REFUSED)
        if reader != "graded":
            yield Case("a split that `save_to_disk` did not write", reader, saved, REFUSED, {"split": "dev"})
    table = 'query,positive\nask,"a, b"\n'
    yield Case("`datasets:csv:FILE`", "pairs", lambda f: "datasets:csv:" + _written("a.csv", table)(f), 1)


DOCUMENTS = [{"_id": f"d{i}", "title": f"T{i}", "text": f"naïve 漢字 {i}"} for i in range(4)]
QUERIES = [{"_id": f"q{i}", "text": f"ask {i}"} for i in range(3)]
QRELS = "query-id\tcorpus-id\tscore\n" + "".join(f"q{i}\td{i}\t{i + 1}\n" for i in range(3))


def _collection(**files: bytes | str | None) -> Callable[[Path], str]:
    """A folder in BEIR layout; `files` are named by what comes before the first point, and None leaves one out."""
    whole: dict[str, bytes | str | None] = {
        "corpus.jsonl": _jsonl(DOCUMENTS), "queries.jsonl": _jsonl(QUERIES), "qrels/test.tsv": QRELS,
    }  # fmt: skip

    def make(place: Path) -> str:
        (place / "qrels").mkdir()
        for name, content in (whole | files).items():
            if content is not None:
                (place / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return str(place)

    return make


def _collections() -> Iterator[Case]:
    """Cases of folders in BEIR layout, read whole and in slices; the two must agree."""

    def case(form: str, expected: str | int, files: dict[str, bytes | str | None]) -> Case:
        return Case(form, "collection", _collection(**files), expected)

    def documents(form: str, change: dict[str, Any], expected: str | int = 3) -> Case:
        rows = [*DOCUMENTS, {"_id": "more", "title": "T", "text": "more"} | change]
        return case(form, expected, {"corpus.jsonl": _jsonl(rows, True)})

    def queries(form: str, change: dict[str, Any], expected: str | int = SAME) -> Case:
        return case(
            form, expected, {"queries.jsonl": _jsonl([*QUERIES, {"_id": "more", "text": "more"} | change], True)}
        )

    def qrels(form: str, lines: str, expected: str | int = 3) -> Case:
        return case(form, expected, {"qrels/test.tsv": QRELS + lines})

    yield case("BEIR layout", SAME, {})
    for form, packed, suffix in (("gzip", gzip, ".gz"), ("bzip2", bz2, ".bz2"), ("xz", lzma, ".xz")):
        contents = {"corpus.jsonl": _jsonl(DOCUMENTS), "queries.jsonl": _jsonl(QUERIES), "qrels/test.tsv": QRELS}
        files: dict[str, bytes | str | None] = dict.fromkeys(contents)
        files |= {name + suffix: packed.compress(content.encode()) for name, content in contents.items()}  # type: ignore[attr-defined]
        yield case(form, SAME, files)
        damaged = files | {f"corpus.jsonl{suffix}": packed.compress(_jsonl(DOCUMENTS).encode())[:-9]}  # type: ignore[attr-defined]
        yield case(f"{form}, cut off", REFUSED, damaged)
        yield case(f"{form}, called so and is none", REFUSED, files | {f"corpus.jsonl{suffix}": _jsonl(DOCUMENTS)})
    corpus = _jsonl(DOCUMENTS)
    for form, content, expected in (
        ("UTF-8 with a byte order mark", codecs.BOM_UTF8 + corpus.encode(), SAME),
        ("UTF-16", corpus.encode("utf-16"), REFUSED),
        ("Latin-1", corpus.replace("漢字", "").encode("latin-1"), REFUSED),
        ("line ends of Windows", corpus.replace("\n", "\r\n"), SAME),
        ("carriage returns alone", corpus.replace("\n", "\r"), REFUSED),
        ("no line end after the last line, blank lines", "\n\n" + corpus.strip(), SAME),
        ("an empty file", "", REFUSED),
        ("a line that is no JSON", corpus + "{'a': 1}\n", REFUSED),
        ("a line that is no object", corpus + "[1]\n", REFUSED),
    ):
        yield case(form, expected, {"corpus.jsonl": content})
    yield documents("a text of 5 MB", {"text": "word and " * 600_000})
    yield documents("half of a surrogate pair", {"text": "emoji \ud83d"}, REFUSED)
    yield documents("an empty text", {"title": "", "text": ""})
    yield documents("a text of white space", {"title": None, "text": " "})
    yield documents("null for a text", {"title": None, "text": None})
    yield documents("null for a text beside a title", {"text": None})
    yield documents("a number for a text", {"text": 5}, REFUSED)
    yield documents("columns that are not asked for", {"metadata": {"url": "x"}})
    yield case("a column that is missing", REFUSED, {"corpus.jsonl": corpus + '{"_id": "more", "contents": "a"}\n'})
    yield case("no titles", 3, {"corpus.jsonl": _jsonl([{"_id": d["_id"], "text": d["text"]} for d in DOCUMENTS])})
    yield documents("id: a whole number", {"_id": 7})
    yield documents("id: a decimal", {"_id": 7.5}, REFUSED)
    yield documents("id: null", {"_id": None}, REFUSED)
    yield documents("id: with spaces and other signs", {"_id": "a b/ç#1"})
    yield documents("id: given twice", {"_id": "d0"}, REFUSED)
    yield case("id: missing", REFUSED, {"corpus.jsonl": corpus + '{"id": "more", "text": "a"}\n'})
    yield case(
        "id: number and text of one spelling",
        REFUSED,
        {"corpus.jsonl": corpus + _jsonl([{"_id": 7, "text": "a"}, {"_id": "7", "text": "b"}])},
    )
    yield queries("query: empty and not judged", {"text": ""})
    yield queries("query: null and not judged", {"text": None})
    yield queries("query: not judged", {})
    yield queries("query: id given twice", {"_id": "q0"}, REFUSED)
    yield case("query: empty and judged", REFUSED, {"queries.jsonl": _jsonl([{"_id": "q0", "text": ""}, *QUERIES[1:]])})
    yield case("judgements without a header", SAME, {"qrels/test.tsv": QRELS.partition("\n")[2]})
    for form, separator in (("tabs", "\t"), ("spaces", " ")):
        trec = "".join(separator.join((f"q{i}", "0", f"d{i}", str(i + 1))) + "\n" for i in range(3))
        yield case(f"judgements as trec_eval reads them, {form}", SAME, {"qrels/test.tsv": trec})
    yield case("judgements with line ends of Windows", SAME, {"qrels/test.tsv": QRELS.replace("\n", "\r\n")})
    yield case("judgements with commas", REFUSED, {"qrels/test.tsv": QRELS.replace("\t", ",")})
    yield qrels("grade: `1.0`", "q0\td3\t1.0\n")
    yield qrels("grade: `0.5`", "q0\td3\t0.5\n", REFUSED)
    yield qrels("grade: 0", "q0\td3\t0\n")
    yield qrels("grade: negative", "q0\td3\t-2\n")
    yield qrels("grade: a word", "q0\td3\tyes\n", REFUSED)
    yield qrels("grade: missing", "q0\td3\n", REFUSED)
    yield qrels("a judgement that repeats", "q0\td0\t1\n", SAME)
    yield qrels("a judgement that is changed later", "q0\td0\t2\n")
    yield qrels("a judged document that is not there", "q0\tnowhere\t1\n")
    yield case("no relevant document of a query is there", 2, {"qrels/test.tsv": QRELS.replace("d0", "nowhere")})
    yield case("no relevant document of any query is there", REFUSED, {"qrels/test.tsv": QRELS.replace("\td", "\tx")})
    yield case("no document of a query is relevant", 2, {"qrels/test.tsv": QRELS.replace("q0\td0\t1", "q0\td0\t0")})
    yield qrels("judgements of a query that is not there", "q9\td3\t1\n", SAME)
    yield case("judgements of another split only", REFUSED, {"qrels/test.tsv": None, "qrels/dev.tsv": QRELS})
    yield case("no corpus", REFUSED, {"corpus.jsonl": None})
    yield case("no queries", REFUSED, {"queries.jsonl": None})
    yield Case("a file", "collection", _written("a.jsonl", "{}"), REFUSED)
    yield Case("nothing there", "collection", lambda folder: str(folder / "no"), REFUSED)
    yield Case(
        "`ir_datasets:ID` that there is not", "collection", lambda folder: "ir_datasets:beir/scifat/test", REFUSED
    )
    yield Case(
        "`ir_datasets:ID` without judgements", "collection", lambda folder: "ir_datasets:msmarco-passage", REFUSED
    )
    yield from _published()


def _published() -> Iterator[Case]:
    """Ids of `ir_datasets` whose data are made here."""
    docs = "".join(f"d{i}\tnaïve 漢字 {i}\n" for i in range(4))
    asked = "".join(f"q{i}\task {i}\n" for i in range(3))
    judged = "".join(f"q{i} 0 d{i} {i + 1}\n" for i in range(3))
    pairs = "".join(f"q{i}\td{i}\td3\n" for i in range(3))
    published = "`ir_datasets:ID`"
    yield Case(published, "collection", _registered(docs, asked, qrels=judged), 3)
    yield Case(f"{published}, an empty document", "collection", _registered(docs + "e\t\n", asked, qrels=judged), 3)
    yield Case(
        f"{published}, an empty query nobody judged",
        "collection",
        _registered(docs, asked + "q9\t \n", qrels=judged),
        3,
    )
    yield Case(
        f"{published}, an empty query that is judged",
        "collection",
        _registered(docs, asked + "q9\t \n", qrels=judged + "q9 0 d0 1\n"),
        REFUSED,
    )
    yield Case(
        f"{published}, a judged document that is not there",
        "collection",
        _registered(docs, asked + "q9\tx\n", qrels=judged + "q9 0 d9 1\n"),
        3,
    )
    yield Case(
        f"{published}, a document twice",
        "collection whole",
        _registered(docs + "d0\tagain\n", asked, qrels=judged),
        REFUSED,
    )
    yield Case(f"{published}, document pairs", "pairs", _registered(docs, asked, pairs=pairs), 3)
    yield Case(
        f"{published}, pairs with an empty document",
        "pairs",
        _registered(docs + "e\t\n", asked, pairs=pairs + "q0\te\td3\n"),
        3,
    )
    yield Case(
        f"{published}, pairs with a document that is not there",
        "pairs",
        _registered(docs, asked, pairs=pairs + "q0\td9\td3\n"),
        REFUSED,
    )


def _registered(docs: str, asked: str, qrels: str = "", pairs: str = "") -> Callable[[Path], str]:
    def make(place: Path) -> str:
        import ir_datasets
        from ir_datasets.formats import TrecQrels, TsvDocPairs, TsvDocs, TsvQueries
        from ir_datasets.util import LocalDownload

        for name, content in (("docs", docs), ("queries", asked), ("qrels", qrels), ("pairs", pairs)):
            (place / f"{name}.tsv").write_text(content)
        file = {name: LocalDownload(place / f"{name}.tsv") for name in ("docs", "queries", "qrels", "pairs")}
        last = TrecQrels(file["qrels"], {}) if qrels else TsvDocPairs(file["pairs"])
        id = f"made-here/{place.name}"
        ir_datasets.registry._registered.pop(id, None)
        ir_datasets.registry.register(id, ir_datasets.Dataset(TsvDocs(file["docs"]), TsvQueries(file["queries"]), last))
        return f"ir_datasets:{id}"

    return make
