"""The journal reaches MLflow whole and once: on SQLite, across crashes and across a server's death."""

import json
import math
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from study.ledger.journal import Journal
from study.protocol.journal import Artifact, Ended, ReplicateBegun, StudyBegun, TrialBegun, Values
from study.protocol.states import ReplicateState, StudyStatus, TrialState
from study.tracking.mlflow_runs import connect, refusal
from study.tracking.pages import Subject
from study.tracking.probe import run_tags
from study.tracking.tracker import Tracker
from study.tracking.uri_check import check_uri
from study.uris import absolute_uri

STEPS = 6
ABOUT = Subject("Which k?", "k", {"ndcg_at_10": "maximize"})


@pytest.fixture
def uri(tmp_path, empty_tracking):
    shutil.copy(empty_tracking, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path / 'mlflow.db'}"


def tracker(journal, uri, experiment="k_search"):
    return Tracker(journal, journal.path.parent / "tracking.json", uri, experiment, "study-1", ABOUT)


def replay(journal, uri, experiment="k_search"):
    it = tracker(journal, uri, experiment)
    it.start()
    assert it.close(60), it.snapshot()
    return it.snapshot()


def opening(trial, replicates=1, time=1_000):
    params = {"k": 2.0**trial, "optimiser.lr": 1e-3, "backbone": "embedded"}
    name = f"trial {trial} · k={2.0**trial:g}"
    return TrialBegun(
        trial=trial, name=name, replicates=replicates, params=params, tags={"data": "sha-1"}, time=time
    )  # fmt: skip


def records(first, last):
    """Every step has a NaN, which no equality finds again, and the infinities."""
    return [
        {"step": step, "time": 2_000 + step,
         "metrics": {"train.loss": 1 / step, "train.bad": math.nan, "train.up": math.inf, "train.down": -math.inf}}
        for step in range(first, last + 1)
    ]  # fmt: skip


def ending(state, trial=None, replicate=None, reason=None):
    return Ended(trial=trial, replicate=replicate, state=state, reason=reason, time=9_000)


def values(trial, replicate, step, **found):
    return Values(trial=trial, replicate=replicate, values=found, step=step, time=8_000)


