"""A study of four backbones whose right answers are known: each is named, and none is hidden behind another."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest

from study import compare, notebook
from study import list as study_list
from study.protocol.folder import StudyFolder
from study.protocol.summary import StudySummary, read
from study.reporting.conclusions import caveats
from study.reporting.formatting import best_trial, best_trials
from study.reporting.groups import grouped, headline, overview
from study.reporting.page import write
from study.reporting.screen import final_text
from study.selection import finished_trials
from tests.unit import synthetic_groups as known
from tests.unit import synthetic_study


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> StudyFolder:
    storage = tmp_path_factory.mktemp("groups")
    known.write_groups(storage)
    return StudyFolder(storage)


@pytest.fixture(scope="module")
def summary(folder: StudyFolder) -> StudySummary:
    return read(folder.summary)


def test_the_summary_comes_back_as_it_was_written(folder: StudyFolder, summary: StudySummary) -> None:
    assert StudySummary.model_validate_json(summary.text()) == summary


def test_each_group_is_answered_with_its_own_best(folder: StudyFolder, summary: StudySummary) -> None:
    groups = grouped(folder, summary)
    assert {g.name: g.findings.best and g.findings.best.params["k"] for g in groups} == known.BEST
    assert headline(known.KEY, groups) == (
        "Best k for each backbone: mild 2 (worse than k = 1); medium 4; steep 16 (at k = 1 collapsed); "
        "broken none (5 collapsed)."
    )
    for group in groups:
        own = [trial.number for trial in summary.trials if trial.group == group.name]
        assert [trial.number for trial in group.findings.trials] == own
        assert {c.number for c in group.findings.comparisons} <= set(own)


def test_the_table_has_a_row_for_each_group(folder: StudyFolder, summary: StudySummary) -> None:
    table = overview(known.KEY, grouped(folder, summary))
    assert table.heads == (
        "backbone", "best k", "test nDCG@10 (95% CI)", "at k = 1 (95% CI)", "difference",
        "row norm of the backbone's head", "trials",
    )  # fmt: skip
    mild, medium, steep, broken = table.rows
    assert mild[:2] == ("mild", "2")
    assert mild[2].startswith("0.380 (0.")
    assert mild[3].startswith("0.450 (0.")
    assert mild[4] == "−0.070 (p < 0.001)"
    assert medium[1] == "4"
    assert medium[4] == "+0.110 (p < 0.001)"
    assert (steep[1], steep[3], steep[4]) == ("16", "collapsed", "–")
    assert broken[:5] == ("broken", "none", "–", "collapsed", "–")
    assert [row[5] for row in table.rows] == ["0.900", "1.800", "15.0", "900.0"]
    assert broken[6] == "5 trials: 5 collapsed"
    lines = table.text().splitlines()
    assert len(lines) == 5
    assert len({line.index(cell) for line, cell in zip(lines, ("best k", "2 ", "4 ", "16", "none"), strict=True)}) == 1


def test_the_screen_ends_with_the_table_and_each_group_s_model(folder: StudyFolder, summary: StudySummary) -> None:
    text = final_text(summary, folder)
    assert text.startswith("Best k for each backbone: mild 2 ")
    assert overview(known.KEY, grouped(folder, summary)).text() in text
    # Without its folder a summary still names the groups.
    assert final_text(summary).splitlines()[2].startswith("steep: Best k = 16: ")


def test_no_best_over_all_groups_is_named(summary: StudySummary, folder: StudyFolder) -> None:
    assert [trial.group for trial in best_trials(summary)] == ["mild", "medium", "steep"]
    with pytest.raises(AssertionError, match="each group has its own"):
        best_trial(summary)
    with pytest.raises(
        ValueError, match="--trial best: each backbone has its own; give a number: 4 of mild, 9 of medium, 18 of steep"
    ):
        finished_trials(summary, "--trial", "best", several=False)
    assert [t.number for t in finished_trials(summary, "--trials", "best", several=True)] == [4, 9, 18]


def test_a_notebook_has_the_groups(folder: StudyFolder) -> None:
    found = notebook.RecordedStudy(folder.path)
    assert found.answer.startswith("Best k for each backbone: mild 2 ")
    assert repr(found).endswith(
        "20 trials: 13 complete, 7 collapsed. 312 worker-seconds used, 95 saved by stopping early."
    )
    assert list(found.trials.group.unique()) == list(known.NORMS)
    with pytest.raises(ValueError, match="has a best trial for each group"):
        _ = found.best
    assert found.groups["medium"].best.params == {"k": 4.0}
    assert found.groups["medium"].answer.startswith("Best k = 4: test nDCG@10 0.410")


def test_studies_with_groups_are_compared_group_by_group(folder: StudyFolder, tmp_path: Path) -> None:
    text = compare.compared(folder, folder)
    assert [line for line in text.splitlines() if line.startswith("Answers")] == [
        f"Answers for backbone {name}" for name in known.NORMS
    ]
    assert text.count("Paired  not possible: both need a best trial") == 1
    assert text.count("Paired  ") == len(known.NORMS)
    synthetic_study.write_study(tmp_path, synthetic_study.K_STUDY)
    with pytest.raises(ValueError, match="A is a study of groups by backbone, B is one without groups"):
        compare.compared(folder, StudyFolder(tmp_path))


def test_studies_with_groups_are_listed(folder: StudyFolder, capsys) -> None:
    assert study_list.main([str(folder.path.parent)]) == 0
    assert (
        "mild, k = 2: test nDCG@10 0.380; medium, k = 4: test nDCG@10 0.410; steep, k = 16" in capsys.readouterr().out
    )


def test_a_group_s_caveat_is_about_its_search(folder: StudyFolder, summary: StudySummary) -> None:
    mild = grouped(folder, summary)[0].findings
    assert "better than each of the 3 other complete trials of the search" in caveats(mild)[0]


def test_a_study_without_groups_has_none(tmp_path: Path) -> None:
    summary = synthetic_study.write_study(tmp_path, synthetic_study.K_STUDY)
    assert grouped(StudyFolder(tmp_path), summary) == []
    assert [trial.number for trial in best_trials(summary)] == list(summary.best)


def test_the_page_answers_first_with_the_table_and_then_has_a_section_for_each(folder: StudyFolder) -> None:
    page = write(folder).read_text()
    text = folder.report_text.read_text()
    for written in (page, text):
        assert "Best k for each backbone: mild 2 (worse than k = 1); medium 4;" in written
        places = [re.search(rf"(<h2>|# )backbone: {name}", written).start() for name in known.NORMS]
        assert places == sorted(places)
        assert written.index("at k = 1 (95% CI)") < places[0]
    assert "Best k = 16 (" not in page
    of_groups = {f"group{n}" for n in range(len(known.NORMS))}
    assert {path.stem.partition("_")[0] for path in folder.figures()} == {"groups"} | of_groups
    assert "k over the row norm of the backbone&#39;s head" in page


def test_the_best_k_is_drawn_over_the_norm_of_the_head(folder: StudyFolder) -> None:
    chart = notebook.RecordedStudy(folder.path).figure("groups").to_dict()
    rows = list(csv.DictReader(io.StringIO(chart["data"]["values"])))
    assert {row["group"]: float(row["cause"]) for row in rows} == known.NORMS
    best = {row["group"]: float(row["setting"]) for row in rows if row["series"] == "best"}
    assert best == {name: k for name, k in known.BEST.items() if k is not None}
    assert {row["series"] for row in rows if row["group"] == "broken"} == {"collapsed"}
    assert len(rows) == len(known.NORMS) * (1 + len(known.GRID))
