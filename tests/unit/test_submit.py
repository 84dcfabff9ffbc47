"""Submission without a cluster: what is sent, under which name, and what is refused before anything is."""

from __future__ import annotations

import http.server
import importlib.metadata
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import ClassVar

import pytest

from study import __version__, submit
from study.planning import provenance
from study.protocol.folder import StudyFolder
from study.submission import job, package

ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "tests" / "chaos" / "tiny_study.py"
STUDY = ["splade_k_search", "--storage", "/shared/k"]


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch, tmp_path) -> None:
    for name in os.environ:
        if name.startswith(("RAY_", "MLFLOW_", "STUDY_")):
            monkeypatch.delenv(name)
    # Ray keeps a token in the user's home.
    monkeypatch.setenv("HOME", str(tmp_path))


def build(*arguments: str) -> job.Job:
    return job.build(submit.parser().parse_args(["splade_k_search", "--storage", "/shared/k", *arguments]))


def refused(capsys, message: str, *arguments: str) -> None:
    assert submit.main(list(arguments)) == 2
    said = capsys.readouterr().err
    assert re.search(message, said), said
    assert said.count("error:") == 1


# --- files -------------------------------------------------------------------------------------------


def copy_of_project(folder: Path, git: bool) -> Path:
    for name in package.files():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
    shutil.copyfile(ROOT / ".gitignore", folder / ".gitignore")
    if git:
        subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    return folder


def test_files_are_those_of_the_packages() -> None:
    found = package.files(study_file=TINY)
    assert {name.split("/")[0] for name in found} == {*package.PACKAGES, "submitted"}
    assert {
        "study/run.py",
        "study/submission/on_cluster.sh",
        "study/reporting/report.html.jinja",
        "trainables/embedded_encoder/model.safetensors",
    } <= found.keys()
    assert found["submitted/tiny_study.py"] == TINY
    assert not [name for name in found if "__pycache__" in name]


def test_a_file_of_the_packages_is_sent_once() -> None:
    path = ROOT / "search_spaces" / "splade_k_search.py"
    assert package.files(study_file=path) == package.files()


