"""The commands of the project: `python -m study`."""

from __future__ import annotations

import sys

from study.terminal import View
from trainables.errors import FINISHED, WRONG

COMMANDS = {
    "new": "write a study file to begin with",
    "run": "run a study, or carry it on",
    "submit": "the same on a Ray cluster, as a job",
    "status": "what runs, how far it is, since when and where",
    "watch": "the screen of a running study, from any terminal",
    "list": "the studies that were run here",
    "compare": "two studies: settings that differ, answers, the best trials paired",
    "report": "the answer as one page, and tables beside it",
    "evaluate": "measure finished trials on whole suites",
    "export": "take a finished model away",
    "remove": "delete a study's folder and its ledger entry",
}
"""Module of `study` -> what it is for, in the order in which they are wanted."""


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    if given and given[0] not in ("-h", "--help"):
        hint = f"python -m study.{given[0]}" if given[0] in COMMANDS else "python -m study"
        print(f"error: python -m study takes no arguments; did you mean {hint}?", file=View(sys.stderr))
        return WRONG
    width = max(map(len, COMMANDS))
    lines = [f"  python -m study.{name:<{width}}  {what}" for name, what in COMMANDS.items()]
    begin = (
        "To begin:\n  python -m study.run --list          studies that come with the project\n"
        "  python -m study.run splade_k_search"
    )
    print("\n".join(["Commands; each explains itself with --help.", *lines, "", begin]), file=View(sys.stdout))
    return FINISHED


if __name__ == "__main__":
    sys.exit(main())
