"""The pool of a full evaluation, with Ray's answers made up."""

from __future__ import annotations

from study.suites import worker_pool
from study.suites.worker_pool import Finished, Merges


def test_no_more_merges_run_at_a_time_than_there_are_workers(monkeypatch) -> None:
    running: list[int] = []
    most = 0

    def start(number: int, folder: str) -> int:
        nonlocal most
        running.append(number)
        most = max(most, len(running))
        return number

    def get(number: int) -> tuple[dict, str]:
        return {}, f"result {number}"

    def wait(references: list[int], num_returns: int, timeout: float | None) -> tuple[list[int], list[int]]:
        assert references == running
        return ([running.pop(0)] if timeout is None else []), []

    monkeypatch.setattr(worker_pool.ray, "wait", wait)
    monkeypatch.setattr(worker_pool.ray, "get", get)
    merges = Merges(start, 2)
    found: list[Finished] = []
    for number in range(65):
        merges.add(number, "folder")
        found += merges.finished(wait=False)
    assert (found, merges.left, running) == ([], 65, [0, 1])
    while merges.left:
        found += merges.finished(wait=True)
    assert [(one.measurement, one.result) for one in found] == [(n, f"result {n}") for n in range(65)]
    assert most == 2
