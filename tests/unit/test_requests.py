"""Requests that cannot be met, from tables of options and values: exit 2 and one sentence that names what and where.

The commands run in this process. Nothing of Ray, torch or MLflow is started: a request that gets so far has not been
refused.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from study import evaluate, report, run, submit
from trainables import cli, trainers

_spec = importlib.util.spec_from_file_location("synthetic_study", Path(__file__).with_name("synthetic_study.py"))
assert _spec is not None and _spec.loader is not None  # noqa: PT018
synthetic = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(synthetic)

RECIPES = ("splade", "angle", "retromae")
NAME = "splade_k_search"
LONG = "x" * 300
"""More than a name of a file may have."""


def started(*arguments: object) -> None:
    raise AssertionError("nothing refused the request")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """A working folder with things that are not what an option asks for."""
    monkeypatch.chdir(tmp_path)
    for name in ("MLFLOW_TRACKING_URI", "STUDY_LEDGER", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(run.Session, "run", started)
    monkeypatch.setattr(cli, "_train", started)
    Path("file").write_text("x")
    Path("other.db").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(5000))
    Path("empty").mkdir()
    return tmp_path


WRONG_NUMBERS = ("", "many", "1.5", "nan", "0", "-1")

RUN = {
    # option -> values that it cannot take, or (value, what the sentence names besides the option)
    "--trials": WRONG_NUMBERS,
    "--concurrency": WRONG_NUMBERS,
    "--max-nodes": WRONG_NUMBERS,
    "--workers-per-trial": (*WRONG_NUMBERS, ("3", "batch_size=32 cannot be shared")),
    "--budget-gpu-hours": ("", "many", "nan", "inf", "0", "-1", ("1", "gpus_per_worker=0")),
    "--seed": ("", "x", "1.5", "-1"),
    "--profile": ("", ("embeded", "did you mean 'embedded'"), "paper ", "PAPER", "embedded/x", "."),
    "--storage": ("", "file", "file/below", "/dev/null", "/proc/x", LONG, f"a/{LONG}"),
    "--tracking-uri": (
        "", "file", "./mlruns", "file:///x", "ftp://h", "http://", "http://h:port", "http://h:99999", "http://[::1",
        "sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:///empty", "sqlite:///file", "sqlite:///other.db",
        "sqlite:///file/x.db", f"sqlite:///{LONG}", "postgresql://", "postgresql://h", "postgresql://u:p@h:port/d",
        "postgresql://127.0.0.1:1/d", "mysql://127.0.0.1:1/d", ("http://u:pass/word@h", "%2F"),
    ),
    "--ledger": (
        "", "nonsense", "sqlite://", "sqlite:///", "sqlite:///:memory:", ("sqlite:///empty", "empty"),
        ("sqlite:///file", "file"), ("sqlite:///other.db", "no SQLite database"), "sqlite:///file/x.db",
        (f"sqlite:///{LONG}", "too long"), "sqlite:///nowhere/x.db", "postgresql://127.0.0.1:1/d", "http://h/x",
        "postgresql://u@h:port/d", "oracle://u:p@h/d", ("postgresql://u:pass/word@h/d", "%2F"),
    ),
    "--checkpoints": (
        "", "models", "./models", "/models", "file:///models", "s3://", "s3:///x", "http://b/x", "ftp://b/x",
        ("s3://key:secret@b/x", "credentials"), ("s3://b/x?secret_key=1", "credentials"), "s3://[b/x",
        ("fsspec+nothing://b/x", "cannot write there"),
    ),
    "--resources": (
        "", "workers", "=1", "workers=", "workers=x", "workers=0", "workers=1.5", "workers=true", "workers=null",
        "cpus_per_worker=0", "cpus_per_worker=NaN", "cpus_per_worker=Infinity", "gpus_per_worker=-1",
        "gpu_hour_price=-1", "placement=NEAR", "placement=1", "accelerator=1", "labels=x", 'labels={"zone": 1}',
        "labels=[1]", "concurrency=0", "max_nodes=0", ("gpu_per_worker=1", "did you mean"), "workers.x=1",
    ),
    "--set": (
        "", "steps", "=", "=4", "steps=", ("stepps=4", "did you mean 'steps'"), ("optimiser.rl=1", "optimiser.lr"),
        "optimiser=1", "optimiser.=1", "optimiser..lr=1", ".k=1", "steps=[]", "steps={}", "steps=null", "steps=true",
        "steps=1.5", "k=1e999", "k=-Infinity", "collapse=perhaps", "backbone=1", "backbone=null", "train.source=[]",
        ("cache=here", "--storage"),
    ),
    "--address": ("",),
    "--nonsense": ("1",),
}  # fmt: skip

SUBMIT = {
    "--address": ("", "nowhere", "ray://h:1", "http://", "http://[::1", "http://h:port", "127.0.0.1:1"),
    "--storage": ("", "relative", "./relative"),
    "--pip": ("", "nowhere.txt", "empty"),
    "--uv": ("", "nowhere.txt", "empty"),
    "--env": ("", "NOT_SET_HERE", "NAME=value"),
    "--header": ("", "x", "=x", "a b=c", "a:b=c", "a=line\nline", "a=ü"),
    "--verify": ("", "nowhere.pem", "file"),
    "--ledger": ("", "sqlite:///relative.db"),
    "--tracking-uri": ("", "sqlite:///relative.db"),
    "--checkpoints": ("", "./models", "ftp://b/x"),
    "--set": ("", "x", "stepps=1", "train.source=file", "backbone=empty"),
    "--trials": ("0", "x"),
    "--status": ("",),
    "--stop": ("",),
}

EVALUATE = {
    "--suite": ("", "nowhere", "nanobier", "file", "empty", LONG),
    "--trials": ("", "best,1", "1,", ",", "-1", "1.5", "all", "²", ("0", "collapsed"), ("99", "no trial 99")),
    "--storage": ("", "nowhere", "file", "empty", LONG),
    "--tracking-uri": ("", "http://elsewhere:5000"),
    "--workers": ("", "x", "0", "-1"),
    "--vectors": ("", "int8"),
    "--cache": ("", "file", "file/below", LONG),
}

REPORT = {"--storage": ("", "nowhere", "file", "empty", LONG), "--nonsense": ("1",)}

TRAIN = {
    "--seed": ("", "x", "-1", "1.5"),
    "--folder": ("", "file", "file/below", "/proc/x", LONG),
    "--set": ("", "x", "stepps=1", "steps=0", "steps=true", "batch_size=1", "optimiser.lr=0", "optimiser.warmup=2"),
    "--nonsense": ("1",),
}

NAMES = (
    "", "splade_k_serach", "nowhere.py", "a/b", "file", "./file", "empty", f"{LONG}.py", "../splade_k_search.py", "é",
)  # fmt: skip
FILES = {
    "raises": ("1 / 0", "raises ZeroDivisionError"),
    "ends": ("raise SystemExit(3)", "raises SystemExit"),
    "lines": ("raise ValueError('one\\ntwo')", "raises ValueError: one two"),
    "syntax": ("def", "raises SyntaxError"),
    "nothing": ("", "must define STUDY"),
    "list": ("STUDY = [1]", "must define STUDY"),
    "no studies": ("STUDY = {}", "must define STUDY"),
    "text": ("STUDY = {'embedded': 'x'}", "must define STUDY"),
    "import": ("import no_such_module", "no_such_module"),
    "endless": ("def f(): f()\nf()", "raises RecursionError"),
    "not Python": (b"\xff\xfe\x00\x01", "raises"),
    "profile": ("from study import spec\nfound = spec.profiles(spec.available()['splade_k_search'])\n"
                "STUDY = {3: found['embedded']}", "must define STUDY"),
}  # fmt: skip

STUDY = """
from study.spec import Budget, Objective, Pruner, Resources, Study
from trainables.splade.config import Config

