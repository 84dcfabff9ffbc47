"""Whose folder is it, where it is now, and what MLflow still has of it: studies that are mixed up, moved, copied."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import threading
import types
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from study import run, spec
from study.ledger.lease import Deposed, Holder, Lease
from study.ledger.ledger import Ledger
from study.ledger.lock import Held
from study.ledger.optuna_study import Refused, existing_study, open_study
from study.ledger.trials import Trials
from study.protocol.folder import StudyFolder
from study.protocol.messages import Outcome
from study.protocol.states import ReplicateState
from study.protocol.summary import read
from study.reporting.screen import final_text
from study.run import Session
from tests.ledgers import ledger_url, open_ledger
from trainables.checkpoints import NAMES, Checkpoints
from trainables.files import write_whole

STUDY = """
from study.spec import Budget, Objective, Study
from trainables.splade.config import Config

def space(trial):
    trial.suggest_float("k", 0.5, 8, log=True)

STUDY = {"embedded": Study(
    question="Which k?", trainer="splade", parameter="k", config=Config(steps=4), space=space,
    objectives=(Objective(name="ndcg_at_10"),), budget=Budget(trials=2))}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """Where commands are typed: two studies of the same content, `one.py` and `two.py`."""
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(STUDY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("STUDY_LEDGER", raising=False)
    return tmp_path


def opened(name: str, storage: Path, url: str | None = None, **more) -> Ledger:
    _, study = spec.load(Path(f"{name}.py"), None, {}, {})
    return open_ledger(name, study, storage.resolve(), url=url, **more)


def trained(ledger: Ledger, value: float = 0.5, end: bool = True) -> int:
    """A trial with what its gang writes: a model, and `result.json`; without `end` a checkpoint alone."""
    number = ledger.ask()
    assert number is not None
    begun = ledger.begin(number)
    place = Path(begun.folder) / "replicate-0"
    made = place / ("model" if end else "step-00000002")
    made.mkdir(parents=True)
    if not end:
        (made / "manifest.json").write_text(json.dumps({"step": 2, "study": begun.study, "sha256": {}}))
        return number
    (made / "config.json").write_text(str(value))
    outcome = Outcome(ReplicateState.COMPLETE, None, 4, {"ndcg_at_10": value}, {}, seconds=1.0, seconds_per_step=0.25)
    (place / "result.json").write_text(json.dumps(asdict(outcome) | {"study": begun.study}))
    ledger.report(number, begun.attempt, 0, [{"step": 4, "time": 1000, "metrics": {"ndcg_at_10": value}}])
    ledger.replicate_ended(number, begun.attempt, 0, outcome)
    ledger.finish(number, begun.attempt, outcome)
    return number


def finished(name: str, storage: Path, trials: int = 2, url: str | None = None, **more) -> str:
    """A study that has come to its end; its id."""
    ledger = opened(name, storage, url, **more)
    for number in range(trials):
        trained(ledger, 0.5 + number / 10)
    ledger.conclude()
    (storage / "report.html").write_text("report")
    assert ledger.close([("report.html", "report")], 60.0)
    return ledger.id


def half_done(name: str, storage: Path, **more) -> str:
    """A study with a finished trial and one that was interrupted; its id."""
    ledger = opened(name, storage, **more)
    trained(ledger)
    number = trained(ledger, end=False)
    ledger.halt("stopped")
    ledger.finish(number, 1, Outcome(ReplicateState.STOPPED, "stopped", 2, {}, seconds=1.0, seconds_per_step=0.5))
    ledger.conclude()
    ledger.close([], 0)
    return ledger.id


Command = Callable[..., types.SimpleNamespace]


@pytest.fixture
def command(monkeypatch, capsys) -> Command:
    """The command line up to where Ray would be started; `launched` says whether it went so far."""

    def command(*arguments: str) -> types.SimpleNamespace:
        launched = []

        class Launched:
            def __init__(self, *arguments) -> None:
                launched.append(arguments)

            def run(self) -> int:
                return 0

        monkeypatch.setattr(run, "Session", Launched)
        code = run.main(list(arguments))
        screen = capsys.readouterr()
        return types.SimpleNamespace(code=code, out=screen.out, err=screen.err.strip(), launched=bool(launched))

    return command


def assert_refused(done: types.SimpleNamespace, *parts: str) -> None:
    assert (done.code, done.launched) == (2, False), done
    assert len(done.err.splitlines()) == 1
    for part in parts:
        assert part in done.err


# --- identity ------------------------------------------------------------------------------------


def test_the_id_is_in_everything_that_a_study_writes(folder) -> None:
    name = half_done("one", folder / "x")
    assert json.loads((folder / "x" / "study.json").read_text())["id"] == name
    assert json.loads((folder / "x" / "summary.json").read_text())["id"] == name
    with (folder / "x" / "journal.jsonl").open() as lines:
        first = json.loads(next(lines))
    assert (first["op"], first["id"]) == ("study", name)


def test_the_folder_of_another_study_is_refused(folder, command) -> None:
    """It was taken for this one's: nothing was trained, and the other study's values came back."""
    name = finished("one", folder / "x")
    for more in ((), ("--dry-run",)):
        assert_refused(command("two.py", "--storage", "x", *more), "of one is kept there", "of two", str(folder / "x"))
    with pytest.raises(Refused, match=f"belongs to study {name}, but the ledger .* has no two"):
        opened("two", folder / "x")
    assert command("two.py", "--storage", "y").launched


@pytest.mark.parametrize("ids", [True, False], ids=["with ids", "from before"])
def test_a_folder_whose_ledger_was_deleted_is_refused(folder, command, ids) -> None:
    name = finished("one", folder / "x")
    (folder / "x" / "ledger.db").unlink()
    if not ids:
        without_ids(folder / "x")
    done = command("one.py", "--storage", "x")
    assert_refused(done, name if ids else "trials of a study without id", "has no one")
    assert command("one.py", "--storage", "x", "--fresh").launched
    assert not (folder / "x" / "journal.jsonl").exists()


def test_a_slurm_job_that_is_started_again_sets_nothing_aside(folder, command, monkeypatch) -> None:
    finished("one", folder / "x")
    journal = (folder / "x" / "journal.jsonl").read_bytes()
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    done = command("one.py", "--storage", "x", "--fresh", "--trials", "3")
    assert (done.launched, done.err) == (
        True,
        "--fresh was for the first start of this Slurm job; started again, it carries on",
    )
    assert (folder / "x" / "journal.jsonl").read_bytes() == journal
    monkeypatch.setenv("SLURM_RESTART_COUNT", "0")
    assert command("one.py", "--storage", "x", "--fresh").launched
    assert not (folder / "x" / "journal.jsonl").exists()


def test_a_ledger_of_another_study_of_the_same_name_is_refused(folder, command) -> None:
    mine, other = finished("one", folder / "x"), finished("one", folder / "y")
    url = ledger_url(folder / "y")
    assert_refused(command("one.py", "--storage", "x", "--ledger", url), mine, other)
    with pytest.raises(Refused, match=f"{mine}.*{other}"):
        opened("one", folder / "x", url)


def test_a_healthy_study_is_not_set_aside_for_a_ledger_whose_trials_all_failed(folder, command) -> None:
    """A study that has learnt nothing is begun again with another definition, in its own folder only."""
    mine, url = finished("one", folder / "x"), ledger_url(folder / "y")
    ledger = opened("one", folder / "y", url)
    number = ledger.ask()
    ledger.begin(number)
    ledger.finish(number, 1, None, "no such file")
    ledger.close([], 0)
    changed = ("one.py", "--ledger", url, "--set", "steps=5", "--storage")
    assert_refused(command(*changed, "x"), mine, ledger.id, "another --storage")
    assert (folder / "x" / "journal.jsonl").exists()
    assert command(*changed, "y").launched
    assert [path.name for path in folder.glob("x*")] == ["x"]
    assert len(list(folder.glob("y*"))) == 2


def test_a_journal_of_another_study_is_refused(folder, command) -> None:
    mine, other = finished("one", folder / "x"), finished("two", folder / "y")
    shutil.copy(folder / "y" / "journal.jsonl", folder / "x")
    assert_refused(command("one.py", "--storage", "x"), "x/journal.jsonl", mine, other)


@pytest.mark.parametrize("whose", ["two-0123456789ab", None])
@pytest.mark.parametrize("file", ["result.json", "step-00000002/manifest.json"])
def test_a_trial_s_folder_of_another_study_is_refused(folder, file, whose) -> None:
    mine = half_done("one", folder / "x")
    path = folder / "x" / "trials" / "0001" / "replicate-0" / file
    whole = RESULT if file == "result.json" else checkpoint(path.parent)
    path.write_text(json.dumps(whole | ({"study": whose} if whose else {})))
    theirs = f"study {whose}" if whose else "no study"
    with pytest.raises(Refused, match=f"{file} belongs to {theirs}, but trial 1 is one of {mine}"):
        opened("one", folder / "x")


RESULT = {"state": "complete", "step": 4, "values": {"ndcg_at_10": 0.5}}


def checkpoint(folder: Path) -> dict[str, object]:
    """The files of a checkpoint, and its manifest without an id."""
    for name in NAMES:
        (folder / name).write_text(name)
    return {"step": 2, "sha256": {name: hashlib.sha256(name.encode()).hexdigest() for name in NAMES}}


DAMAGED = [
    ("result.json", "{"), ("result.json", "[1]"), ("result.json", '{"state": "complete", "step": 4}'),
    ("step-00000002/manifest.json", "{"), ("step-00000002/manifest.json", "[1]"),
    ("step-00000002/manifest.json", '{"study": "two-0123456789ab", "sha256": {"meta.json": "00"}}'),
]  # fmt: skip


@pytest.mark.parametrize("with_ids", [True, False], ids=["with ids", "from before"])
@pytest.mark.parametrize(("file", "content"), DAMAGED)
def test_what_is_damaged_in_a_trial_s_folder_is_nobody_s(folder, file, content, with_ids) -> None:
    """The trial passes it over, and trains again from what is whole."""
    half_done("one", folder / "x")
    if not with_ids:
        without_ids(folder / "x")
    (folder / "x" / "trials" / "0001" / "replicate-0" / file).write_text(content)
    ledger = opened("one", folder / "x")
    assert ledger.ask() == 1
    begun = ledger.begin(1)
    checkpoints = Checkpoints(Path(begun.folder) / "replicate-0", begun.attempt, begun.study)
    assert (checkpoints.result(), checkpoints.newest()) == (None, None)
    ledger.close([], 0)


@pytest.mark.parametrize("content", ["{", "", "[1]", '{"id": "one-0", "folder": ["a"]}', "\0\0"])
def test_a_damaged_record_of_the_id_is_told(folder, command, content) -> None:
    half_done("one", folder / "x")
    (folder / "x" / "study.json").write_text(content)
    assert_refused(command("one.py", "--storage", "x"), "study.json cannot be read", "restore it from a copy")
    with pytest.raises(Refused, match=r"study\.json cannot be read"):
        opened("one", folder / "x")


def without_ids(storage: Path) -> None:
    """The folder as an earlier version left it, with the absolute paths that it kept."""
    (storage / "study.json").unlink()
    for path in (*storage.glob("trials/*/*/result.json"), *storage.glob("trials/*/*/*/manifest.json")):
        content = json.loads(path.read_text())
        content.pop("study")
        path.write_text(json.dumps(content))
    lines = []
    for line in (storage / "journal.jsonl").read_text().splitlines():
        entry = json.loads(line)
        for key in ("id", "launch"):
            entry.pop(key, None)
        if entry["op"] == "artifact":
            entry["path"] = str(storage / entry["path"])
        lines.append(json.dumps(entry, separators=(",", ":")) + "\n")
    (storage / "journal.jsonl").write_text("".join(lines))
    if (storage / "ledger.db").exists():
        with sqlite3.connect(storage / "ledger.db") as database:
            database.execute("delete from study_user_attributes where key like 'study.%'")
            for number, row in database.execute(ROWS).fetchall():
                changed = json.loads(row)
                changed["checkpoint"] = str(storage / changed["checkpoint"])
                database.execute(CHANGED, (json.dumps(changed), number))


ROWS = "select trial_user_attribute_id, value_json from trial_user_attributes where key = 'row'"
CHANGED = "update trial_user_attributes set value_json = ? where trial_user_attribute_id = ?"


def test_a_folder_from_before_gets_its_id_at_its_first_opening(folder) -> None:
    name = half_done("one", folder / "x")
    without_ids(folder / "x")
    ledger = opened("one", folder / "x")
    assert ledger.id == name
    assert json.loads((folder / "x" / "study.json").read_text())["id"] == name
    place = folder / "x" / "trials"
    for file in ("0000/replicate-0/result.json", "0001/replicate-0/step-00000002/manifest.json"):
        assert json.loads((place / file).read_text())["study"] == name
    assert ledger.ask() == 1
    ledger.close([], 0)
    opened("one", folder / "x").close([], 0)


@pytest.mark.parametrize("what", ["parameters", "values", "trials", "journal"])
def test_a_folder_from_before_whose_trials_are_others_is_refused(folder, what) -> None:
    half_done("one", folder / "x")
    without_ids(folder / "x")
    journal, place = folder / "x" / "journal.jsonl", folder / "x" / "trials" / "0000" / "replicate-0"
    match what:
        case "parameters":
            lines = map(json.loads, journal.read_text().splitlines())
            changed = [e | {"params": e["params"] | {"k": 7.5}} if e["op"] == "trial" else e for e in lines]
            journal.write_text("".join(json.dumps(e, separators=(",", ":")) + "\n" for e in changed))
            message = r"trial 0 has k=7\.5 in its journal and"
        case "values":
            result = json.loads((place / "result.json").read_text())
            write_whole(place / "result.json", json.dumps(result | {"values": {"ndcg_at_10": 0.9}}))
            message = "trial 0 has other values in trials/0000/replicate-0/result.json"
        case "trials":
            entry = '{"op":"trial","trial":5,"replicates":1,"params":{},"tags":{},"time":1}\n'
            journal.write_text(journal.read_text() + entry)
            message = "trial 5 of its journal is not in the ledger"
        case "journal":
            journal.unlink()
            message = "trial 0 is not in its journal"
    with pytest.raises(Refused, match=message):
        opened("one", folder / "x")
    assert not (folder / "x" / "study.json").exists()


def restored(storage: Path, name: str) -> None:
    """Put the copy of the ledger back that was made as `name`."""
    shutil.copy(storage.parent / name, storage / "ledger.db")


@pytest.mark.parametrize("journal", [True, False], ids=["journal", "folder alone"])
def test_an_older_copy_of_the_ledger_is_refused(folder, journal) -> None:
    """Its next trial took the folder of the one that it did not know, and gave that one's values as its own."""
    ledger = opened("one", folder / "x")
    trained(ledger)
    ledger.close([], 0)
    shutil.copy(folder / "x" / "ledger.db", folder / "older.db")
    known = (folder / "x" / "journal.jsonl").read_bytes()
    ledger = opened("one", folder / "x")
    trained(ledger, 0.9)
    ledger.close([], 0)
    shutil.copy(folder / "x" / "ledger.db", folder / "newer.db")
    restored(folder / "x", "older.db")
    whole = (folder / "x" / "journal.jsonl").read_bytes()
    if not journal:
        (folder / "x" / "journal.jsonl").write_bytes(known)
    what = "of its journal" if journal else "has the folder trials/0001/replicate-0, and"
    with pytest.raises(Refused, match=f"trial 1 {what} is not in the ledger; put the newer ledger back, or .*--storag"):
        opened("one", folder / "x")
    restored(folder / "x", "newer.db")
    (folder / "x" / "journal.jsonl").write_bytes(whole)
    opened("one", folder / "x").close([], 0)


def test_a_trial_that_has_other_parameters_in_the_ledger_is_refused(folder) -> None:
    half_done("one", folder / "x")
    with sqlite3.connect(folder / "x" / "ledger.db") as database:
        for number, row in database.execute(ROWS).fetchall():
            changed = json.loads(row) | ({"params": {"k": 7.5}} if json.loads(row)["number"] == 1 else {})
            database.execute(CHANGED, (json.dumps(changed), number))
    with pytest.raises(Refused, match=r"trial 1 has k=\S+ in its journal and 7\.5 in the ledger; put the newer"):
        opened("one", folder / "x")
    with sqlite3.connect(folder / "x" / "ledger.db") as database:
        database.execute("delete from trial_user_attributes where key = 'row' and value_json like '%7.5%'")
    with pytest.raises(Refused, match="trial 1 of its journal has no parameters yet in the ledger; put the newer"):
        opened("one", folder / "x")


def test_a_healthy_study_agrees_with_its_ledger_whatever_became_of_its_trials(folder, monkeypatch) -> None:
    """Killed half-way through a suggestion, killed before the journal knew of it, failed and tried again, refused."""
    ledger = opened("one", folder / "x")
    failed = ledger.ask()
    ledger.begin(failed)
    ledger.finish(failed, 1, None, "out of memory")
    ledger.close([], 0)
    ledger = opened("one", folder / "x", retry_failed=True)
    for place in ("study.ledger.queue.suggest", "study.ledger.records.Records.trial"):
        with monkeypatch.context() as killed:
            killed.setattr(place, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                ledger.ask()
        ledger.close([], 0)
        ledger = opened("one", folder / "x", retry_failed=True)
    with monkeypatch.context() as patched:
        refuse = Ledger._refuse
        patched.setattr(Trials, "config", lambda *_: (_ for _ in ()).throw(ValueError("not these")))
        patched.setattr(Ledger, "_refuse", lambda self, row, reason: (refuse(self, row, reason), self.halt("stop")))
        assert ledger.ask() is None
    ledger.close([], 0)
    ledger = opened("one", folder / "x", retry_failed=True)
    assert any(row.refused for row in ledger._rows.values())
    trained(ledger)
    ledger.close([], 0)
    opened("one", folder / "x").close([], 0)


# --- heads ---------------------------------------------------------------------------------------


def test_two_folders_on_one_ledger(folder, command) -> None:
    """Started before the first trial exists, each was handed the other's running trials."""
    url = f"sqlite:///{folder / 'shared.db'}"
    first = opened("one", folder / "x", url)
    assert_refused(command("one.py", "--storage", "y", "--ledger", url), "in use by process", "x")
    with pytest.raises(RuntimeError, match="in use by process"):
        opened("one", folder / "y", url)
    first.close([], 0)
    with pytest.raises(Refused, match=f"carried on in {folder / 'x'} on .*, as the ledger .* tells"):
        opened("one", folder / "y", url)
    opened("one", folder / "x", url).close([], 0)


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_of_several_heads_on_an_empty_database_one_begins(folder, request, database) -> None:
    """Each with a folder of its own, at one moment; they make the tables of the database, too."""
    # Modules that are imported late are imported by one thread.
    opened("two", folder / "y").close([], 0)
    if database == "sqlite":
        url = f"sqlite:///{folder / 'shared.db'}"
    else:
        url = request.getfixturevalue("postgres").database()
    _, study = spec.load(Path("one.py"), None, {}, {})
    ready, begun, refused = threading.Barrier(4), [], []

    def begin(storage: Path) -> None:
        ready.wait()
        existing_study(url, "one", study)
        try:
            begun.append(open_ledger("one", study, storage, url=url))
        except Held as error:
            refused.append(str(error))

    heads = [threading.Thread(target=begin, args=(folder / f"x{n}",)) for n in range(4)]
    for head in heads:
        head.start()
    for head in heads:
        head.join()
    assert len(begun) == 1
    assert len(refused) == 3
    assert all("in use by process" in message and str(begun[0].storage) in message for message in refused)
    assert begun[0].ask() == 0
    begun[0].close([], 0)


def test_a_head_killed_while_it_made_the_study_leaves_one_that_can_be_begun(folder, command, monkeypatch) -> None:
    """It was taken for somebody else's Optuna study, and refused for good."""
    with monkeypatch.context() as killed:
        killed.setattr("optuna.Study.set_user_attr", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            opened("one", folder / "x")
    assert command("one.py", "--storage", "x").launched
    ledger = opened("one", folder / "x")
    assert trained(ledger) == 0
    ledger.close([], 0)


def test_a_head_that_was_replaced_writes_nothing_and_stops_its_gangs(folder) -> None:
    here = Holder.this(folder / "x")
    ledger = opened("one", folder / "x", head=replace(here, begun=here.begun - 1))
    number = trained(ledger, end=False)
    entries = (folder / "x" / "journal.jsonl").read_bytes()
    new = Lease(ledger_url(folder / "x"), "one", here)
    told = ledger.report(number, 1, 0, [{"step": 3, "time": 1, "metrics": {"ndcg_at_10": 0.5}}])
    assert told.startswith(f"the study was taken over by process {here.pid} on")
    with pytest.raises(Deposed):
        ledger.report(number, 1, 0, [{"step": 4, "time": 1, "metrics": {"ndcg_at_10": 0.5}}])
    assert ledger.halted()
    assert ledger.ask() is None
    assert ledger.begin(number) is None
    assert ledger.describe(number, 1, 0, {}) == told
    ended = Outcome(ReplicateState.COMPLETE, None, 4, {"ndcg_at_10": 0.5}, seconds=1.0, seconds_per_step=0.25)
    assert ledger.replicate_ended(number, 1, 0, ended) is False
    assert ledger.finish(number, 1, ended) == "interrupted"
    assert ledger.abandon(number, "lost") == "interrupted"
    assert ledger.lost() == told
    assert ledger.conclude().status == "interrupted"
    ledger.close([("report.html", "report")], 0)
    assert (folder / "x" / "journal.jsonl").read_bytes() == entries
    new.check()
    new.release()
    again = opened("one", folder / "x")
    assert again._optuna.get_trials()[0].state.name == "RUNNING"
    assert again.ask() == number
    again.close([], 0)


def test_every_write_of_optuna_is_fenced(folder) -> None:
    _, spec_ = spec.load(Path("one.py"), None, {}, {})
    barred = False

    def fence() -> None:
        if barred:
            raise Deposed("taken over")

    study = open_study(f"sqlite:///{folder / 'ledger.db'}", "one", spec_, fence=fence)
    trial = study.ask()
    barred = True
    writes: list[Callable[[], object]] = [
        study.ask, lambda: study.enqueue_trial({"k": 1.0}), lambda: study.set_user_attr("a", 1),
        lambda: trial.suggest_float("k", 0.5, 8), lambda: trial.report(0.5, 1), lambda: trial.set_user_attr("a", 1),
        lambda: trial.set_constraint("collapse", 1.0), lambda: study.tell(trial, 0.5),
    ]  # fmt: skip
    for write in writes:
        with pytest.raises(Deposed):
            write()
    barred = False
    (found,) = study.get_trials()
    assert (found.state.name, found.params, found.intermediate_values, found.user_attrs) == ("RUNNING", {}, {}, {})


# --- moved and copied ----------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [True, False], ids=["relative", "absolute from before"])
def test_a_moved_folder_carries_on_with_its_models(folder, command, ids) -> None:
    half_done("one", folder / "a")
    if not ids:
        without_ids(folder / "a")
    (folder / "a").rename(folder / "b")
    assert command("one.py", "--storage", "b", "--trials", "3").launched
    ledger = opened("one", folder / "b")
    trials = ledger.summary().trials
    assert [t.checkpoint for t in trials] == [
        "trials/0000/replicate-0/model",
        "trials/0001/replicate-0/step-00000002",
    ]
    ledger.conclude()
    session = types.SimpleNamespace(storage=StudyFolder(folder / "b"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("study.reporting.page.write", lambda storage: storage.report)
        patched.setattr("study.reporting.page.answer_of", lambda storage: "Best k = 1.")
        assert Session._reported(session, None) == ([("report.html", "report")], "Best k = 1.")
    assert Session._best(session, None) == {0: folder / "b" / "trials" / "0000" / "replicate-0" / "model"}
    ledger.close([], 0)
    assert json.loads((folder / "b" / "study.json").read_text())["folder"] == str(folder / "b")
    assert str(folder / "a") not in (folder / "b" / "summary.json").read_text()


def test_the_answer_of_a_moved_folder_names_its_model_where_it_is(folder) -> None:
    """Also where an earlier version put an absolute path on record, of a study that is never opened again."""
    finished("one", folder / "a")
    summary = read(folder / "a" / "summary.json")
    (best,) = summary.best
    old = summary.trials[best].checkpoint
    trials = list(summary.trials)
    trials[best] = trials[best].model_copy(update={"checkpoint": str(folder / "a" / old)})
    summary = summary.model_copy(update={"trials": tuple(trials)})
    (folder / "a").rename(folder / "b")
    assert f"best model: {folder / 'b' / old}\n" in final_text(summary, StudyFolder(folder / "b"))


def test_a_copy_is_refused_while_the_original_is_there(folder, command) -> None:
    name = half_done("one", folder / "a")
    shutil.copytree(folder / "a", folder / "b")
    assert_refused(command("one.py", "--storage", "b"), name, f"is a copy of {folder / 'a'}")
    with pytest.raises(Refused, match="is a copy of"):
        opened("one", folder / "b")
    (folder / "link").symlink_to(folder / "a")
    assert command("one.py", "--storage", "link").launched
    assert command("one.py", "--storage", "a").launched
    shutil.rmtree(folder / "a")
    assert command("one.py", "--storage", "b").launched


def test_copies_on_two_hosts_are_told_apart_by_mlflow(folder, command, empty_tracking, monkeypatch) -> None:
    from study.tracking.mlflow_runs import connect

    here, there, tracking = (
        folder / "here",
        folder / "there",
        f"sqlite:///{shutil.copy(empty_tracking, folder / 'mlflow.db')}",
    )
    arguments = ("one.py", "--trials", "5", "--tracking-uri", tracking, "--storage")
    name = finished("one", here, tracking=tracking)
    shutil.copytree(here, folder / "sent")
    here.rename(folder / "unseen")  # from the other host, whose folder this one is
    (folder / "sent").rename(there)
    monkeypatch.setattr("socket.gethostname", lambda: "node-b")
    assert command(*arguments, str(there)).launched
    ledger = opened("one", there, tracking=tracking)
    assert ledger.close([], 60.0)
    there.rename(folder / "gone")
    (folder / "unseen").rename(here)
    monkeypatch.setattr("socket.gethostname", lambda: "node-a")
    done = command(*arguments, str(here))
    assert_refused(
        done, name, f"carried on in {there} on node-b", "its run at sqlite:///", "delete the tag study.launch"
    )
    run_id = json.loads((here / "summary.json").read_text())["tracking"]["run_id"]
    connect(tracking).delete_tag(run_id, "study.launch")
    assert command(*arguments, str(here)).launched


# --- what MLflow has lost ------------------------------------------------------------------------


def test_an_answer_at_once_needs_what_mlflow_has(folder, command, empty_tracking) -> None:
    """It was given although the tracking store was another one, or empty, and the study was never sent there."""
    from study.tracking.mlflow_runs import connect

    tracking = f"sqlite:///{folder / 'studies' / 'mlflow.db'}"
    (folder / "studies").mkdir()
    shutil.copy(empty_tracking, folder / "studies" / "mlflow.db")
    finished("one", folder / "studies" / "one", tracking=tracking)
    done = command("one.py")
    assert (done.code, done.launched) == (0, False)
    assert command("one.py", "--tracking-uri", f"sqlite:///{folder / 'other.db'}").launched
    run_id = json.loads((folder / "studies" / "one" / "summary.json").read_text())["tracking"]["run_id"]
    client = connect(tracking)
    client.delete_run(run_id)
    assert command("one.py").launched
    client.restore_run(run_id)
    assert not command("one.py").launched
    (folder / "studies" / "mlflow.db").unlink()
    assert command("one.py").launched
    assert not (folder / "studies" / "mlflow.db").exists()
