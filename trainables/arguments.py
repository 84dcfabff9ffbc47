"""What all command lines of the project have in common."""

from __future__ import annotations

import argparse
import sys
from itertools import pairwise


def parsed(parser: argparse.ArgumentParser, arguments: list[str] | None) -> argparse.Namespace:
    """The options of `arguments`, or of this process; exits with 2 where one of them is empty.

    A variable of the shell that is not set leaves an empty word, which must not be taken for an option left out.
    """
    words = sys.argv[1:] if arguments is None else arguments
    for before, word in pairwise(["NAME", *words]):
        name = word.removesuffix("=") if word.startswith("--") and word.endswith("=") else before
        if not word.strip() or name != before:
            parser.error(f"{name} is given an empty value; leave it out to have its default")
    return parser.parse_args(words)
