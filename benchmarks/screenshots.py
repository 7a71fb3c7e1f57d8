"""The pictures in docs/figures: of the service's page, and of a report, both of the demo's model.

elias serve models/debian &
python benchmarks/screenshots.py --service http://127.0.0.1:8000
elias report models/debian datasets/debian-packages -o report
python benchmarks/screenshots.py --report report
"""

from __future__ import annotations

import argparse
import os
import shutil
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


def shoot_report(browser: Browser, folder: Path) -> None:
    """The page of a report from top to bottom, in light and dark."""
    for scheme in ("light", "dark"):
        options: Any = {"color_scheme": scheme, "device_scale_factor": 0.7}  # smaller files; it is read at this size
        page = browser.new_page(viewport={"width": 1180, "height": 900}, **options)
        page.goto((folder / "index.html").absolute().as_uri())
        page.screenshot(path=FIGURES / f"report-{scheme}.png", full_page=True)
        page.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--service", metavar="URL", help="of the service that is running")
    parser.add_argument("--report", metavar="FOLDER", type=Path, help="that `elias report` wrote")
    args = parser.parse_args()
    path = os.environ.get("ELIAS_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        if args.service:
            shoot(browser, args.service, "page-suggest", work, locale="en-US")
            shoot(browser, args.service, "page-suggest-dark", work, locale="de-DE", color_scheme="dark")
            shoot(browser, args.service, "page-how", look_inside, locale="en-US")
            shoot(browser, args.service, "page-phone", work, width=390, is_mobile=True, locale="en-US")
        if args.report:
            shoot_report(browser, args.report)
        browser.close()


if __name__ == "__main__":
    main()
