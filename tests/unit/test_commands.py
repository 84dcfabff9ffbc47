"""Working with studies: what runs, what was run, two of them compared, one removed, one begun."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from synthetic_study import K_STUDY, write_study

from study import __main__ as commands
from study import compare, new, notify, remove, run, spec, status, watch
from study import list as listed
from study.ledger import lease, optuna_study
from study.ledger.lease import Holder, Lease
from study.ledger.lock import Lock
from study.planning import provenance
from study.protocol.folder import StudyFolder
from study.protocol.journal import StudyBegun, encode
from tests.ledgers import ledger_url
from trainables import trainers

ROOT = Path(__file__).resolve().parents[2]
NAME = "splade_k_search"
RUNNING = {0.5: K_STUDY[0.5], 1.0: K_STUDY[1.0], 4.0: {"state": "running", "untrained": 0.1, "steps": 80, "test": 0.3}}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    """An empty folder with a space in its name."""
    place = tmp_path / "a folder"
    place.mkdir()
    monkeypatch.chdir(place)
    for variable in ("STUDY_LEDGER", "STUDY_NOTIFY", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(variable, raising=False)
    return place


def made(
    folder: str = NAME, grid=K_STUDY, *, launch: dict[str, str] | None = None, params=None, **extra
) -> StudyFolder:
    """A study below `studies/`, with one launch in its journal."""
    storage = StudyFolder(Path("studies", folder))
    write_study(storage.path, grid, **extra)
    begun = StudyBegun(
        params=params or {"steps": 200, "optimiser.lr": 1e-3},
        tags={"command": "python -m study.run splade_k_search --trials 9"} | (launch or {}),
        time=1_767_607_200_000,
    )
    storage.journal.write_text(encode(begun) + storage.journal.read_text())
    return storage


def ended_process() -> Holder:
    """A head of this machine that is gone."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    this = Holder.this(Path("studies", NAME))
    return Holder(child.pid, 1, this.host, this.machine, "2026-01-05 10:00:00", this.folder)


# --- status, list, watch -------------------------------------------------------------------------


def test_a_study_that_runs_is_told_by_its_lease(capsys) -> None:
    storage = made(grid=RUNNING, status="running", launch={"cluster": "Ray at 10.0.0.1:6379"})
    holder = Lease(ledger_url(storage.path), NAME, Holder.this(storage.path))
    try:
        assert status.main([NAME]) == 0
        told = capsys.readouterr().out
        assert f"{NAME}: runs: process {os.getpid()} on {holder_host()} since 20" in told
        assert "Ray at 10.0.0.1:6379" in told
        assert "3 trials: 2 complete, 1 running; 80% done" in told
        assert "trial 2 (k = 4) step 80/200" in told
        assert "Best k = 1 so far: " in told
        assert status.main([]) == 0
        assert capsys.readouterr().out == told
        assert listed.main([]) == 0
        assert re.search(rf"^{NAME} +running +2/3 +k = 1: ", capsys.readouterr().out, re.MULTILINE)
    finally:
        holder.release()
    assert status.main([]) == 0
    assert capsys.readouterr().out == "nothing runs; python -m study.list shows the 1 that were run below studies/\n"


def holder_host() -> str:
    return Holder.this(Path()).host


@pytest.mark.parametrize("how", ["gone", "expired"])
def test_a_killed_study_is_not_running_though_its_summary_says_so(how, capsys) -> None:
    storage = made(grid=RUNNING, status="running")
    url = ledger_url(storage.path)
    killed = ended_process()
    if how == "expired":
        # Of a head on another machine nothing is known but that it has not renewed its lease.
        killed = Holder(killed.pid, 1, "node-7", "another machine", killed.since, killed.folder)
    taken = Lease(url, NAME, killed, seconds=0.2 if how == "expired" else 50, renew_every_s=1000)
    if how == "expired":
        time.sleep(0.4)
    taken._stop.set()
    assert json.loads(storage.summary.read_text())["status"] == "running"
    assert status.main([NAME]) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"{NAME}: not running: process {killed.pid} on {killed.host} since 2026-01-05 10:00:00")
    assert ("which is gone" if how == "gone" else "which has been silent for") in told
    assert "carry on python -m study.run splade_k_search --trials 9" in told
    assert listed.main([]) == 0
    assert f"{NAME}  not running  2/3" in capsys.readouterr().out
    assert watch.main([NAME]) == 0
    assert "not running: process" in capsys.readouterr().out


