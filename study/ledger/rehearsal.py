"""A pruner rehearsed on trials whose values are made up: what it would save of their steps."""

from __future__ import annotations

import random
from collections import deque

import optuna

from study.ledger.sampling import pruner
from study.spec import Study

DRAWS = 10
"""Orders of good and bad trials that are tried."""
MOST = 40
"""Evaluations of a trial that are looked at, spread evenly over those that it makes."""


def saved(study: Study, trials: int, at_once: int) -> float:
    """Share of the steps of so many trials that the study's pruner saves if a trial that is ahead of another one is so
    at every step, and `at_once` of them train at the same pace."""
    every, total = study.config.evaluate_every, study.config.total_steps
    evaluations = range(every, total, every * max(1, total // every // MOST))
    draws = random.Random(0)
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        run = [
            _steps_run(study, draws.sample(range(trials), trials), at_once, evaluations, str(n)) for n in range(DRAWS)
        ]
    finally:
        optuna.logging.set_verbosity(verbosity)
    return 1 - sum(run) / (DRAWS * trials * total)


def _steps_run(study: Study, values: list[int], at_once: int, evaluations: range, name: str) -> int:
    """Steps that trials with these values at every evaluation run until they end or are pruned."""
    total = study.config.total_steps
    made = optuna.create_study(
        study_name=name, direction=study.objectives[0].direction, pruner=pruner(study.pruner, total)
    )
    waiting, run = deque(values), 0
    running: list[tuple[optuna.Trial, int, list[int]]] = []
    while waiting or running:
        while waiting and len(running) < at_once:
            running.append((made.ask(), waiting.popleft(), list(evaluations)))
        going = []
        for trial, value, left in running:
            if not left:
                made.tell(trial, value)
                run += total
                continue
            step = left.pop(0)
            trial.report(value, step)
            if trial.should_prune():
                made.tell(trial, state=optuna.trial.TrialState.PRUNED)
                run += step
            else:
                going.append((trial, value, left))
        running = going
    return run
