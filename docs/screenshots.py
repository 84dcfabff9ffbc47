"""Take the pictures of reports that the pages show: `python docs/screenshots.py`, where chromium and its driver are.

They are of made-up studies, whose values are equal on every machine.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "unit")]

import synthetic_groups  # noqa: E402
import synthetic_study  # noqa: E402

from study.protocol.folder import StudyFolder  # noqa: E402
from study.reporting.page import write  # noqa: E402
from tests.browser import browser  # noqa: E402

IMAGES = ROOT / "docs" / "images"
DRAWN = "document.documentElement.classList.contains('drawn')"
MADE: dict[str, Callable[[Path], Any]] = {
    "few": partial(synthetic_study.write_study, grid=synthetic_study.K_STUDY),
    "many": synthetic_study.backbones_study,
    "groups": synthetic_groups.write_groups,
    "angle": synthetic_study.angle_study,
    "retromae": synthetic_study.retromae_study,
}
PICTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "report": ("few", {"height": 950}),
    "report-dark": ("many", {"height": 850, "dark": True}),
    "report-phone": ("many", {"height": 1350, "width": 390, "phone": True}),
    "report-print": ("few", {"height": 1050, "width": 760, "media": "print"}),
    "report-groups": ("groups", {"height": 1000}),
    "report-angle": ("angle", {"height": 1300}),
    "report-retromae": ("retromae", {"height": 900}),
}
"""Name of a picture -> of which study the report is, and how it is shown."""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, browser() as shown:
        pages = {}
        for study, make in MADE.items():
            make(Path(folder) / study)
            pages[study] = write(StudyFolder(Path(folder) / study))
        for name, (study, look) in PICTURES.items():
            shown.show(pages[study], **{key: value for key, value in look.items() if key != "height"})
            shown.wait(DRAWN)
            (IMAGES / f"{name}.png").write_bytes(shown.picture(look["height"]))


if __name__ == "__main__":
    main()
