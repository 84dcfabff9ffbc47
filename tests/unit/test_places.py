"""Texts of config keys that may hold a path: which part is one, where it leads, what has to be there."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from trainables import paths
from trainables.angle.config import Config as AngleConfig
from trainables.config import Section
from trainables.data.config import EvaluationData
from trainables.places import COLLECTION, EXAMPLES, MODEL, PAIRS, TEXTS, Place


@pytest.fixture
def here(tmp_path) -> Path:
    """A folder with data and models of its own."""
    for folder in ("models/my encoder", "someone", "data/beir/qrels", "data/sets", "elsewhere/deep"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "models" / "my encoder" / "config.json").write_text("{}")
    for file in ("data/pairs.jsonl", "data/a.tsv.gz", "data/book.txt", "data/sts.csv", "data/a:b.jsonl", "gte"):
        (tmp_path / file).touch()
    for file in ("corpus.jsonl", "queries.jsonl.gz", "qrels/dev.tsv"):
        (tmp_path / "data" / "beir" / file).touch()
    (tmp_path / "link").symlink_to("elsewhere/deep")
    (tmp_path / "elsewhere" / "x.jsonl").touch()
    return tmp_path


LOCATED = [
    # what, written, located: {} stands for the folder
    (EXAMPLES, "data/pairs.jsonl", "{}/data/pairs.jsonl"),
    (EXAMPLES, "./data//pairs.jsonl", "{}/data/pairs.jsonl"),
    (EXAMPLES, "nowhere.jsonl", "{}/nowhere.jsonl"),
    (EXAMPLES, "/abs/pairs.jsonl", "/abs/pairs.jsonl"),
    (EXAMPLES, "~/pairs.jsonl", "/home/me/pairs.jsonl"),
    (EXAMPLES, "data/../data/pairs.jsonl", "{}/data/pairs.jsonl"),
    (EXAMPLES, "link/y.jsonl", "{}/link/y.jsonl"),
    # `..` leads out of the folder that a link leads to, not of the one that it is in.
    (EXAMPLES, "link/../x.jsonl", "{}/elsewhere/x.jsonl"),
    (EXAMPLES, "datasets:json:data/pairs.jsonl", "datasets:json:{}/data/pairs.jsonl"),
    (EXAMPLES, "datasets:json:data/*.jsonl", "datasets:json:{}/data/*.jsonl"),
    (EXAMPLES, "datasets:json:https://host/a.json", "datasets:json:https://host/a.json"),
    (EXAMPLES, "datasets:data/sets", "datasets:{}/data/sets"),
    (EXAMPLES, "datasets:data/sets:part", "datasets:{}/data/sets:part"),
    (EXAMPLES, "datasets:someones/sets:part", "datasets:someones/sets:part"),
    (EXAMPLES, "datasets:./sets", "datasets:{}/sets"),
    (EXAMPLES, "ir_datasets:beir/scifact/test", "ir_datasets:beir/scifact/test"),
    (EXAMPLES, "embedded", "embedded"),
    (TEXTS, "data/book.txt", "{}/data/book.txt"),
    (PAIRS, "stsb:data/sts.csv", "stsb:{}/data/sts.csv"),
    (COLLECTION, "data/beir/", "{}/data/beir"),
    (MODEL, "models/my encoder", "{}/models/my encoder"),
    (MODEL, "google-bert/bert-base-uncased", "google-bert/bert-base-uncased"),
    (MODEL, "bert-base-uncased", "bert-base-uncased"),
    # What is there wins over a hub name.
    (MODEL, "someone", "{}/someone"),
    (MODEL, "gte", "{}/gte"),
    (MODEL, "./bert-base-uncased", "{}/bert-base-uncased"),
    (MODEL, "a/b/c", "{}/a/b/c"),
    (MODEL, "embedded", "embedded"),
]


@pytest.mark.parametrize(("place", "written", "located"), LOCATED, ids=[case[1] for case in LOCATED])
def test_paths_are_made_absolute_and_names_are_left(here, monkeypatch, place, written, located) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    found = place.located(written, here)
    assert found == located.format(here)
    assert place.located(found, Path("/elsewhere")) == found


MISTYPED = [
    (
        MODEL,
        "models/my-encoder",
        r"a folder 'models' here, but nothing of that name in it; nearest: models/my encoder\.",
    ),
    (MODEL, "someone/encoder", r"a folder 'someone' here, but nothing of that name in it\. A name on the hub"),
    (EXAMPLES, "datasets:data/set", r"'datasets:data/set': .*nearest: datasets:data/sets"),
    (EXAMPLES, "dataset:a/b", "'dataset' is no kind of source here; nearest: datasets:a/b; accepted are embedded"),
    (
        COLLECTION,
        "datasets:a/b",
        "'datasets' is no kind of source here; accepted are embedded, ir_datasets:ID or a fol",
    ),
    (EXAMPLES, "", "'' names nothing; accepted are embedded"),
    (EXAMPLES, "~nobody-of-that-name/x.jsonl", "home directory"),
]


@pytest.mark.parametrize(("place", "written", "message"), MISTYPED, ids=[case[1] for case in MISTYPED])
def test_mistyped_texts_are_refused(here, place, written, message) -> None:
    with pytest.raises(ValueError, match=message):
        place.located(written, here)


def test_a_name_is_a_name_once_it_has_been_located(monkeypatch, here) -> None:
    """A worker's folder may hold anything."""
    monkeypatch.chdir(here)
    assert MODEL.parts("someone") is None
    MODEL.check("someone")