def space(trial):
    {space}

STUDY = {{"embedded": Study(**dict(question="?", trainer="splade", parameter="k", config=Config(steps=10), space=space,
    objectives=(Objective(name="ndcg_at_10"),), budget=Budget(trials=2)) | dict({changes}))}}
"""
SUGGEST = 'trial.suggest_float("k", 1, 8)'
STUDIES = {
    # (the space, changes to the study): what the sentence names
    (SUGGEST, "question=3"): "question",
    (SUGGEST, "qestion='?'"): "qestion",
    (SUGGEST, "trainer='spalde'"): "trainables.spalde.config; did you mean 'splade'?",
    (SUGGEST, "trainer=''"): "trainer",
    (SUGGEST, "parameter='kk'"): "did you mean 'k'",
    (SUGGEST, "plane=('k', 'kk')"): "did you mean 'k'",
    (SUGGEST, "plane=('k',)"): "plane",
    (SUGGEST, "controls=({},)"): "controls",
    (SUGGEST, "controls=({'kk': 1},)"): "did you mean 'k'",
    (SUGGEST, "controls=({'k': 0},)"): "k=0",
    (SUGGEST, "points=({'k': 9},)"): "k=9 is not in the search space",
    (SUGGEST, "points=({'steps': 9},)"): "steps=9 is not in the search space",
    (SUGGEST, "objectives=()"): "objectives",
    (SUGGEST, "objectives=(Objective(name='accuracy'),)"): "accuracy",
    (SUGGEST, "objectives=(Objective(name='flops', direction='down'),)"): "direction",
    (SUGGEST, "sampler='grid'"): "sampler='grid'",
    (SUGGEST, "pruner=Pruner(kind='luck')"): "kind",
    (SUGGEST, "pruner=Pruner(reduction_factor=1)"): "reduction_factor",
    (SUGGEST, "pruner=Pruner(first_step=0)"): "first_step",
    (SUGGEST, "design='guess'"): "design='guess'",
    (SUGGEST, "design='paired'"): "replicates=1",
    (SUGGEST, "design='paired', replicates=2, pruner=Pruner(kind='median')"): "design='paired'",
    (SUGGEST, "replicates=0"): "replicates=0",
    (SUGGEST, "seed=-1"): "seed=-1",
    (SUGGEST, "seed=True"): "seed=True",
    (SUGGEST, "budget=Budget(trials=0)"): "trials",
    (SUGGEST, "budget=Budget(trials=1, wall_clock_s=0)"): "wall_clock_s",
    (SUGGEST, "budget=Budget(trials=1, worker_hours=float('nan'))"): "worker_hours",
    (SUGGEST, "budget=Budget(trials=1, gpu_hours=2)"): "gpus_per_worker=0",
    (SUGGEST, "resources=Resources(workers=2, gpus_per_worker=0.5)"): "whole GPUs",
    (SUGGEST, "resources=Resources(workers=5)"): "batch_size=32",
    (SUGGEST, "config=Config(steps=0)"): "steps",
    (SUGGEST, "config=Config(stepps=3)"): "stepps",
    (SUGGEST, "config=3"): "config",
    ("raise KeyError('x')", ""): "the search space raises KeyError",
    ("trial.suggest_float('k')", ""): "the search space raises TypeError",
    ("trial.suggest_float('k', 8, 1)", ""): "the search space",
    ("trial.suggest_float('k', 0, 1, log=True)", ""): "the search space",
    ("trial.suggest_float('kk', 1, 8)", ""): "unknown key 'kk'; did you mean 'k'",
    ("trial.suggest_float('k', -8, -1)", ""): "k=-",
    ("trial.suggest_categorical('rescale', ['both', 'none'])", ""): "rescale=",
    ("trial.suggest_int('batch_size', 1, 1)", ""): "batch_size=1",
    ("trial.no_such_call('k')", ""): "the search space raises AttributeError",
}


def rows(main: str, given: list[str], options: dict[str, tuple]) -> Iterator[Any]:
    """A case for each option and value: (command, its arguments, what the sentence names)."""
    for option, values in options.items():
        for entry in values:
            value, named = entry if isinstance(entry, tuple) else (entry, "")
            kept = [word for pair in zip(given[1::2], given[2::2], strict=True) if pair[0] != option for word in pair]
            shown = f"{main} {option} {value[:40]}"
            yield pytest.param(main, [*given[:1], *kept, option, value], named_by(option, value, named), id=shown)


def named_by(option: str, value: str, named: str) -> tuple[str, ...]:
    """What a sentence about this option says: its own name, or the key of the study or the config that it sets."""
    keys = {
        "--trials": "trials", "--profile": "profile",
        "--tracking-uri": "tracking", "--suite": "suite", "--ledger": "ledger", "--cache": "file",
    }  # fmt: skip
    if named or not value.strip():
        return (named or option,)
    if option in ("--set", "--resources"):
        key = value.partition("=")[0]
        return (key.partition(".")[0] or key or option,)
    if option in ("--storage", "--folder", "--cache"):
        return (value.removeprefix("./")[:200].partition("/")[0] or value,)
    return (value[:200] if value == LONG else keys.get(option, option),)


MAINS: dict[str, Callable[[list[str]], int]] = {
    "run": run.main,
    "submit": submit.main,
    "evaluate": evaluate.main,
    "report": report.main,
} | {recipe: partial(cli.main, recipe) for recipe in RECIPES}

SUBMITTED = [NAME, "--address", "http://127.0.0.1:1", "--storage", "/shared/k"]
EVALUATED = [NAME, "--suite", "collections", "--trials", "1", "--storage", "finished"]

OPTIONS = [
    *rows("run", [NAME], RUN),
    *rows("submit", SUBMITTED, SUBMIT),
    *rows("evaluate", EVALUATED, EVALUATE),
    *rows("report", [NAME], REPORT),
    *(case for recipe in RECIPES for case in rows(recipe, [], TRAIN)),
]


@pytest.mark.parametrize(("main", "arguments", "names"), OPTIONS)
def test_options(folder, refuses, main, arguments, names) -> None:
    if main == "evaluate":
        synthetic.write_study(folder / "finished", synthetic.K_STUDY)
        (folder / "collections").mkdir()
        (folder / "collections" / "corpus.jsonl").write_text('{"_id": "d", "text": "a"}\n')
    refuses(MAINS[main], arguments, *names)


WITHOUT_START = ("--ledger", "--set", "--resources", "--profile", "--checkpoints", "--trials", "--seed")
PLANNED = [
    case
    for option in WITHOUT_START
    for case in rows("run", [NAME], {option: RUN[option]})
    if "fsspec" not in case.values[1][-1]
]  # fmt: skip


@pytest.mark.parametrize(("main", "arguments", "names"), PLANNED)
def test_a_plan_is_refused_as_the_study_would_be(refuses, main, arguments, names) -> None:
    refuses(MAINS[main], [*arguments, "--dry-run"], *names)


COMBINED = [
    ("run", [], "which study"),
    ("run", [NAME, "second"], "second"),
    ("run", [NAME, "--trials"], "--trials"),
    ("run", [NAME, "--json=yes"], "--json"),
    ("run", [NAME, "--fresh", "--retry-failed"], "--retry-failed with --fresh"),
    ("run", [NAME, "--resources", "workers=2", "--resources", "gpus_per_worker=0.5"], "whole GPUs"),
    ("run", [NAME, "--set", "batch_size=33", "--workers-per-trial", "2"], "batch_size=33"),
    ("run", ["angle_split_search", "--set", "dims=[8,15]"], "15 is odd"),
    ("run", ["angle_split_search", "--set", "dims=[32,16]"], "[16, 32]"),
    ("run", ["angle_split_search", "--set", "dims=[]"], "dims=[]"),
    ("run", ["angle_split_search", "--set", "dims=8"], "dims=8"),
    ("run", ["retromae_mask_search", "--set", "pretraining.text.streaming=true"], "streaming"),
    ("submit", [], "which study"),
    ("submit", [NAME], "--storage is missing"),
    ("submit", [NAME, "--storage", "/shared/k"], "--address is missing"),
    ("submit", ["--follow"], "which study"),
    ("submit", ["--status", "x"], "--address is missing"),
    ("submit", [*SUBMITTED, "--pip", "file", "--uv", "file"], "--uv"),
    ("submit", ["--logs", "x", "--stop", "y"], "--stop"),
    ("submit", SUBMITTED, "no server answers there (Connection refused)"),
    ("evaluate", [], "NAME, --suite, --trials"),
    ("evaluate", [NAME, "--suite", "nanobeir"], "--trials"),
    ("evaluate", [NAME, "--suite", "nanobeir", "--trials", "best"], "no study was run in this folder"),
    ("report", [], "NAME"),
    ("report", [NAME], "no study was run in this folder"),
    *((recipe, ["second"], "second") for recipe in RECIPES),
]  # fmt: skip


@pytest.mark.parametrize(
    ("main", "arguments", "named"), COMBINED, ids=[f"{main} {' '.join(words)}" for main, words, _ in COMBINED]
)
def test_combinations(refuses, main, arguments, named) -> None:
    refuses(MAINS[main], arguments, named)


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name[:30])
@pytest.mark.parametrize("main", ["run", "submit", "evaluate"])
def test_names(refuses, main, name) -> None:
    given = {"run": [], "submit": SUBMITTED[1:], "evaluate": EVALUATED[1:]}[main]
    (Path("collections")).mkdir()
    (Path("collections") / "corpus.jsonl").write_text('{"_id": "d", "text": "a"}\n')
    refuses(MAINS[main], [name, *given], name.removeprefix("./")[:200] or "NAME")


@pytest.mark.parametrize(("content", "named"), FILES.values(), ids=FILES)
@pytest.mark.parametrize("more", [[], ["--dry-run"]], ids=["run", "plan"])
def test_study_files(refuses, content, named, more) -> None:
    Path("mine.py").write_bytes(content if isinstance(content, bytes) else content.encode())
    refuses(run.main, ["mine.py", *more], "mine.py", named)


@pytest.mark.parametrize(("asked", "named"), STUDIES.items(), ids=[" ".join(asked) for asked in STUDIES])
def test_studies(refuses, asked, named) -> None:
    space, changes = asked
    Path("mine.py").write_text(STUDY.format(space=space, changes=changes))
    refuses(run.main, ["mine.py"], named)


def settings(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str]]:
    """(key, value that its type excludes) for every setting of a config."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        kinds = get_args(kind) or (kind,)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from settings(kind, f"{prefix}{name}.")
        elif prefix + name != "cache":
            yield prefix + name, '{"no": "object"}'
            if str not in kinds:
                yield prefix + name, "some text"
            if bool not in kinds:
                yield prefix + name, "true"
            if int in kinds:
                yield prefix + name, "0.5"
            if float in kinds and name not in ("lowest", "highest"):
                yield prefix + name, "NaN"


SETTINGS = [
    pytest.param(recipe, key, value, id=f"{recipe} {key}={value}")
    for recipe in RECIPES
    for key, value in settings(trainers.module(recipe, "config").Config)
]


@pytest.mark.parametrize(("recipe", "key", "value"), SETTINGS)
def test_every_setting_refuses_other_types(refuses, recipe, key, value) -> None:
    refuses(MAINS[recipe], ["--set", f"{key}={value}"], key.rpartition(".")[2])
    assert not os.path.exists("runs")
