"""A profile's folder, and its name in ledger and MLflow: each profile of a study has one of its own.

The default profile of NAME is NAME in `studies/NAME`, another one is NAME.PROFILE in `studies/NAME.PROFILE`. What
`--fresh` sets aside is `studies/NAME.20261130-101010`, which is no profile: their names begin with a letter. A
profile that was begun in `studies/NAME`, as all of them once were, is carried on there under the name that it has.
"""

from __future__ import annotations

import glob
from contextlib import suppress
from pathlib import Path

from study.protocol.folder import StudyFolder
from study.protocol.journal import Unreadable
from study.protocol.summary import read
from study.spec import PROFILE

STUDIES = Path("studies")


def title(study: str, profile: str, default: str) -> str:
    """What a profile is called.

    >>> title("k", "embedded", default="embedded"), title("k", "paper", default="embedded")
    ('k', 'k.paper')
    """
    return study if profile == default else f"{study}.{profile}"


def begun(folder: Path) -> tuple[str, str] | None:
    """(name, profile) of the study that was begun in the folder; None where none is on record there.

    The summary is a view, which may be lost or damaged; the journal is not. Raises `Unreadable` where
    neither can be read.
    """
    try:
        summary = read(StudyFolder(folder).summary)
        return summary.study, summary.profile
    except ValueError:
        storage = StudyFolder(folder.absolute())
        opening = storage.first_entry() if storage.journal.is_file() else None
        tags = opening.tags if opening else {}
        return (tags["study.name"], tags["study.profile"]) if {"study.name", "study.profile"} <= tags.keys() else None


def default_folder(study: str, name: str, profile: str, fresh: bool) -> Path:
    """Where the profile called `name` of a `study` is kept if nothing else is asked for."""
    own, shared = STUDIES / name, STUDIES / study
    if not fresh and begun(own) is None and begun(shared) == (study, profile):
        return shared
    return own


def name_in(folder: Path, study: str, name: str, profile: str) -> str:
    """The name under which the profile is carried on in the folder; ValueError where another study or profile is there.

    `study` is what its file is called, `name` the profile's title.
    """
    found = begun(folder)
    if found is None or found == (name, profile):
        return name
    if found == (study, profile):
        return study
    raise ValueError(
        f"--storage {folder}: profile {found[1]} of {found[0]} is kept there, not profile {profile} of {study}; name "
        "another folder with --storage, or begin anew with --fresh, which keeps the old one beside it"
    )


def existing(study: str, profile: str | None, storage: Path | None) -> Path:
    """The folder of a profile for commands that only read; without a profile, of the default one.

    Raises ValueError where the folder is another profile's, or has nothing while those of other profiles have.
    """
    own = STUDIES / study
    usual = [own] if profile is None else [STUDIES / f"{study}.{profile}", own]
    there = sorted(_profiles(study))
    for folder in [storage] if storage else usual:
        if profile is None and (storage or _profile(folder) or not there):
            return folder
        if profile is not None and _profile(folder) == profile:
            return folder
    hint = f"; there are results of {', '.join(f'--profile {name}' for name in there)}" if there else ""
    where = f"--storage {storage}" if storage else str(STUDIES.absolute())
    raise ValueError(f"{where} has no results of {f'profile {profile} of ' if profile else ''}{study}{hint}")


def _profile(folder: Path) -> str | None:
    found = begun(folder)
    return found[1] if found else None


def _profiles(study: str) -> set[str]:
    """Profiles of the study that were run here; a folder that was set aside is none."""
    folders = [STUDIES / study, *STUDIES.glob(f"{glob.escape(study)}.*")]
    named = [f for f in folders if f.name == study or PROFILE.fullmatch(f.name.removeprefix(f"{study}."))]
    there = set()
    for folder in named:
        # A damaged folder is an error only for whoever asks for its profile.
        with suppress(Unreadable):
            if found := _profile(folder):
                there.add(found)
    return there
