"""The paths of a study, and inputs that are not where or what they were when it is carried on. No Ray, no torch."""

from __future__ import annotations

import json
import pickle
import re
from dataclasses import replace
from pathlib import Path

import cloudpickle
import pytest

from study import request, run
from study.ledger import inputs, moved, optuna_study
from study.ledger.ledger import Ledger
from study.ledger.space import explore
from study.protocol.messages import Outcome
from study.protocol.states import ReplicateState
from study.spec import Budget, Group, Objective, Study
from tests.ledgers import ledger_url, open_ledger
from trainables import cli, paths
from trainables.data.config import EvaluationData, TrainData
from trainables.splade.config import Config


def space(trial) -> None:
    # What is suggested is what is written here, wherever the folder is.
    if trial.suggest_categorical("backbone", ["models/a", "models/b", "org/name"]) == "models/b":
        trial.suggest_float("k", 1, 8)
    trial.suggest_categorical("rescale", ("tied", "untied"))


def study(**changes) -> Study:
    return Study(
        **{
            "question": "?",
            "trainer": "splade",
            "parameter": "k",
            "config": Config(
                backbone="models/a",
                train=TrainData(source="pairs.jsonl"),
                evaluation=EvaluationData(source="beir"),
            ),
            "space": space,
            "controls": ({"train.source": "datasets:json:other.jsonl"},),
            "points": (
                {"backbone": "models/b", "k": 2, "rescale": "tied"},
                {"backbone": "org/name", "rescale": "tied"},
            ),
            "objectives": (Objective(name="ndcg_at_10"),),
            "budget": Budget(trials=6),
            "sampler": "random",
        }
        | changes
    )


def fill(folder: Path) -> Path:
    for name in ("beir/qrels", "models/a", "models/b"):
        (folder / name).mkdir(parents=True)
    for name in ("beir/corpus.jsonl", "beir/queries.jsonl", "beir/qrels/test.tsv", "other.jsonl", "pairs.jsonl"):
        (folder / name).write_text(f"{name}\n")
    for name in "ab":
        (folder / "models" / name / "config.json").write_text(json.dumps({"name": name}))
    return folder


def test_all_paths_are_relative_to_where_the_command_was_typed(tmp_path) -> None:
    fill(tmp_path)
    found = inputs.located(study(), tmp_path)
    assert found.config.backbone == str(tmp_path / "models/a")
    assert (found.config.train.source, found.config.evaluation.source) == (
        f"{tmp_path}/pairs.jsonl",
        f"{tmp_path}/beir",
    )
    assert found.controls == ({"train.source": f"datasets:json:{tmp_path}/other.jsonl"},)
    assert [point["backbone"] for point in found.points] == [f"{tmp_path}/models/b", "org/name"]
    explored = explore(found)
    assert explored["backbone"].choices == (f"{tmp_path}/models/a", f"{tmp_path}/models/b", "org/name")
    # Asked for by what the space's own function was told.
    assert "k" in explored
    assert explored["rescale"].choices == ("tied", "untied")
    inputs.check(found, explored)


def of_groups(*values: str) -> Study:
    return study(
        group=Group(key="backbone", values=values), points=(), space=lambda trial: trial.suggest_float("k", 1, 8)
    )


def test_values_of_groups_are_paths_like_others(tmp_path) -> None:
    """They are made absolute, looked for, digested, and may have moved when the study is carried on."""
    fill(tmp_path / "then")
    begun = inputs.located(of_groups("models/a", "models/b", "org/name"), tmp_path / "then")
    assert begun.group.values == (f"{tmp_path}/then/models/a", f"{tmp_path}/then/models/b", "org/name")
    assert begun.group.names == ("a", "b", "name")
    inputs.check(begun, explore(begun))
    assert f"{tmp_path}/then/models/b" in inputs.contents(begun, explore(begun))
    missing = inputs.located(of_groups("models/a", f"{tmp_path}/then/models/c"), tmp_path / "then")
    with pytest.raises(ValueError, match=r"backbone '.*/models/c': nothing there"):
        inputs.check(missing, explore(missing))
    (tmp_path / "then").rename(tmp_path / "now")
    now = inputs.located(of_groups("models/a", "models/b", "org/name"), tmp_path / "now")
    places = paths.places(now.config)
    moves = moved.since(optuna_study.definition(begun), optuna_study.definition(now), places)
    assert moves["backbone"] == {f"{tmp_path}/then/models/{name}": f"{tmp_path}/now/models/{name}" for name in "ab"}
    assert moved.as_begun(now, moved.Begun(moves)).group == begun.group


