"""The documentation's site in a browser: no page keeps anybody out (axe), is too wide, or reports an error.

Run after `make site`, where chromium and its driver are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.browser import LOOKS, browser  # noqa: E402

SITE = ROOT / "build" / "site"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Requests are not shown; what fails is on the page's console."""


@contextmanager
def served() -> Iterator[str]:
    """The address of the site on a server of this process."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def main() -> int:
    pages = sorted(SITE.glob("*.html"))
    if not pages:
        print(f"{SITE} has no pages: run `make site` first")
        return 2
    told: dict[str, list[str]] = {}
    with served() as address, browser() as shown:
        for page in pages:
            for name, look in LOOKS.items():
                shown.show(f"{address}/{page.name}", **look)
                scheme = "slate" if look.get("dark") else "default"
                shown.wait(f"document.readyState === 'complete' && document.body.dataset.mdColorScheme === '{scheme}'")
                for fault in shown.faults():
                    told.setdefault(fault, []).append(f"{page.name} ({name})")
    for fault, places in told.items():
        print(f"{fault}\n    on {', '.join(places)}")
    print(f"{len(pages)} pages in {len(LOOKS)} looks: {len(told) or 'no'} fault{'s' * (len(told) != 1)}")
    return int(bool(told))


if __name__ == "__main__":
    sys.exit(main())
