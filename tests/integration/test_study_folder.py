"""The files and folders of a study, each made unreadable, foreign, truncated, empty, older and newer.

What the ledger and the trainer have put on record is refused in one sentence that names it; what is only a view of it
is made again. The ledger is driven in this process, without Ray.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import io
import json
import os
import shutil
import signal
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from study import evaluate, report, run
from study.ledger import identity
from study.ledger.journal import Journal
from study.ledger.launch_options import LaunchOptions
from study.ledger.ledger import Ledger
from study.ledger.lock import Lock
from study.ledger.optuna_study import Refused
from study.protocol.destinations import Destinations
from study.protocol.folder import StudyFolder
from study.protocol.journal import Damaged
from study.protocol.messages import Outcome
from study.protocol.summary import Tracking, read
from study.reporting.page import write as write_report
from study.spec import Study, load
from study.tracking.mlflow_runs import NAMES, State
from study.uris import DEFAULT_TRACKING, absolute_uri
from tests.ledgers import open_ledger
from trainables.checkpoints import Checkpoints, newest_attempt, problem_of
from trainables.errors import FINISHED, INTERRUPTED, WRONG

STUDY = """
from study.spec import Budget, Objective, Study
from trainables.splade.config import Config

def space(trial):
    trial.suggest_float("k", 1, 8, log=True)

STUDY = {"embedded": Study(question="Which k?", trainer="splade", parameter="k", config=Config(steps=10), space=space,
    objectives=(Objective(name="ndcg_at_10"),), budget=Budget(trials=2))}
"""


def opened(folder: Path, **arguments: Any) -> Ledger:
    _, study = load(folder / "tiny.py", None, {}, {})
    return open_ledger("tiny", study, folder / "studies" / "tiny", **arguments)


def result(value: float) -> dict[str, Any]:
    values = {"ndcg_at_10": value, "test.ndcg_at_10": value}
    return {
        "state": "complete", "reason": None, "step": 10, "values": values, "seconds": 5.0, "seconds_per_step": 0.5,
        "per_item": {"test": {"ndcg_at_10": {"q1": value, "q2": value / 2}}},
    }  # fmt: skip


def train(ledger: Ledger) -> None:
    """What the gangs of all trials do."""
    while (number := ledger.ask()) is not None:
        begun = ledger.begin(number)
        checkpoints = Checkpoints(Path(begun.folder) / "replicate-0", begun.attempt)
        checkpoints.claim()
        metrics = {"train.loss": 1.0, "ndcg_at_10": 0.2}
        ledger.report(number, begun.attempt, 0, [{"step": 5, "time": 1000, "metrics": metrics}])
        checkpoints.export(lambda folder: (folder / "config.json").write_text("{}"))
        checkpoints.finish(result(0.4 + number / 10))
        outcome = Outcome(**result(0.4 + number / 10))
        ledger.replicate_ended(number, begun.attempt, 0, outcome)
        ledger.finish(number, begun.attempt, outcome)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A folder with a study file and a finished study of it."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "tiny.py").write_text(STUDY)
    ledger = opened(folder)
    ledger.prepared({"data.train": "nothing"}, {}, {})
    train(ledger)
    ledger.conclude()
    ledger.close([], 0)
    storage = folder / "studies" / "tiny"
    State("sqlite:///mlflow.db", "tiny", ledger.id, offset=storage.joinpath("journal.jsonl").stat().st_size).save(
        storage / "tracking.json"
    )
    write_report(StudyFolder(storage))
    (storage / "cache").mkdir()
    (storage / "logs").mkdir()
    (storage / "logs" / "driver.log").write_text("")
    Lock(storage / "lock").release()
    return folder


@pytest.fixture
def study(finished, tmp_path, monkeypatch) -> Path:
    """The storage folder of a copy of it, whose tracking store and place are not of interest here."""
    moved(finished, tmp_path)
    monkeypatch.chdir(tmp_path)
    tracked(tmp_path / "studies" / "tiny")
    monkeypatch.setattr(run, "check_uri", lambda uri: None)
    monkeypatch.setattr(run, "run_tags", lambda uri, run_id: {})
    monkeypatch.setattr(run.Session, "run", lambda session: STARTED)
    return tmp_path / "studies" / "tiny"


def moved(finished: Path, folder: Path) -> None:
    """A copy in `folder` of what is in `finished`, as if that had been moved: of a copy nothing would be carried on."""
    shutil.copytree(finished, folder, dirs_exist_ok=True)
    place = folder / "studies" / "tiny" / "study.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | {"folder": str(place.parent)}))


def tracked(storage: Path) -> None:
    """Put into the summary that the default tracking store has everything."""
    told = Tracking(uri=absolute_uri(DEFAULT_TRACKING), experiment="tiny", run_id="a run")
    summary = read(storage / "summary.json").model_copy(update={"tracking": told})
    (storage / "summary.json").write_text(summary.text())


STARTED = 77


def refused_by(main: Callable[[list[str]], int], *arguments: str) -> tuple[object, str]:
    """(exit code, what is told) of a command without the rights of root, which would read and write anything."""
    told = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(told):
        try:
            code: object = main([*arguments])
        except SystemExit as ended:
            code = ended.code
    return code, told.getvalue()


def without_rights(ask: Callable[[], tuple[object, str]]) -> tuple[object, str]:
    """What `ask` returns in a process of its own that has no capabilities: permissions are those of files."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with os.fdopen(writing, "w") as file:
            header, nothing = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
            ctypes.CDLL(None).capset(header, nothing)
            try:
                json.dump(ask(), file)
            except BaseException as error:
                json.dump((repr(error), "raised"), file)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        code, told = json.load(file)
    os.waitpid(child, 0)
    return code, told


