"""The answer to a study, in one file that opens anywhere: `python -m study.report NAME [--storage DIR]`.

Reads a storage folder and writes `report.html`, with its figures inside, and beside it the figures as PNGs and all
values as tables. It starts no study and opens no database, so it can be run while a study is running.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from study.profiles import existing
from study.protocol.folder import StudyFolder
from study.reporting import page
from study.terminal import View
from trainables.arguments import parsed
from trainables.errors import FINISHED, WRONG, told
from trainables.places import typed


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m study.report", description="Write the report of a study.")
    parser.add_argument("name", metavar="NAME", help="the study's name, or the .py file it was run from")
    parser.add_argument("--profile", help="variant of the study (default: its default one)")
    parser.add_argument(
        "--storage", type=typed, metavar="DIR", help="the study's folder (default: where study.run keeps the profile)"
    )
    return parser


def main(arguments: list[str] | None = None) -> int:
    options = parsed(parser(), arguments)
    name = options.name
    study = Path(name).stem if name.endswith(".py") else name
    try:
        path = page.write(StudyFolder(existing(study, options.profile, options.storage)))
    except (ValueError, OSError) as error:
        print(f"error: {told(error)}", file=View(sys.stderr))
        return WRONG
    print(path, file=View(sys.stdout))
    return FINISHED


if __name__ == "__main__":
    sys.exit(main())