def fill(journal, tmp_path):
    """One finished trial, one pruned, one with two replicates, one running."""
    (tmp_path / "report.html").write_text("answer")
    (tmp_path / "model").mkdir(exist_ok=True)
    (tmp_path / "model" / "weights").write_text("w")
    tags = {"user": "ada", "git.commit": "abc", "source": "study.run"}
    journal.append(StudyBegun(params={"sampler": "tpe"}, tags=tags, time=500))
    for trial in range(4):
        replicates = 2 if trial == 2 else 1
        journal.append(opening(trial, replicates))
        for replicate in range(replicates):
            name = f"trial {trial} · replicate {replicate}"
            journal.append(ReplicateBegun(trial=trial, replicate=replicate, name=name, seed=replicate, time=1_500))
            journal.append_records(trial, replicate, records(1, STEPS // 2))
            journal.append_records(trial, replicate, records(STEPS // 2, STEPS))
            if trial != 3:
                journal.append(values(trial, replicate, STEPS, ndcg_at_10=0.5))
                journal.append(ending(ReplicateState.COMPLETE, trial, replicate))
    journal.append(
        ending(TrialState.COMPLETE, 0),
        ending(TrialState.PRUNED, 1, reason="pruned at step 6"),
        ending(TrialState.COMPLETE, 2),
        # One as it is recorded now, the others as they were by earlier versions, in a folder that was moved since.
        Artifact(path="report.html", place="report", time=8_500),
        Artifact(path="/moved/since/model", place="best/model", time=8_500),
        Artifact(path=str(tmp_path / "absent.png"), place="report", time=8_500),
        ending(StudyStatus.FINISHED),
    )


def everything(uri, experiment="k_search"):
    """All that MLflow holds of the experiment, keyed by run name."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(uri)
    found = {}
    for run in client.search_runs([client.get_experiment_by_name(experiment).experiment_id]):
        assert run.info.run_name not in found, "two runs of one name"
        history = {}
        for key in run.data.metrics:
            points = client.get_metric_history(run.info.run_id, key)
            history[key] = sorted((point.step, point.timestamp, repr(point.value)) for point in points)
        found[run.info.run_name] = (run, history)
    return found


def check(uri, snapshot, experiment="k_search"):
    found = everything(uri, experiment)
    trials = {n: f"trial {n} · k={2.0**n:g}" for n in range(4)}
    replicates = {f"trial 2 · replicate {r}" for r in range(2)}
    assert set(found) == {experiment, *trials.values(), *replicates}
    parent = found[experiment][0]
    assert snapshot.tracking.run_id == parent.info.run_id
    assert snapshot.runs == {n: found[name][0].info.run_id for n, name in trials.items()}
    assert parent.info.status == "FINISHED"
    assert parent.data.params == {"sampler": "tpe"}
    assert "absent.png" in parent.data.tags["artifact.error"]
    for n, name in trials.items():
        run, _ = found[name]
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
        expected = {"k": str(2.0**n), "optimiser.lr": "0.001", "backbone": "embedded"}
        assert run.data.params == expected | ({} if n == 2 else {"replicate.seed": "0"})
        assert run.info.status == ["FINISHED", "KILLED", "FINISHED", "RUNNING"][n]
        assert run.info.start_time == 1_000
        assert run.info.end_time == (None if n == 3 else 9_000)
        assert run.data.tags.get("stop.reason") == ("pruned at step 6" if n == 1 else None)
        assert run.data.tags["data"] == "sha-1"
    for name in replicates:
        run, _ = found[name]
        assert run.data.tags["mlflow.parentRunId"] == found[trials[2]][0].info.run_id
        assert run.data.params == {"replicate.seed": name[-1]}
        assert run.info.status == "FINISHED"
    for name, (run, history) in found.items():
        assert run.data.tags["mlflow.user"] == run.info.user_id == "ada"
        assert run.data.tags["mlflow.source.git.commit"] == "abc"
        if name in (experiment, trials[2]):
            assert history == {}
            continue
        steps = range(1, STEPS + 1)
        assert history["train/loss"] == [(step, 2_000 + step, repr(1 / step)) for step in steps]
        for key in ("train/bad", "train/up", "train/down"):
            assert [step for step, _, _ in history[key]] == list(steps), key
        assert {value for _, _, value in history["train/bad"]} == {"nan"}
        assert len(history.get("objective/ndcg_at_10", [])) == (name != trials[3])


def check_artifacts(client, snapshot):
    for folder, place in (("report", "report/report.html"), ("best/model", "best/model/weights")):
        assert [file.path for file in client.list_artifacts(snapshot.tracking.run_id, folder)] == [place]


def check_probe(uri, run_id):
    from mlflow.tracking import MlflowClient

    assert run_tags(uri, run_id)["study.level"] == "study"
    assert run_tags(uri, "0" * 32) is None
    client = MlflowClient(uri)
    client.delete_run(run_id)
    assert run_tags(uri, run_id) is None
    client.restore_run(run_id)


def test_a_study_is_one_parent_with_children_and_grandchildren(tmp_path, uri):
    from mlflow.tracking import MlflowClient

    journal = Journal(tmp_path / "journal.jsonl")
    fill(journal, tmp_path)
    snapshot = replay(journal, uri)
    check(uri, snapshot)
    assert (snapshot.tracking.pending, snapshot.rejected, snapshot.tracking.error) == (0, 1, None)
    check_artifacts(MlflowClient(uri), snapshot)
    assert (tmp_path / "mlartifacts" / "k_search").is_dir()
    check_probe(uri, snapshot.tracking.run_id)


def test_a_crash_after_any_state_doubles_nothing(tmp_path, uri, monkeypatch):
    """Every state that was ever on disk is put back in turn, and the journal replayed from there."""
    saved = []
    replace = os.replace

    def keep(source, target):
        if str(target).endswith("tracking.json"):
            saved.append(Path(source).read_text())
        replace(source, target)

    monkeypatch.setattr("trainables.files.os.replace", keep)
    journal = Journal(tmp_path / "journal.jsonl")
    fill(journal, tmp_path)
    snapshot = replay(journal, uri)
    monkeypatch.undo()
    assert len(saved) > 15
    state = tmp_path / "tracking.json"
    for text in (None, "{half a sta", *saved[::6]):
        state.unlink() if text is None else state.write_text(text)
        assert replay(journal, uri).tracking.run_id == snapshot.tracking.run_id
        check(uri, snapshot)


def test_a_crash_in_the_middle_of_a_batch_doubles_nothing(tmp_path, uri):
    """Part of a batch is in MLflow, with other items before and behind: the rest of it is added."""
    from mlflow.entities import Metric
    from mlflow.tracking import MlflowClient

    journal = Journal(tmp_path / "journal.jsonl")
    journal.append(StudyBegun(time=1), opening(0))
    run_id = replay(journal, uri).runs[0]
    sent = [
        Metric(key.replace(".", "/"), value, record["time"], record["step"])
        for record in records(2, 3)
        for key, value in record["metrics"].items()
    ]
    MlflowClient(uri).log_batch(run_id, sent)
    journal.append_records(0, 0, records(1, STEPS))
    replay(journal, uri)
    _, history = everything(uri)["trial 0 · k=1"]
    for key in ("train/loss", "train/bad", "train/up", "train/down"):
        assert [step for step, _, _ in history[key]] == list(range(1, STEPS + 1)), key


def test_a_run_created_just_before_the_crash_is_found_again(tmp_path, uri, monkeypatch):
    journal = Journal(tmp_path / "journal.jsonl")
    journal.append(StudyBegun(time=1), opening(0))

    class KilledError(BaseException):
        """Like a kill: no handler of the tracker sees it."""

    def die(self, path):
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr("study.tracking.mlflow_runs.State.save", die)
        patched.setattr(threading, "excepthook", lambda _: None)
        lost = tracker(journal, uri)
        lost.start()
        assert not lost.close(60)
    assert not (tmp_path / "tracking.json").exists()
    replay(journal, uri)
    assert set(everything(uri)) == {"k_search", "trial 0 · k=1"}


def test_a_reopened_trial_goes_on_in_the_same_run(tmp_path, uri):
    journal = Journal(tmp_path / "journal.jsonl")
    journal.append(StudyBegun(time=1), opening(0))
    journal.append_records(0, 0, records(1, 3))
    journal.append(ending(TrialState.INTERRUPTED, 0, reason="budget"))
    first = replay(journal, uri)
    assert everything(uri)["trial 0 · k=1"][0].info.status == "KILLED"
    journal.append(opening(0, time=10_000))
    journal.append_records(0, 0, records(2, 5))
    assert replay(journal, uri).runs == first.runs
    run, history = everything(uri)["trial 0 · k=1"]
    assert run.info.status == "RUNNING"
    assert "stop.reason" not in run.data.tags
    assert [step for step, _, _ in history["train/bad"]] == [1, 2, 3, 4, 5]


def test_what_mlflow_refuses_is_counted_and_nothing_else_is_lost(tmp_path, uri):
    journal = Journal(tmp_path / "journal.jsonl")
    journal.append(StudyBegun(params={"sampler": "tpe"}, time=1), opening(0))
    replay(journal, uri)
    long = "x" * 7_000
    params = {"sampler": "random", "long": long, "new": 1}
    journal.append(
        StudyBegun(params=params, tags={"t": long + long}, time=2),
        values(0, None, 0, **{"ndcg@10": 0.5, "../up": 1.0, "y" * 300: 2.0, "fine": 3.0}),
        values(0, None, 0, what=[1]),
        values(0, None, 1, fine=4.0),
    )
    snapshot = replay(journal, uri)
    assert (snapshot.rejected, snapshot.tracking.pending) == (4, 0)
    found = everything(uri)
    (run, _), (_, history) = found["k_search"], found["trial 0 · k=1"]
    assert set(run.data.params) == {"sampler", "new", "long"}
    assert run.data.params["sampler"] == "tpe"
    assert run.data.params["long"].endswith("xxx... (7000 characters)")
    assert run.data.tags["t"].endswith("(14000 characters)")
    steps = {key: [step for step, _, _ in points] for key, points in history.items()}
    assert steps == {"validation/ndcg_10": [0], "validation/fine": [0, 1]}


@pytest.mark.parametrize("what", ["run", "experiment"])
def test_what_somebody_deleted_is_restored_when_there_is_more_for_it(tmp_path, uri, what):
    from mlflow.tracking import MlflowClient

    journal = Journal(tmp_path / "journal.jsonl")
    journal.append(StudyBegun(time=1), opening(0))
    first = replay(journal, uri)
    client = MlflowClient(uri)
    if what == "run":
        client.delete_run(first.runs[0])
    else:
        client.delete_experiment(client.get_experiment_by_name("k_search").experiment_id)
    journal.append_records(0, 0, records(1, STEPS))
    journal.append(opening(1))
    snapshot = replay(journal, uri)
    assert snapshot.runs[0] == first.runs[0]
    assert snapshot.rejected == 0
    assert len(everything(uri)["trial 0 · k=1"][1]["train/bad"]) == STEPS


def test_a_store_that_lost_the_runs_is_filled_again(tmp_path, uri, empty_tracking):
    journal = Journal(tmp_path / "journal.jsonl")
    fill(journal, tmp_path)
    replay(journal, uri)
    other = tmp_path / "other.db"
    shutil.copy(empty_tracking, other)
    snapshot = replay(journal, f"sqlite:///{other}")  # another place: from the start
    check(f"sqlite:///{other}", snapshot)
    state = json.loads((tmp_path / "tracking.json").read_text())
    state["runs"] = dict.fromkeys(state["runs"], "0" * 32)  # as after `mlflow gc`, or a restored backup
    (tmp_path / "tracking.json").write_text(json.dumps(state))
    journal.append(values(3, 0, 6, late=1.0))
    snapshot = replay(journal, f"sqlite:///{other}")
    check(f"sqlite:///{other}", snapshot)
    assert len(everything(f"sqlite:///{other}")["trial 3 · k=8"][1]["validation/late"]) == 1


def test_a_locked_database_is_waited_for(tmp_path, uri, monkeypatch):
    journal = Journal(tmp_path / "journal.jsonl")
    journal.append(StudyBegun(time=1), opening(0))
    snapshot = replay(journal, uri)
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import TEMPORARILY_UNAVAILABLE

    failures = iter([MlflowException("database is locked", TEMPORARILY_UNAVAILABLE)] * 2)
    from mlflow.tracking import MlflowClient

    real = MlflowClient.log_batch

    def log_batch(self, *arguments):
        for failure in failures:
            raise failure
        return real(self, *arguments)

    monkeypatch.setattr(MlflowClient, "log_batch", log_batch)
    monkeypatch.setattr("study.tracking.tracker.FIRST_PAUSE_S", 0.01)
    journal.append(values(0, None, 0, a=1.0))
    assert replay(journal, uri).rejected == snapshot.rejected
    assert len(everything(uri)["trial 0 · k=1"][1]["validation/a"]) == 1


def test_the_objective_is_the_first_metric_of_every_run_and_what_is_measured_once_has_no_chart(tmp_path, uri):
    """In the order of the store, which comparisons take, and in that of names, which charts take."""
    journal = Journal(tmp_path / "journal.jsonl")
    journal.append(StudyBegun(time=1), opening(0), opening(1))
    start = {"untrained.ndcg_at_10": 0.1, "untrained.test.ndcg_at_10": 0.2, "flops": 9.0, "ndcg_at_10": 0.1}
    step = {"train.loss": 3.0, "train.lr": 0.1}
    end = {"test.ndcg_at_10": 0.31, "flops": 2.0, "ndcg_at_10": 0.3}
    for trial in range(2):
        metrics = (start, step, step | end)[: 3 - trial]
        journal.append_records(
            trial, 0, [{"step": n, "time": 2_000 + n, "metrics": one} for n, one in enumerate(metrics)]
        )
    journal.append(
        values(0, None, 2, **start | end, steps=2.0),
        values(None, None, 1, **{"bm25.ndcg_at_10": 0.4, "best.ndcg_at_10": 0.3, "best.flops": 2.0, "best.trial": 0.0}),
    )
    replay(journal, uri)
    found = {name: run for name, (run, _) in everything(uri).items()}
    for run in found.values():
        names = list(run.data.metrics)
        assert names[0] == min(names) == "objective/ndcg_at_10"
    trial, collapsed, study = found["trial 0 · k=1"], found["trial 1 · k=2"], found["k_search"]
    sections = {"objective/ndcg_at_10", "train/loss", "train/lr", "validation/flops"}
    assert set(trial.data.metrics) == set(collapsed.data.metrics) == sections
    assert study.data.metrics == {"objective/ndcg_at_10": 0.3}
    once = ("test.ndcg_at_10", "untrained.ndcg_at_10", "untrained.test.ndcg_at_10", "steps")
    assert [trial.data.tags[name] for name in once] == ["0.31", "0.1", "0.2", "2"]
    assert (study.data.tags["bm25.ndcg_at_10"], study.data.tags["best.trial"]) == ("0.4", "0")
    assert study.data.tags["mlflow.note.content"] == "**Which k?**"


# ---- a real server ----


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def serve(tmp_path, port, *arguments, **environment):
    command = f"{sys.executable} -m mlflow server --backend-store-uri sqlite:///{tmp_path}/mlflow.db"
    command += (
        f" --artifacts-destination {tmp_path}/served --host 127.0.0.1 --port {port} --workers 1 {' '.join(arguments)}"
    )
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (tmp_path / "server.log").open("ab") as log:
        return subprocess.Popen(
            command.split(),
            stdout=log,
            stderr=log,
            cwd=tmp_path,
            env=os.environ | quiet | environment,
            start_new_session=True,
        )


def kill(server):
    os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def until(condition, seconds=90):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def test_a_server_killed_and_started_again_loses_and_doubles_nothing(tmp_path, uri):
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    journal = Journal(tmp_path / "journal.jsonl")
    it = tracker(journal, address)
    slowest = 0.0

    def append(*arguments):
        nonlocal slowest
        begin = time.monotonic()
        journal.append_records(*arguments)
        it.wake()
        slowest = max(slowest, time.monotonic() - begin)

    fill(journal, tmp_path)
    journal.append(opening(4))
    it.start()  # nobody is there yet
    until(lambda: it.snapshot().tracking.error)
    server = serve(tmp_path, port)
    try:
        until(lambda: it.snapshot().tracking.pending == 0)
        check_uri(address)
        for step in range(1, 60):
            append(4, 0, records(step, step))
            if step == 30:
                kill(server)  # with requests under way
                with pytest.raises(ValueError, match="no server answers"):
                    check_uri(address)
            time.sleep(0.01)
        assert it.snapshot().tracking.pending > 0
        server = serve(tmp_path, port)
        journal.append(ending(TrialState.COMPLETE, 4))
        assert it.close(90), it.snapshot()
        assert slowest < 1.0, "an append waited for the server"

        # Everything once more, over HTTP.
        (tmp_path / "tracking.json").unlink()
        snapshot = replay(journal, address)
    finally:
        kill(server)
    found = everything(uri)
    run, history = found.pop("trial 4 · k=16")
    assert run.info.status == "FINISHED"
    for key in ("train/loss", "train/bad", "train/up", "train/down"):
        assert [step for step, _, _ in history[key]] == list(range(1, 60)), key
    assert {path.name for path in (tmp_path / "served").rglob("*.*")} == {"report.html"}
    assert [path.read_text() for path in (tmp_path / "served").rglob("weights")] == ["w"]
    assert snapshot.runs.pop(4) == run.info.run_id
    assert snapshot.rejected == 1
    assert set(found) == {"k_search", *(f"trial {n} · k={2.0**n:g}" for n in range(4)),
                          *(f"trial 2 · replicate {r}" for r in range(2))}  # fmt: skip


# ---- a real server that asks who we are ----

PASSWORDS = {name: f"{name}-hunter2-hunter2" for name in ("admin", "ada", "eve")}


def refusal_of(address):
    """What `check_uri` says, if anything."""
    try:
        check_uri(address, timeout_s=30)
    except ValueError as error:
        return str(error)
    return ""


def administer(address, what, **about):
    import requests

    auth = ("admin", PASSWORDS["admin"])
    requests.post(f"{address}/api/{what}", json=about, auth=auth, timeout=30).raise_for_status()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory, empty_tracking):
    """(address, folder). Its users, ada and eve, may read everything and change what they have begun themselves."""
    folder = tmp_path_factory.mktemp("guarded")
    shutil.copy(empty_tracking, folder / "mlflow.db")
    users = f"default_permission = READ\ndatabase_uri = sqlite:///{folder}/users.db\nadmin_username = admin\n"
    # Otherwise the server hashes the password at each request, which takes longer than all the rest of it.
    (folder / "auth.ini").write_text(f"[mlflow]\n{users}auth_cache_ttl_seconds = 60\n")
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    server = serve(
        folder, port, "--app-name", "basic-auth", MLFLOW_AUTH_CONFIG_PATH=str(folder / "auth.ini"),
        MLFLOW_AUTH_ADMIN_PASSWORD=PASSWORDS["admin"], MLFLOW_FLASK_SERVER_SECRET_KEY="k" * 32,
    )  # fmt: skip
    try:
        until(lambda: "401" in refusal_of(address))
        for name in ("ada", "eve"):
            administer(address, "2.0/mlflow/users/create", username=name, password=PASSWORDS[name])
        yield address, folder
    finally:
        kill(server)


@pytest.fixture
def log_in(monkeypatch, tmp_path):
    """Become somebody, or nobody: there is no credentials file either."""
    monkeypatch.setenv("HOME", str(tmp_path))

    def become(name, password=None):
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", name)
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PASSWORDS.get(name, "") if password is None else password)

    return become


@pytest.mark.parametrize(("name", "password"), [("", ""), ("ada", ""), ("ada", "hunter2"), ("bob", "hunter2")])
def test_a_server_that_does_not_know_us_is_refused(guarded, log_in, name, password):
    log_in(name, password)
    said = refusal_of(guarded[0])
    assert "refuses us (401: You are not authenticated" in said
    assert "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD" in said
    assert "hunter2" not in said


def test_a_server_that_knows_us_gets_everything_once(tmp_path, guarded, log_in):
    from mlflow.tracking import MlflowClient

    address, folder = guarded
    log_in("ada")
    assert refusal_of(address) == ""
    journal = Journal(tmp_path / "journal.jsonl")
    fill(journal, tmp_path)
    for _ in range(2):
        snapshot = replay(journal, address)
        assert (snapshot.tracking.pending, snapshot.rejected, snapshot.tracking.error) == (0, 1, None)
        check(f"sqlite:///{folder}/mlflow.db", snapshot)
        check_artifacts(MlflowClient(address), snapshot)
        (tmp_path / "tracking.json").unlink()
    check_probe(address, snapshot.tracking.run_id)


def test_what_we_may_not_write_is_kept_until_we_may(tmp_path, guarded, log_in):
    from mlflow.tracking import MlflowClient

    address, folder = guarded
    log_in("ada")
    experiment = MlflowClient(address).create_experiment("ada's")
    log_in("eve")
    assert refusal_of(address) == ""
    journal = Journal(tmp_path / "journal.jsonl")
    fill(journal, tmp_path)
    refused = tracker(journal, address, "ada's")
    refused.start()
    until(lambda: refused.snapshot().tracking.error)
    begin = time.monotonic()
    assert not refused.close(1.0)
    assert time.monotonic() - begin < 2.0
    snapshot = refused.snapshot()
    assert "Permission denied" in snapshot.tracking.error
    assert "hunter2" not in str(snapshot)
    assert (snapshot.tracking.pending, snapshot.rejected) == (sum(1 for _ in journal.read()), 0)
    assert everything(f"sqlite:///{folder}/mlflow.db", "ada's") == {}

    about = {"resource_type": "experiment", "resource_id": experiment, "permission": "EDIT"}
    administer(address, "3.0/mlflow/users/permissions/grant", username="eve", **about)
    snapshot = replay(journal, address, "ada's")
    assert (snapshot.tracking.pending, snapshot.rejected, snapshot.tracking.error) == (0, 1, None)
    check(f"sqlite:///{folder}/mlflow.db", snapshot, "ada's")
    check_artifacts(MlflowClient(address), snapshot)


# ---- which URIs are accepted ----


class Scripted(BaseHTTPRequestHandler):
    """Answers /health with 200 and everything else with the server's `status` and `body`."""

    def do_GET(self):
        health = self.path == "/health"
        if self.server.delay:
            time.sleep(self.server.delay)
        self.send_response(200 if health else self.server.status)
        self.send_header("Content-Type", self.server.kind)
        with suppress(BrokenPipeError):  # a client that would not wait
            self.end_headers()
            self.wfile.write(self.server.body.encode())

    def log_message(self, *_):
        return


@pytest.fixture
def scripted():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Scripted)
    server.status, server.kind, server.body, server.delay = 200, "application/json", "{}", 0.0
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_a_server_that_lets_us_in_is_accepted(scripted):
    check_uri(f"http://127.0.0.1:{scripted.server_port}/")


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (401, "text/plain", "MLFLOW_TRACKING_TOKEN"),
        (403, "application/json", "refuses us"),
        (500, "text/html", "is failing"),
        (404, "text/html", "not an MLflow server"),
        (200, "text/html", "not an MLflow server"),
    ],
)
def test_a_server_that_does_not_is_refused_with_the_reason(scripted, status, kind, message):
    scripted.status, scripted.kind = status, kind
    with pytest.raises(ValueError, match=message) as refused:
        check_uri(f"http://me:secret@127.0.0.1:{scripted.server_port}")
    assert "secret" not in str(refused.value)


def test_a_server_that_does_not_answer_in_time_is_refused(scripted):
    scripted.delay = 2.0
    begin = time.monotonic()
    with pytest.raises(ValueError, match=r"within 0\.3 s"):
        check_uri(f"http://127.0.0.1:{scripted.server_port}", timeout_s=0.3)
    assert time.monotonic() - begin < 1.5


@pytest.mark.parametrize(
    ("status", "kind", "body", "refused"),
    [
        (500, "text/html", "", False),
        (503, "application/json", '{"error_code": "TEMPORARILY_UNAVAILABLE"}', False),
        (429, "text/plain", "slow down", False),
        (401, "text/plain", "who are you", False),
        (404, "text/html", "default backend", False),
        (200, "text/html", "<title>Maintenance</title>", False),
        (400, "application/json", '{"error_code": "BAD_REQUEST", "message": "QueuePool limit"}', None),
        (400, "application/json", '{"error_code": "INVALID_PARAMETER_VALUE", "message": "name"}', True),
        (404, "application/json", '{"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "run"}', True),
    ],
)
def test_an_outage_is_told_from_a_refusal(scripted, status, kind, body, refused):
    scripted.status, scripted.kind, scripted.body = status, kind, body
    client = connect(f"http://127.0.0.1:{scripted.server_port}")
    begin = time.monotonic()
    with pytest.raises(Exception) as failure:  # noqa: PT011 - of whatever type the client chooses
        client.get_run("0" * 32)
    assert refusal(failure.value) is refused
    assert time.monotonic() - begin < 2.0, "the client retried on its own"


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("mlruns", "no longer writes to folders"),
        ("/tmp/mlruns", "no longer writes to folders"),
        ("file:///tmp/mlruns", "no longer writes to folders"),
        ("", "no longer writes to folders"),
        ("ftp://host/x", "unknown scheme"),
        ("databricks", "no longer writes to folders"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite:///", "names no file"),
        ("http://", "lacks a host"),
        ("http://127.0.0.1:1", "no server answers"),
        ("postgresql://user:secret@127.0.0.1:1/mlflow", r"no database server.*user:\*\*\*@"),
        ("postgresql://user:@/secret@127.0.0.1/mlflow", r"user:\*\*\*@127.0.0.1/mlflow': write @ in a password as %40"),
        ("postgresql://127.0.0.1", "lacks a host or a database"),
    ],
)
def test_a_uri_that_cannot_work_is_refused(uri, message):
    with pytest.raises(ValueError, match=message) as refused:
        check_uri(uri, timeout_s=1.0)
    assert "secret" not in str(refused.value)


