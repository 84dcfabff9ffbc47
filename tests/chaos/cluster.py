"""A Ray cluster with token authentication on this machine, from `ray start`, with ports and folders of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import requests
from launches import MARK, ROOT, free_port, marked, until

RAY = Path(sys.executable).parent / "ray"


class Cluster:
    """`head` starts it, `node` adds a node; everything it started is gone on leaving the context."""

    def __init__(self, token: str, **variables: str) -> None:
        """`variables` are set on every node."""
        self.token = token
        self.variables = variables
        self.mark = uuid.uuid4().hex
        # A short path: Ray puts Unix sockets below it, whose names may have 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))
        self.port, self.dashboard = free_port(), free_port()
        self.nodes: list[subprocess.Popen] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.dashboard}"

    def environment(self, **variables: str) -> dict[str, str]:
        """What a process of this cluster finds; a home of its own, because Ray keeps a token in the user's."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "MLFLOW_", "STUDY_"))}
        path = f"{RAY.parent}{os.pathsep}{os.environ['PATH']}"
        own = {MARK: self.mark, "HOME": str(self.folder), "PATH": path, "OMP_NUM_THREADS": "1"}
        return kept | own | {"MLFLOW_DISABLE_TELEMETRY": "true"} | variables

    def with_token(self, **variables: str) -> dict[str, str]:
        return self.environment(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=self.token, **variables)

    def head(self, cpus: int, *more: str) -> subprocess.Popen:
        """Start the head and wait until its dashboard knows it; its process ends when the node does."""
        return self._started(
            lambda: self._get("/api/version") is not None and self.nodes_alive() == 1,
            "--head", f"--port={self.port}", f"--num-cpus={cpus}", "--node-ip-address=127.0.0.1",
            f"--dashboard-port={self.dashboard}", f"--temp-dir={self.folder / 'r'}",
            f"--ray-client-server-port={free_port()}", "--include-dashboard=true", *more,
        )  # fmt: skip

    def node(self, cpus: int, alone_with: Path | None = None) -> subprocess.Popen:
        """Add a node and wait until it has joined; for it alone, the folder `alone_with` is an empty one of its own."""
        # In a folder of its own: nodes that share one delete each other's working folders of jobs.
        folder = self.folder / f"n{len(self.nodes)}"
        before = self.node_ids()
        return self._started(
            lambda: bool(self.node_ids() - before),
            f"--address=127.0.0.1:{self.port}", f"--num-cpus={cpus}", f"--temp-dir={folder}", alone_with=alone_with,
        )  # fmt: skip

    def _started(self, there: Callable[[], bool], *arguments: str, alone_with: Path | None = None) -> subprocess.Popen:
        """A node that is `there`: Ray gives its start 30 s, which a busy machine exceeds now and then."""
        own_mount = f'mount -t tmpfs none "{alone_with}" && exec "$0" "$@"'
        prefix = ["unshare", "--mount", "sh", "-c", own_mount] if alone_with else []
        small = ["--dashboard-agent-listen-port=0", "--object-store-memory=200000000", "--disable-usage-stats"]
        log = self.folder / f"node-{len(self.nodes)}.log"
        for _ in range(3):
            with log.open("w") as screen:
                node = subprocess.Popen(
                    [*prefix, RAY, "start", "--block", *arguments, *small],
                    env=self.with_token(TMPDIR=str(self.folder), **self.variables),
                    cwd=self.folder, stdin=subprocess.DEVNULL, stdout=screen, stderr=subprocess.STDOUT,
                    start_new_session=True,
                )  # fmt: skip
            self.nodes.append(node)
            until(lambda: there() or node.poll() is not None, "a node", pause_s=0.3)  # noqa: B023
            if node.poll() is None:
                return node
        raise AssertionError(log.read_text()[-3000:])

    def nodes_alive(self) -> int:
        return len(self.node_ids())

    def node_ids(self) -> set[str]:
        """Nodes that have joined and are alive, as the dashboard has them."""
        answer = until(lambda: self._get("/nodes?view=summary"), "an answer of the dashboard", pause_s=0.5)
        found = (node["raylet"] for node in answer["data"]["summary"])
        return {raylet["nodeId"] for raylet in found if raylet.get("state") == "ALIVE"}

    def kill(self, node: subprocess.Popen) -> int:
        """SIGKILL for the node and everything on it; returns how many processes that were."""
        with suppress(psutil.NoSuchProcess):
            # `ray start --block` is the parent of its raylet, which is that of its workers.
            everything = [psutil.Process(node.pid), *psutil.Process(node.pid).children(recursive=True)]
            for process in everything:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            node.wait()
            return len(everything)
        return 0

    def drain(self, node_id: str, deadline_s: int) -> None:
        """Tell Ray that the node will be taken away, as a cloud's notice does."""
        subprocess.run(
            [RAY, "drain-node", f"--address=127.0.0.1:{self.port}", f"--node-id={node_id}",
             "--reason=DRAIN_NODE_REASON_PREEMPTION", "--reason-message=test",
             f"--deadline-remaining-seconds={deadline_s}"],
            env=self.with_token(), cwd=self.folder, check=True, capture_output=True, timeout=120,
        )  # fmt: skip

    def state(self, submission_id: str) -> str | None:
        """RUNNING and so on; None while the dashboard does not say."""
        answer = self._get(f"/api/jobs/{submission_id}")
        return answer["status"] if answer else None

    def _get(self, path: str) -> Any:
        """What the dashboard says, None while it says nothing."""
        with suppress(requests.RequestException):
            answer = requests.get(self.address + path, headers={"Authorization": f"Bearer {self.token}"}, timeout=5)
            return answer.json() if answer.ok else None
        return None

    def submit(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """`python -m study.submit` with the cluster's token."""
        return submit(*arguments, "--address", self.address, env=self.with_token(**variables), cwd=self.folder)

    def alive(self) -> list[psutil.Process]:
        return marked(self.mark)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *error: object) -> None:
        while left := self.alive():
            for process in left:
                with suppress(psutil.Error):
                    process.kill()
            for node in self.nodes:
                node.poll()
        shutil.rmtree(self.folder, ignore_errors=True)


def submit(*arguments: str, env: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "study.submit", *arguments], cwd=cwd, env=env | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