def test_a_lock_tells_where_the_ledger_is_out_of_reach(capsys) -> None:
    storage = made(grid=RUNNING, status="running")
    assert status.main([NAME]) == 0
    assert "may run: its ledger is in a database elsewhere; name that with --ledger" in capsys.readouterr().out
    lock = Lock(storage.lock)
    try:
        assert status.main([NAME]) == 0
        assert f"runs: process {os.getpid()} on " in capsys.readouterr().out
    finally:
        lock.release()
    assert status.main([NAME]) == 0
    assert "may run" in capsys.readouterr().out


def test_looking_takes_nobodys_lock(capsys) -> None:
    storage = made(status="finished")
    storage.lock.write_text("{}")
    before = sorted((path.name, path.stat().st_mtime_ns) for path in storage.path.iterdir())
    for _ in range(3):
        assert status.main([NAME]) == 0
    assert sorted((path.name, path.stat().st_mtime_ns) for path in storage.path.iterdir()) == before
    assert f"{NAME}: finished" not in capsys.readouterr().err


def test_a_finished_study_is_said_to_be(capsys) -> None:
    storage = made()
    Lease(ledger_url(storage.path), NAME, Holder.this(storage.path)).release()
    assert status.main([NAME]) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"{NAME}: finished\n")
    assert "100% done" in told
    assert "carry on" not in told
    assert watch.main([NAME]) == 0
    assert "Best k = 2: " in capsys.readouterr().out


def test_watching_ends_with_the_study(capsys, monkeypatch) -> None:
    storage = made(grid=RUNNING, status="running")
    holder = Lease(ledger_url(storage.path), NAME, Holder.this(storage.path))
    monkeypatch.setattr(watch, "POLL_S", 0.01)
    monkeypatch.setattr(watch, "ASK_S", 0.05)

    def end() -> None:
        write_study(storage.path / "later", RUNNING | {4.0: K_STUDY[4.0]})
        os.replace(storage.path / "later" / "summary.json", storage.summary)
        holder.release()

    ends = threading.Timer(0.3, end)
    ends.start()
    assert watch.main([NAME]) == 0
    ends.join()
    told = capsys.readouterr().out
    assert "carrying on: " in told
    assert "trial 2 (k = 4) complete at step 200/200" in told
    assert "Best k = 1: " in told


def test_ctrl_c_ends_the_watching_alone(capsys, monkeypatch) -> None:
    storage = made(grid=RUNNING, status="running")
    holder = Lease(ledger_url(storage.path), NAME, Holder.this(storage.path))

    def pressed(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watch.time, "sleep", pressed)
    try:
        assert watch.main([NAME]) == 130
        assert capsys.readouterr().out.endswith("the study goes on\n")
        holder.check()
    finally:
        monkeypatch.undo()
        holder.release()


def test_what_is_damaged_is_listed_and_the_others_too(capsys) -> None:
    made()
    Path("studies/broken").mkdir()
    Path("studies/broken/summary.json").write_text("{")
    assert listed.main([]) == 0
    told = capsys.readouterr().out
    assert re.search(r"^broken +unreadable +studies/broken/summary.json is not a study's summary", told, re.MULTILINE)
    assert re.search(rf"^{NAME} +may run +9/9 +k = 2: test nDCG@10 0.431 +2026-01-05", told, re.MULTILINE)


