"""Checkpoints on an S3-compatible server: whole or not there, one writer, and patient with a server that is away."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from object_store import BUCKET, S3

from trainables import object_store
from trainables.checkpoints import KEEP, Foreign, StaleAttempt
from trainables.object_store import ObjectStore, below, check_uri, fetched
from trainables.stored_checkpoints import StoredCheckpoints, working_folder

ENDED = {"state": "complete", "step": 2, "values": {}}


@pytest.fixture(scope="module")
def server() -> Iterator[S3]:
    with S3() as server:
        yield server


@pytest.fixture
def uri(server, monkeypatch, tmp_path) -> str:
    """A folder of this test's own."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{tmp_path.name}"


def saved(folder: Path, uri: str, *steps: int, attempt: int = 1) -> StoredCheckpoints:
    """Checkpoints of an attempt, as a process with a working copy of its own writes them."""
    checkpoints = StoredCheckpoints(folder / str(attempt), attempt, uri)
    checkpoints.claim()
    for step in steps:
        checkpoints.save(step, {"w": torch.full((3,), float(step))}, {"step": step, "attempt": attempt})
    return checkpoints


def elsewhere(folder: Path, uri: str, attempt: int = 1) -> StoredCheckpoints:
    """The same seen from a node that has nothing."""
    return StoredCheckpoints(folder / "elsewhere", attempt, uri)


def test_newest_is_found_from_elsewhere_and_old_ones_are_dropped(tmp_path, uri) -> None:
    saved(tmp_path, uri, 1, 2, 3, 20)
    other = elsewhere(tmp_path, uri)
    assert other.newest() == 20
    tensors, meta = other.load(20)
    assert (tensors["w"].tolist(), meta["step"]) == ([20.0] * 3, 20)
    assert ObjectStore(uri).folders() == ["step-00000003.1", "step-00000020.1"]
    assert KEEP == 2
    with pytest.raises(FileNotFoundError, match="step 7 is no longer at s3://"):
        other.load(7)


def test_a_store_that_only_fsspec_knows(tmp_path) -> None:
    place = "fsspec+memory://bucket/checkpoints"
    check_uri(place, probe=True)
    saved(tmp_path, place, 1, 2, 3).finish(ENDED)
    saved(tmp_path, below(place, "other"), 1, 2)
    assert elsewhere(tmp_path, below(place, "other")).newest() == 2
    assert (elsewhere(tmp_path, place).newest(), elsewhere(tmp_path, place).result()) == (None, ENDED)


@pytest.mark.parametrize("damage", ["cut", "lost", "no manifest"])
def test_damaged_checkpoint_is_passed_over(tmp_path, uri, damage) -> None:
    saved(tmp_path, uri, 1, 2)
    store = ObjectStore(f"{uri}/step-00000002.1")
    match damage:
        case "cut":
            store.write("tensors.safetensors", (store.read("tensors.safetensors") or b"")[:-1])
        case "lost":
            store.remove()
            store.write("manifest.json", b'{"step": 2, "sha256": {"meta.json": "?"}}')
        case "no manifest":
            content = store.read("meta.json") or b""
            store.remove()
            store.write("meta.json", content)
    other = elsewhere(tmp_path, uri)
    assert other.newest() == 1
    assert other.load(1)[1]["step"] == 1


def test_attempts_write_beside_each_other_and_the_older_one_is_refused(tmp_path, uri) -> None:
    old = saved(tmp_path, uri, 1, 2)
    new = saved(tmp_path, uri, 2, attempt=2)
    assert elsewhere(tmp_path, uri, 2).load(2)[1]["attempt"] == 2
    with pytest.raises(StaleAttempt, match=r"attempt 1 at s3://.* was superseded by attempt 2"):
        old.save(3, {"w": torch.zeros(1)}, {})
    with pytest.raises(StaleAttempt):
        old.finish(ENDED)
    with pytest.raises(StaleAttempt):
        old.export(lambda folder: (folder / "config.json").write_text("old"))
    assert new.result() is None
    assert not ObjectStore(uri).has("model/config.json")


def test_an_attempt_that_is_superseded_in_the_middle_leaves_nothing_whole(tmp_path, uri, monkeypatch) -> None:
    """A newer attempt begins while the older one sends: its manifest is not sent any more."""
    old = saved(tmp_path, uri, 1)
    upload = ObjectStore._upload

    def overtaken(self, file, name):
        upload(self, file, name)
        ObjectStore(uri).write("attempt-0002", b"")

    monkeypatch.setattr(ObjectStore, "_upload", overtaken)
    with pytest.raises(StaleAttempt):
        old.save(2, {"w": torch.zeros(1)}, {})
    assert not ObjectStore(uri).has("step-00000002.1/manifest.json")
    assert elsewhere(tmp_path, uri, 2).newest() == 1


