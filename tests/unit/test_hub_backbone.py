"""A hub name is fetched from the hub: here from a server on this machine that answers as the hub does."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "trainables" / "embedded_encoder"


class Hub(BaseHTTPRequestHandler):
    """The embedded encoder's folder as the hub's repository `someone/encoder`."""

    def do_GET(self) -> None:
        parts = self.path.split("?")[0].strip("/").split("/")
        if parts[:4] == ["api", "models", "someone", "encoder"]:
            files = [{"rfilename": path.name} for path in MODEL.iterdir() if path.is_file()]
            self.answer(json.dumps([] if "tree" in parts else {"id": "someone/encoder", "siblings": files}).encode())
            return
        path = MODEL / parts[-1]
        if parts[:4] != ["someone", "encoder", "resolve", "main"] or not path.is_file():
            self.send_response(404)
            missing = "EntryNotFound" if parts[:2] == ["someone", "encoder"] else "RepoNotFound"
            self.send_header("X-Error-Code", missing)
            self.end_headers()
            return
        self.answer(path.read_bytes())

    def answer(self, data: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", "1" * 40)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    do_HEAD = do_GET  # noqa: N815  (the name that http.server looks for)

    def log_message(self, *arguments: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def hub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def load(hub: str, cache: Path, *names: str) -> subprocess.CompletedProcess[str]:
    """A line for each name: the size of the model that is fetched, or the refusal."""
    code = (
        "import sys\nfrom trainables.encoders import load_masked_lm\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n        model, _ = load_masked_lm(name)\n        print(sum(p.numel() for p in model.parameters()))\n"
        "    except ValueError as error:\n        print('refused:', error)\n"
    )
    env = os.environ | {"HF_ENDPOINT": hub, "HF_HOME": str(cache), "HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0"}
    return subprocess.run(
        [sys.executable, "-c", code, *names], cwd=ROOT, env=env, capture_output=True, text=True, timeout=120
    )


def test_a_hub_name_is_fetched_and_an_unknown_one_refused(hub, tmp_path) -> None:
    done = load(hub, tmp_path, "someone/encoder", "nobody/nothing")
    size, _, refused = done.stdout.partition("\n")
    assert size.isdigit(), done.stdout + done.stderr[-2000:]
    assert int(size) > 10**6
    said = "refused: backbone 'nobody/nothing' is no folder here, and does not open as a name on the hub"
    assert refused.startswith(said)
