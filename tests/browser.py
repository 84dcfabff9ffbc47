"""Chromium without a screen, for tests and pictures of pages."""

from __future__ import annotations

import base64
import importlib.util
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.support.wait import WebDriverWait

CHROMIUM, DRIVER = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
THERE = CHROMIUM is not None and DRIVER is not None
LOOKS: dict[str, dict[str, Any]] = {"light": {}, "dark": {"dark": True}, "phone": {"width": 390, "phone": True}}
"""How a page is looked at: the arguments of `Browser.show`."""


class Browser:
    """One Chromium; each `show` sets the window up anew."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver
        found = importlib.util.find_spec("axe_selenium_python")
        assert found is not None and found.origin is not None  # noqa: PT018
        self.axe = Path(found.origin).with_name("node_modules").joinpath("axe-core", "axe.min.js").read_text()

    def show(
        self, page: Path | str, width: int = 1280, dark: bool = False, phone: bool = False, media: str = ""
    ) -> None:
        """Open a file or an address in a window of `width` pixels; a phone has fingers instead of a mouse.

        `media` is that of CSS: "print" for a page as it is on paper.
        """
        self.cdp(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=844 if phone else 900, deviceScaleFactor=1, mobile=phone,
        )  # fmt: skip
        self.cdp("Emulation.setTouchEmulationEnabled", enabled=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.cdp("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.driver.get(page.as_uri() if isinstance(page, Path) else page)

    def wait(self, script: str, seconds: float = 30) -> Any:
        """Wait until an expression of JavaScript is true; returns its value."""
        return WebDriverWait(self.driver, seconds, 0.05).until(lambda driver: driver.execute_script(f"return {script}"))

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def faults(self) -> list[str]:
        """What keeps people out of the page as it is shown (axe), what makes it too wide, errors on its console."""
        self.run(self.axe)
        script = "const done = arguments[0]; axe.run().then((found) => done(JSON.stringify(found.violations)))"
        violations = json.loads(self.driver.execute_async_script(script))
        told = [f"{v['id']}: {v['help']}: {n['html'][:200]} {n['any'][:1]}" for v in violations for n in v["nodes"]]
        width, window = self.run("return [document.documentElement.scrollWidth, innerWidth]")
        if width > window:
            told.append(f"{width} pixels wide in a window of {window}")
        return told + [line["message"] for line in self.driver.get_log("browser")]

    def picture(self, height: int | None = None) -> bytes:
        """A PNG of the page, down to its end or to `height`."""
        width, whole = self.run("return [innerWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": width, "height": min(whole, height or whole), "scale": 1}
        taken = self.cdp("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(taken["data"])

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(self.cdp("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"])

    def cdp(self, command: str, **arguments: Any) -> Any:
        return self.driver.execute_cdp_cmd(command, arguments)


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser, closed at the end; `THERE` says whether there can be one."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(str(DRIVER)))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
