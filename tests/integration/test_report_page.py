"""The report as a browser has it: figures that are drawn and answer, tables that sort, pages that keep nobody out."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from study.protocol.folder import StudyFolder
from study.reporting.page import write, write_while_running
from tests import browser as browsers
from tests.browser import LOOKS, Browser
from tests.unit.synthetic_groups import write_groups

pytestmark = pytest.mark.skipif(not browsers.THERE, reason="there is no chromium with its driver")
UNIT = Path(__file__).resolve().parents[1] / "unit" / "synthetic_study.py"
_spec = importlib.util.spec_from_file_location("synthetic_study", UNIT)
assert _spec is not None and _spec.loader is not None  # noqa: PT018
synthetic = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(synthetic)
DRAWN = "document.documentElement.classList.contains('drawn')"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    synthetic.write_study(folder / "running", synthetic.K_STUDY, status="running")
    write_while_running(StudyFolder(folder / "running"))
    found = {"running": folder / "running" / "report.html"}
    for name, make in (
        ("angle", synthetic.angle_study),
        ("retromae", synthetic.retromae_study),
        ("backbones", synthetic.backbones_study),
        ("groups", write_groups),
    ):
        make(folder / name)
        found[name] = write(StudyFolder(folder / name))
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsers.browser() as found:
        yield found


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("name", ["running", "angle", "retromae", "backbones", "groups"])
def test_pages_keep_nobody_out(browser: Browser, pages: dict[str, Path], name: str, look: str) -> None:
    browser.show(pages[name], **LOOKS[look])
    browser.wait(DRAWN)
    # What is folded is looked at as well.
    browser.run("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    assert browser.faults() == []


def test_figures_are_as_wide_as_their_place_and_can_be_taken_away(browser: Browser, pages: dict[str, Path]) -> None:
    for look, widest in (("light", 1280), ("phone", 390)):
        browser.show(pages["backbones"], **LOOKS[look])
        browser.wait(DRAWN)
        widths = browser.run("return [...document.querySelectorAll('.chart canvas')].map((one) => one.clientWidth)")
        room = browser.run("return document.querySelector('.chart').clientWidth")
        assert len(widths) == 5
        assert all(room - 12 <= width <= room <= widest for width in widths)
    csv = browser.driver.execute_async_script(
        "const done = arguments[0]; fetch(document.querySelector('.csv').href).then((a) => a.text()).then(done)"
    )
    assert csv.splitlines()[0].startswith("trial,parameters,state,setting,series,value")
    assert browser.run("return document.querySelector('.svg').href").startswith("data:image/svg+xml;base64,")


def test_a_click_in_a_legend_picks_and_another_figure_stays(browser: Browser, pages: dict[str, Path]) -> None:
    browser.show(pages["angle"])
    browser.wait(DRAWN)
    # The legend's first entry, in the figure of means.
    canvas = "document.querySelector('#means_spearman canvas')"
    pixels = f"{canvas}.toDataURL()"
    before = browser.run(f"return [{pixels}, document.querySelector('#means_pearson canvas').toDataURL()]")
    box = browser.run(f"{canvas}.scrollIntoView(); const box = {canvas}.getBoundingClientRect(); return [box.x, box.y]")
    for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
        browser.cdp(
            "Input.dispatchMouseEvent", type=kind, x=box[0] + 75, y=box[1] + 14, button="left", clickCount=1
        )  # fmt: skip
    browser.wait(f"{pixels} !== {json.dumps(before[0])}")
    assert browser.run("return document.querySelector('#means_pearson canvas').toDataURL()") == before[1]


def test_the_table_of_trials_is_sorted_by_the_keyboard(browser: Browser, pages: dict[str, Path]) -> None:
    browser.show(pages["backbones"])
    column = "[...document.querySelectorAll('.sortable tbody tr')].map((row) => row.cells[6].textContent)"
    heading = "document.querySelector('.sortable thead').rows[0].cells[6]"
    before = browser.run(f"return {column}")
    for direction in ("ascending", "descending"):
        browser.run(f"{heading}.firstChild.focus()")
        for kind in ("keyDown", "keyUp"):
            browser.cdp("Input.dispatchKeyEvent", type=kind, key="Enter", text="\r", windowsVirtualKeyCode=13)
        assert browser.run(f"return {heading}.ariaSort") == direction
        shown = browser.run(f"return {column}")
        values = [float(text) for text in shown if text != "–"]
        assert values == sorted(values, reverse=direction == "descending")
        assert shown[len(values) :] == ["–"] * (len(shown) - len(values))
        assert sorted(shown) == sorted(before)


def test_the_corrected_p_values_of_arms_are_seen_without_scrolling(browser: Browser, pages: dict[str, Path]) -> None:
    browser.show(pages["angle"])
    found = browser.run(
        "return [...document.querySelectorAll('.scroll')].map((one) => [one.scrollWidth, one.clientWidth])"
    )
    assert all(inner <= room for inner, room in found)


def test_a_wide_table_says_that_it_scrolls(browser: Browser, pages: dict[str, Path]) -> None:
    browser.show(pages["backbones"], **LOOKS["phone"])
    told = "getComputedStyle(document.querySelector('.scroll:has(.sortable)'), '::before').content"
    browser.wait(f"{told}.includes('scroll sideways')")
    browser.show(pages["angle"])
    assert browser.run(f"return {told}") == "none"


def test_on_paper_the_figures_are_pictures(browser: Browser, pages: dict[str, Path]) -> None:
    browser.show(pages["retromae"])
    browser.wait(DRAWN)
    shown = (
        "['.chart', 'figure img'].map((name) => [...document.querySelectorAll(name)]"
        ".filter((one) => getComputedStyle(one).display !== 'none').length)"
    )
    assert browser.run(f"return {shown}") == [5, 0]
    browser.cdp("Emulation.setEmulatedMedia", media="print")
    assert browser.run(f"return {shown}") == [0, 5]
    assert browser.pdf().startswith(b"%PDF")
    browser.cdp("Emulation.setEmulatedMedia", media="")
