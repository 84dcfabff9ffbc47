"""SPLADE's collapse rules: each fires where it should and keeps quiet where it should not."""

import math

import pytest

from trainables.collapse import judge
from trainables.splade.config import CollapseLimits, Config
from trainables.splade.rules import rules

VOCABULARY = 8000
STEPS = 100
CHANCE = math.log(32)


def history(steps, **signals):
    """`steps` entries of a healthy run, with some signals replaced by functions of the step (from 0)."""
    healthy = {
        "contrastive": lambda t: 3.0 * math.exp(-t / 20) + 0.3,
        "accuracy": lambda t: min(0.9, 0.3 + t / 50),
        "candidates": lambda t: 32.0,
        "score_scale": lambda t: 10.0,
        "active_query": lambda t: 20.0,
        "active_document": lambda t: 100.0,
    }
    entries = [{name: signal(t) for name, signal in (healthy | signals).items()} for t in range(steps)]
    return [{"loss": entry["contrastive"], "grad_norm": 1.0} | entry for entry in entries]


def verdict(entries, **config):
    """The step a run is stopped at, and why; None for a run that is left alone."""
    applied = rules(Config(steps=STEPS, **config), VOCABULARY)
    for step in range(1, len(entries) + 1):
        reason = judge(entries[:step], applied)
        if reason is not None:
            return step, reason
    return None


def test_a_healthy_run_is_left_alone():
    assert verdict(history(STEPS)) is None


def test_non_finite_loss():
    entries = history(30)
    entries[4]["loss"] = math.nan
    assert verdict(entries) == (5, "loss is nan at step 5")


@pytest.mark.parametrize("side", ["active_document", "active_query"])
def test_all_zero_vectors(side):
    step, reason = verdict(history(STEPS, **{side: lambda t: 50.0 if t < 5 else 0.0}))
    assert step == 15
    assert "zero for 10 steps" in reason


def test_vectors_that_come_back_are_not_all_zero():
    assert verdict(history(STEPS, active_document=lambda t: 0.0 if t % 9 else 50.0)) is None


def test_flat_at_chance_stops_after_the_grace():
    step, reason = verdict(history(STEPS, contrastive=lambda t: CHANCE))
    assert step == 20
    assert "3.466" in reason
    assert "not falling" in reason


def test_a_longer_grace_is_honoured():
    limits = CollapseLimits(grace=0.4)
    step, _ = verdict(history(STEPS, contrastive=lambda t: CHANCE), collapse_limits=limits)
    assert step == 40


def test_rising_stops():
    step, reason = verdict(history(STEPS, contrastive=lambda t: CHANCE + t))
    assert step == 20
    assert "not falling" in reason


def test_spikes_that_pass_are_left_alone():
    """As recorded: loss 34 at step 10, 27 and 14 at steps 35 and 36, about 1 everywhere else."""
    spikes = {9: 34.5, 34: 27.1, 35: 13.8, 60: 500.0}
    assert verdict(history(STEPS, contrastive=lambda t: spikes.get(t, 1.2))) is None


def test_a_huge_start_that_falls_quickly_is_left_alone():
    falling = history(STEPS, contrastive=lambda t: 1875 * math.exp(-t / 6) + 0.5)
    assert verdict(falling) is None


def test_a_huge_start_that_is_still_above_chance_at_the_deadline_stops():
    step, reason = verdict(history(STEPS, contrastive=lambda t: 1875 * math.exp(-t / 12) + 0.5))
    assert step == 50
    assert "after 50 of 100 steps" in reason


def test_chance_follows_the_number_of_candidates():
    at_3 = history(STEPS, contrastive=lambda t: 3.0, accuracy=lambda t: 0.5)
    assert verdict(at_3) is None
    assert verdict(history(STEPS, contrastive=lambda t: 3.0, candidates=lambda t: 16.0)) is not None


def test_exploding_scores():
    step, reason = verdict(history(STEPS, score_scale=lambda t: 10.0 * 1.5**t, contrastive=lambda t: CHANCE * 1.5**t))
    assert step <= 20
    assert "scores explode" in reason or "not falling" in reason
    early = rules(Config(steps=1000), VOCABULARY)
    long = history(30, score_scale=lambda t: 10.0 * 1.5**t, contrastive=lambda t: CHANCE * 1.5**t)
    assert "scores explode" in judge(long, early), "before the grace of 200 steps is over"


def test_scores_that_grow_while_the_loss_falls_are_learning():
    assert verdict(history(STEPS, score_scale=lambda t: 0.01 * 1.3 ** min(t, 60))) is None


def test_small_scores_that_grow_are_no_explosion():
    applied = rules(Config(steps=1000), VOCABULARY)
    entries = history(100, score_scale=lambda t: 0.001 * 1.1**t, contrastive=lambda t: CHANCE)
    assert judge(entries, applied) is None


def test_false_progress():
    step, reason = verdict(history(STEPS, contrastive=lambda t: 60 * math.exp(-t / 20), accuracy=lambda t: 1 / 32))
    assert step == 30
    assert reason.startswith("false progress")
    assert "3.1%" in reason


def test_progress_with_a_ranking_is_no_false_progress():
    assert verdict(history(STEPS, contrastive=lambda t: 20 * math.exp(-t / 8), accuracy=lambda t: 0.15)) is None


def test_dense_and_not_sparsifying():
    step, reason = verdict(history(STEPS, active_document=lambda t: 7000.0))
    assert step == 50
    assert "7000 of 8000 terms" in reason


def test_dense_but_sparsifying_is_left_alone():
    assert verdict(history(STEPS, active_document=lambda t: 8000.0 * 0.995**t)) is None


def test_dense_is_what_was_asked_for_without_a_regulariser():
    assert verdict(history(STEPS, active_document=lambda t: 7000.0), lambda_document=0) is None


def test_without_infonce_its_scale_says_nothing():
    entries = history(STEPS, contrastive=lambda t: 50.0)
    distilled = {"contrastive_weight": 0, "distillation": "margin_mse", "hard_negatives": 1}
    assert verdict(entries, **distilled) is None
    assert verdict(entries) is not None


def test_a_short_run_is_never_judged_on_less_than_two_windows():
    short = rules(Config(steps=10), VOCABULARY)
    assert judge(history(10, contrastive=lambda t: CHANCE), short) is None