def folder_instead(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    path.mkdir(parents=True)


def file_instead(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("a file")


def foreign(path: Path) -> None:
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20)


def text(path: Path) -> None:
    path.write_text("Dear reader,\nthis is no file of a study\n")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])


def shifted(path: Path) -> None:
    """The beginning is lost."""
    path.write_bytes(path.read_bytes()[7:])


def overwritten(path: Path) -> None:
    """A hole in the middle, as a disk leaves it."""
    data = bytearray(path.read_bytes())
    start, size = len(data) // 3, min(4096, len(data) // 8)
    data[start : start + size] = bytes(size)
    path.write_bytes(data)


def linked(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def other_json(path: Path) -> None:
    path.write_text('[1, "two"]\n')


def sql(statement: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.executescript(statement)

    return change


def other_database(path: Path) -> None:
    path.unlink()
    sql("CREATE TABLE experiments (id INTEGER); CREATE TABLE alembic_version (version_num TEXT);")(path)


ATTRIBUTE = "UPDATE study_user_attributes SET value_json = '{value}' WHERE key = '{key}'"
ROW = "UPDATE trial_user_attributes SET value_json = '{value}' WHERE key = 'row'"

RECORDS = [
    # file, what becomes of it, what the sentence names besides the file
    ("ledger.db", foreign, "no SQLite database"),
    ("ledger.db", text, "no SQLite database"),
    ("ledger.db", truncated, "damaged"),
    ("ledger.db", shifted, "no SQLite database"),
    ("ledger.db", overwritten, "damaged"),
    ("ledger.db", other_json, "no SQLite database"),
    ("ledger.db", folder_instead, "a folder"),
    ("ledger.db", other_database, "a database of something else"),
    ("ledger.db", sql("UPDATE alembic_version SET version_num = 'v1.3.0.a'"), "optuna storage upgrade"),
    ("ledger.db", sql("UPDATE alembic_version SET version_num = 'v99.0.0.a'"), "use that version"),
    ("ledger.db", sql(ATTRIBUTE.format(key="definition", value="{")), "cannot be read"),
    ("ledger.db", sql(ROW.format(value="{")), "cannot be read"),
    ("journal.jsonl", foreign, "no entry of a study's journal"),
    ("journal.jsonl", text, "line 1"),
    ("journal.jsonl", shifted, "line 1"),
    ("journal.jsonl", overwritten, "line"),
    ("journal.jsonl", other_json, "line 1"),
    ("journal.jsonl", folder_instead, "a folder"),
    ("journal.jsonl", linked, "a link to nothing"),
    ("lock", folder_instead, "a folder"),
    ("lock", linked, "a link to nothing"),
    ("ledger.lock", folder_instead, "a folder"),
    ("summary.json", folder_instead, "a folder"),
    ("tracking.json", folder_instead, "a folder"),
    ("report.html", folder_instead, "a folder"),
    ("logs", file_instead, "a file"),
    ("logs/driver.log", folder_instead, "a folder"),
    ("cache", file_instead, "a file"),
    ("trials", file_instead, "a file"),
    ("trials/0000", file_instead, "a file"),
    ("trials/0001/replicate-0", file_instead, "a file"),
    ("trials/0000/replicate-0/result.json", folder_instead, "a folder"),
    ("trials/0000/replicate-0/attempt", folder_instead, "a folder"),
]  # fmt: skip


def ids(rows: list[tuple]) -> list[str]:
    return [f"{row[0]} {getattr(row[1], '__name__', row[1])} {row[2] if len(row) > 2 else ''}" for row in rows]


def launch(storage: Path, *more: str) -> tuple[object, str]:
    """The command, and where it would start Ray, the opening of the ledger, as its actor does it."""
    code, told = refused_by(run.main, "tiny.py", "--trials", "3", *more)
    if code != STARTED:
        return code, told
    try:
        opened(storage.parents[1]).close([], 0)
    except (Refused, Damaged) as error:
        return WRONG, f"error: {error}\n"
    return code, told


@pytest.mark.parametrize(("name", "damage", "told"), RECORDS, ids=ids(RECORDS))
def test_a_damaged_record_is_refused(study, refusal, name, damage, told) -> None:
    damage(study / name)
    sentence = refusal(*launch(study), str(study / name), told)
    assert "the same command" not in sentence


def test_a_newer_row_is_refused(study, refusal) -> None:
    with contextlib.closing(sqlite3.connect(study / "ledger.db")) as database:
        (row,) = database.execute("SELECT value_json FROM trial_user_attributes WHERE key = 'row'").fetchone()
        newer = json.dumps(json.loads(row) | {"colour": "blue"})
        database.execute("UPDATE trial_user_attributes SET value_json = ? WHERE key = 'row'", (newer,))
        database.commit()
    refusal(*launch(study), "trial 0", "another version", "colour", "--fresh")


ADVISED = [row for row in RECORDS if row[0] != "lock"]


@pytest.mark.parametrize(("name", "damage", "told"), ADVISED, ids=ids(ADVISED))
def test_fresh_puts_a_damaged_study_aside(study, name, damage, told) -> None:
    """What the refusals advise."""
    damage(study / name)
    code, said = refused_by(run.main, "tiny.py", "--fresh")
    assert sorted(path.name for path in study.iterdir()) == ["lock"]
    (aside,) = study.parent.glob("tiny.*")
    assert (code, said) == (STARTED, f"the study that was there is kept in studies/{aside.name}\n")


VIEWS = ("summary.json", "tracking.json", "report.html", "trials/0000/replicate-0/attempt", "lock", "ledger.lock")
MADE_AGAIN = [
    (name, damage)
    for name in VIEWS
    for damage in (foreign, text, empty, truncated, other_json)
]  # fmt: skip


@pytest.mark.parametrize(("name", "damage"), MADE_AGAIN, ids=ids(MADE_AGAIN))
def test_a_damaged_view_is_made_again(study, name, damage) -> None:
    before = json.loads((study / "summary.json").read_text())
    damage(study / name)
    code, told = refused_by(run.main, "tiny.py")
    assert (code, told) == ((STARTED if name == "summary.json" else FINISHED), "")
    opened(study.parents[1]).close([], 0)
    after = json.loads((study / "summary.json").read_text())
    assert (after["trials"], after["best"]) == (before["trials"], before["best"])
    if name == "report.html":
        write_report(StudyFolder(study))
        assert "Which k?" in (study / name).read_text()


UNREADABLE = ["ledger.db", "journal.jsonl", "lock", "ledger.lock", "logs", "logs/driver.log", "cache", "trials",
              "trials/0001", "trials/0001/replicate-0", "trials/0001/replicate-0/attempt", "."]  # fmt: skip


@pytest.mark.parametrize("name", UNREADABLE)
@pytest.mark.parametrize("mode", [0o000, 0o444], ids=["unreadable", "read-only"])
def test_what_may_not_be_used_is_refused(study, refusal, name, mode) -> None:
    path = study / name
    path.chmod(mode)
    try:
        told = without_rights(lambda: refused_by(run.main, "tiny.py", "--trials", "3"))
    finally:
        path.chmod(0o755)
    sentence = refusal(*told, str(path), "denied")
    assert "the same command" not in sentence


def test_a_folder_that_came_from_one_of_another_user_is_carried_on(study, tmp_path, refusal) -> None:
    """Their folder cannot be looked at; who carried the study on last is told by the launches."""
    theirs = tmp_path / "theirs"
    (theirs / "study").mkdir(parents=True)
    record = json.loads((study / "study.json").read_text())
    (study / "study.json").write_text(json.dumps(record | {"folder": str(theirs / "study")}))
    overtaken = identity.Launch("newer", socket.gethostname(), str(theirs / "study"))

    def overtake() -> tuple[object, str]:
        try:
            return identity.check_launch(StudyFolder(study), record["id"], overtaken, "the ledger"), ""
        except Refused as error:
            return WRONG, f"error: {error}\n"

    theirs.chmod(0o000)
    try:
        assert without_rights(lambda: refused_by(run.main, "tiny.py", "--trials", "3")) == (STARTED, "")
        refusal(*without_rights(overtake), "is an older copy", str(theirs / "study"))
    finally:
        theirs.chmod(0o755)
    assert overtake() == (None, "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_lock_of_another_user_names_them(study, refusal) -> None:
    for name in ("lock", "ledger.lock"):
        os.chown(study / name, 1, 1)
        (study / name).chmod(0o600)
        told = without_rights(lambda: refused_by(run.main, "tiny.py", "--trials", "3"))
        refusal(*told, str(study / name), "permission denied (it belongs to daemon)")
        os.chown(study / name, 0, 0)


def test_a_locked_ledger_is_refused(study, refusal, monkeypatch) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, timeout: connect(path, timeout=0.01))
    with contextlib.closing(connect(study / "ledger.db", isolation_level=None)) as database:
        database.execute("BEGIN EXCLUSIVE")
        refusal(*refused_by(run.main, "tiny.py"), str(study / "ledger.db"), "database is locked")


REPORTS = [
    ("summary.json", foreign, "not a study's summary"), ("summary.json", truncated, "not a study's summary"),
    ("summary.json", empty, "not a study's summary"), ("summary.json", other_json, "not a study's summary"),
    ("summary.json", folder_instead, "is a directory"), ("summary.json", linked, "does not exist"),
    ("journal.jsonl", overwritten, "line"), ("journal.jsonl", folder_instead, "is a directory"),
    ("trials/0000/replicate-0/result.json", foreign, "damaged"),
    ("trials/0000/replicate-0/result.json", truncated, "damaged"),
    ("trials/0000/replicate-0/result.json", empty, "damaged"),
    ("trials/0000/replicate-0/result.json", other_json, "damaged"),
    ("trials/0000/replicate-0/result.json", folder_instead, "is a directory"),
    ("report.html", folder_instead, "is a directory"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "damage", "told"), REPORTS, ids=ids(REPORTS))
def test_a_report_of_a_damaged_study_is_refused(study, refusal, name, damage, told) -> None:
    damage(study / name)
    refusal(*refused_by(report.main, "tiny.py"), name, told)


EVALUATIONS = [
    ("summary.json", foreign, "not a study's summary"), ("summary.json", folder_instead, "is a directory"),
    ("journal.jsonl", overwritten, "line"), ("journal.jsonl", empty, "no trial 1"),
    ("journal.jsonl", folder_instead, "is a directory"),
    ("trials/0001/replicate-0/model", file_instead, "trials/0001"), ("trials/0001", file_instead, "no exported model"),
    ("evaluation", text, "evaluation"), ("evaluation/lock", folder_instead, "lock"),
    ("evaluation/cache", text, "cache"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "damage", "told"), EVALUATIONS, ids=ids(EVALUATIONS))
def test_an_evaluation_of_a_damaged_study_is_refused(study, refusal, name, damage, told) -> None:
    (study / name).parent.mkdir(exist_ok=True)
    damage(study / name)
    (study.parents[1] / "suite").mkdir()
    (study.parents[1] / "suite" / "corpus.jsonl").write_text('{"_id": "d", "text": "a"}\n')
    refusal(*refused_by(evaluate.main, "tiny.py", "--suite", "suite", "--trials", "1"), told)


def test_a_journal_that_lost_its_end_is_carried_on(study) -> None:
    """The ledger has what was lost; half an entry was promised to nobody."""
    truncated(study / "journal.jsonl")
    opened(study.parents[1]).close([], 0)
    journal = Journal(study / "journal.jsonl")
    assert all(journal.ended(number) for number in (0, 1))
    journal.close()


def test_what_tracking_has_sent_beyond_the_journal_is_sent_again(study) -> None:
    from study.tracking.pages import Subject
    from study.tracking.tracker import Tracker

    journal = Journal(study / "journal.jsonl")
    end = (study / "journal.jsonl").stat().st_size
    for offset, taken in ((end, end), (end + 5, 0), (end - 5, 0), (0, 0)):
        State("sqlite:///x.db", "tiny", "id", NAMES, offset=offset).save(study / "tracking.json")
        found = Tracker(journal, study / "tracking.json", "sqlite:///x.db", "tiny", "id", Subject())
        assert found._state.offset == taken
    journal.close()


STEPS = [
    ("manifest.json", foreign), ("manifest.json", empty), ("manifest.json", truncated), ("manifest.json", other_json),
    ("manifest.json", folder_instead), ("manifest.json", linked), ("meta.json", truncated), ("meta.json", linked),
    ("meta.json", folder_instead), ("tensors.safetensors", truncated), ("tensors.safetensors", foreign),
    (".", file_instead),
]  # fmt: skip


@pytest.mark.parametrize(("name", "damage"), STEPS, ids=ids(STEPS))
def test_a_damaged_checkpoint_is_passed_over(tmp_path, name, damage) -> None:
    import torch

    checkpoints = Checkpoints(tmp_path, 1)
    for step in (1, 2):
        checkpoints.save(step, {"w": torch.tensor([float(step)])}, {"history": []})
    damage(tmp_path / "step-00000002" / name)
    assert checkpoints.newest() == 1
    checkpoints.save(2, {"w": torch.tensor([2.0])}, {"history": []})
    assert problem_of(tmp_path / "step-00000002") is None
    checkpoints.finish(result(0.5))


@pytest.mark.parametrize("damage", [foreign, text, empty, truncated, other_json])
def test_a_damaged_result_or_attempt_is_passed_over(tmp_path, damage) -> None:
    checkpoints = Checkpoints(tmp_path, 4)
    checkpoints.claim()
    checkpoints.finish(result(0.5))
    damage(tmp_path / "result.json")
    assert checkpoints.result() is None
    foreign(tmp_path / "attempt")
    assert newest_attempt(tmp_path) == 0
    checkpoints.claim()
    assert newest_attempt(tmp_path) == 4


class LocalLedger(Ledger):
    """The ledger without gangs that could hang."""

    def end_silent(self) -> None:
        assert not self.silent()


class Local:
    """The ledger actor's handle, in this process."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def __getattr__(self, name: str) -> Any:
        return type("Method", (), {"remote": staticmethod(getattr(self.ledger, name))})


@pytest.fixture
def session(finished, tmp_path, monkeypatch) -> Iterator[Path]:
    """The storage of a copy of the study that `run.main` carries on, all but Ray, the gangs and the input check."""
    import ray

    from study.engine import executor

    class Engine(executor.Engine):
        def start(self) -> None: ...
        def stop(self) -> None: ...
        def check_room(self, study: object) -> None: ...

        def open_ledger(
            self, name: str, profile: str, study: Study, destinations: Destinations, options: LaunchOptions
        ) -> Any:
            self.ledger = Local(LocalLedger(name, profile, study, replace(destinations, tracking=None), options))
            return self.ledger

        def fit(self, study: object) -> None:
            train(self.ledger.ledger)

    class Check:
        def __init__(self, *arguments: object) -> None: ...
        def raise_if_refused(self) -> None: ...
        def stop(self) -> None: ...

        def result(self, *arguments: object) -> dict[str, Any]:
            return {"facts": {}, "baselines": {}, "notes": []}

    moved(finished, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "check_uri", lambda uri: None)
    monkeypatch.setattr(run, "InputCheck", Check)
    monkeypatch.setattr(run, "MLFLOW_WAIT_S", 0)
    monkeypatch.setattr(executor, "Engine", Engine)
    monkeypatch.setattr(ray, "get", lambda answer: answer)
    kept = [os.dup(number) for number in (1, 2)]
    yield tmp_path / "studies" / "tiny"
    for number, copy in zip((1, 2), kept, strict=True):
        os.dup2(copy, number)
        os.close(copy)


def test_a_study_carries_on_with_a_damaged_result(session, capfd) -> None:
    """The report is a view: that it cannot be written is said, and the study is finished all the same."""
    truncated(session / "trials" / "0000" / "replicate-0" / "result.json")
    assert run.main(["tiny.py", "--trials", "3"]) == FINISHED
    told = "".join(capfd.readouterr())
    assert f"the report is not written: {session}/trials/0000/replicate-0/result.json is not the result" in told
    assert json.loads((session / "summary.json").read_text())["status"] == "finished"


def test_an_interruption_while_inputs_are_checked_begins_nothing(session, capfd, monkeypatch) -> None:
    """Ray was started, and a study without a trial stood in the way of the corrected command."""
    shutil.rmtree(session)

    def interrupted(check: object, say: object, stopped: Callable[[], bool]) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGINT)
        while not stopped():
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(run.InputCheck, "result", interrupted)
    assert run.main(["tiny.py", "--trials", "3"]) == INTERRUPTED
    assert "interrupted before anything was begun" in "".join(capfd.readouterr())
    assert not (session / "ledger.db").exists()


FAULTS = [
    (OSError(errno.ENOSPC, "No space left on device"), "no space left on device; when that is mended, the same"),
    (OSError(errno.EROFS, "Read-only file system"), "read-only file system; when that is mended, the same command"),
    (ConnectionResetError(errno.ECONNRESET, "Connection reset"), "connection reset; the same command carries on"),
    (KeyError("k"), "KeyError: 'k'; what has ended is kept"),
    (ValueError("7 is odd"), "ValueError: 7 is odd; what has ended is kept"),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "told"), FAULTS, ids=[type(f[0]).__name__ + f[1][:9] for f in FAULTS])
def test_a_study_that_fails_says_what_helps(session, capfd, monkeypatch, refusal, fault, told) -> None:
    """Exit 1, and the same command is advised only where it can help."""

    def fails(*arguments: object) -> None:
        raise fault

    details: list[str] = []
    # Its output goes to the log, but for pytest's.
    monkeypatch.setattr(run.traceback, "print_exc", lambda file: details.append("traceback"))
    monkeypatch.setattr(Ledger, "conclude", fails)
    code = run.main(["tiny.py", "--trials", "3"])
    told_all = capfd.readouterr().err
    assert len(details) == 1
    sentence = refusal(code, told_all, "the study failed", told, expected=1)
    assert f"{session}/logs holds the details" in sentence
    assert ("the same command" in sentence) == isinstance(fault, OSError)
