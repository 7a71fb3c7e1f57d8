"""The pictures of the page in docs/figures, from a service of datasets/debian-packages that is running.

elias serve models/debian &
python benchmarks/screenshots.py http://127.0.0.1:8000
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

FIGURES = Path(__file__).resolve().parents[1] / "docs" / "figures"
TEXT = (
    "A document viewer for the GNOME desktop that shows PDF and PostScript files, with search, printing and thumbnails."
)


def work(page: Page) -> None:
    """A text with two labels accepted and one rejected, and the reasons for the first."""
    page.fill("#text", TEXT)
    page.wait_for_selector(".suggestion")
    for place, verdict in ((0, "yes"), (2, "no"), (3, "yes")):
        page.locator(".suggestion").nth(place).locator(f".{verdict}").click()
    page.locator(".pick").first.click()
    page.wait_for_selector(".why")
    page.mouse.move(0, 0)
    page.evaluate("document.activeElement.blur()")


def look_inside(page: Page) -> None:
    page.fill("#text", TEXT)
    page.wait_for_selector(".suggestion")
    page.locator("nav a[href='#/how']").click()
    page.wait_for_selector(".graph")
    page.wait_for_selector(".chart >> nth=1")


def shoot(browser: Browser, base: str, name: str, act: Any, width: int = 1280, **options: Any) -> None:
    height = 960 if width > 500 else 1400
    page = browser.new_page(viewport={"width": width, "height": height}, reduced_motion="reduce", **options)
    page.goto(base)
    act(page)
    page.screenshot(path=FIGURES / f"{name}.png")
    page.close()


def main() -> None:
    base = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
    path = os.environ.get("ELIAS_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        shoot(browser, base, "page-suggest", work, locale="en-US")
        shoot(browser, base, "page-suggest-dark", work, locale="de-DE", color_scheme="dark")
        shoot(browser, base, "page-how", look_inside, locale="en-US")
        shoot(browser, base, "page-phone", work, width=390, is_mobile=True, locale="en-US")
        browser.close()


if __name__ == "__main__":
    main()
