"""The label at which two sentences begin to count as alike, and whether every term of the loss has pairs to work on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainables.data.config import PairData
from trainables.data.labels import label_range
from trainables.data.types import PairSet, Role

ALIKE = 0.8
"""Two sentences are alike where their label lies at least this share of the range above its lowest end."""


@dataclass(frozen=True, slots=True)
class Grading:
    """How the labels of a source are read."""

    alike: float
    """The lowest label of two sentences that are alike."""
    facts: dict[str, str]
    """Ranges of the labels and numbers of pairs, for the record."""
    notes: tuple[str, ...]
    """Sentences for whoever starts the study, such as that the training pairs do not reach the declared range."""


def grading(sets: Mapping[Role, PairSet], data: PairData, *, positive_label: float | None, in_batch: bool) -> Grading:
    """What the labels of `sets`, which `data` names, mean; `in_batch` says whether the loss has its in-batch term.

    ValueError where that term would be 0 at every step, because no training pair is alike.
    """
    labels = {role: [pair.label for pair in part.pairs] for role, part in sets.items()}
    lowest, highest = label_range(data, [label for found in labels.values() for label in found])
    alike = lowest + ALIKE * (highest - lowest) if positive_label is None else positive_label
    train = labels["train"]
    count = sum(label >= alike for label in train)
    reached = f"{min(train):g} to {max(train):g}"
    if in_batch and not count:
        asked = "" if positive_label is None else "positive_label="
        raise ValueError(
            f"{sets['train'].name}: labels go from {reached}, so that no pair is alike, from {asked}{alike:g} on, and "
            "the in-batch term has nothing to work on; set another positive_label, declare the range with data.lowest "
            "and data.highest, or set in_batch_weight to 0"
        )
    facts = {"data.labels": f"{lowest:g} to {highest:g}"}
    notes: tuple[str, ...] = ()
    if (min(train), max(train)) != (lowest, highest):
        facts["data.labels"] += f", of which the training pairs reach {reached}"
        if data.lowest is not None:
            notes = (
                f"{sets['train'].name}: labels go from {reached}, not through the range {lowest:g} to {highest:g}",
            )
    if in_batch:
        facts["data.train.alike"] = f"{count} of {len(train)}, from label {alike:g} on"
    return Grading(alike, facts, notes)