def test_relative_and_absolute_are_one_study(tmp_path) -> None:
    fill(tmp_path)
    absolute = inputs.located(study(), tmp_path)
    assert optuna_study.definition(absolute) == optuna_study.definition(inputs.located(absolute, Path("/elsewhere")))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"config": Config(train=TrainData(source="pair.jsonl"))}, "train.source '.*/pair.jsonl': nothing there; near"),
        ({"controls": ({"train.source": "beir"},)}, "train.source .*/beir is a folder"),
        ({"points": ({"backbone": "models/c", "rescale": "tied"},)}, "backbone 'models/c': there is a folder 'models'"),
        ({"controls": ({"evaluation.qrels_split": "dev", "evaluation.source": "beir"},)}, "has no qrels/dev.tsv"),
        (
            {"points": (), "space": lambda trial: trial.suggest_categorical("backbone", ("models/a", "./models/x"))},
            "backbone '.*/models/x': nothing there",
        ),
        (
            {"points": (), "space": lambda trial: trial.suggest_categorical("backbone", ("models/a", "models/x"))},
            "backbone 'models/x': there is a folder 'models' here",
        ),
    ],
)
def test_what_is_missing_or_mistyped_is_refused_wherever_it_is_named(tmp_path, changes, message) -> None:
    fill(tmp_path)

    def look() -> None:
        found = inputs.located(study(**changes), tmp_path)
        inputs.check(found, explore(found))

    with pytest.raises(ValueError, match=message):
        look()


