"""The answer to a study, in one file that opens anywhere: `python -m study.report NAME [--storage DIR]`.

Reads a storage folder and writes `report.html`, with its figures inside, and beside it `report.md`, the figures as PNGs
and all values as tables. It starts no study and opens no database, so it can be run while a study is running.
"""

from __future__ import annotations

import argparse
import sys

from study.reporting import page
from study.selection import name_a_study, named
from study.terminal import View
from trainables.arguments import command, parsed
from trainables.errors import FINISHED, WRONG, told


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = command(
        "study.report", "Write the report of a study.",
        "splade_k_search",
        "my_study.py --storage /shared/studies/mine",
    )  # fmt: skip
    name_a_study(parser)
    return parser


def main(arguments: list[str] | None = None) -> int:
    options = parsed(parser(), arguments)
    try:
        path = page.write(named(options))
    except (ValueError, OSError) as error:
        print(f"error: {told(error)}", file=View(sys.stderr))
        return WRONG
    print(path, file=View(sys.stdout))
    return FINISHED


if __name__ == "__main__":
    sys.exit(main())
