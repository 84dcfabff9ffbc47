"""Folders and files of any name: in the URIs of databases, in ids, and in the paths of Ray's sockets."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from study import spec
from study.engine.executor import BELOW, RANDOM, SOCKET_BYTES, temporary_folder
from study.ledger import optuna_study
from study.tracking.uri_check import check_uri
from study.uris import absolute_uri, sqlite_path, sqlite_uri, viewer
from tests.ledgers import ledger_url

NAMES = ["50%41", "a?b", "a#b", "ünï with {x}", "a@b:c;d&e=f", 'it\'s "q" $HOME a\\b', "100%"]


@pytest.mark.parametrize("name", NAMES)
def test_a_ledger_is_in_its_folder_whatever_that_is_called(tmp_path, name) -> None:
    _, study = spec.load(spec.available()["splade_k_search"], None, {}, {})
    folders = [tmp_path / name, tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
    made = optuna_study.open_study(ledger_url(folders[0]), "k", study)
    assert [path.name for path in tmp_path.rglob("*.db")] == ["ledger.db"]
    assert (folders[0] / "ledger.db").exists()
    found = optuna_study.existing_study(ledger_url(folders[0]), "k", study)
    assert found.user_attrs["id"] == made.user_attrs["id"]
    assert optuna_study.existing_study(ledger_url(folders[1]), "k", study) is None
    optuna_study.check_url(ledger_url(folders[0]))


@pytest.mark.parametrize("name", NAMES)
def test_a_tracking_database_likewise(tmp_path, monkeypatch, name) -> None:
    import shlex

    from sqlalchemy import make_url

    place = tmp_path / name / "mlflow.db"
    uri = sqlite_uri(place)
    assert make_url(uri).database == str(place)
    assert sqlite_path(uri) == place
    assert absolute_uri(uri) == uri
    check_uri(uri)
    assert place.parent.is_dir()
    assert shlex.split(viewer(uri)) == ["mlflow", "ui", "--backend-store-uri", uri]
    monkeypatch.chdir(place.parent)
    assert absolute_uri("sqlite:///mlflow.db") == uri


def test_a_file_is_the_same_whatever_driver_opens_it(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for uri in ("sqlite:///a b.db", "sqlite+pysqlite:///a b.db?timeout=9"):
        assert sqlite_path(uri) == Path("a b.db")
        assert sqlite_path(absolute_uri(uri)) == tmp_path / "a b.db"
        check_uri(uri)
        optuna_study.check_url(uri)
    assert absolute_uri("sqlite+pysqlite:///x.db?timeout=9") == f"sqlite+pysqlite:///{tmp_path}/x.db?timeout=9"


@pytest.mark.parametrize("uri", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite+pysqlite://"])
def test_no_file_is_none_in_any_folder(uri) -> None:
    assert absolute_uri(uri) == uri
    with pytest.raises(ValueError, match="names no file"):
        check_uri(uri)
    with pytest.raises(ValueError, match="names no file"):
        optuna_study.check_url(uri)


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("https://me:secret@mlflow.example/x", "https://***@mlflow.example/x"),
        ("https://secret@mlflow.example/x", "https://***@mlflow.example/x"),
        ("https://mlflow.example/x?password=secret", "https://mlflow.example/x?password=***"),
        ("postgresql://me:sec/r@et@h/d?sslpassword=secret&a=b", "'postgresql://***@h/d?sslpassword=***&a=b'"),
    ],
)
def test_no_secret_is_passed_around_with_a_report(uri, shown) -> None:
    assert viewer(uri).removeprefix("mlflow ui --backend-store-uri ") == shown


def test_settings_of_an_address_are_kept() -> None:
    assert absolute_uri("sqlite:////a/b.db?timeout=9") == "sqlite:////a/b.db?timeout=9"


@pytest.mark.parametrize("name", ["my study (v2)", "研究", "a/b", "x'y"])
def test_ids_are_fit_for_tags_and_filters(tmp_path, name) -> None:
    from study.ledger.journal import Journal
    from study.tracking.pages import Subject
    from study.tracking.tracker import Tracker

    journal = Journal(tmp_path / "journal.jsonl")
    tracker = Tracker(
        journal, tmp_path / "tracking.json", f"sqlite:///{tmp_path}/m.db", name, optuna_study.new_id(name), Subject()
    )
    assert tracker.snapshot().tracking.experiment == name
    journal.close()


def test_a_long_folder_for_temporary_files_gives_way_to_a_short_one(tmp_path, monkeypatch) -> None:
    prefix = "study-123456-"
    fits = SOCKET_BYTES - BELOW - RANDOM - len(prefix) - 1
    for asked, found in ((f"/{'x' * 79}", "/tmp"), (f"/{'x' * fits}", "/tmp"), (f"/{'x' * (fits - 1)}", None)):
        monkeypatch.setattr(tempfile, "gettempdir", lambda asked=asked: asked)
        monkeypatch.setattr(os, "access", lambda place, mode: True)
        assert str(temporary_folder(len(prefix))) == (found or asked)
    monkeypatch.setattr(os, "access", lambda place, mode: place not in ("/tmp", "/var/tmp"))
    monkeypatch.setattr(tempfile, "gettempdir", lambda: f"/{'x' * 79}")
    with pytest.raises(
        ValueError, match=rf"TMPDIR=/x+: .* name a folder for temporary files with at most {fits} bytes"
    ):
        temporary_folder(len(prefix))


def test_the_driver_of_postgresql_is_named_where_it_is_missing(monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "psycopg2", None)
    with pytest.raises(
        ValueError, match=r"\*\*\*@h/d: the driver .* install the extra 'postgresql' .* psycopg2-binary"
    ):
        optuna_study.check_url("postgresql://u:hunter2@h/d")


def test_the_driver_has_an_extra_of_its_own() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"]
    assert [word.split(">")[0] for word in project["optional-dependencies"]["postgresql"]] == ["psycopg2-binary"]
