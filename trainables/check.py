"""`python -m trainables.check NAME CONFIG`: are these inputs usable? Asked before any trial starts.

Reads the data, measures the baselines and builds the recipe once. Prints {"facts": ..., "baselines": ...,
"notes": [...]} as JSON and exits with 0, or prints one sentence and exits with 2.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from trainables import overrides


def main(name: str, text: str) -> int:
    module = importlib.import_module(f"trainables.{name}.config")
    try:
        config = overrides.validate(module.Config, json.loads(text))
        prepared = module.prepare(config)
        _build(name, config)
    except ValueError as error:
        print(" ".join(str(error).split()))
        return 2
    print(json.dumps(asdict(prepared)))
    return 0


def _build(name: str, config) -> None:
    import torch

    from trainables.context import Context

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        context = Context(seed=0, folder=Path(folder), device=torch.device("cpu"))
        importlib.import_module(f"trainables.{name}.recipe").build(config, context)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
