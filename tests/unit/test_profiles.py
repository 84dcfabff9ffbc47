"""Each profile has a folder and a name of its own, and one that was begun before that is carried on where it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from study import evaluate, profiles, report, run, spec
from study.ledger import optuna_study
from study.ledger.journal import Journal
from study.protocol.journal import StudyBegun
from study.protocol.summary import ObjectiveSummary, StudySummary, WorkerSeconds
from tests.ledgers import ledger_url

STUDY = """
from study.spec import Budget, Objective, Study
from trainables.splade.config import Config

def space(trial):
    trial.suggest_float("k", 1, 8, log=True)

EMBEDDED = Study(question="?", trainer="splade", parameter="k", config=Config(), space=space,
                 objectives=(Objective(name="ndcg_at_10"),), budget=Budget(trials=2))
STUDY = {"embedded": EMBEDDED, "search": EMBEDDED.model_copy(update={"seed": 7})}
"""


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STUDY_LEDGER", raising=False)
    (tmp_path / "mine.py").write_text(STUDY)
    return tmp_path


def begun(folder: str, name: str, profile: str) -> None:
    """A ledger and a summary as a launch leaves them."""
    storage = Path(folder)
    storage.mkdir(parents=True)
    _, study = spec.load(Path("mine.py"), profile, {}, {})
    optuna_study.open_study(ledger_url(storage), name, study)
    (storage / "summary.json").write_text(summary(name, profile).text())


def summary(name: str, profile: str) -> StudySummary:
    return StudySummary(
        study=name, id=f"{name}-0123456789ab", profile=profile, question="Which k?", status="running", parameter="k",
        objectives=[ObjectiveSummary(name="ndcg_at_10", direction="maximize")], planned_trials=2, trials=(),
        worker_seconds=WorkerSeconds(), updated="2026-01-05T10:06:12+00:00",
    )  # fmt: skip


def planned(capsys, *arguments: str) -> dict[str, str]:
    """What `--dry-run` prints, by the first word of a line."""
    assert run.main(["mine.py", "--dry-run", *arguments]) == 0
    lines = (line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    return {word[0]: word[1] for word in lines if len(word) == 2}


def refused(capsys, message: str, *arguments: str) -> None:
    assert run.main(["mine.py", "--dry-run", *arguments]) == 2
    said = capsys.readouterr().err
    assert re.search(message, said), said


def test_profiles_have_folders_and_names_of_their_own(here, capsys) -> None:
    begun("studies/mine", "mine", "embedded")
    plan = planned(capsys, "--profile", "search")
    assert plan["storage"] == str(here / "studies" / "mine.search")
    assert plan["study"].startswith("mine.search, profile search")
    assert planned(capsys)["storage"] == str(here / "studies" / "mine")


def test_a_profile_that_was_begun_in_the_shared_folder_is_carried_on_there(here, capsys) -> None:
    begun("studies/mine", "mine", "search")
    plan = planned(capsys, "--profile", "search")
    assert plan["storage"] == str(here / "studies" / "mine")
    # Under the name that it has in its ledger, where the same definition is found again.
    assert plan["study"].startswith("mine, profile search")
    refused(
        capsys, r"begun differently: seed was 7, now 8\. .*--fresh.*--storage", "--profile", "search", "--seed", "8"
    )
    refused(
        capsys, "profile search of mine is kept there, not profile embedded of mine; name another folder with --sto"
    )
    fresh = planned(capsys, "--profile", "search", "--fresh")
    assert fresh["storage"] == str(here / "studies" / "mine.search")


LOST = [Path.unlink, lambda path: path.write_text("{"), lambda path: path.write_text("[]")]


@pytest.mark.parametrize("lose", LOST, ids=["lost", "damaged", "other"])
def test_a_profile_is_carried_on_where_it_is_though_its_summary_is_lost(here, capsys, lose) -> None:
    """It was begun anew in a folder of its own, without a word."""
    begun("studies/mine", "mine", "search")
    journal = Journal(Path("studies/mine/journal.jsonl"))
    journal.append(StudyBegun(tags={"study.name": "mine", "study.profile": "search"}, time=1))
    journal.close()
    lose(Path("studies/mine/summary.json"))
    assert planned(capsys, "--profile", "search")["storage"] == str(here / "studies" / "mine")
    refused(capsys, "profile search of mine is kept there, not profile embedded of mine")
    assert profiles.existing("mine", "search", None) == Path("studies/mine")
    journal.path.write_text("{\n")
    refused(capsys, "studies/mine/journal.jsonl, line 1: no entry of a study's journal", "--profile", "search")
    assert planned(capsys, "--profile", "search", "--fresh")["storage"] == str(here / "studies" / "mine.search")


def test_a_bare_name_in_a_ledger_that_is_shared_is_carried_on(here, capsys) -> None:
    _, study = spec.load(here / "mine.py", "search", {}, {})
    url = f"sqlite:///{here / 'shared.db'}"
    optuna_study.open_study(url, "mine", study).ask()
    begun("studies/old", "mine", "search")
    told = planned(capsys, "--profile", "search", "--storage", "studies/old", "--ledger", url)
    assert told["ledger"] == "1 interrupted; to do: carry on 0, then 1 new"
    assert planned(capsys, "--profile", "search", "--ledger", url)["ledger"] == "nothing yet; to do: 2 new"


def test_two_profiles_in_one_given_folder_are_refused(here, capsys) -> None:
    begun("studies/both", "mine.search", "search")
    assert planned(capsys, "--profile", "search", "--storage", "studies/both")["study"].startswith("mine.search")
    refused(capsys, "profile search of mine.search is kept there, not profile embedded", "--storage", "studies/both")


@pytest.mark.parametrize("name", ["20261130-101010", "a.b", "a/b", "", "é e"])
def test_profiles_that_could_be_taken_for_something_else_are_refused(here, capsys, name) -> None:
    Path("mine.py").write_text(STUDY.replace('"search"', repr(name)))
    refused(capsys, rf"profile '{name}': its name is part of folder names; accepted are letters")


def test_commands_that_read_find_the_profile(here) -> None:
    begun("studies/mine", "mine", "embedded")
    begun("studies/mine.search", "mine.search", "search")
    aside = Path("studies/mine.20261130-101010")
    aside.mkdir()
    (aside / "summary.json").write_text(summary("mine", "aside").text())
    found = {profile: profiles.existing("mine", profile, None) for profile in (None, "embedded", "search")}
    assert [path.name for path in found.values()] == ["mine", "mine", "mine.search"]
    assert profiles.existing("mine", None, Path("studies/mine.search")) == Path("studies/mine.search")
    with pytest.raises(
        ValueError, match=r"no results of profile aside of mine; there are .*embedded, --profile search"
    ):
        profiles.existing("mine", "aside", None)
    with pytest.raises(ValueError, match=r"--storage studies/mine has no results of profile search of mine"):
        profiles.existing("mine", "search", Path("studies/mine"))


def test_a_profile_in_the_shared_folder_is_found_too(here) -> None:
    begun("studies/mine", "mine", "search")
    assert profiles.existing("mine", "search", None) == Path("studies/mine")


def evaluated(arguments: list[str]) -> int:
    return evaluate.main([*arguments, "--suite", "nanobeir", "--trials", "0"])


@pytest.mark.parametrize(
    ("command", "code", "found"),
    [(report.main, 0, "studies/mine.search/report.html"), (evaluated, 2, "mine.search has no trial 0; no trial is")],
)
def test_report_and_evaluate_take_a_profile(here, capsys, command, code, found) -> None:
    begun("studies/mine.search", "mine.search", "search")
    assert command(["mine.py", "--profile", "small"]) == 2
    assert "no results of profile small of mine; there are results of --profile search" in capsys.readouterr().err
    assert command(["mine.py"]) == 2
    assert "no results of mine; there are results of --profile search" in capsys.readouterr().err
    # Found, and then read.
    assert command(["mine.py", "--profile", "search"]) == code
    said = capsys.readouterr()
    assert found in said.out + said.err


def test_an_evaluation_takes_other_resources_than_the_study(here, capsys, monkeypatch) -> None:
    begun("studies/mine", "mine", "embedded")
    assert evaluated(["mine.py", "--resources", "gpu_per_worker=1"]) == 2
    assert "did you mean 'resources.gpus_per_worker'" in capsys.readouterr().err
    monkeypatch.setattr(evaluate, "finished_trials", lambda *given, several: [])
    monkeypatch.setattr(evaluate, "tracking_uri", lambda given, summary: None)
    monkeypatch.setattr(evaluate, "plan", lambda *arguments: ["one"])
    monkeypatch.setattr(evaluate, "read_result", lambda planned: None)

    def measure(planned, resources, *more):
        raise ValueError(f"workers with {resources.gpus_per_worker:g} GPU")

    monkeypatch.setattr(evaluate, "_measure", measure)
    assert evaluated(["mine.py", "--resources", "gpus_per_worker=0.5"]) == 2
    assert "workers with 0.5 GPU" in capsys.readouterr().err
