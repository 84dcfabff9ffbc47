"""Search, then confirm: which trials of a search are run again with fresh seeds, with which, and which of them wins.

A search names the largest of many noisy values, which is too large. The best few of each group and its controls are
therefore trained again with seeds that the search has not used, the same for all of them. Pure functions of what the
search found: whoever hands trials out and whoever reports ask them alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Annotated, Any

from pydantic import Field

from trainables.config import Section


class Confirm(Section):
    """How many trials of a search are confirmed when it is over, and with how many seeds."""

    finalists: Annotated[int, Field(ge=1)]
    """The best so many trials of each group are run again, beside its controls."""
    seeds: Annotated[int, Field(ge=2)]
    """Fresh seeds of each of them."""

    def __str__(self) -> str:
        return f"{self.finalists}x{self.seeds}"


def parse(text: str) -> Confirm:
    """`FINALISTSxSEEDS`, as an option has it; ValueError for anything else.

    >>> parse("3x5")
    Confirm(finalists=3, seeds=5)
    """
    found = re.fullmatch(r"(\d+)x(\d+)", text)
    if found is None or int(found[1]) < 1 or int(found[2]) < 2:
        raise ValueError(f"'{text}' is not FINALISTSxSEEDS, such as 3x5, with 1 finalist and 2 seeds or more")
    return Confirm(finalists=int(found[1]), seeds=int(found[2]))


@dataclass(frozen=True, slots=True)
class Searched:
    """A trial of the search as far as it matters here."""

    number: int
    value: float | None
    """Its validation value, the mean over its replicates; None where it did not end as complete."""
    group: str | None = None
    control: bool = False


@dataclass(frozen=True, slots=True)
class Finalists:
    """What is confirmed of one group."""

    group: str | None
    chosen: tuple[int, ...]
    """Numbers of the best trials of the search, the best first."""
    controls: tuple[int, ...]
    """Numbers of the controls that are complete."""
    missing: int = 0
    """How many finalists there are fewer than was asked for, because no more trials are complete."""

    @property
    def said(self) -> str:
        """What a reader must know of the choice; empty where there is nothing."""
        if not self.missing:
            return ""
        where = "" if self.group is None else f" of {self.group}"
        return (
            f"{len(self.chosen)} finalist(s){where} instead of {len(self.chosen) + self.missing}: no more trials are "
            "complete"
        )


def finalists(trials: Iterable[Searched], more: bool, confirm: Confirm) -> list[Finalists]:
    """Those of each group, in the order in which groups appear; of equal trials the earlier one goes first.

    `more` is whether a larger value is better. Controls are confirmed beside the finalists and never are any.
    """
    groups: dict[str | None, list[Searched]] = {}
    for trial in trials:
        groups.setdefault(trial.group, []).append(trial)
    found = []
    for group, own in groups.items():
        complete = [(trial.value, trial.number, trial.control) for trial in own if trial.value is not None]
        ranked = sorted((-value if more else value, number) for value, number, control in complete if not control)
        chosen = tuple(number for _, number in ranked[: confirm.finalists])
        controls = tuple(sorted(number for _, number, control in complete if control))
        found.append(Finalists(group, chosen, controls, confirm.finalists - len(chosen)))
    return found


@dataclass(frozen=True, slots=True)
class Decision:
    """What is run to confirm a search: decided once, when the search has ended, and on record from then on."""

    asked: Confirm
    seeds: tuple[int, ...]
    """The fresh seeds of every finalist and control, in the order in which they run."""
    groups: tuple[Finalists, ...]

    @classmethod
    def of(cls, trials: Iterable[Searched], more: bool, confirm: Confirm, used: Iterable[int]) -> Decision:
        """The decision on the trials of a search that has `used` these seeds; see `finalists`."""
        return cls(confirm, fresh_seeds(confirm, used), tuple(finalists(trials, more, confirm)))

    @classmethod
    def restored(cls, stored: Mapping[str, Any]) -> Decision:
        """What `stored` was made of."""
        groups = (
            Finalists(one["group"], tuple(one["chosen"]), tuple(one["controls"]), one["missing"])
            for one in stored["groups"]
        )
        return cls(Confirm(**stored["asked"]), tuple(stored["seeds"]), tuple(groups))

    @property
    def stored(self) -> dict[str, Any]:
        """The decision as JSON has it."""
        return {
            "asked": self.asked.model_dump(), "seeds": list(self.seeds), "groups": [asdict(one) for one in self.groups]
        }  # fmt: skip

    @property
    def numbers(self) -> tuple[int, ...]:
        """The trials that are run again, group by group, controls first: without them a finalist says little. A group
        without a finalist has nothing to compare its controls with."""
        return sum(((*one.controls, *one.chosen) for one in self.groups if one.chosen), ())


def fresh_seeds(confirm: Confirm, used: Iterable[int]) -> tuple[int, ...]:
    """The seeds of every finalist and control: the next ones after all that the search has `used`.

    >>> fresh_seeds(Confirm(finalists=3, seeds=2), [0, 1, 2])
    (3, 4)
    """
    first = max(used, default=-1) + 1
    return tuple(range(first, first + confirm.seeds))


def winner(found: Finalists, validation: Mapping[int, Sequence[float]], more: bool) -> int | None:
    """The finalist with the best mean over its fresh seeds on validation; of equal ones the better in the search.

    `validation` has one value per seed of each trial that was confirmed whole; a finalist that was not, cannot win.
    None where none was. The values that choose are not those to report: differences are given on test queries.
    """
    whole = [number for number in found.chosen if number in validation]
    if not whole:
        return None
    best = (max if more else min)(fmean(validation[number]) for number in whole)
    return next(number for number in whole if fmean(validation[number]) == best)