@pytest.mark.parametrize("git", [True, False], ids=["checkout", "installed"])
def test_size_is_checked_and_gitignore_honoured(tmp_path, git) -> None:
    root = copy_of_project(tmp_path / "project", git)
    (root / "study" / "__pycache__").mkdir()
    (root / "study" / "__pycache__" / "run.pyc").write_text("")
    # Beside the packages anything may lie.
    (root / "corpus.bin").write_text("")
    os.truncate(root / "corpus.bin", 600 * 2**20)
    assert package.files(root).keys() == package.files().keys()
    (root / "trainables" / "vectors.bin").write_text("")
    os.truncate(root / "trainables" / "vectors.bin", 600 * 2**20)
    with pytest.raises(ValueError, match=r"607 MiB, more than the 500 MiB .*largest: trainables/vectors.bin, 600 MiB"):
        package.files(root)
    arguments = [*STUDY, "--address", "http://127.0.0.1:9"]
    done = subprocess.run(
        [sys.executable, "-m", "study.submit", *arguments], cwd=root, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": ""},
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert re.fullmatch("error: the packages of .* hold 607 MiB, more than the 500 MiB .*\n", done.stderr), done.stderr
    if git:
        with (root / ".gitignore").open("a") as ignored:
            ignored.write("*.bin\n")
        assert package.files(root).keys() == package.files().keys()


def test_written_folder_runs_by_itself(tmp_path) -> None:
    """What travels is enough to load the study: on the cluster nothing else of the project is there."""
    package.write(package.files(study_file=TINY), tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "study.run", "submitted/tiny_study.py", "--profile", "kills", "--dry-run"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": ""}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "Does a study that is killed end as one that is not?" in done.stdout


@pytest.fixture
def own_trainer(tmp_path, monkeypatch) -> Path:
    """A package of the user's own beside a study that names it, and other things beside both."""
    here = tmp_path / "here"
    folder = here / "package_of_test" / "late"
    folder.mkdir(parents=True)
    (folder / "config.py").write_text("from trainables.splade.config import Config, metrics, prepare\n")
    (folder / "recipe.py").write_text("from trainables.splade.recipe import Encoder, build\n")
    (folder.parent / "helpers.py").write_text("")
    (here / "results.bin").write_text("")
    text = (ROOT / "search_spaces" / "splade_k_search.py").read_text()
    text = text.replace('trainer="splade"', 'trainer="package_of_test.late"')
    (here / "mine.py").write_text(text.replace("from trainables.splade.config", "from package_of_test.late.config"))
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(str(here))
    yield here
    for name in [name for name in sys.modules if name.startswith("package_of_test")]:
        del sys.modules[name]


@pytest.mark.parametrize("git", [True, False], ids=["checkout", "folder"])
def test_a_trainer_of_ones_own_is_sent_with_its_package(own_trainer, tmp_path, git) -> None:
    if git:
        subprocess.run(["git", "init", "--quiet"], cwd=own_trainer, check=True)
    (own_trainer / "package_of_test" / "__pycache__").mkdir()
    (own_trainer / "package_of_test" / "__pycache__" / "helpers.pyc").write_text("")
    (own_trainer / ".gitignore").write_text("__pycache__\n")
    made = job.build(submit.parser().parse_args(["mine.py", "--storage", "/shared/k"]))
    sent = {name for name in made.files if name.split("/")[0] not in package.PACKAGES}
    package_ = ("package_of_test/helpers.py", "package_of_test/late/config.py", "package_of_test/late/recipe.py")
    assert sent == {"submitted/mine.py", *package_}
    package.write(made.files, tmp_path / "there")
    done = subprocess.run(
        [sys.executable, "-m", "study.run", "submitted/mine.py", "--dry-run"],
        cwd=tmp_path / "there", env=os.environ | {"PYTHONPATH": ""}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "trainer     package_of_test.late" in done.stdout


def test_a_trainer_that_is_installed_or_ours_is_not_sent_again(own_trainer, monkeypatch) -> None:
    path = own_trainer / "mine.py"
    assert package.files(trainer="trainables.splade") == package.files()
    monkeypatch.setattr(package.sysconfig, "get_path", lambda kind: str(own_trainer))
    assert package.files(study_file=path, trainer="package_of_test.late") == package.files(study_file=path)


def test_a_trainer_that_git_ignores_cannot_be_sent(own_trainer, capsys) -> None:
    subprocess.run(["git", "init", "--quiet"], cwd=own_trainer, check=True)
    (own_trainer / ".gitignore").write_text("package_of_test\n")
    refused(capsys, r"trainer 'package_of_test.late': git ignores .*/late, so", "mine.py", "--storage", "/shared/k",
            "--address", "http://127.0.0.1:9")  # fmt: skip


# --- name, command, variables ------------------------------------------------------------------------


def test_prefix_tells_studies_and_storages_apart() -> None:
    a, b = StudyFolder(Path("/shared/a")), StudyFolder(Path("/shared/b"))
    one = job.prefix("k", a)
    assert one == job.prefix("k", a)
    assert len({one, job.prefix("k", b), job.prefix("j", a)}) == 3
    assert re.fullmatch(r"my-study-[0-9a-f]{6}", job.prefix("my study", a))


def test_arguments_are_passed_on() -> None:
    sent = build("--set", "steps=4", "--set", "train.limit=9", "--trials", "3", "--seed", "0", "--fresh", "--follow")
    assert sent.entrypoint == (
        "sh study/submission/on_cluster.sh splade_k_search --address auto --storage /shared/k --trials 3 "
        "--set steps=4 --set train.limit=9 --seed 0 --fresh"
    )


def test_file_of_the_packages_is_run_by_its_name() -> None:
    path = str(ROOT / "search_spaces" / "splade_k_search.py")
    sent = job.build(submit.parser().parse_args([path, "--storage", "/shared/k"]))
    assert sent.entrypoint == build().entrypoint


def test_own_file_is_run_from_where_it_is_put() -> None:
    sent = job.build(submit.parser().parse_args([str(TINY), "--profile", "kills", "--storage", "/shared/t"]))
    assert sent.entrypoint.startswith("sh study/submission/on_cluster.sh submitted/tiny_study.py --address auto")


def test_every_option_of_a_run_is_passed_on_or_known_not_to_be() -> None:
    """An option that `study.run` gains reaches the cluster without a change here."""
    from study import run

    given = [
        word
        for action in run.parser()._actions
        if action.dest not in job.HERE_ALONE
        for word in (action.option_strings[-1], *([] if action.nargs == 0 else ["7"]))
    ]
    options = submit.parser().parse_args(["splade_k_search", *given])
    there = run.parser().parse_args(["splade_k_search", *job._passed_on(options)])
    assert vars(there) == vars(run.parser().parse_args(["splade_k_search", *given]))


def test_secrets_reach_the_cluster_and_no_screen(monkeypatch, capsys) -> None:
    secrets = {
        "MLFLOW_TRACKING_URI": "https://reader:hunter2@mlflow.example",
        "MLFLOW_TRACKING_USERNAME": "reader2",
        "MLFLOW_TRACKING_PASSWORD": "hunter3",
        "HF_TOKEN": "hf_hunter4",
    }
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    ledger = "postgresql://study:hunter5@db.example/studies"
    arguments = ["splade_k_search", "--storage", "/shared/k", "--env", "HF_TOKEN", "--ledger", ledger]
    sent = job.build(submit.parser().parse_args(arguments))
    assert secrets.items() <= sent.variables.items()
    assert sent.variables["STUDY_LEDGER"] == ledger
    assert submit.main([*arguments, "--dry-run"]) == 0
    shown = capsys.readouterr()
    assert "hunter" not in shown.out + shown.err + sent.entrypoint
    assert all(name in shown.out for name in (*secrets, "STUDY_LEDGER"))


def test_servers_that_are_not_named_here_are_left_to_the_head() -> None:
    assert build().variables.keys() == {*provenance.git_state(), "RAY_JOB_STOP_WAIT_TIME_S"}
    assert "$MLFLOW_TRACKING_URI of the head, else sqlite:////shared/mlflow.db" in build().plan
    assert build("--tracking-uri", "http://m:5000").variables["MLFLOW_TRACKING_URI"] == "http://m:5000"


def test_state_of_the_checkout_travels(monkeypatch, tmp_path) -> None:
    sent = build().variables
    assert sent.items() >= provenance.git_state().items()
    monkeypatch.setattr(provenance, "_git", lambda *arguments: "")
    assert provenance.git_state() == {}
    monkeypatch.setenv(provenance.COMMIT, "4" * 40)
    monkeypatch.setenv(provenance.DIRTY, "true")
    assert provenance.tags().items() >= {"git.commit": "4" * 40, "git.dirty": "true"}.items()


def test_the_version_is_recorded_where_nothing_is_installed(monkeypatch) -> None:
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    found = provenance.tags()
    assert found["version.retrieval-study"] == __version__
    assert "version.torch" not in found


def test_command_of_a_run_is_recorded_without_passwords(monkeypatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    monkeypatch.setattr(sys, "argv", ["run.py", "k", "--ledger=postgresql://u:hunter2@h/d", "--set", "source=a:b@c"])
    found = provenance.source(Path("/somewhere/search_spaces/k.py"))
    assert found["command"] == "run.py k '--ledger=postgresql://u:***@h/d' --set source=a:b@c"
    assert found["source"] == "search_spaces/k.py"


def test_dry_run_is_quick_and_shows_what_would_be_sent(tmp_path) -> None:
    code = (
        "import sys; from study import submit;"
        "code = submit.main(['splade_k_search', '--dry-run', '--storage', '/shared/k', '--pip', 'needs.txt']);"
        "print(code, sorted({'torch', 'ray', 'mlflow'} & set(sys.modules)))"
    )
    (tmp_path / "needs.txt").write_text("psycopg2-binary\n")
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "0 []", done.stderr
    for part in (
        "space       k in",
        "storage     /shared/k",
        "id          splade_k_search-",
        "pip -r needs.txt",
        " MiB",
    ):
        assert part in done.stdout
    assert "ledger" not in done.stdout


# --- refusals ----------------------------------------------------------------------------------------

REQUESTS = [
    (["--address", "http://h:1"], "which study"),
    (["splade_k_serach", "--storage", "/s"], "did you mean 'splade_k_search'"),
    (["splade_k_search"], "--storage is missing"),
    (["splade_k_search", "--storage", "studies/k"], "--storage studies/k is relative.* absolute path"),
    ([*STUDY], "--address is missing"),
    ([*STUDY, "--address", "head:6379"], "--address head:6379: give the dashboard"),
    ([*STUDY, "--address", "ray://head:10001"], "--address ray://head:10001: give the dashboard"),
    ([*STUDY, "--set", "batchsize=4"], "unknown key 'batchsize'"),
    ([*STUDY, "--set", "train.source=pairs.jsonl"], "--set train.source=pairs.jsonl: a path on this machine"),
    ([*STUDY, "--set", "train.source=datasets:json:pairs.jsonl"], "datasets:json:pairs.jsonl: a path on this machine"),
    ([*STUDY, "--set", "backbone=./encoder"], "--set backbone=./encoder: a path on this machine"),
    ([*STUDY, "--set", "evaluation.source=~/beir"], "--set evaluation.source=~/beir: a path on this machine"),
    ([*STUDY, "--tracking-uri", "sqlite:///mlflow.db"], "--tracking-uri sqlite:///mlflow.db: give an absolute path"),
    ([*STUDY, "--ledger", "sqlite:///ledger.db"], "--ledger sqlite:///ledger.db: give an absolute path"),
    ([*STUDY, "--ledger", "sqlite+pysqlite:///ledger.db"], r"sqlite\+pysqlite:///ledger.db: give an absolute path"),
    ([*STUDY, "--env", "HF_TOKEN"], "--env HF_TOKEN: it is not set here"),
    ([*STUDY, "--env", "HF_TOKEN=x"], "--env HF_TOKEN: give the name alone"),
    ([*STUDY, "--pip", "nowhere.txt"], "--pip nowhere.txt: no such file"),
    (["--status", "x", "--address", "http://h:1", "--header", "x"], "--header takes KEY=VALUE"),
    (["--status", "x", "--address", "https://h:1", "--verify", "nowhere.pem"], "--verify nowhere.pem: no such file"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), REQUESTS, ids=[" ".join(r[0]) for r in REQUESTS])
def test_request(capsys, monkeypatch, tmp_path, arguments, message) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.jsonl").write_text("")
    refused(capsys, message, *arguments)


def test_relative_paths_of_a_study_file_are_refused_as_those_of_set(capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    text = (ROOT / "search_spaces" / "splade_k_search.py").read_text()
    for number, (old, new, message) in enumerate(
        (
            (
                "config=Config(",
                'config=Config(backbone="./models",',
                "the study file: backbone=./models: a path on this",
            ),
            (
                "points=tuple(",
                'controls=({"train.source": "a.tsv"},), points=tuple(',
                "file: train.source=a.tsv: a path",
            ),
            (
                "space=space,",
                'space=lambda t: (space(t), t.suggest_categorical("backbone", ("embedded", "models"))),',
                "the study file: backbone=models: a path on this machine",
            ),
        )
    ):
        path = tmp_path / f"mine_{number}.py"
        path.write_text(text.replace(old, new, 1))
        refused(capsys, message, str(path), "--profile", "embedded", "--storage", "/s")


def test_a_text_that_is_no_path_may_be_called_as_a_file_here(tmp_path, monkeypatch) -> None:
    (tmp_path / "answer").touch()
    monkeypatch.chdir(tmp_path)
    assert "--set train.positive=answer" in build("--set", "train.positive=answer").entrypoint


def test_study_file_that_raises(capsys, tmp_path) -> None:
    (tmp_path / "mine.py").write_text("1 / 0")
    refused(capsys, "mine.py, line 1 raises ZeroDivisionError", str(tmp_path / "mine.py"), "--storage", "/s")


class Answers(http.server.BaseHTTPRequestHandler):
    """A server that is not Ray's: `code` and `body` to whatever is asked."""

    code, body = 200, b""
    heard: ClassVar[list[dict[str, str]]]

    def do_GET(self) -> None:
        self.heard.append(dict(self.headers))
        self.send_response(self.code)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@contextmanager
def serving(code: int, body: bytes, heard: list | None = None, certificate: Path | None = None) -> Iterator[str]:
    attributes = {"code": code, "body": body, "heard": [] if heard is None else heard}
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Answer", (Answers,), attributes)) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http{'' if certificate is None else 's'}://127.0.0.1:{server.server_port}"
        server.shutdown()


SERVERS = [
    (404, b"", "not Ray's job server"),
    (200, b"<html>hello</html>", "not Ray's job server"),
    (200, b'{"version": 1}', "not Ray's job server"),
    (200, b"[1]", "not Ray's job server"),
    (200, b'{"ray_version": "1.5.0"}', "not Ray's job server .*1.5.0"),
    (503, b"", "not Ray's job server .*503"),
    (401, b"", "wants a token"),
    (403, b"", "another token than ours"),
]


@pytest.mark.parametrize(("code", "body", "message"), SERVERS, ids=[f"{s[0]} {s[1].decode()}" for s in SERVERS])
def test_server_that_is_not_rays(capsys, code, body, message) -> None:
    with serving(code, body) as address:
        refused(capsys, message, *STUDY, "--address", address)


def test_closed_port_and_unknown_host(capsys) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        refused(capsys, f"--address {address}: no server answers there .*refused", *STUDY, "--address", address)
    refused(capsys, "nowhere.invalid:8265: no server", *STUDY, "--address", "http://nowhere.invalid:8265")


def test_server_that_does_not_answer(capsys, monkeypatch) -> None:
    from study.submission import job_server

    monkeypatch.setattr(job_server, "ANSWER_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        refused(capsys, "no server answers there", *STUDY, "--address", address)
    assert time.monotonic() - began < 30


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> Path:
    """A file with a self-signed certificate for 127.0.0.1 and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    path.write_bytes(signed.public_bytes(pem) + key.private_bytes(pem, *plain))
    return path


def test_certificates_are_checked_unless_told_otherwise(capsys, certificate) -> None:
    with serving(404, b"", certificate=certificate) as address:
        refused(capsys, "certificate is not trusted .*--verify FILE", *STUDY, "--address", address)
        for verify in (str(certificate), "no"):
            refused(capsys, "not Ray's job server", *STUDY, "--address", address, "--verify", verify)


def test_headers_are_sent(capsys) -> None:
    heard: list[dict[str, str]] = []
    with serving(404, b"", heard) as address:
        refused(capsys, "", *STUDY, "--address", address, "--header", "X-Team=retrieval", "--header", "X-Pass=a=b")
    assert heard[0].items() >= {"X-Team": "retrieval", "X-Pass": "a=b"}.items()


def test_token_is_sent(capsys) -> None:
    """In a process of its own: Ray reads tokens once."""
    heard: list[dict[str, str]] = []
    with serving(403, b"", heard) as address:
        for variables in ({"RAY_AUTH_TOKEN": "t" * 32}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "t" * 32}):
            done = subprocess.run(
                [sys.executable, "-m", "study.submit", *STUDY, "--address", address], capture_output=True, text=True,
                env=os.environ | {"PYTHONPATH": str(ROOT)} | variables,
            )  # fmt: skip
            assert done.returncode == 2, done.stderr
            assert "another token than ours" in done.stderr
    assert [headers["authorization"] for headers in heard] == ["Bearer " + "t" * 32] * 2


def test_plain_http_behind_an_https_address(capsys) -> None:
    with serving(200, b"") as address:
        refused(capsys, "https://.*", *STUDY, "--address", address.replace("http:", "https:"))


def test_address_asked_for_wins_over_the_environment(capsys, monkeypatch) -> None:
    with serving(404, b"") as address:
        monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:9")
        monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:9")
        refused(capsys, f"{address}: the server there is not", *STUDY, "--address", address)


class Starting(http.server.BaseHTTPRequestHandler):
    """A job server whose cluster has just been started: no node can take a job before the third request for one."""

    asked: ClassVar[list[str]]
    answer = b"No available agent to submit job, please try again later."

    def do_GET(self) -> None:
        version = b'{"version": "4", "ray_version": "2.60.0", "ray_commit": "", "session_name": "s"}'
        self._say(200, version if self.path == "/api/version" else b"[]")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.asked.append(self.path)
        accepted = b'{"submission_id": "k-1", "job_id": "k-1"}'
        self._say(*((200, accepted) if len(self.asked) == 3 else (500, self.answer)))

    def _say(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@contextmanager
def starting(**attributes: object) -> Iterator[tuple[str, list[str]]]:
    """(address, what was asked of it)."""
    handler = type("Handler", (Starting,), {"asked": [], **attributes})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", handler.asked
        server.shutdown()


def test_a_cluster_that_has_just_been_started_is_asked_again(monkeypatch) -> None:
    from study.submission import job_server

    monkeypatch.setattr(job_server, "POLL_S", 0.05)
    said: list[str] = []
    with starting() as (address, asked):
        jobs = job_server.Jobs(address, {}, True, said.append)
        assert jobs.submit_job(entrypoint="true", submission_id="k-1") == "k-1"
        assert len(asked) == 3
        assert said == [f"the cluster at {address} is not ready yet; it is asked again for 60 s"]
        monkeypatch.setattr(job_server, "NOT_YET_S", 0.2)
        with pytest.raises(job_server.Unavailable, match="answers 500: No available agent"):
            jobs.submit_job(entrypoint="true", submission_id="k-2")
    with starting(answer=b"KeyError: 1") as (address, asked):
        with pytest.raises(job_server.Unavailable, match="answers 500: KeyError"):
            job_server.Jobs(address, {}, True).submit_job(entrypoint="true", submission_id="k-1")
        assert len(asked) == 1


# --- the interpreter on the cluster ------------------------------------------------------------------

SCRIPT = ROOT / "study" / "submission" / "on_cluster.sh"
RAYLET = "import subprocess, sys; sys.exit(subprocess.run(['sh', *sys.argv[1].split()]).returncode)"
"""A process with the raylet's command line among the ancestors of the job."""


def on_cluster(*arguments: str, raylet: str | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    command = ["sh", str(SCRIPT), *arguments]
    if raylet is not None:
        command = [sys.executable, "-c", RAYLET, " ".join(command[1:]), f"--python_worker_command={raylet}"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | variables
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)


def interpreter(path: Path, body: str) -> Path:
    """A stand-in that is asked for packages by standard input, and otherwise says how it was called."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\nif [ "$1" = - ]; then cat > /dev/null; {body}; else echo "$0 $*"; fi\n')
    path.chmod(0o755)
    return path


def test_a_job_runs_the_interpreter_that_runs_ray(tmp_path) -> None:
    python = interpreter(tmp_path / "env" / "bin" / "python", "true")
    for command in (f"{python} /ray/default_worker.py --node-ip=1", f'"{python}" /ray/default_worker.py'):
        done = on_cluster("k", "--trials", "2", raylet=command)
        assert done.stdout == f"{python} -m study.run k --trials 2\n", done.stderr
    spaced = interpreter(tmp_path / "my env" / "python", "true")
    assert on_cluster("k", raylet=f'"{spaced}" /ray/default_worker.py').stdout == f"{spaced} -m study.run k\n"


def test_without_a_raylet_what_is_on_path(tmp_path) -> None:
    python = interpreter(tmp_path / "bin" / "python3", "true")
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    assert on_cluster("k", PATH=path).stdout == f"{python} -m study.run k\n"


def test_an_interpreter_that_is_named(tmp_path) -> None:
    done = on_cluster("--python", sys.executable, "--list")
    assert (done.returncode, "splade_k_search" in done.stdout) == (0, True), done.stderr
    python = interpreter(tmp_path / "python", "true")
    assert on_cluster("--python", str(python), "k", raylet="/ray/python x").stdout == f"{python} -m study.run k\n"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("echo optuna, torch", "PYTHON on .* lacks optuna, torch; name another interpreter with --python, or the pack"),
        ("exit 127", "PYTHON on .* cannot be run; name another interpreter with --python"),
        (None, "--python PYTHON: there is no such interpreter on "),
    ],
)
def test_an_interpreter_that_is_not_the_studys(tmp_path, body, message) -> None:
    python = tmp_path / "python"
    if body is not None:
        interpreter(python, body)
    done = on_cluster("--python", str(python), "k")
    assert done.returncode == 2
    assert re.fullmatch(f"error: {message.replace('PYTHON', str(python))}.*\n", done.stderr), done.stderr


def test_which_interpreter_a_submission_names(tmp_path) -> None:
    (tmp_path / "needs.txt").write_text("")
    entrypoints = {
        (): "sh study/submission/on_cluster.sh splade_k_search ",
        (
            "--python",
            "/opt/my env/python",
        ): "sh study/submission/on_cluster.sh --python '/opt/my env/python' splade_k_search ",
        # Ray makes an environment of these and puts it first on PATH.
        ("--pip", str(tmp_path / "needs.txt")): "sh study/submission/on_cluster.sh --python python splade_k_search ",
    }
    for arguments, entrypoint in entrypoints.items():
        assert build(*arguments).entrypoint.startswith(entrypoint)


def test_a_profile_is_submitted_beside_the_others() -> None:
    assert build("--profile", "search").prefix.startswith("splade_k_search.search-")
    assert build("--profile", "search").entrypoint.startswith(
        "sh study/submission/on_cluster.sh splade_k_search --address"
    )


def test_whoever_follows_may_leave(monkeypatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    monkeypatch.setattr("sys.stdout", os.fdopen(writing, "w", buffering=1))
    assert submit.main([*STUDY, "--dry-run"]) == 0
