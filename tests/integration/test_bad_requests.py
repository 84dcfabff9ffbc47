"""Every request that cannot be met ends with exit 2 and one sentence, before any trial starts."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote

import psutil
import pytest

from study import run, terminal

ROOT = Path(__file__).resolve().parents[2]


def command(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The real command line, in a folder of its own."""
    env = {k: v for k, v in os.environ.items() if k != "MLFLOW_TRACKING_URI"}
    return subprocess.run(
        [sys.executable, "-m", "study.run", *arguments],
        cwd=folder, env=env | {"PYTHONPATH": str(ROOT)} | environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


@pytest.fixture
def asked(tmp_path, monkeypatch, capsys) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The same in this process, for what is refused before anything is started."""

    def ask(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        try:
            code = run.main(list(arguments))
        except SystemExit as ended:
            code = ended.code
        return subprocess.CompletedProcess(arguments, code, *capsys.readouterr())

    return ask


class CheckHere:
    """Stands in for the process that checks the inputs: the same in this one, which has torch already."""

    def __init__(self, command: list[str], **_: object) -> None:
        from trainables import check

        assert command[:3] == [sys.executable, "-m", "trainables.check"]
        with redirect_stdout(StringIO()) as told:
            self.returncode = check.main(*command[3:])
        self.stdout = told.getvalue().splitlines()

    def poll(self) -> int:
        return self.returncode

    def wait(self) -> int:
        return self.returncode

    def kill(self) -> None: ...


@pytest.fixture
def checked(monkeypatch, capfd) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """The same in this process, for what is refused while Ray is started; two cores stand in for it."""
    import ray

    from study.engine import executor, input_check

    two_cores = {"Alive": True, "Resources": {"CPU": 2.0}, "Labels": {}}
    process = SimpleNamespace(Popen=CheckHere, PIPE=subprocess.PIPE, DEVNULL=subprocess.DEVNULL)
    monkeypatch.setattr(input_check, "subprocess", process)
    monkeypatch.setattr(executor.Engine, "start", lambda engine: None)
    monkeypatch.setattr(executor.Engine, "stop", lambda engine: None)
    monkeypatch.setattr(executor, "alive", lambda: [two_cores])
    monkeypatch.setattr(ray, "cluster_resources", lambda: two_cores["Resources"])
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    before = {number: signal.getsignal(number) for number in terminal.STOPS}
    kept = [os.dup(number) for number in (1, 2)]

    def check(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.chdir(folder)
        code = run.main(list(arguments))
        return subprocess.CompletedProcess(arguments, code, *capfd.readouterr())

    yield check
    for number, handler in before.items():
        signal.signal(number, handler)
    for number, copy in zip((1, 2), kept, strict=True):
        os.dup2(copy, number)
        os.close(copy)


def checks_of(folder: Path) -> list[int]:
    """Processes that still check inputs for a study in `folder`."""
    running = psutil.process_iter(["pid", "cmdline"])
    words = ((process.info["pid"], " ".join(process.info["cmdline"] or ())) for process in running)
    return [pid for pid, line in words if "trainables.check" in line and str(folder) in line]


def refused(done: subprocess.CompletedProcess[str], message: str) -> None:
    assert done.returncode == 2, done.stderr[-2000:]
    assert re.search(message, done.stderr), done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("error:") == 1


STUDY = """
from study.spec import Budget, Objective, Pruner, Study
from trainables.splade.config import Config

def space(trial):
    trial.suggest_float("{key}", 1, 8, log=True)

STUDY = {{"{profile}": Study(question="?", trainer="splade", parameter="k", config=Config(), space=space,
    objectives=({objectives},), pruner=Pruner(kind="{pruner}"), budget=Budget(trials=2))}}
"""


def study(key="k", profile="embedded", objectives='Objective(name="ndcg_at_10")', pruner="none") -> str:
    return STUDY.format(key=key, profile=profile, objectives=objectives, pruner=pruner)


REQUESTS = [
    (["splade_k_serach"], "unknown study 'splade_k_serach'; did you mean 'splade_k_search'"),
    ([], "which study"),
    (["nowhere/mine.py"], "study file 'nowhere/mine.py' does not exist"),
    (["splade_k_search", "--profile", "papre"], "profile 'papre' .* did you mean 'paper'"),
    (["splade_k_search", "--set", "batchsize=4"], "unknown key 'batchsize'; did you mean 'batch_size'"),
    (["splade_k_search", "--set", "optimiser.rl=4"], "unknown key 'optimiser.rl'; did you mean 'optimiser.lr'"),
    (["splade_k_search", "--set", "steps"], "--set takes KEY=VALUE, not 'steps'"),
    (["splade_k_search", "--set", "steps=many"], "steps='many': input should be a valid integer"),
    (["splade_k_search", "--set", "k=2"], "--set k: the search space suggests k for every trial"),
    (["splade_k_search", "--set", "k=0"], "k=0: input should be greater than 0"),
    (["splade_k_search", "--set", "k=-2"], "k=-2: input should be greater than 0"),
    (["splade_k_search", "--set", "k=NaN"], "k=nan: input should be"),
    (["splade_k_search", "--set", "batch_size=0"], "batch_size=0: input should be greater than or equal to 2"),
    (["splade_k_search", "--set", "rescale=both"], "rescale='both': input should be 'tied' or 'untied'"),
    (["splade_k_search", "--trials", "0"], "--trials 0: input should be greater than 0"),
    (["splade_k_search", "--workers-per-trial", "3"], "batch_size=32 cannot be shared by --workers-per-trial 3"),
    (["splade_k_search", "--seed", "-1"], "--seed -1: input should be greater than or equal to 0"),
    (["splade_k_search", "--resources", "gpus"], "--resources takes KEY=VALUE, not 'gpus'"),
    (["splade_k_search", "--resources", "gpu_per_worker=1"], "did you mean 'resources.gpus_per_worker'"),
    (["splade_k_search", "--resources", "placement=NEAR"], "resources.placement='NEAR': input should be 'PACK'"),
    (["splade_k_search", "--resources", "workers=2", "--resources", "gpus_per_worker=0.5"], "needs whole GPUs"),
    (["splade_k_search", "--tracking-uri", "./mlruns"], "tracking URI './mlruns' .*accepted: sqlite"),
    (["splade_k_search", "--tracking-uri", "file:///tmp/x"], "tracking URI 'file:///tmp/x' .*accepted: sqlite"),
    (["splade_k_search", "--tracking-uri", "ftp://x"], "tracking URI 'ftp://x' has an unknown scheme"),
    (["splade_k_search", "--ledger", "nonsense"], "--ledger nonsense: .*accepted are sqlite"),
    (["splade_k_search", "--ledger", "sqlite:////nowhere/at/all.db"], "--ledger .*: its folder does not exist"),
    (["splade_k_search", "--ledger", "oracle://u:secret@x/y"], r"--ledger oracle://u:\*\*\*@.*driver is installed"),
    (["splade_k_search", "--checkpoints", "./models"], r"--checkpoints \./models: name a folder of an object store"),
    (["splade_k_search", "--checkpoints", "ftp://x/y"], "--checkpoints ftp://x/y: unknown kind; accepted are s3"),
    (["splade_k_search", "--checkpoints", "s3://u:secret@x/y"], r"--checkpoints s3://\.\.\.: credentials in a URI"),
    (["angle_split_search", "--set", "dims=[8,15]"], r"dims=\[8, 15\]: 15 is odd"),
    (["angle_split_search", "--set", "dims=[32,16]"], r"dims=\[32, 16\]: prefixes must ascend, each once: \[16, 32\]"),
]  # fmt: skip
ADDRESSES = [
    (["splade_k_search", "--address", "127.0.0.1:1"], "--address 127.0.0.1:1: no Ray cluster answers there"),
    (["splade_k_search", "--address", "ray://x:1"], "--address ray://x:1: give HOST:PORT"),
]


@pytest.mark.parametrize(("arguments", "message"), REQUESTS, ids=[" ".join(r[0]) or "nothing" for r in REQUESTS])
def test_request(tmp_path, asked, arguments, message) -> None:
    refused(asked(*arguments), message)
    assert checks_of(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "message"), [*ADDRESSES, REQUESTS[0]], ids=["no cluster", "no address", "unknown study"]
)
def test_request_on_the_command_line(tmp_path, arguments, message) -> None:
    refused(command(tmp_path, *arguments), message)
    assert checks_of(tmp_path) == []


FILES = [
    ("raises", "1 / 0", "raises ZeroDivisionError: division by zero"),
    ("syntax", "def", "raises SyntaxError"),
    ("no study", "x = 1", "must define STUDY, a mapping from profile name"),
    ("space", study(key="kk"), "the search space suggests an unknown key 'kk'; did you mean 'k'"),
    ("objective", study(objectives='Objective(name="accuracy")'), "objective 'accuracy': splade never reports it"),
    (
        "one seed",
        study() + '\nSTUDY = {"embedded": Study(**dict(STUDY["embedded"]) | {"design": "paired"})}',
        "replicates=1 with design='paired': a paired comparison needs at least two seeds",
    ),
    (
        "pruning",
        study(
            objectives='Objective(name="ndcg_at_10"), Objective(name="flops", direction="minimize")', pruner="median"
        ),
        "pruning compares one value",
    ),
]


@pytest.mark.parametrize(("text", "message"), [f[1:] for f in FILES], ids=[f[0] for f in FILES])
def test_study_file(tmp_path, asked, text, message) -> None:
    (tmp_path / "mine.py").write_text(text)
    refused(asked("mine.py"), message)


def beir(folder: Path, document: str = "d1") -> Path:
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(json.dumps({"_id": "d1", "title": "", "text": "a text"}) + "\n")
    queries = "".join(json.dumps({"_id": f"q{n}", "text": "a query"}) + "\n" for n in range(9))
    (folder / "queries.jsonl").write_text(queries)
    judged = "".join(f"q{n}\t{document}\t1\n" for n in range(9))
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    return folder


INPUTS = [
    ("missing file", "train.source=nowhere.jsonl", "train.source '/.*/nowhere.jsonl': nothing there"),
    ("missing folder", "evaluation.source=nowhere", "evaluation.source '/.*/nowhere': nothing there"),
    ("unknown id", "evaluation.source=ir_datasets:beir/scifcat", "beir/scifcat"),
    ("malformed line", "train.source=broken.jsonl", r"broken\.jsonl.*line 2"),
    ("empty file", "train.source=empty.jsonl", r"empty\.jsonl"),
    ("missing column", "train.source=columns.jsonl", "no column 'positive'"),
    ("qrels without documents", "evaluation.source=strangers", "qrels"),
    ("missing backbone", "backbone=./nowhere", "backbone '/.*/nowhere': nothing there"),
    ("backbone without a head", "backbone=./headless", "headless.*head"),
    ("too long", "document_length=100000", "document_length is 100000"),
    ("no negatives", "hard_negatives=3", "hard_negatives is 3"),
]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("inputs")
    pairs = "".join(json.dumps({"query": f"query {n}", "positive": f"text {n}"}) + "\n" for n in range(40))
    (folder / "good.jsonl").write_text(pairs)
    (folder / "broken.jsonl").write_text('{"query": "a", "positive": "b"}\n{"query": \n')
    (folder / "empty.jsonl").write_text("")
    (folder / "columns.jsonl").write_text('{"query": "a", "answer": "b"}\n')
    beir(folder / "good")
    beir(folder / "strangers", document="elsewhere")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    BertModel(BertConfig(vocab_size=50, **sizes)).save_pretrained(folder / "headless")
    return folder


def on_files(setting: str) -> list[str]:
    given = ["train.source=good.jsonl", "evaluation.source=good", setting]
    return ["splade_k_search", "--fresh", *(word for value in given for word in ("--set", value))]


@pytest.mark.parametrize(("setting", "message"), [i[1:] for i in INPUTS], ids=[i[0] for i in INPUTS])
def test_input(inputs, checked, setting, message) -> None:
    refused(checked(inputs, *on_files(setting)), message)


def test_input_on_the_command_line(inputs) -> None:
    refused(command(inputs, *on_files(INPUTS[-1][1])), INPUTS[-1][2])


PAIRS = [
    (
        "label above the range",
        "good.jsonl",
        "data.lowest=0 data.highest=4.5",
        r"good\.jsonl, line 2: column 'label' is 4.8",
    ),
    ("label NaN", "nan.jsonl", "steps=3", r"nan\.jsonl, line 2: column 'label' is nan"),
    ("missing column", "columns.jsonl", "steps=3", r"columns\.jsonl, line 1: no column 'sentence2'"),
    ("dim above the size", "good.jsonl", "dims=[64,4096]", r"dims=\[64, 4096\]: the embeddings of backbone 'embedded'"),
]


@pytest.mark.parametrize(("file", "setting", "message"), [p[1:] for p in PAIRS], ids=[p[0] for p in PAIRS])
def test_graded_pairs(tmp_path, checked, file, setting, message) -> None:
    def pairs(*labels: float) -> str:
        rows = [{"sentence1": f"one {n}", "sentence2": f"two {n}", "label": label} for n, label in enumerate(labels)]
        return "".join(json.dumps(row) + "\n" for row in rows)

    (tmp_path / "good.jsonl").write_text(pairs(1, 4.8, 2))
    (tmp_path / "nan.jsonl").write_text(pairs(1, math.nan, 2))
    (tmp_path / "columns.jsonl").write_text('{"sentence1": "a", "label": 1}\n')
    given = [*(f"data.{split}={file}" for split in ("train", "validation", "test")), *setting.split()]
    refused(checked(tmp_path, "angle_split_search", *(w for value in given for w in ("--set", value))), message)


def test_more_resources_than_the_cluster_has(inputs) -> None:
    arguments = [*on_files("batch_size=512"), "--workers-per-trial", "512"]
    refused(command(inputs, *arguments), "a trial needs 512 CPU")


def test_nodes_that_the_cluster_lacks(inputs, checked) -> None:
    arguments = [*on_files("steps=3"), "--resources", 'labels={"zone": "b"}', "--resources", "accelerator=H100"]
    refused(checked(inputs, *arguments), "accelerator H100, labels {'zone': 'b'}\\), the cluster has")


def test_tracking_server_that_does_not_answer(asked) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{closed.getsockname()[1]}"
        refused(asked("splade_k_search", "--tracking-uri", uri), "tracking URI")


LEDGERS = [
    # what is wrong, what becomes of the URL of a database, message
    (
        "password",
        lambda url: re.sub(":[^:]*@", ":wrong-hunter2@", url),
        'password authentication failed for user "study"',
    ),
    ("quotes", unquote, "write @ in a password as %40, / as %2F"),
    ("database", lambda url: f"{url}x", r'database "test_\w+x" does not exist'),
    ("port", lambda url: re.sub(r":\d+/", ":1/", url), "port 1 failed: Connection refused"),
    ("port's digits", lambda url: re.sub(r":\d+/", ":54x/", url), "invalid literal .* '54x'"),
    ("driver", lambda url: url.replace("postgresql:", "postgresql+nothing:"), "postgresql.nothing"),
]


@pytest.mark.parametrize(("spoilt", "message"), [case[1:] for case in LEDGERS], ids=[case[0] for case in LEDGERS])
def test_ledger_that_cannot_be_opened(tmp_path, asked, postgres, spoilt, message) -> None:
    url = postgres.database()
    for done in (
        asked("splade_k_search", "--dry-run", "--ledger", spoilt(url)),
        asked("splade_k_search", STUDY_LEDGER=spoilt(url)),
    ):
        refused(done, rf"^error: --ledger postgresql\S*//study:\*\*\*@127.0.0.1:\S*: .*{message}.*\n$")
        assert "hunter2" not in done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []


def test_storage_that_cannot_be_written(tmp_path, asked) -> None:
    (tmp_path / "file").write_text("")
    refused(asked("splade_k_search", "--storage", "file/below"), "--storage .*: cannot write there")


def test_ledger_of_another_study_and_of_a_newer_format(tmp_path, asked) -> None:
    import optuna

    storage = tmp_path / "studies" / "splade_k_search"
    storage.mkdir(parents=True)
    other = optuna.create_study(study_name="splade_k_search", storage=f"sqlite:///{storage / 'ledger.db'}")
    refused(asked("splade_k_search"), "not .* ledger of this platform")
    other.set_user_attr("format", 99)
    other.set_user_attr("definition", {})
    refused(asked("splade_k_search"), "format 99.*--fresh")


def test_fresh_does_not_carry_on_what_another_ledger_holds(tmp_path, asked) -> None:
    import optuna

    url = f"sqlite:///{tmp_path / 'shared.db'}"
    optuna.create_study(study_name="splade_k_search", storage=url)
    refused(asked("splade_k_search", "--fresh", "--ledger", url), "--fresh: .* already has a study")


def test_changed_study_names_the_key(tmp_path, asked) -> None:
    from study import spec
    from study.ledger import optuna_study
    from tests.ledgers import ledger_url

    storage = tmp_path / "studies" / "splade_k_search"
    storage.mkdir(parents=True)
    _, begun = spec.load(spec.available()["splade_k_search"], None, {}, {})
    optuna_study.open_study(ledger_url(storage), "splade_k_search", begun)
    done = asked("splade_k_search", "--set", "steps=7")
    refused(done, r"config\.steps was \d+, now 7.*--fresh")


def test_ledger_whose_journal_is_elsewhere(tmp_path, asked) -> None:
    """Without its steps and results on record the study would be carried on as if there had been none."""
    from study import spec
    from study.ledger import optuna_study

    url = f"sqlite:///{tmp_path / 'kept.db'}"
    _, begun = spec.load(spec.available()["splade_k_search"], None, {}, {})
    optuna_study.open_study(url, "splade_k_search", begun).ask()
    done = asked("splade_k_search", "--ledger", url)
    refused(done, "--storage .*: the ledger has trials of splade_k_search whose journal is not there")


def test_dry_run_is_quick_and_complete_and_starts_nothing(tmp_path) -> None:
    code = (
        "import sys; from study import run; run.main(['splade_k_search', '--dry-run']);"
        "print(sorted({'torch', 'ray', 'mlflow'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "[]"
    for part in (
        "space       k in",
        "power       80% for",
        "trials      9 x 1",
        "batch_size = 32",
        "ledger      nothing yet; to do: 9 new",
    ):
        assert part in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "study.run", "splade_k_search", "--dry-run"], cwd=tmp_path, stdout=writing,
        env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_list(tmp_path) -> None:
    done = command(tmp_path, "--list")
    assert done.returncode == 0
    assert "splade_k_search\n" in done.stdout
    assert "    embedded  the default; " in done.stdout
