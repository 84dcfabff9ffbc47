"""An MLflow server that takes its time over every answer and keeps nothing, in a process of its own."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LIFECYCLE = "active"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    pause_s = 0.0
    numbers = itertools.count()

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, asked: dict[str, Any]) -> None:
        time.sleep(self.pause_s)
        content = json.dumps(self._content(asked)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with suppress(BrokenPipeError):  # whoever asked has ended meanwhile
            self.wfile.write(content)

    def _content(self, asked: dict[str, Any]) -> dict[str, Any]:
        what = self.path.partition("?")[0].rpartition("mlflow/")[2]
        if what in ("runs/create", "runs/get", "runs/update"):
            run_id = asked.get("run_id") or f"{next(self.numbers):032x}"
            info = {"run_id": run_id, "experiment_id": "1", "status": "RUNNING", "lifecycle_stage": LIFECYCLE,
                    "start_time": 0, "artifact_uri": "file:///nowhere"}  # fmt: skip
            return {"run": {"info": info, "data": {}}, "run_info": info}
        if what.startswith("experiments/get"):
            return {"experiment": {"experiment_id": "1", "name": "all", "lifecycle_stage": LIFECYCLE}}
        return {}

    def log_message(self, *arguments: Any) -> None:
        """Say nothing of requests."""


def _serve(pause_s: float, ready: Any) -> None:
    _Handler.pause_s = pause_s
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        ready.send(server.server_port)
        server.serve_forever()


@contextmanager
def answering_in(pause_s: float) -> Iterator[str]:
    """The URI of a server that is there from here to the end of the block, and answers after so many seconds."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(pause_s, theirs), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join()
