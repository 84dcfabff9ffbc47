"""The screen of a study that runs, from any terminal: `python -m study.watch NAME`.

It reads the study's folder, so that it can be begun and ended at any time: the study does not notice. It ends with the
study, and says what the study's own terminal says. Exit codes: 0 the study has ended, 2 there is no such study, 130 you
have seen enough; the study goes on.
"""

from __future__ import annotations

import argparse
import sys
import time

from study.ledger.standing import Standing, standing
from study.protocol.folder import StudyFolder
from study.protocol.states import StudyStatus
from study.protocol.summary import StudySummary, read
from study.reporting.screen import Display
from study.selection import ledger, name_a_ledger, name_a_study, named
from study.terminal import View
from trainables.arguments import command, parsed
from trainables.errors import FINISHED, INTERRUPTED, WRONG, told

POLL_S = 1.0
ASK_S = 5.0
"""How often the study's lease is asked for."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = command(
        "study.watch", "Show a running study as its own terminal does, until it ends.",
        "splade_k_search",
        "my_study.py --storage /shared/studies/mine",
    )  # fmt: skip
    name_a_study(parser)
    name_a_ledger(parser)
    return parser


def main(arguments: list[str] | None = None) -> int:
    options = parsed(parser(), arguments)
    try:
        storage = named(options)
        return watch(storage, ledger(options, storage), View(sys.stdout))
    except (ValueError, OSError) as error:
        print(f"error: {told(error)}", file=View(sys.stderr))
        return WRONG


def watch(storage: StudyFolder, url: str | None, out: View) -> int:
    """Show the study until it ends or somebody presses Ctrl-C; returns an exit code."""
    summary = read(storage.summary)
    launches = storage.launches()
    elapsed_s = max(0.0, time.time() - launches[-1].time / 1000) if launches else 0.0
    display = Display(out, summary.parameter, summary.objectives[0].name, summary.planned_trials, elapsed_s=elapsed_s)
    try:
        while True:
            stands = standing(storage, summary.study, url)
            asked = time.monotonic()
            while time.monotonic() - asked < ASK_S:
                summary = read(storage.summary)
                if _over(summary, stands):
                    return _closed(display, summary, stands, storage)
                display.update(summary)
                time.sleep(POLL_S)
                if summary.status != StudyStatus.RUNNING:
                    # It comes to its end just now, or another launch of it begins.
                    break
    except KeyboardInterrupt:
        display.close(None)
        display.message("the study goes on")
        return INTERRUPTED


def _over(summary: StudySummary, stands: Standing) -> bool:
    """Whether there is nothing more to come; of a study that cannot be asked its last word counts."""
    return stands.runs is False or (stands.runs is None and summary.status != StudyStatus.RUNNING)


def _closed(display: Display, summary: StudySummary, stands: Standing, storage: StudyFolder) -> int:
    display.close(summary, storage)
    if summary.status == StudyStatus.RUNNING:
        display.message(f"{summary.study}: {stands}; the command that ran it carries it on")
    return FINISHED


if __name__ == "__main__":
    sys.exit(main())
