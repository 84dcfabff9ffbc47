"""What each query or pair scored in a replicate, as its `result.json` has it."""

from __future__ import annotations

import json

from pydantic import TypeAdapter

from study.protocol.folder import ReplicateFolder, StudyFolder
from trainables.errors import told

PerItem = dict[str, dict[str, dict[str, float]]]
"""Split -> metric -> query or pair id -> value."""
_READER = TypeAdapter(PerItem)


def parse(content: bytes, place: object) -> PerItem:
    """The values in the content of a `result.json`; ValueError that names its `place` where it is not one."""
    try:
        return _READER.validate_python(json.loads(content).get("per_item") or {})
    except (ValueError, AttributeError):
        raise ValueError(
            f"{place} is not the result of a replicate: it is damaged; put a copy of it back, or remove it to have a "
            "report without its values per query or pair"
        ) from None


def read(replicate: ReplicateFolder) -> PerItem:
    """The values of a replicate; {} where it has no result, ValueError where that cannot be read."""
    if not replicate.result.exists():
        return {}
    try:
        content = replicate.result.read_bytes()
    except OSError as error:
        raise ValueError(f"the result of a replicate cannot be read: {told(error)}") from error
    return parse(content, replicate.result)


def of_trial(storage: StudyFolder, trial: int, split: str, metric: str) -> list[dict[str, float]]:
    """Query or pair id -> value, for each replicate of a trial that has any."""
    found = [read(replicate).get(split, {}).get(metric) for replicate in storage.trial(trial).replicates()]
    return [items for items in found if items]
