"""Gangs of worker processes for tests, forked from one process that has torch and transformers already."""

from __future__ import annotations

import functools
import multiprocessing
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from typing import Any


@functools.cache
def _context() -> ForkServerContext:
    """Each test process has a server of its own; to import torch anew takes longer than what a gang computes."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch.distributed", "transformers", "trainables.loop"])
    return context


def run_gang(work: Callable[..., None], size: int, *arguments: Any) -> None:
    """Call `work(rank, *arguments)` in as many processes at a time, and wait until all of them have come to a good end.

    `work` and `arguments` are pickled: `work` is a function of a module.
    """
    workers = [_context().Process(target=work, args=(rank, *arguments)) for rank in range(size)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=500)
    assert [worker.exitcode for worker in workers] == [0] * size
