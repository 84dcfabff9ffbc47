"""Where a study's figures come from: code, packages, command."""

from __future__ import annotations

import getpass
import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path

from study import __version__
from study.notify import shown
from study.tracking import PACKAGE as RECORDER
from study.uris import redacted

PACKAGES = ("torch", "transformers", "ray", "optuna", RECORDER, "datasets", "ir_datasets", "ranx")
COMMIT, DIRTY = "STUDY_GIT_COMMIT", "STUDY_GIT_DIRTY"
"""Environment variables that carry the state of the checkout to where there is none: a cluster, an image."""


def tags() -> dict[str, str]:
    """Tags for every run: git commit and state, versions of this project and of its libraries, platform."""
    found = {
        "version.retrieval-study": __version__, "python": platform.python_version(), "platform": platform.platform()
    }  # fmt: skip
    for package in PACKAGES:
        try:
            found[f"version.{package}"] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    checkout = git_state()
    if checkout:
        found["git.commit"] = checkout[COMMIT]
        found["git.dirty"] = checkout[DIRTY]
    return found


def git_state() -> dict[str, str]:
    """`COMMIT` and `DIRTY` of the project's checkout, or what the environment says of it; {} where neither knows."""
    commit = _git("rev-parse", "HEAD")
    if commit:
        changed = _git("status", "--porcelain", "--untracked-files=no")
        return {COMMIT: commit, DIRTY: "true" if changed else "false"}
    if os.environ.get(COMMIT):
        return {COMMIT: os.environ[COMMIT], DIRTY: os.environ.get(DIRTY, "unknown")}
    return {}


def source(file: Path, secret: str | None = None) -> dict[str, str]:
    """Tags for who ran what: the command line, as `command` gives it, the study's file, and the user."""
    found = {
        "command": command(secret), "source": f"{file.parent.name}/{file.name}",
        "source.type": "LOCAL",
    }  # fmt: skip
    try:
        return found | {"user": getpass.getuser()}
    except (KeyError, OSError):
        # A container's user may have no name.
        return found


def command(secret: str | None = None) -> str:
    """The command line of this process as it was typed, without the passwords in its URLs, and with no more of a
    `secret` target of notifications than may be shown."""
    words = [word.replace(secret, shown(secret)) if secret else word for word in sys.argv[1:]]
    # `python -m` puts the module's file in the place of its name.
    module = getattr(sys.modules["__main__"], "__spec__", None)
    program = ["python", "-m", module.name] if module else [Path(sys.argv[0]).name]
    return shlex.join([*program, *map(redacted, words)])


def _git(*arguments: str) -> str:
    """Output of git in the project's folder; empty outside a checkout."""
    folder = Path(__file__).resolve().parent
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
