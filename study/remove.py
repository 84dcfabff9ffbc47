"""Delete a study that was run: `python -m study.remove NAME`.

What goes is the study's folder with all trials, models and reports in it, and its entry in a ledger elsewhere. What
stays is said: its runs in MLflow, and what it keeps on an object store. It asks before it begins, unless it is given
--yes, and refuses a study that runs.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from study.ledger import optuna_study
from study.ledger.lock import Held, Lock
from study.ledger.standing import standing
from study.protocol.folder import StudyFolder
from study.protocol.summary import StudySummary, read
from study.reporting.formatting import counts
from study.selection import ledger, name_a_ledger, name_a_study, named
from study.terminal import View
from study.uris import anonymous, redacted
from trainables.arguments import command, parsed
from trainables.errors import FINISHED, INTERRUPTED, WRONG, told


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = command(
        "study.remove", "Delete a study's folder, with its models and reports, and its entry in the ledger.",
        "splade_k_search",
        "studies/splade_k_search.20261130-101010 --yes",
    )  # fmt: skip
    name_a_study(parser)
    name_a_ledger(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    return parser


def main(arguments: list[str] | None = None) -> int:
    options = parsed(parser(), arguments)
    out, err = View(sys.stdout), View(sys.stderr)
    try:
        storage = StudyFolder(named(options).path.resolve())
        url = ledger(options, storage)
        summary = read(storage.summary)
        _check(storage, summary, url)
        if not options.yes and not sys.stdin.isatty():
            raise ValueError("nobody is here to be asked; --yes removes it without a question")
        print("\n".join(_account(storage, summary, url)), file=out)
        if not options.yes and input("remove it? [y/N] ").strip().lower() not in ("y", "yes"):
            print("nothing was removed", file=err)
            return WRONG
        remove(storage, summary, url)
    except (ValueError, Held, OSError) as error:
        print(f"error: {told(error)}", file=err)
        return WRONG
    except KeyboardInterrupt:
        print("\nnothing was removed", file=err)
        return INTERRUPTED
    print(f"removed {storage}", file=out)
    return FINISHED


def remove(storage: StudyFolder, summary: StudySummary, url: str | None) -> None:
    """Delete the study's entry in the database at `url`, if it has one there, then its folder.

    Raises `Held` where somebody has carried the study on meanwhile.
    """
    lock = Lock(storage.lock)
    try:
        if url is not None and optuna_study.id_of(url, summary.study) == summary.id:
            optuna_study.remove(url, summary.study)
        shutil.rmtree(storage.path)
    finally:
        lock.release()


def _check(storage: StudyFolder, summary: StudySummary, url: str | None) -> None:
    """Raise ValueError for a study that runs, or may, and for a folder that more than the study lives in."""
    stands = standing(storage, summary.study, url)
    if stands.runs:
        raise ValueError(f"{summary.study} runs: {stands.head}; stop it with Ctrl-C first")
    if stands.runs is None:
        raise ValueError(f"{summary.study} may run: {stands.why}")
    for kept in (Path.cwd(), Path.home()):
        if kept.resolve().is_relative_to(storage.path):
            raise ValueError(f"{storage} has {kept} in it, which is no part of a study; go elsewhere, or move it away")


def _account(storage: StudyFolder, summary: StudySummary, url: str | None) -> list[str]:
    """What goes, and what stays."""
    files = [path for path in storage.path.rglob("*") if path.is_file() and not path.is_symlink()]
    size = sum(path.stat().st_size for path in files)
    lines = [f"goes   {storage}: {counts(summary)}; {len(files)} files, {size / 2**20:,.1f} MiB"]
    if url is not None:
        mine = optuna_study.id_of(url, summary.study) == summary.id
        what = f"its entry {summary.study} in the ledger {redacted(url)}"
        lines.append(f"goes   {what}" if mine else f"stays  no entry of it is in the ledger {redacted(url)}")
    if summary.tracking.uri and summary.tracking.run_id:
        lines.append(
            f"stays  its runs in MLflow: experiment {summary.tracking.experiment}, run {summary.tracking.run_id}, at "
            f"{anonymous(summary.tracking.uri)}"
        )
    elsewhere = sorted({trial.checkpoint for trial in summary.runs if trial.checkpoint and "://" in trial.checkpoint})
    if elsewhere:
        lines.append(f"stays  on the object store, {len(elsewhere)} trial(s), such as {anonymous(elsewhere[0])}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
