"""A study on a cluster that grows: Ray's own autoscaler, with the provider that starts nodes on this machine."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cluster import RAY, Cluster
from launches import ROOT, TINY, database, summary

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]


def config(cluster: Cluster) -> str:
    """A cluster file: a head without CPUs, and up to two nodes of each of two kinds."""
    node = {"node_config": {}, "min_workers": 0, "max_workers": 2}
    path = cluster.folder / "cluster.json"
    # Ray reads these for clouds, where nodes have to be set up.
    commands = ("initialization", "setup", "head_setup", "worker_setup", "head_start_ray", "worker_start_ray")
    unused: dict[str, Any] = {f"{name}_commands": [] for name in commands}
    unused |= {"file_mounts": {}, "cluster_synced_files": [], "file_mounts_sync_continuously": False}
    unused |= {"rsync_exclude": [], "rsync_filter": [], "docker": {}, "auth": {}}
    path.write_text(
        json.dumps(
            unused
            | {
                "cluster_name": "growing", "max_workers": 2, "idle_timeout_minutes": 5, "upscaling_speed": 1.0,
                "provider": {
                    "type": "fake_multinode", "gcs_address": f"127.0.0.1:{cluster.port}", "use_node_id_as_ip": True,
                    "disable_node_updaters": True, "disable_launch_config_check": True,
                },
                "head_node_type": "ray.head.default",
                "available_node_types": {
                    "ray.head.default": {"node_config": {}, "max_workers": 0, "resources": {"CPU": 0}},
                    "plain": node | {"resources": {"CPU": 4, "object_store_memory": 200_000_000}},
                    "h100": node
                    | {"resources": {"CPU": 1, "accelerator_type:H100": 1, "object_store_memory": 200_000_000}},
                },
            }
        )
    )  # fmt: skip
    return str(path)


def test_nodes_come_as_trials_want_them_and_are_of_the_kind_they_want(tmp_path: Path) -> None:
    growing = {"RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1"}
    with Cluster("t" * 32, **growing) as cluster:
        cluster.head(0, f"--autoscaling-config={config(cluster)}")
        assert cluster.nodes_alive() == 1
        command = [
            sys.executable, "-m", "study.run", str(TINY), "--profile", "kills", "--trials", "2", "--set", "steps=8",
            "--address", f"127.0.0.1:{cluster.port}", "--resources", "accelerator=H100", "--concurrency", "2",
        ]  # fmt: skip

        def run(name: str, *more: str) -> subprocess.CompletedProcess[str]:
            storage = tmp_path / name
            return subprocess.run(
                [*command, "--storage", str(storage), "--tracking-uri", database(storage), *more], cwd=tmp_path,
                env=cluster.with_token(PYTHONPATH=str(ROOT)), capture_output=True, text=True, timeout=600,
            )  # fmt: skip

        refused = run("fixed")
        assert refused.returncode == 2, refused.stderr
        assert re.search("a trial needs 1 CPU .*accelerator H100.* the cluster has 0 CPU on 1 node", refused.stderr)
        done = run("grown", "--max-nodes", "3")
        assert done.returncode == 0, done.stdout + done.stderr
        assert [trial["state"] for trial in summary(tmp_path / "grown")["trials"]] == ["complete", "complete"]
        asked = [RAY, "status", f"--address=127.0.0.1:{cluster.port}"]
        status = subprocess.run(asked, env=cluster.with_token(), capture_output=True, text=True, timeout=120).stdout
        # Two nodes for two trials at a time, and none of the larger kind, which lacks the accelerator.
        assert re.findall(r"^ (\d+) (\S+)$", status, re.MULTILINE) == [("1", "ray.head.default"), ("2", "h100")], status
        assert "From request_resources:\n (none)" in status, "what the study asked for was not taken back"
