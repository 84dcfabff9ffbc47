"""What all command lines of the project have in common."""

from __future__ import annotations

import argparse
import sys
from itertools import pairwise


def command(module: str, description: str, *examples: str) -> argparse.ArgumentParser:
    """The parser of `python -m MODULE`; `examples` are what stands behind that, and are shown below the options."""
    lines = ["examples:", *(f"  python -m {module} {example}".rstrip() for example in examples)]
    return argparse.ArgumentParser(
        prog=f"python -m {module}", description=description, epilog="\n".join(lines), formatter_class=_Shown
    )


class _Shown(argparse.HelpFormatter):
    """Lines of the examples stay lines, all other text is filled."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("examples:"):
            return text
        return super()._fill_text(text, width, indent)


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
