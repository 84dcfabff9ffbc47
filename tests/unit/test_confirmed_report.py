"""What a confirmed study says: the search names one trial, fresh seeds another, and the answer is theirs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from synthetic_study import K_STUDY, spread, write_study

from study.protocol.folder import StudyFolder
from study.protocol.summary import (
    ConfirmationSummary,
    ConfirmedGroup,
    ReplicateSummary,
    StudySummary,
    TrialSummary,
    read,
)
from study.reporting import frames, page
from study.reporting.conclusions import answer
from study.reporting.results import Findings
from study.reporting.screen import final_text

SEEDS = (1, 2, 3)
FRESH = {2: 0.44, 3: 0.40, 4: 0.41}
"""Trial of the search -> its value with fresh seeds: the search's best, trial 3 at k = 2, is the worst of them."""


def write_confirmed(storage: Path, winner: int | None = 2) -> StudySummary:
    summary = write_study(storage, K_STUDY)
    runs = []
    for place, (number, value) in enumerate(FRESH.items()):
        trial, replicates = summary.trials[number], []
        run = len(summary.trials) + place
        for replicate, seed in enumerate(SEEDS):
            own = value + 0.002 * (replicate - 1)
            values = {"ndcg_at_10": own + 0.01, "test.ndcg_at_10": own, "flops": 1.0 + number}
            folder = storage / "trials" / f"{run:04d}" / f"replicate-{replicate}"
            folder.mkdir(parents=True)
            items = {"test": {"ndcg_at_10": spread(own, 99, 0.1)}}
            (folder / "result.json").write_text(json.dumps({"values": values, "per_item": items}))
            replicates.append(ReplicateSummary(seed=seed, values=values))
        runs.append(
            TrialSummary(
                number=run, state="complete", params=trial.params, values=replicates[1].values, confirms=number,
                replicates=tuple(replicates), steps=600, planned_steps=600,
            )
        )  # fmt: skip
    group = ConfirmedGroup(finalists=tuple(FRESH), missing=1, winner=winner)
    plan = ConfirmationSummary(finalists=4, seeds=SEEDS, groups=(group,), runs=tuple(runs))
    found = summary.model_copy(update={"confirmation": plan})
    (storage / "summary.json").write_text(found.text())
    return read(storage / "summary.json")


def test_the_answer_is_that_of_the_fresh_seeds(tmp_path) -> None:
    write_confirmed(tmp_path)
    findings = Findings(StudyFolder(tmp_path))
    assert findings.best is not None
    assert findings.best.number == 3
    text = answer(findings)
    assert text.startswith("Confirmed with 3 fresh seeds: k = 1, test nDCG@10 0.440 (95% CI ")
    assert "over 3 seeds × 200 queries" in text
    assert "The search alone had named k = 2, by a validation nDCG@10 of 0.441 that was the largest of many." in text
    assert findings.confirmed is not None
    rows = {one.trial.number: one for one in findings.confirmed.finalists}
    assert list(rows) == [2, 4, 3]
    assert rows[2].difference is None
    gap = rows[3].difference
    assert gap is not None
    assert gap.gap.value == pytest.approx(0.04)
    assert (gap.gap.seeds, gap.gap.items, gap.distinct) == (3, 200, True)
    assert findings.confirmed.caveats == ["3 finalist(s) instead of 4: no more trials are complete."]
    # Matched cost is of final models: those of finalists with fresh seeds.
    assert findings.paid(rows[3].trial) == [(4.0, pytest.approx(0.41), 200)]


def test_page_screen_and_tables_have_it(tmp_path) -> None:
    summary = write_confirmed(tmp_path)
    storage = StudyFolder(tmp_path)
    page.write(storage)
    for text in (storage.report.read_text(), storage.report_text.read_text()):
        assert "Confirmed with fresh seeds" in text
        assert "place in the search" in text
    told = final_text(summary, storage)
    assert "Confirmation: 3 with 3 fresh seeds: 3 complete" in told
    assert "place in the search" in told
    frame = frames.confirmation(summary)
    assert frame["confirms"].tolist() == [2, 2, 2, 3, 3, 3, 4, 4, 4]
    assert frame["seed"].tolist() == [1, 2, 3] * 3
    assert frame["winner"].tolist() == [True] * 3 + [False] * 6
    assert list(frame.columns)[:8] == [
        "confirms", "trial", "replicate", "seed", "group", "control", "winner", "params.k"
    ]  # fmt: skip


def test_what_is_not_confirmed_yet_is_told_beside_the_search(tmp_path) -> None:
    write_confirmed(tmp_path, winner=None)
    text = answer(Findings(StudyFolder(tmp_path)))
    assert text.startswith("Best k = 2")
    assert text.endswith("Being confirmed with 3 fresh seeds: 3 of 3 trials are complete.")
