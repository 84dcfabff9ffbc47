"""A local S3-compatible server, moto's, with one bucket in memory."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress

import requests
from launches import free_port, until

BUCKET = "studies"


class S3:
    """`start` it; `environment` is what its clients need. It forgets everything when it stops."""

    def __init__(self) -> None:
        self.port = free_port()
        self._server: subprocess.Popen | None = None

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "study",
            "AWS_SECRET_ACCESS_KEY": "not-so-secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def start(self) -> S3:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-p", str(self.port)], env=os.environ | self.environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        until(self._there, "the object store", pause_s=0.1)
        return self

    def _there(self) -> bool:
        assert self._server is not None
        assert self._server.poll() is None, "moto's server ended"
        with suppress(requests.RequestException):
            return requests.put(f"{self.environment['AWS_ENDPOINT_URL']}/{BUCKET}", timeout=5).ok
        return False

    def stop(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.wait()

    def __enter__(self) -> S3:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()
