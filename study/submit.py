"""Run a study as a Ray job on a cluster, or carry it on: `python -m study.submit NAME --address http://HEAD:8265`.

Takes the arguments of `study.run`, which is what runs on the cluster. Exit codes: 0 submitted, running already, or,
with --follow, finished; 1 the study failed; 2 the request is wrong; 130 interrupted or stopped.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from study import home, request
from study.submission import job, package
from study.terminal import View, forget
from trainables.arguments import parsed
from trainables.errors import FAILED, FINISHED, INTERRUPTED, WRONG, told

if TYPE_CHECKING:
    from ray.job_submission import JobDetails

    from study.submission.job_server import Jobs


def parser() -> argparse.ArgumentParser:
    """The command line of `study.run`, and what a cluster needs beyond it."""
    parser = argparse.ArgumentParser(
        prog="python -m study.submit",
        description="Run a study on a Ray cluster, or carry on an interrupted one: the same command does both.",
        parents=[request.parser()],
        epilog="examples:\n  python -m study.submit splade_k_search --address http://HEAD:8265 --storage /shared/k\n"
        "  python -m study.submit --address http://HEAD:8265 --status ID",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
        conflict_handler="resolve",
    )
    parser.add_argument("--address", metavar="URL", help="dashboard of the cluster: http(s)://HEAD:8265")
    parser.add_argument("--storage", type=Path, metavar="DIR", help="folder of the study that all nodes see; absolute")
    cluster = parser.add_argument_group("cluster")
    cluster.add_argument("--follow", action="store_true", help="show what the study prints until it ends")
    asked = cluster.add_mutually_exclusive_group()
    asked.add_argument("--status", metavar="ID", help="show how a submitted study stands")
    asked.add_argument("--logs", metavar="ID", help="show what a submitted study has printed")
    asked.add_argument("--stop", metavar="ID", help="stop a submitted study as Ctrl-C does, and wait for its end")
    packages = cluster.add_mutually_exclusive_group()
    packages.add_argument("--pip", type=Path, metavar="FILE", help="requirements that every node installs with pip")
    packages.add_argument("--uv", type=Path, metavar="FILE", help="the same with uv (default: the nodes have all)")
    cluster.add_argument(
        "--python", metavar="PATH", help="interpreter of the nodes that runs the study (default: the one that runs Ray)"
    )
    cluster.add_argument(
        "--env", action="append", default=[], metavar="NAME", help="pass this environment variable (MLFLOW_* anyway)"
    )
    cluster.add_argument("--header", action="append", default=[], metavar="KEY=VALUE", help="HTTP header to send")
    cluster.add_argument("--verify", metavar="FILE|no", help="certificates to trust at an https address, or 'no'")
    return parser


def main(arguments: list[str] | None = None) -> int:
    options = parsed(parser(), arguments)
    try:
        if options.list:
            print(request.listing(), flush=True)
            return FINISHED
        for act, submission_id in ((_status, options.status), (_logs, options.logs), (_stop, options.stop)):
            if submission_id is not None:
                return act(connect(options), submission_id, options)
        return submit(options)
    except BrokenPipeError:
        # The reader of the pipe has gone; the study on the cluster goes on.
        forget(sys.stdout)
        return FINISHED
    except (ValueError, OSError) as error:
        print(f"error: {told(error)}", file=View(sys.stderr))
        return WRONG
    except KeyboardInterrupt:
        return INTERRUPTED


def submit(options: argparse.Namespace) -> int:
    """Start the study on the cluster unless it runs there already."""
    wanted = job.build(options)
    if options.dry_run:
        print(wanted.shown(), flush=True)
        return FINISHED
    jobs = connect(options)
    before = jobs.of(wanted.prefix)
    if before and not before[-1].status.is_terminal():
        submission_id = before[-1].submission_id or ""
        _say(f"{submission_id} is already running since {_when(before[-1].start_time)}; nothing was submitted")
    else:
        submission_id = _send(jobs, wanted, f"{wanted.prefix}-{_number(before) + 1}")
        _say(f"{submission_id} {'carries the study on' if before else 'submitted'}")
    if options.follow:
        return _follow(jobs, submission_id)
    _say(_hints(jobs, submission_id))
    return FINISHED


def connect(options: argparse.Namespace) -> Jobs:
    """The job server at `--address`; raises ValueError with one sentence where there is none for us."""
    if options.address is None:
        raise ValueError("--address is missing: http(s)://HEAD:8265, the dashboard of the cluster")
    if not _is_dashboard(options.address):
        raise ValueError(f"--address {options.address}: give the dashboard of the cluster, http(s)://HEAD:8265")
    home.provide()
    # Ray would prefer these to the address that was asked for.
    for name in ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS"):
        os.environ.pop(name, None)
    from study.submission import job_server

    return job_server.Jobs(options.address, _pairs(options.header), job_server.verified(options.verify), _say)


def _is_dashboard(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _pairs(headers: list[str]) -> dict[str, str]:
    for header in headers:
        name, equals, value = header.partition("=")
        if not equals or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
            raise ValueError(f"--header takes KEY=VALUE with the name of an HTTP header, not '{name}'")
        if not value.isprintable() or not value.isascii():
            raise ValueError(f"--header {name}: its value has characters that HTTP does not allow")
    return {key: value for key, _, value in (header.partition("=") for header in headers)}


def _number(before: list[JobDetails]) -> int:
    return int((before[-1].submission_id or "").rpartition("-")[2]) if before else 0


def _send(jobs: Jobs, wanted: job.Job, submission_id: str) -> str:
    with tempfile.TemporaryDirectory(prefix="study-") as folder:
        package.write(wanted.files, Path(folder))
        return jobs.submit_job(
            entrypoint=wanted.entrypoint,
            submission_id=submission_id,
            runtime_env={"working_dir": folder, "env_vars": dict(wanted.variables), **wanted.installs},
        )


def _status(jobs: Jobs, submission_id: str, options: argparse.Namespace) -> int:
    found = jobs.get_job_info(submission_id)
    print(f"{submission_id}  {found.status.value}")
    print(f"  entrypoint  {found.entrypoint}")
    print(f"  submitted   {_when(found.start_time)}")
    if found.status.is_terminal():
        print(f"  ended       {_when(found.end_time)}")
        print(f"  exit code   {_code(found)}")
        if found.driver_exit_code is None and found.message:
            print(f"  reason      {found.message.strip()[-2000:]}")
    return FINISHED


def _logs(jobs: Jobs, submission_id: str, options: argparse.Namespace) -> int:
    if options.follow:
        return _follow(jobs, submission_id)
    print(jobs.get_job_logs(submission_id), end="", flush=True)
    return FINISHED


def _stop(jobs: Jobs, submission_id: str, options: argparse.Namespace) -> int:
    if not jobs.stop_job(submission_id):
        _say(f"{submission_id} is not running: {jobs.get_job_info(submission_id).status.value}")
        return FINISHED
    _say(f"{submission_id} is asked to stop: its trials stop at their next step (killed after {job.STOP_S} s)")
    ended = jobs.end(submission_id)
    _say(f"{submission_id} {ended.status.value}; the command that submitted it carries the study on")
    return FINISHED


def _follow(jobs: Jobs, submission_id: str) -> int:
    from study.submission.job_server import Lost

    try:
        ended = jobs.follow(submission_id, _print)
    except Lost as error:
        _say(f"error: {error}\nThe same command carries the study on, on any cluster that sees its storage.")
        return FAILED
    except KeyboardInterrupt:
        _say(f"\nthe study goes on\n{_hints(jobs, submission_id)}")
        return INTERRUPTED
    _say(f"{submission_id} {ended.status.value}")
    if ended.driver_exit_code is None and ended.status.value == "FAILED":
        _say((ended.message or "").strip()[-2000:])
    return _code(ended)


def _code(ended: JobDetails) -> int:
    """The exit code of `study.run` on the cluster, also where Ray has kept none."""
    if ended.driver_exit_code is not None:
        return ended.driver_exit_code
    return {"SUCCEEDED": FINISHED, "STOPPED": INTERRUPTED}.get(ended.status.value, FAILED)


def _hints(jobs: Jobs, submission_id: str) -> str:
    command = f"python -m study.submit --address {jobs.shown}"
    return (
        f"follow  {command} --logs {submission_id} --follow\n"
        f"status  {command} --status {submission_id}\n"
        f"stop    {command} --stop {submission_id}"
    )


def _when(milliseconds: int | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(milliseconds / 1000)) if milliseconds else "-"


def _print(text: str) -> None:
    print(text, end="", flush=True)


def _say(text: str) -> None:
    """Messages of this command go beside what the study prints."""
    print(text, file=View(sys.stderr), flush=True)


if __name__ == "__main__":
    sys.exit(main())
