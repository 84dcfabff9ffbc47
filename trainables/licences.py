"""Licences of inputs, as far as they say so themselves; nothing is downloaded to find out."""

from __future__ import annotations

from pathlib import Path

from trainables.places import MODEL, Place

UNKNOWN = "unknown"
CARD = "README.md"


def of(place: Place, value: str) -> str:
    """The licence of what a config's key names, for people; begins with `unknown` where nothing says it."""
    if value in place.keywords:
        return (
            "Apache-2.0, made by the project that trained this model"
            if place is MODEL
            else "unknown as a whole: sources of installed Python packages, each with its own licence"
        )
    parts = place.parts(value)
    if parts is not None:
        return _beside(Path(parts.path))
    if "://" in value:
        return UNKNOWN
    if value.startswith("ir_datasets:"):
        return f"{UNKNOWN}; https://ir-datasets.com has its documentation"
    name = value.removeprefix("datasets:").partition(":")[0]
    kind = "model" if place is MODEL else "dataset"
    where = f"https://huggingface.co/{'datasets/' if kind == 'dataset' else ''}{name}"
    return _in_cache(name, kind) or f"{UNKNOWN} here; {where} may say it"


def _beside(path: Path) -> str:
    """The licence that a folder, or the folder of a file, states: in its card or in a file named LICENSE."""
    folder = path if path.is_dir() else path.parent
    found = _declared(folder / CARD)
    if found:
        return f"{found}, says the {CARD} beside it"
    for file in sorted(folder.glob("LICEN[CS]E*")) if path.is_dir() else ():
        return f"that in its {file.name}"
    return UNKNOWN


def _in_cache(name: str, kind: str) -> str | None:
    """The licence in the card of what was downloaded from the hub before; None where its card was not."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(name, CARD, repo_type=kind)
    return _declared(Path(found)) if isinstance(found, str) else None


def _declared(card: Path) -> str | None:
    """The entry `license` in the header of a card; None where there is none."""
    if not card.is_file():
        return None
    from huggingface_hub import ModelCard

    try:
        found = ModelCard(card.read_text(encoding="utf-8"), ignore_metadata_errors=True).data.get("license")
    except (OSError, ValueError):
        return None
    return found if isinstance(found, str) and found != UNKNOWN else None