def test_another_machine_must_be_given_absolute_paths(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(fill(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    config = Config(backbone="/shared/a", train=TrainData(source="/shared/pairs.jsonl"))

    def refusal(asked: Study, settings: dict[str, str] | None = None) -> str:
        with pytest.raises(ValueError, match="a path on this machine; give an absolute one that all nodes see") as told:
            inputs.check_elsewhere(asked, explore(asked), settings or {})
        return str(told.value)

    def choosing(*backbones: str) -> Study:
        return study(
            config=config, controls=(), points=(), space=lambda trial: trial.suggest_categorical("backbone", backbones)
        )

    assert refusal(study(controls=(), points=())).startswith("the study file: backbone=models/a: ")
    assert refusal(study(controls=(), points=()), {"backbone": "models/a"}).startswith("--set backbone=models/a: ")
    assert "train.source=datasets:json:other.jsonl" in refusal(
        study(config=config, points=(), space=choosing("x").space)
    )
    assert "backbone=models/b" in refusal(choosing("/shared/b", "models/b"))
    assert "backbone=~/models/b" in refusal(choosing("~/models/b"))
    # What is not here may be there; names and absolute paths mean the same everywhere.
    fine = choosing("/shared/b", "google-bert/bert-base-uncased", "embedded")
    inputs.check_elsewhere(fine, explore(fine), {})


def test_two_that_became_one_did_not_move() -> None:
    places = paths.places(Config)
    before = {"config.backbone": "/a", "points": [{"backbone": "/b"}]}
    assert moved.since(before, {"config.backbone": "/c", "points": [{"backbone": "/d"}]}, places) == {
        "backbone": {"/a": "/c", "/b": "/d"}
    }
    assert moved.since(before, {"config.backbone": "/c", "points": [{"backbone": "/c"}]}, places) == {}
    assert moved.since(before, {"config.backbone": "/c"}, places) == {"backbone": {"/a": "/c"}}


FACTS = {"data.train": "pairs.jsonl", "data.train.identity": "1", "data.test.identity": "2"}


class Launch:
    """What a launch in `folder` does about its inputs, up to the first trial."""

    def __init__(self, folder: Path, storage: Path, asked: Study | None = None, facts: dict[str, str] = FACTS) -> None:
        self.url = ledger_url(storage)
        self.study = inputs.located(asked or study(), folder)
        self.space = explore(self.study)
        inputs.check(self.study, self.space)
        self.before = optuna_study.begun(self.url, "s", self.study)
        self.known = moved.as_begun(self.study, self.before)
        optuna_study.existing_study(self.url, "s", self.known)
        contents = inputs.contents(self.study, self.space)
        self.before.check("s", self.study, self.space, facts, contents)
        # The actor gets its arguments by pickle.
        known = pickle.loads(cloudpickle.dumps(self.known))
        self.ledger = open_ledger("s", known, storage, url=self.url, moves=self.before.moves)
        self.ledger.prepared(facts, {}, contents)

    def trial(self, error: str | None = None) -> tuple[dict, dict]:
        """(parameters on record, config of the gang) of the next trial, which ends at once."""
        number = self.ledger.ask()
        begun = self.ledger.begin(number)
        outcome = Outcome(ReplicateState.COMPLETE, None, 3, {"ndcg_at_10": 0.5}, seconds=1.0, seconds_per_step=0.1)
        if error is None:
            self.ledger.replicate_ended(number, begun.attempt, 0, outcome)
        self.ledger.finish(number, begun.attempt, None if error else outcome, error)
        return self.ledger._rows[number].params, begun.config

    def end(self) -> None:
        self.ledger.conclude()
        self.ledger.close([], 1.0)


def test_a_study_whose_inputs_moved_is_carried_on_under_its_old_names(tmp_path) -> None:
    here, storage = fill(tmp_path / "here"), tmp_path / "storage"
    storage.mkdir()
    first = Launch(here, storage)
    ran = [first.trial() for _ in range(2)]
    first.end()
    there = tmp_path / "mount" / "data"
    there.parent.mkdir()
    here.rename(there)
    again = Launch(there, storage)
    assert set(again.before.moves) == {"backbone", "train.source", "evaluation.source"}
    assert optuna_study.definition(again.known) == optuna_study.definition(first.study)
    ran += [again.trial() for _ in range(4)]
    for number, (params, config) in enumerate(ran):
        folder = here if number < 2 else there
        source = f"datasets:json:{folder}/other.jsonl" if number == 0 else f"{folder}/pairs.jsonl"
        assert config["train"]["source"] == source
        assert config["evaluation"]["source"] == f"{folder}/beir"
        named = params.get("backbone", str(here / "models/a"))
        assert named in (f"{here}/models/a", f"{here}/models/b", "org/name")
        assert config["backbone"] == named.replace(str(here), str(folder))
    assert {params["backbone"] for params, _ in ran[1:]} > {f"{here}/models/b"}
    again.end()
    params = {
        entry["params"].get("backbone")
        for entry in map(json.loads, (storage / "journal.jsonl").read_text().splitlines())
        if entry["op"] == "trial"
    }
    # MLflow refuses a parameter that changes.
    assert all(name == "org/name" or name.startswith(str(here)) for name in params)


def test_a_link_to_the_same_place_needs_no_record(tmp_path) -> None:
    """As in a ledger from before contents were recorded."""
    here, storage = fill(tmp_path / "here"), tmp_path / "storage"
    storage.mkdir()
    first = Launch(here, storage)
    first.ledger._optuna.set_user_attr("contents", None)
    first.trial()
    first.end()
    (tmp_path / "link").symlink_to(here)
    again = Launch(tmp_path / "link", storage)
    assert again.trial()[1]["backbone"].startswith(f"{tmp_path}/link/models/")
    again.end()


def changed(tmp_path: Path, spoil, facts: dict[str, str] = FACTS, stay: bool = False, old: bool = False) -> str:
    """The refusal of a launch after `spoil` changed the inputs, which moved unless they `stay`."""
    here, storage = fill(tmp_path / "here"), tmp_path / "storage"
    storage.mkdir()
    first = Launch(here, storage)
    if old:
        first.ledger._optuna.set_user_attr("contents", None)
    first.trial()
    first.end()
    there = here if stay else here.rename(tmp_path / "there")
    spoil(there)
    with pytest.raises(ValueError, match=r"the study s was begun with other inputs: .*, or begin anew") as told:
        Launch(there, storage, facts=facts).end()
    return str(told.value)


def weights(folder: Path) -> None:
    (folder / "models" / "b" / "config.json").write_text("{}")


def pairs(folder: Path) -> None:
    (folder / "pairs.jsonl").write_text("other\n")


def nothing(folder: Path) -> None:
    """All as it was."""


OTHER = FACTS | {"data.train.identity": "3"}


def test_other_content_is_refused(tmp_path) -> None:
    for number, (found, message) in enumerate(
        (
            (lambda f: changed(f, weights), "backbone was {}/here/models/b, now {}/there/models/b, which is not known"),
            (lambda f: changed(f, weights, stay=True), "backbone {}/here/models/b has another content than it had"),
            (
                lambda f: changed(f, pairs, OTHER),
                "train.source was {}/here/pairs.jsonl, now {}/there/pairs.jsonl, which",
            ),
            (lambda f: changed(f, pairs, OTHER, stay=True), "train.source {}/here/pairs.jsonl has another content"),
            (lambda f: changed(f, nothing, OTHER, stay=True), "data.train was pairs.jsonl (1), now pairs.jsonl (3)"),
            # A ledger from before contents were recorded knows the identity of its data, and not of its models.
            (lambda f: changed(f, pairs, OTHER, old=True), "train.source was {}/here/pairs.jsonl, now"),
            (lambda f: changed(f, nothing, old=True), "backbone was {}/here/models/a, now"),
        )
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert message.format(*[folder] * 2) in found(folder), number


def test_the_same_data_in_another_file_are_no_difference(tmp_path) -> None:
    """Such as a compressed one: what is read from it is the same."""
    here, storage = fill(tmp_path / "here"), tmp_path / "storage"
    storage.mkdir()
    first = Launch(here, storage)
    first.trial()
    first.end()
    (here / "pairs.jsonl").rename(here / "pairs.jsonl.gz")
    (here / "pairs.jsonl.gz").write_bytes(b"packed")
    asked = study(config=study().config.model_copy(update={"train": TrainData(source="pairs.jsonl.gz")}))
    again = Launch(here, storage, asked)
    assert again.trial()[1]["train"]["source"] == f"{here}/pairs.jsonl.gz"
    again.end()


def test_a_name_instead_of_a_path_is_a_difference(tmp_path) -> None:
    here, storage = fill(tmp_path / "here"), tmp_path / "storage"
    storage.mkdir()
    Launch(here, storage).end()
    asked = study(config=study().config.model_copy(update={"backbone": "org/name"}))
    with pytest.raises(
        optuna_study.Different, match=re.escape(f"config.backbone was '{here}/models/a', now 'org/name'")
    ):
        Launch(here, storage, asked)


def test_a_study_that_learnt_nothing_may_be_begun_again(tmp_path) -> None:
    here, storage = fill(tmp_path / "here"), tmp_path / "storage"
    storage.mkdir()
    first = Launch(here, storage)
    assert optuna_study.fruitless(first.url, "s") == 0
    for _ in range(2):
        first.trial(error="ValueError: source '/nowhere.jsonl': nothing there")
    first.end()
    assert optuna_study.fruitless(first.url, "s") == 2
    asked = study(config=study().config.model_copy(update={"train": TrainData(source="other.jsonl")}))
    with pytest.raises(optuna_study.Different, match=r"config\.train\.source was"):
        Launch(here, storage, asked)
    # Corrected in its place it needs no new beginning.
    pairs(here)
    again = Launch(here, storage, facts=OTHER)
    again.trial(error="RuntimeError: at once")
    again.end()
    optuna_study.forget(first.url, "s")
    assert optuna_study.fruitless(first.url, "s") == 0
    assert not optuna_study.holds(first.url, "s")


def test_a_study_that_made_a_step_is_not_begun_again(tmp_path) -> None:
    here, storage = fill(tmp_path / "here"), tmp_path / "storage"
    storage.mkdir()
    first = Launch(here, storage)
    number = first.ledger.ask()
    attempt = first.ledger.begin(number).attempt
    first.ledger.report(number, attempt, 0, [{"step": 1, "time": 1, "metrics": {"train.loss": 1.0}}])
    first.ledger.finish(number, attempt, None, "RuntimeError: later")
    first.end()
    assert optuna_study.fruitless(first.url, "s") == 0
    optuna_study.forget(first.url, "s")
    assert optuna_study.holds(first.url, "s")


# --- on the command line -----------------------------------------------------------------------------


def planned(capsys, *arguments: str) -> tuple[int, str]:
    """(exit code, what is said) of a dry run."""
    code = run.main([*arguments, "--dry-run"])
    said = capsys.readouterr()
    return code, said.out + said.err


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(fill(tmp_path))
    return tmp_path


FILE = """
from study.spec import Budget, Group, Objective, Study
from trainables.data.config import TrainData
from trainables.splade.config import Config

def space(trial):
    trial.suggest_categorical("backbone", ["models/a", "{choice}"])

STUDY = {{"mine": Study(question="?", trainer="splade", parameter="k", space=space,
    config=Config(train=TrainData(source="{source}")), points=({{"backbone": "models/a"}},),
    objectives=(Objective(name="ndcg_at_10"),), budget=Budget(trials=2))}}
"""


def test_a_dry_run_shows_absolute_paths_wherever_they_come_from(here, capsys) -> None:
    (here / "studies").mkdir()
    (here / "studies" / "mine.py").write_text(FILE.format(choice="./models/b", source="pairs.jsonl"))
    code, said = planned(capsys, "studies/mine.py", "--set", "evaluation.source=beir", "--storage", "out/mine")
    assert code == 0, said
    for line in (
        f"space       backbone in {{{here}/models/a, {here}/models/b}}",
        f"first       1 given points: backbone={here}/models/a",
        f"storage     {here}/out/mine",
        f"  train.source = {here}/pairs.jsonl",
        f"  evaluation.source = {here}/beir",
    ):
        assert line in said.splitlines()


DRY = [
    (["backbone=models/aa"], "backbone 'models/aa': there is a folder 'models' here, .*nearest: models/a\\."),
    (["backbone=./models/aa"], "backbone '.*/models/aa': nothing there; nearest: .*/models/a; accepted are"),
    (["backbone=models"], "backbone .*/models is a folder without config.json"),
    (["backbone=pairs.jsonl"], "backbone .*/pairs.jsonl is no folder"),
    (["train.source=pair.jsonl"], "train.source '.*/pair.jsonl': nothing there; nearest: .*/pairs.jsonl; accepted are"),
    (["train.source=datasets:json:pair.jsonl"], "train.source 'datasets:json:.*/pair.jsonl': nothing there"),
    (["train.source=beir"], "train.source .*/beir is a folder; expected is a file"),
    (["evaluation.source=pairs.jsonl"], "evaluation.source .*/pairs.jsonl: expected a folder that holds corpus.jsonl"),
    (["evaluation.source=beir", "evaluation.qrels_split=dev"], "evaluation.source .*/beir has no qrels/dev.tsv"),
    (["evaluation.test_source=bier"], "evaluation.test_source '.*/bier': nothing there; nearest: .*/beir"),
]


@pytest.mark.parametrize(("settings", "message"), DRY, ids=[" ".join(case[0]) for case in DRY])
def test_a_dry_run_looks_whether_the_inputs_are_there(here, capsys, settings, message) -> None:
    code, said = planned(capsys, "splade_k_search", *(w for setting in settings for w in ("--set", setting)))
    assert code == 2
    assert re.fullmatch(f"error: {message}.*\n", said), said


@pytest.mark.parametrize(("choice", "source"), [("models/bb", "pairs.jsonl"), ("models/b", "pair.jsonl")])
def test_a_dry_run_looks_whether_the_inputs_of_a_study_file_are_there(here, capsys, choice, source) -> None:
    (here / "mine.py").write_text(FILE.format(choice=choice, source=source))
    code, said = planned(capsys, "mine.py")
    assert (code, "nearest" in said, said.count("error:")) == (2, True, 1), said


def test_a_dry_run_says_what_moved_and_what_is_begun_again(here, capsys) -> None:
    storage = here / "studies" / "splade_k_search"
    storage.mkdir(parents=True)
    wanted = ("--set", f"train.source={here}/pairs.jsonl")

    def begun() -> Ledger:
        asked = request.requested(run.parser().parse_args(["splade_k_search", *wanted]))
        return open_ledger("splade_k_search", asked.study, storage, asked.profile)

    ledger = begun()
    number = ledger.ask()
    ledger.begin(number)
    (here / "new.jsonl").write_text("pairs")
    code, said = planned(capsys, "splade_k_search", "--set", "train.source=new.jsonl")
    assert code == 0, said
    assert f"moved       train.source: {here}/pairs.jsonl -> {here}/new.jsonl, if the content is the same" in said
    ledger.finish(number, 1, None, "ValueError: nothing there")
    ledger.conclude()
    ledger.close([], 1.0)
    code, said = planned(capsys, "splade_k_search", "--set", "train.source=new.jsonl", "--set", "train.positive=answer")
    assert code == 0, said
    assert "nothing yet; to do: 9 new" in said
    assert "begun again (1 trial(s) failed before their first step" in said


@pytest.mark.parametrize("beside", [True, False], ids=["ledger in the folder", "ledger elsewhere"])
def test_a_fruitless_study_is_set_aside_and_begun_again_without_fresh(here, capsys, monkeypatch, beside) -> None:
    begun = []

    class Session:
        """Takes the place of a launch, which would start Ray."""

        def __init__(self, name, profile, study, destinations, options, before) -> None:
            self.arguments = (name, profile, study, replace(destinations, tracking=None))
            begun.append((study.config.train.source, before))

        def run(self) -> int:
            ledger = Ledger(*self.arguments)
            number = ledger.ask()
            assert number == 0
            ledger.begin(number)
            ledger.finish(number, 1, None, "ValueError: nothing there")
            ledger.conclude()
            ledger.close([], 1.0)
            return 1

    monkeypatch.setattr(run, "Session", Session)
    command = ["splade_k_search", *([] if beside else ["--ledger", "sqlite:///kept.db"])]
    assert run.main([*command, "--set", "train.source=pairs.jsonl"]) == 1
    assert run.main([*command, "--set", "train.source=other.jsonl"]) == 1
    assert "splade_k_search: begun again; all of its 1 trial(s) failed before" in capsys.readouterr().err
    assert [source for source, _ in begun] == [f"{here}/pairs.jsonl", f"{here}/other.jsonl"]
    assert begun[1][1] == moved.Begun()
    kept = [path for path in (here / "studies").iterdir() if path.name.startswith("splade_k_search.2")]
    assert [json.loads((path / "summary.json").read_text())["trials"][0]["state"] for path in kept] == ["failed"]


def test_a_relative_ledger_is_where_the_command_was_typed(here, capsys, monkeypatch) -> None:
    """The ledger's process may have another working folder."""
    urls = []
    monkeypatch.setattr(optuna_study, "begun", lambda url, name, study: urls.append(url) or moved.Begun())
    assert planned(capsys, "splade_k_search", "--ledger", "sqlite:///kept.db")[0] == 0
    assert urls == [f"sqlite:///{here}/kept.db"]


def test_one_configuration_without_a_study_looks_too(here, capsys) -> None:
    assert cli.main("splade", ["--set", "train.source=pair.jsonl"]) == 2
    assert f"error: train.source '{here}/pair.jsonl': nothing there; nearest" in capsys.readouterr().err
