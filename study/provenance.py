"""Where a study's figures come from: code, packages, command."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
from pathlib import Path

PACKAGES = ("torch", "transformers", "ray", "optuna", "mlflow-skinny", "datasets", "ir_datasets", "ranx")


def tags() -> dict[str, str]:
    """Tags for every run: git commit and state, versions, platform."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in PACKAGES:
        try:
            found[f"version.{package}"] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    commit = _git("rev-parse", "HEAD")
    if commit:
        found["mlflow.source.git.commit"] = commit
        found["git.dirty"] = "true" if _git("status", "--porcelain", "--untracked-files=no") else "false"
    return found


def _git(*arguments: str) -> str:
    """Output of git in the project's folder; empty outside a checkout."""
    folder = Path(__file__).resolve().parent
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
