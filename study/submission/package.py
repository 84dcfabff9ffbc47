"""The files of a study that travel to a cluster: the three packages, the user's search-space file and trainer.

Nothing else of the working folder is looked at, so that data, results and environments in it stay where they are.
"""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainables import trainers

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("study", "trainables", "search_spaces")
USER = "submitted"
"""Folder of the user's own search-space file on the cluster."""

LIMIT = 500 * 2**20
"""Bytes that the files may have in all. Ray refuses an upload of 512 MiB and more, but only after packing it."""


def files(root: Path = ROOT, study_file: Path | None = None, trainer: str | None = None) -> dict[str, Path]:
    """Path on the cluster -> file here.

    In a checkout these are the files that git knows or would add, so `.gitignore` holds; elsewhere, as in an
    installed package, all but compiled ones. A `study_file` outside of the packages joins them, and so does the
    package of the user's own that a `trainer` is in, whole, unless it is installed. Raises ValueError with size, limit
    and the largest file where it is too much.
    """
    found = {str(path): root / path for path in _belonging(root, PACKAGES, (root / ".git").exists())}
    if trainer is not None:
        found |= _of_trainer(trainer)
    if study_file is not None and study_file not in found.values():
        found[f"{USER}/{study_file.name}"] = study_file
    sizes = {name: path.stat().st_size for name, path in found.items()}
    total = sum(sizes.values())
    if total > LIMIT:
        largest = max(sizes, key=sizes.__getitem__)
        raise ValueError(
            f"the packages of {root} hold {_mib(total)}, more than the {_mib(LIMIT)} that can be sent to a cluster "
            f"(largest: {largest}, {_mib(sizes[largest])}); keep data and models on the cluster's shared storage, or "
            "name what is not code in .gitignore"
        )
    return found


def write(found: Mapping[str, Path], target: Path) -> None:
    """Copy the files to a folder that Ray can send."""
    for name, path in found.items():
        copy = target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


def _of_trainer(trainer: str) -> dict[str, Path]:
    """The files of the top package of a trainer by its dotted name, where the nodes cannot be expected to have it."""
    top, *below = trainers.package_of(trainer).split(".")
    folder = trainers.folder_of(trainer)
    root = folder.parents[len(below)]
    if top in PACKAGES or {str(root)} & {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}:
        return {}
    in_checkout = any((place / ".git").exists() for place in (root, *root.parents))
    found = {str(path): root / path for path in _belonging(root, (top,), in_checkout)}
    if folder / "config.py" not in found.values():
        raise ValueError(f"trainer '{trainer}': git ignores {folder}, so that it cannot be sent to a cluster")
    return found


def _belonging(root: Path, packages: Sequence[str], in_checkout: bool) -> list[Path]:
    """Files of packages in `root`, relative to it."""
    return _in_checkout(root, packages) if in_checkout else _installed(root, packages)


def _in_checkout(root: Path, packages: Sequence[str]) -> list[Path]:
    asked = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *packages]
    try:
        done = subprocess.run(asked, cwd=root, capture_output=True, text=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        reason = (getattr(error, "stderr", None) or str(error)).strip()
        raise ValueError(f"git cannot say which files of {root} belong to the project: {reason}") from error
    # A file that was deleted and not yet committed is still listed.
    return sorted(Path(name) for name in done.stdout.split("\0") if name and (root / name).is_file())


def _installed(root: Path, packages: Sequence[str]) -> list[Path]:
    found = (path.relative_to(root) for package in packages for path in (root / package).rglob("*") if path.is_file())
    return sorted(path for path in found if "__pycache__" not in path.parts)


def _mib(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"
