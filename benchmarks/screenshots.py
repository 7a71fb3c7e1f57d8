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

from playwright.sync_api import Browser, sync_playwright

FIGURES = Path(__file__).resolve().parents[1] / "docs" / "figures"
TEXT = (
    "A document viewer for the GNOME desktop that shows PDF and PostScript files, with search, printing and thumbnails."
)


def shoot(browser: Browser, base: str, name: str, view: str, ready: str, width: int = 1280, **options: Any) -> None:
    height = 900 if width > 500 else 1560
    page = browser.new_page(viewport={"width": width, "height": height}, reduced_motion="reduce", **options)
    page.goto(f"{base}/{view}")
    if view == "#/suggest":
        page.fill("#text", TEXT)
    page.wait_for_selector(ready)
    page.screenshot(path=FIGURES / f"{name}.png")
    page.close()


def main() -> None:
    base = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
    path = os.environ.get("ELIAS_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        shoot(browser, base, "page-suggest", "#/suggest", ".graph")
        shoot(browser, base, "page-suggest-dark", "#/suggest", ".graph", color_scheme="dark")
        shoot(browser, base, "page-explore", "#/explore/label/evince", "table")
        shoot(browser, base, "page-phone", "#/suggest", ".graph", width=390, is_mobile=True)
        browser.close()


if __name__ == "__main__":
    main()
