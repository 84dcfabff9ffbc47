"""A study as a Ray job: the command, files and variables that are sent to a cluster."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from study import request
from study.notify import VARIABLE
from study.planning import provenance
from study.planning.plan import plan
from study.protocol.destinations import Destinations
from study.protocol.folder import StudyFolder
from study.submission import package
from study.uris import sqlite_path
from trainables.digests import text_digest
from trainables.object_store import check_uri

TRACKING = (
    "MLFLOW_TRACKING_URI",
    "MLFLOW_TRACKING_USERNAME",
    "MLFLOW_TRACKING_PASSWORD",
    "MLFLOW_TRACKING_TOKEN",
    "MLFLOW_TRACKING_INSECURE_TLS",
)
"""Variables that a study's tracking server needs; passed where they are set."""

STOP_S = 600
"""How long a stopped study may take to end its trials before Ray kills it; Ray's own default is 3 s."""

HERE_ALONE = {"name", "list", "address", "storage", "ledger", "tracking_uri", "dry_run", "help", "notify"}
"""Options of `study.run` that are not passed on as they are."""


@dataclass(frozen=True)
class Job:
    """What is sent to the cluster."""

    prefix: str
    """How the ids of its submissions begin, PREFIX-1, PREFIX-2, ...: the same for one study in one storage folder."""
    entrypoint: str
    variables: Mapping[str, str]
    """Environment variables; their values are never shown."""
    installs: Mapping[str, str]
    """Ray's installer -> requirements file."""
    files: Mapping[str, Path]
    plan: str

    def shown(self) -> str:
        """What `--dry-run` prints."""
        size = sum(path.stat().st_size for path in self.files.values())
        installed = ", ".join(f"{kind} -r {file}" for kind, file in self.installs.items())
        return "\n".join(
            [
                self.plan,
                "job",
                f"  id          {self.prefix}-N",
                f"  entrypoint  {self.entrypoint}",
                f"  sent        {len(self.files)} files, {size / 2**20:.1f} MiB",
                f"  installed   {installed or 'nothing: the nodes have everything'}",
                f"  environment {', '.join(self.variables)}",
            ]
        )


def build(options: argparse.Namespace) -> Job:
    """Check the request as far as that is possible from here; raises ValueError."""
    asked = request.requested(options, elsewhere=True)
    path = asked.file
    storage = _folder_of(options, asked.name)
    urls = {
        "MLFLOW_TRACKING_URI": options.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI"),
        "STUDY_LEDGER": options.ledger or os.environ.get("STUDY_LEDGER"),
        VARIABLE: options.notify or os.environ.get(VARIABLE),
    }
    for option, url in zip(("--tracking-uri", "--ledger"), urls.values(), strict=False):
        file = sqlite_path(url or "")
        if file is not None and not file.is_absolute():
            raise ValueError(f"{option} {url}: give an absolute path (sqlite:////...) that the cluster's head sees")
    if options.checkpoints:
        check_uri(options.checkpoints, probe=False)
    files = package.files(study_file=path, trainer=asked.study.trainer)
    on_cluster = next(there for there, here in files.items() if here == path)
    words = ["sh", "study/submission/on_cluster.sh", *_interpreter(options)]
    words += [path.stem if on_cluster == f"search_spaces/{path.stem}.py" else on_cluster]
    words += ["--address", "auto", "--storage", str(storage), *_passed_on(options)]
    # URLs may hold a password, and a job's command is shown to whoever looks at the dashboard. What is not given
    # here is left to the environment of the head.
    variables = _variables(options.env) | {variable: url for variable, url in urls.items() if url}
    destinations = Destinations(
        storage, urls["STUDY_LEDGER"] or None, urls["MLFLOW_TRACKING_URI"] or None, options.checkpoints
    )
    return Job(
        prefix=prefix(asked.name, storage),
        entrypoint=shlex.join(words),
        variables=variables | provenance.git_state() | {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_S)},
        installs={kind: str(_file(kind, file)) for kind in ("pip", "uv") if (file := getattr(options, kind))},
        files=files,
        plan=plan(asked.name, asked.profile, asked.study, destinations, outlook=None, keep=options.keep),
    )


def prefix(name: str, storage: StudyFolder) -> str:
    """The beginning of the ids of a study's submissions: equal for all of one study in one storage folder, and
    different for any other.

    >>> prefix("my study", StudyFolder(Path("/shared/studies/mine")))
    'my-study-441c3e'
    """
    digest = text_digest(f"{name}\n{storage}")[:6]
    return f"{re.sub(r'[^A-Za-z0-9_.]+', '-', name)}-{digest}"


def _interpreter(options: argparse.Namespace) -> list[str]:
    """`--python` of `study/submission/on_cluster.sh`; without it that looks for the interpreter that runs Ray."""
    if options.python is not None:
        return ["--python", options.python]
    # Ray makes an environment of what is to be installed, and puts it first on PATH.
    return ["--python", "python"] if options.pip or options.uv else []


def _folder_of(options: argparse.Namespace, name: str) -> StudyFolder:
    if options.storage is None:
        raise ValueError(f"--storage is missing: a folder that all nodes of the cluster see, such as /shared/{name}")
    if not options.storage.is_absolute():
        raise ValueError(
            f"--storage {options.storage} is relative, and means something else on the cluster; give the absolute path "
            "of a folder that all its nodes see"
        )
    return StudyFolder(Path(os.path.normpath(options.storage)))


def _passed_on(options: argparse.Namespace) -> list[str]:
    """The options of `study.run` that were given, as words of its command line."""
    words = []
    for action in request.parser()._actions:
        value = getattr(options, action.dest, None)
        if action.dest in HERE_ALONE or value == action.default:
            continue
        option = action.option_strings[-1]
        if value is True:
            words.append(option)
        for item in value if isinstance(value, list) else [] if value is True else [value]:
            words += [option, str(item)]
    return words


def _variables(names: list[str]) -> dict[str, str]:
    for name in names:
        if name not in os.environ:
            hint = "give the name alone, so that the value stays out of sight" if "=" in name else "it is not set here"
            raise ValueError(f"--env {name.partition('=')[0]}: {hint}")
    return {name: os.environ[name] for name in (*TRACKING, *names) if name in os.environ}


def _file(kind: str, file: Path) -> Path:
    if not file.is_file():
        raise ValueError(f"--{kind} {file}: no such file; name a requirements file")
    return file
