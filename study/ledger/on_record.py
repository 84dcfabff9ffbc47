"""What the ledger holds of a study before a launch; asked without changing anything."""

from __future__ import annotations

from dataclasses import dataclass

from study.ledger import optuna_study
from study.ledger.moved import Begun, as_begun
from study.ledger.optuna_study import Different, Outlook
from study.spec import Study

NOTHING = Begun()


@dataclass(frozen=True, slots=True)
class OnRecord:
    """A study as the ledger has it."""

    outlook: Outlook
    """Its trials, and what is left to do."""
    carried_on: bool = False
    """Whether a launch goes on with it. One of which nothing is kept begins."""
    inputs: Begun = NOTHING
    """What it was begun with; empty for one that begins."""
    id: str | None = None
    """The id of the study of this name that is there, carried on or not."""
    fruitless: int = 0
    """Where it is there and yet not carried on: the number of its trials, which all failed before their first step."""

    @classmethod
    def nothing(cls, study: Study) -> OnRecord:
        """What there is of a study that nobody has begun."""
        return cls(optuna_study.outlook(None, study))


def on_record(url: str, name: str, study: Study, checkpoints: str | None) -> OnRecord:
    """What the ledger at `url` has under this name, checked to be the same study.

    Of another study whose trials all failed before their first step nothing was learnt that the change would spoil: it
    is `fruitless`, and not carried on. Raises `optuna_study.Refused` for any other one.
    """
    inputs = optuna_study.begun(url, name, study)
    try:
        found = optuna_study.existing_study(url, name, as_begun(study, inputs), checkpoints)
    except Different:
        fruitless = optuna_study.fruitless(url, name)
        if not fruitless:
            raise
        return OnRecord(optuna_study.outlook(None, study), id=optuna_study.id_of(url, name), fruitless=fruitless)
    return OnRecord(
        optuna_study.outlook(found, study),
        carried_on=found is not None,
        inputs=inputs,
        id=found.user_attrs.get("id") if found is not None else None,
    )