REFUSED = [
    (EXAMPLES, "nowhere.jsonl", "'{}/nowhere.jsonl': nothing there; accepted are embedded"),
    (EXAMPLES, "data/pair.jsonl", "nothing there; nearest: {}/data/pairs.jsonl; accepted"),
    (EXAMPLES, "dta/pairs.jsonl", "nothing there; nearest: {}/data; accepted"),
    (EXAMPLES, "embeded", "nothing there; nearest: embedded; accepted"),
    (EXAMPLES, "data/pairs.jsonl/more", "nothing there"),
    (EXAMPLES, f"{'x' * 300}.jsonl", "file name too long"),
    (EXAMPLES, "data/sets", "is a folder; expected is a file"),
    (EXAMPLES, "data/book.txt", r"ends in '\.txt'; accepted are \.jsonl"),
    (EXAMPLES, "datasets:json:data/*.json", "nothing there"),
    (EXAMPLES, "datasets:./sets", "'datasets:{}/sets': nothing there"),
    (PAIRS, "stsb:data/sts.tsv", "'stsb:{}/data/sts.tsv': nothing there"),
    (PAIRS, "stsb:data", "is a folder; a file of STS-Benchmark is needed"),
    (COLLECTION, "data/pairs.jsonl", "expected a folder that holds .*; found a file"),
    (COLLECTION, "data", "has no corpus.jsonl"),
    (MODEL, "./models/mine", "nothing there; accepted are 'embedded', a local folder"),
    (MODEL, "someone", "someone is a folder without config.json"),
    (MODEL, "gte", "gte is no folder; a model in Hugging Face format is needed"),
]


@pytest.mark.parametrize(("place", "written", "message"), REFUSED, ids=[case[1][:40] for case in REFUSED])
def test_what_is_not_there_or_of_another_kind_is_refused(here, place, written, message) -> None:
    with pytest.raises(ValueError, match=message.replace("{}", re.escape(str(here)))):
        place.check(place.located(written, here), EvaluationData())


@pytest.mark.parametrize(
    ("place", "written"),
    [
        (EXAMPLES, "data/pairs.jsonl"),
        (EXAMPLES, "data/a.tsv.gz"),
        (EXAMPLES, "data/a:b.jsonl"),
        (EXAMPLES, "datasets:json:data/*.jsonl"),
        (EXAMPLES, "datasets:data/sets:part"),
        (TEXTS, "data/book.txt"),
        (PAIRS, "stsb:data/sts.csv"),
        (MODEL, "models/my encoder"),
        (MODEL, "answerdotai/ModernBERT-base"),
    ],
)
def test_what_is_there_is_accepted_without_reading_it(here, place, written) -> None:
    place.check(place.located(written, here))


def test_the_split_of_a_collection_is_that_of_its_section(here) -> None:
    source = COLLECTION.located("data/beir", here)
    COLLECTION.check(source, EvaluationData(qrels_split="dev"))
    with pytest.raises(ValueError, match=r"has no qrels/test\.tsv.*Found: qrels/dev\.tsv"):
        COLLECTION.check(source, EvaluationData())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_refused(here) -> None:
    (here / "data" / "pairs.jsonl").chmod(0)
    with pytest.raises(ValueError, match="may not be read"):
        EXAMPLES.check(str(here / "data" / "pairs.jsonl"))


def test_a_key_whose_type_says_nothing_is_found() -> None:
    class Inner(Section):
        said: str | None = None

    class Outer(Section):
        name: str = ""
        names: tuple[str, ...] = ()
        number: int = 0
        inner: Inner = Inner()

    assert paths.untold(Outer) == ["name", "names", "inner.said"]
    assert paths.untold(AngleConfig) == []


def test_content_is_told_from_name_and_place(tmp_path) -> None:
    def digest(place: Place, text: str) -> str | None:
        return paths.digest(place, place.located(text, tmp_path))

    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text("{}\n")
    assert digest(EXAMPLES, "a.jsonl") == digest(EXAMPLES, "datasets:json:b.jsonl")
    (tmp_path / "b.jsonl").write_text("[]\n")
    assert digest(EXAMPLES, "a.jsonl") != digest(EXAMPLES, "b.jsonl")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        (tmp_path / name / "model.safetensors").write_bytes(b"weights")
    same = digest(MODEL, "./one")
    (tmp_path / "two" / "README.md").write_text("notes are no part of a model")
    assert digest(MODEL, "./two") == same
    (tmp_path / "two" / "model.safetensors").write_bytes(b"weighty")
    assert digest(MODEL, "./two") != same
    assert digest(MODEL, "embedded") is None
    assert digest(EXAMPLES, "datasets:json:*.jsonl") not in (None, digest(EXAMPLES, "datasets:json:a.*"))