def test_result_and_model_stay_and_steps_go(tmp_path, uri) -> None:
    checkpoints = saved(tmp_path, uri, 1, 2)
    for text in ("one", "two"):
        checkpoints.export(lambda folder, text=text: (folder / "config.json").write_text(text))
    checkpoints.export(lambda folder: (folder / "weights").write_text("w"), "pretrain")
    checkpoints.finish(ENDED)
    other = elsewhere(tmp_path, uri)
    assert (other.result(), other.newest()) == (ENDED, None)
    assert ObjectStore(uri).folders() == ["model", "model-pretrain"]
    copy = fetched(f"{uri}/model", tmp_path / "copy", 0)
    assert copy == tmp_path / "copy" / "model"
    assert {path.name: path.read_text() for path in copy.iterdir()} == {"config.json": "two"}
    assert fetched(str(tmp_path), tmp_path / "unused", 0) == tmp_path
    # Nothing is left of what was sent.
    assert [path for path in (tmp_path / "1").rglob("*") if path.name not in ("1", "attempt")] == []


def test_what_another_study_has_sent_is_refused(tmp_path, uri) -> None:
    ours, theirs = (StoredCheckpoints(tmp_path / name, 1, uri, name) for name in ("ours", "theirs"))
    theirs.claim()
    theirs.save(4, {"w": torch.zeros(1)}, {})
    with pytest.raises(Foreign, match=r"step-00000004\.1 belongs to study theirs, and this run to study ours"):
        ours.newest()
    theirs.finish(ENDED)
    assert theirs.result() == ENDED
    with pytest.raises(Foreign, match=r"result\.json belongs to study theirs"):
        ours.result()


def test_what_was_sent_before_files_carried_an_id_is_the_study_s(tmp_path, uri) -> None:
    """The folder on the store is named by the id."""
    saved(tmp_path, uri, 4).finish(ENDED)
    assert StoredCheckpoints(tmp_path / "now", 2, uri, "k-1").result() == ENDED


@pytest.mark.parametrize("patience_s", [60.0, 0.0], ids=["for a while", "for good"])
def test_a_server_that_is_away(tmp_path, monkeypatch, caplog, patience_s) -> None:
    """It stalls the writer, and fails it when it stays away; here another one comes at the same address."""
    monkeypatch.setattr(object_store, "PATIENCE_S", patience_s)
    monkeypatch.setattr(object_store, "PAUSE_S", 0.2)
    server = S3().start()
    try:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        checkpoints = saved(tmp_path, f"s3://{BUCKET}/x", 1)
        server.stop()
        if not patience_s:
            with pytest.raises(OSError, match="NETWORK_CONNECTION"):
                checkpoints.save(2, {"w": torch.zeros(1)}, {"step": 2})
            return
        # pyarrow itself gives up after six seconds.
        back = threading.Timer(8.0, server.start)
        back.start()
        checkpoints.save(2, {"w": torch.zeros(1)}, {"step": 2})
        back.join()
        assert "the object store fails, tried again in 0.2 s" in caplog.text
        assert elsewhere(tmp_path, f"s3://{BUCKET}/x").newest() == 2
    finally:
        server.stop()


def test_half_sent_checkpoints_push_no_whole_one_out(tmp_path, uri) -> None:
    """Attempts that die while they send leave parts; more of them than are kept must not cost the whole ones."""
    saved(tmp_path, uri, 1, 2)
    for attempt in (2, 3):
        ObjectStore(uri).write(f"step-00000009.{attempt}/tensors.safetensors", b"half")
    assert elsewhere(tmp_path, uri, 3).newest() == 2
    third = saved(tmp_path, uri, 3, attempt=4)
    assert ObjectStore(uri).folders() == ["step-00000002.1", "step-00000003.4"]
    ObjectStore(uri).write("step-00000009.3/tensors.safetensors", b"late")
    third.save(4, {"w": torch.zeros(1)}, {})
    assert elsewhere(tmp_path, uri, 4).newest() == 4
    assert "step-00000003.4" in ObjectStore(uri).folders()


def test_a_killed_process_leaves_no_working_copy_for_good(tmp_path, uri, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    killed = working_folder(uri, 1, 0)
    left = killed.__enter__()
    with working_folder(uri, 1, 1) as other_rank, working_folder(uri, 2, 0) as next_attempt:
        assert not left.exists()
        assert other_rank.exists()
        assert next_attempt.exists()
    assert list(tmp_path.iterdir()) == []


REFUSED = [
    ("s3://nowhere-to-be-found/x", "cannot write there .*NO_SUCH_BUCKET"),
    ("s3://key:secret@bucket/x", "credentials in a URI end up in logs"),
    ("s3://key@bucket/x", "credentials in a URI end up in logs"),
    ("abfss://box@account.dfs.core.windows.net/x?client_secret=secret", "credentials in a URI end up in logs"),
    ("foo://bucket/x", "unknown kind; accepted are s3, gs,"),
    ("fsspec+nope://bucket/x", "cannot write there .*Protocol not known: nope"),
    ("/shared/checkpoints", "name a folder of an object store, such as s3://"),
    ("file:///shared/checkpoints", "name a folder of an object store, such as s3://"),
    ("s3://", "name a folder of an object store, such as s3://"),
]


@pytest.mark.parametrize(("place", "message"), REFUSED)
def test_what_is_no_place_for_checkpoints(uri, place, message) -> None:
    with pytest.raises(ValueError, match=rf"^--checkpoints [^\n]*{message}") as refused:
        check_uri(place, probe=True)
    assert "secret" not in str(refused.value)
    check_uri(uri, probe=True)
    check_uri("abfss://box@account.dfs.core.windows.net/x", probe=False)