@pytest.mark.parametrize("main", [status.main, watch.main, remove.main])
def test_a_study_that_there_is_not_is_named_with_its_nearest(main, capsys, refuses) -> None:
    refuses(main, ["splade"], "studies/splade/summary.json does not exist", "no study was run in this folder")
    made()
    refuses(main, ["splade_k_serch"], "did you mean 'splade_k_search'?")


def test_nothing_was_run_yet(capsys) -> None:
    assert listed.main([]) == 0
    assert status.main([]) == 0
    told = capsys.readouterr().out
    assert told.count("no study was run below") == 2
    assert listed.main(["elsewhere"]) == 0
    assert f"no study was run below {Path('elsewhere').absolute()}" in capsys.readouterr().out


def test_a_study_is_named_by_its_folder_too(capsys, here) -> None:
    storage = made("with a space")
    for name in ("studies/with a space", str(storage.path.absolute()), "with a space"):
        assert status.main([name]) == 0
        assert "folder   " in capsys.readouterr().out
    assert status.main(["--storage", "studies/with a space"]) == 0


# --- compare -------------------------------------------------------------------------------------


def test_two_studies_are_compared(capsys) -> None:
    better = {k: one | {"test": one["test"] + 0.05} if "test" in one else one for k, one in K_STUDY.items()}
    made("a")
    made("b", better, params={"steps": 400, "optimiser.lr": 1e-3}, launch={"git.commit": "abc"})
    assert compare.main(["a", "studies/b"]) == 0
    told = capsys.readouterr().out
    assert re.search(r"^  steps +200 +400$", told, re.MULTILINE)
    assert re.search(r"^  git.commit +– +abc$", told, re.MULTILINE)
    assert "optimiser.lr" not in told
    assert "  A  Best k = 2: test nDCG@10 0.431" in told
    assert "  B  Best k = 2: test nDCG@10 0.481" in told
    assert "of B's best (k = 2) less A's (k = 2): +0.050 (95% CI +0.050 to +0.050 over 200 queries" in told


def test_what_cannot_be_paired_is_said(capsys) -> None:
    made("a")
    made("b", dataset={"evaluation.identity": "sha256:other"})
    made("c", metric="mrr_at_10")
    made("d", {0.25: K_STUDY[0.25]})
    for other, why in (
        ("b", "they were measured on other data (evaluation.identity)"),
        ("c", "A is judged by ndcg_at_10, B by mrr_at_10"),
        ("d", "both need a best trial"),
    ):
        assert compare.main(["a", other]) == 0
        assert f"Paired  not possible: {why}" in capsys.readouterr().out
    assert compare.main(["a", "a"]) == 0
    told = capsys.readouterr().out
    assert "Settings: none differ" in told
    assert "no difference that these queries can show" in told


# --- remove --------------------------------------------------------------------------------------


def released(storage: StudyFolder, url: str | None = None) -> None:
    Lease(url or ledger_url(storage.path), NAME, Holder.this(storage.path)).release()


def test_a_study_is_removed_and_what_stays_is_said(capsys) -> None:
    storage = made()
    released(storage)
    other = made("other")
    assert remove.main([NAME, "--yes"]) == 0
    told = capsys.readouterr().out
    assert re.search(rf"goes   {re.escape(str(storage.path.absolute()))}: 9 trials: .*; 1\d files, ", told)
    assert "stays  its runs in MLflow: experiment splade_k_search, run aaaa" in told
    assert not storage.path.exists()
    assert other.summary.exists()


@pytest.mark.parametrize(("answer", "removed"), [("y", True), ("", False), ("no", False)])
def test_it_asks(answer, removed, capsys, monkeypatch) -> None:
    storage = made()
    released(storage)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda question: answer)
    assert remove.main([NAME]) == (0 if removed else 2)
    assert storage.path.exists() is not removed
    assert ("nothing was removed" in capsys.readouterr().err) is not removed


