"""What was read once and is kept in a cache: a file that is whole, or is made again."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from trainables.files import replacing

log = logging.getLogger(__name__)


def rows(path: Path, make: Callable[[], Iterable[Any]]) -> list[Any]:
    """The JSON values in a file, one a line, which `make` gives where there is no such file or it is damaged.

    The last line holds their number: a file that lost its end would otherwise be a smaller data set.
    """
    if path.exists():
        try:
            with path.open(encoding="utf-8") as file:
                *found, end = map(json.loads, file)
            if end == {"rows": len(found)}:
                return found
            problem = "its end is missing"
        except (OSError, ValueError) as error:
            problem = str(error)
        log.warning("%s is made again: %s", path, problem)
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with replacing(path) as aside, aside.open("w", encoding="utf-8") as file:
        for row in make():
            file.write(json.dumps(row) + "\n")
            count += 1
        file.write(json.dumps({"rows": count}) + "\n")
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file][:-1]
