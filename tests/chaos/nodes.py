"""A Ray cluster of several nodes on this machine: separate raylets, each started by `ray start`, token auth on."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType

from launches import MARK, ROOT, free_port, until

RAY = Path(sys.executable).with_name("ray")
QUICK = {
    # A lost node is noticed in seconds, as a killed one is on a real network when its connection breaks.
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_failure_threshold": "5",
}


class Cluster:
    """Starts with nothing; `head` first, then `node` as often as wanted. Everything ends with the `with` block."""

    def __init__(self, folder: Path, *, dashboard: bool = False) -> None:
        self.folder, self.dashboard = folder, dashboard
        self.port, self.dashboard_port = free_port(), free_port()
        self.mark = secrets.token_hex(8)
        # A short path: Ray puts Unix sockets below it, whose names may have 107 bytes.
        self.temporary = Path(tempfile.mkdtemp(prefix="n"))
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "MLFLOW_"))}
        self.environment = clean | QUICK | {
            "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT), "MLFLOW_DISABLE_TELEMETRY": "true", "RAY_USAGE_STATS_ENABLED": "0",
        }  # fmt: skip
        """For nodes and for whoever connects to them."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def dashboard_url(self) -> str:
        return f"http://127.0.0.1:{self.dashboard_port}"

    def head(self) -> None:
        """A head node without CPUs, so that gangs run elsewhere; a second one after a kill has the same address."""
        dashboard = ["--include-dashboard", str(self.dashboard).lower(), "--dashboard-port", str(self.dashboard_port)]
        self._start("head", "--head", "--port", str(self.port), "--num-cpus", "0", *dashboard,
                    "--temp-dir", str(self.temporary / secrets.token_hex(2)))  # fmt: skip

    def node(self, name: str, cpus: float, *options: str) -> None:
        """A node with so many logical CPUs; `options` as of `ray start`."""
        self._start(name, "--address", self.address, "--num-cpus", f"{cpus:g}", *options)

    def kill(self, name: str) -> None:
        """SIGKILL for everything on the node, as when its power fails."""
        process = self.nodes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _start(self, name: str, *options: str) -> None:
        log = self.folder / f"{name}.log"
        with log.open("ab") as file:
            start = file.tell()
            process = subprocess.Popen(
                [RAY, "start", "--block", "--disable-usage-stats", *options], stdin=subprocess.DEVNULL, stdout=file,
                stderr=subprocess.STDOUT, env=self.environment | {MARK: self.mark}, start_new_session=True,
            )  # fmt: skip
        self.nodes[name] = process

        def said() -> str:
            return log.read_bytes()[start:].decode(errors="replace")

        until(lambda: "Ray runtime started" in said() or process.poll() is not None, f"node {name}")
        assert process.poll() is None, said()[-3000:]

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        for name in list(self.nodes):
            self.kill(name)
        shutil.rmtree(self.temporary, ignore_errors=True)