def test_what_runs_or_may_run_is_not_removed(capsys, refuses) -> None:
    storage = made()
    refuses(remove.main, [NAME, "--yes"], "may run: its ledger is in a database elsewhere")
    released(storage)
    refuses(remove.main, [NAME], "nobody is here to be asked; --yes")
    holder = Lease(ledger_url(storage.path), NAME, Holder.this(storage.path))
    refuses(remove.main, [NAME, "--yes"], f"{NAME} runs: process {os.getpid()}", "stop it with Ctrl-C first")
    holder.release()
    assert storage.summary.exists()


def test_a_folder_that_one_works_in_is_not_removed(capsys, refuses, monkeypatch, here) -> None:
    storage = made()
    released(storage)
    path = storage.path.absolute()
    monkeypatch.chdir(path)
    refuses(remove.main, [str(path), "--yes"], "which is no part of a study")
    assert path.exists()


def test_the_entry_in_a_ledger_elsewhere_goes_too(capsys, here) -> None:
    new.write("mine", "splade")
    _, study = spec.load(Path("mine.py"), None, {}, {})
    url = f"sqlite:///{here}/ledger of all.db"
    opened = {name: optuna_study.open_study(url, name, study) for name in (NAME, "other")}
    storage = made(id=opened[NAME].user_attrs["id"])
    released(storage, url)
    assert remove.main([NAME, "--yes", "--ledger", "sqlite:///ledger of all.db"]) == 0
    assert f"goes   its entry {NAME} in the ledger" in capsys.readouterr().out
    assert not optuna_study.holds(url, NAME)
    assert not lease.known(url, NAME)
    assert optuna_study.holds(url, "other")
    assert not storage.path.exists()


def test_an_entry_of_another_study_stays(capsys, here) -> None:
    new.write("mine", "splade")
    _, study = spec.load(Path("mine.py"), None, {}, {})
    url = f"sqlite:///{here}/all.db"
    optuna_study.open_study(url, NAME, study)
    made()
    assert remove.main([NAME, "--yes", "--ledger", url]) == 0
    assert "stays  no entry of it is in the ledger" in capsys.readouterr().out
    assert optuna_study.holds(url, NAME)


# --- new -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("trainer", [*trainers.names(), "tests.fixtures.late_interaction"])
def test_a_new_study_can_be_run_as_it_is(trainer, capsys, here) -> None:
    assert new.main(["my study", "--trainer", trainer]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "my study.py", "python -m study.run 'my study.py' --dry-run", "python -m study.run 'my study.py'",
    ]  # fmt: skip
    assert run.main(["my study.py", "--dry-run"]) == 0
    plan = capsys.readouterr().out
    assert f"trainer     {trainer}\n" in plan
    assert f"storage     {here / 'studies' / 'my study'}\n" in plan
    assert run.main(["my study.py", "--dry-run", "--profile", "again"]) == 0
    assert "x 3 replicate(s)" in capsys.readouterr().out


def test_a_file_that_is_there_is_kept(refuses) -> None:
    Path("mine.py").write_text("precious")
    refuses(new.main, ["mine", "--trainer", "splade"], "mine.py is there already")
    refuses(new.main, ["mine.py", "--trainer", "splade"], "mine.py is there already")
    assert Path("mine.py").read_text() == "precious"
    refuses(new.main, ["other", "--trainer", "splad"], "did you mean 'splade'?")
    assert not Path("other.py").exists()
    assert new.main(["deeper/mine", "--trainer", "splade"]) == 0
    assert Path("deeper/mine.py").exists()


# --- python -m study -----------------------------------------------------------------------------