def test_sqlite_needs_a_writable_place_and_a_database(tmp_path, monkeypatch):
    check_uri(f"sqlite:///{tmp_path}/new/deep/mlflow.db")
    assert (tmp_path / "new" / "deep").is_dir()
    (tmp_path / "text.db").write_text("not a database at all")
    with pytest.raises(ValueError, match="no SQLite database"):
        check_uri(f"sqlite:///{tmp_path}/text.db")
    with pytest.raises(ValueError, match="cannot be opened"):
        check_uri(f"sqlite:///{tmp_path}/text.db/mlflow.db")
    for name, table in (("foreign.db", "t"), ("real.db", "experiments")):
        sqlite3.connect(tmp_path / name).execute(f"create table {table} (x)").connection.close()
    with pytest.raises(ValueError, match="a database of something else"):
        check_uri(f"sqlite:///{tmp_path}/foreign.db")
    check_uri(f"sqlite:///{tmp_path}/real.db")
    monkeypatch.chdir(tmp_path)
    assert absolute_uri("sqlite:///real.db") == f"sqlite:///{tmp_path}/real.db"
    assert absolute_uri("postgresql://host/runs") == "postgresql+psycopg2://host/runs"


def test_checking_does_not_import_mlflow(tmp_path):
    code = (
        "import sys; from study.tracking import uri_check; uri_check.check_uri(sys.argv[1]);"
        "assert 'mlflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, f"sqlite:///{tmp_path}/mlflow.db"], check=True)