def test_all_commands_are_listed(capsys, refuses) -> None:
    assert commands.main([]) == 0
    told = capsys.readouterr().out
    written = {p.stem for p in (ROOT / "study").glob("*.py") if re.search(r"^def main\(", p.read_text(), re.MULTILINE)}
    assert set(commands.COMMANDS) == written - {"__main__"}
    assert all(f"python -m study.{name} " in told for name in commands.COMMANDS)
    refuses(commands.main, ["run"], "did you mean python -m study.run?")


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_help_has_examples(name, capsys) -> None:
    module = __import__(f"study.{name}", fromlist=["main"])
    with pytest.raises(SystemExit) as ended:
        module.main(["--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert f"usage: python -m study.{name}" in told
    assert f"examples:\n  python -m study.{name}" in told


def test_looking_needs_neither_ray_nor_torch_nor_optuna() -> None:
    code = (
        "import sys\nfrom study import status, watch, list\n"
        "print({'ray', 'torch', 'optuna', 'mlflow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# --- --notify ------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[tuple[str, list[dict[str, str]], list[int]]]:
    """(address with a secret, what was posted there, the codes of the next answers)."""
    posted: list[dict[str, str]] = []
    answers: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.headers["Content-Type"] == "application/json"
            posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(answers.pop(0) if answers else 200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    served = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=served.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{served.server_port}/services/s3cret?token=s3cret", posted, answers
    served.shutdown()
    served.server_close()
    thread.join()


def summaries():
    found = []
    for best in ((), (1,), (1,), (2,)):
        found.append(write_study(Path(f"at{len(found)}"), K_STUDY, status="running").model_copy(update={"best": best}))
    return found


def test_an_address_is_told_of_each_new_best_trial_and_of_the_end(server) -> None:
    target, posted, _ = server
    said: list[str] = []
    notices = run.Notices(target, "k", said.append)
    for summary in summaries():
        notices.update(summary)
    notices.tell("finished", "finished. Best k = 1")
    notices.close()
    assert [(one["event"], one["study"]) for one in posted] == [("best", "k"), ("best", "k"), ("finished", "k")]
    assert posted[0]["message"].startswith("Best k = 0.5 so far: ")
    assert posted[1]["message"].startswith("Best k = 1 so far: ")
    assert posted[2]["text"] == "k: finished. Best k = 1"
    assert said == []


def test_what_was_best_before_a_launch_is_no_news(server) -> None:
    target, posted, _ = server
    notices = run.Notices(target, "k", print)
    notices.update(summaries()[2])
    notices.close()
    assert posted == []


def test_a_failing_address_is_said_once_and_without_its_secret(server) -> None:
    target, posted, answers = server
    answers += [500, 500]
    said: list[str] = []
    notices = run.Notices(target, "k", said.append)
    for event in ("best", "best", "finished"):
        notices.tell(event, "text")
    notices.close()
    assert len(posted) == 3
    host = target.partition("/services")[0].rpartition(":")[0]
    assert said == [f"--notify {host}/*** fails: Internal Server Error; the study goes on"]


def test_a_slow_address_does_not_hold_the_study_up(monkeypatch) -> None:
    monkeypatch.setattr(notify, "PATIENCE_S", 0.2)
    over = threading.Event()
    monkeypatch.setattr(notify, "_post", lambda target, told: over.wait(30))
    notices = run.Notices("http://127.0.0.1:9/hook", "k", print)
    began = time.monotonic()
    notices.tell("best", "text")
    assert time.monotonic() - began < 0.1
    notices.close()
    assert time.monotonic() - began < 5
    over.set()


def test_a_command_gets_the_message(here) -> None:
    script = here / "tell me.sh"
    script.write_text('#!/bin/sh\nprintf "%s|" "$STUDY_EVENT" "$STUDY_NAME" "$@" > told.txt\n')
    script.chmod(0o755)
    notices = run.Notices(f"'{script}' --to me", "k", print)
    notices.tell("finished", "it's done; $(true)")
    notices.close()
    assert Path("told.txt").read_text() == "finished|k|--to|me|k: it's done; $(true)|"
    said: list[str] = []
    notices = run.Notices("false", "k", said.append)
    notices.tell("finished", "x")
    notices.close()
    assert said == ["--notify false fails: exit code 1; the study goes on"]


def test_a_target_is_checked_before_anything_starts(refuses) -> None:
    refuses(run.main, [NAME, "--dry-run", "--notify", "no-such-command-here x"], "--notify no-such-command-here ***")
    refuses(run.main, [NAME, "--dry-run", "--notify", "http:///s3cret"], "an address names a host")


def test_a_target_is_not_in_the_recorded_command(monkeypatch) -> None:
    target = "https://hooks.example.org/T0/s3cret"
    for words in (["--notify", target], [f"--notify={target}"]):
        monkeypatch.setattr(sys, "argv", ["study/run.py", "k", *words])
        assert "s3cret" not in provenance.command(target)
        assert "https://hooks.example.org/***" in provenance.command(target)


def test_the_recorded_command_can_be_typed_again(monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/site-packages/study/run.py", "k", "--storage", "my studies"])
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", importlib.util.find_spec("study.run"))
    assert provenance.command() == "python -m study.run k --storage 'my studies'"
    monkeypatch.setattr(sys, "argv", ["/usr/bin/study-run", "k"])
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    assert provenance.command() == "study-run k"


# --- options and lists ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--trials", "0"], "--trials 0: input should be greater than 0"),
        (["--workers-per-trial", "3"], "batch_size=32 cannot be shared by --workers-per-trial 3"),
        (["--budget-gpu-hours", "2"], "--budget-gpu-hours 2, but resources.gpus_per_worker=0"),
        (["--resources", "workers=3"], "batch_size=32 cannot be shared by resources.workers=3"),
    ],
)
def test_an_option_is_called_as_it_was_given(words, told, refuses) -> None:
    refuses(run.main, [NAME, "--dry-run", *words], told)


def test_each_profile_says_what_it_is_for(capsys) -> None:
    assert run.main(["--list"]) == 0
    told = capsys.readouterr().out
    for path in spec.available().values():
        for profile, study in spec.profiles(path).items():
            assert study.purpose
            assert re.search(rf"^    {profile} +.*{re.escape(study.purpose)}; ", told, re.MULTILINE)


def test_long_lines_of_a_plan_are_wrapped(capsys) -> None:
    assert run.main([NAME, "--profile", "paper", "--dry-run", "--set", "backbone=embedded"]) == 2
    capsys.readouterr()
    new.write("mine", "splade")
    text = Path("mine.py").read_text().replace("points=(),", "points=tuple({'k': 1 + k / 8} for k in range(49)),")
    Path("mine.py").write_text(text.replace("trials=6", "trials=49"))
    assert run.main(["mine.py", "--dry-run"]) == 0
    plan = capsys.readouterr().out.splitlines()
    first = next(number for number, line in enumerate(plan) if line.startswith("first       49 given points: k=1.0, "))
    assert max(map(len, plan[first : first + 4])) <= 120
    assert plan[first + 1].startswith(" " * 12 + "k=")


# --- the page about all this ---------------------------------------------------------------------


def test_every_command_of_the_page_works(capsys, monkeypatch) -> None:
    """In the order in which it has them, in a folder with two studies."""
    for name in (NAME, f"{NAME}.search"):
        released(made(name), ledger_url(Path("studies", name)))
    page = (ROOT / "docs" / "studies.md").read_text()
    typed = re.findall(r"^    (python -m study\.\S+.*)$", page, re.MULTILINE)
    monkeypatch.setattr("builtins.input", lambda question: "y")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    for line in typed:
        words = shlex.split(line)
        module = __import__(words[2], fromlist=["main"])
        assert module.main(words[3:]) == 0, f"{line}: {capsys.readouterr().err}"
    assert {line.split()[2].removeprefix("study.") for line in typed} >= {
        "new", "status", "watch", "list", "compare", "remove", "run"
    }  # fmt: skip
