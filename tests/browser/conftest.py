"""A real browser: Debian's chromium by its path, driven by Playwright. Without one these tests skip, or fail if
ELIAS_BROWSER=required, which is what `make test-browser` sets."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from elias.model.model import Model
    from helpers.serving import Running

NAMES = ("chromium", "chromium-browser", "google-chrome")
AXE = Path(__file__).parent / "axe" / "axe.min.js"
GOLDEN = Path(__file__).parents[1] / "golden" / "models" / "stacked"


def find_browser() -> str | None:
    return os.environ.get("ELIAS_CHROMIUM") or next((path for name in NAMES if (path := shutil.which(name))), None)


@pytest.fixture(scope="session")
def model() -> Model:
    """A small trained model with calibrated scores: 114 labels, packages of Debian."""
    from elias.model.storage import load_model

    return load_model(GOLDEN, threads=2)


@pytest.fixture(scope="session")
def service(model: Model) -> Iterator[Running]:
    """The model as a service with two names; shared, so leave it as it is."""
    from helpers.serving import running

    with running({"debian": GOLDEN, "again": GOLDEN}, lambda folder: model) as found:
        yield found


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = find_browser()
    if path is None:
        message = "no browser: apt-get install chromium, or set ELIAS_CHROMIUM to its path"
        if os.environ.get("ELIAS_BROWSER") == "required":
            pytest.fail(message)
        pytest.skip(message)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        options = ["--disable-gpu"] + (["--no-sandbox"] if os.geteuid() == 0 else [])
        browser = driver.chromium.launch(executable_path=path, args=options)
        yield browser
        browser.close()


class Seen:
    """Everything a page did that it should not have."""

    def __init__(self, page: Page, base: str) -> None:
        self.problems: list[str] = []
        self.expected: tuple[str, ...] = ()
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("console", self._console)
        page.on("request", lambda request: self._request(request.url, base))

    def _console(self, message: Any) -> None:
        if message.type in {"error", "warning"} and not any(words in message.text for words in self.expected):
            self.problems.append(f"console: {message.text}")

    def _request(self, url: str, base: str) -> None:
        if not url.startswith((base, "data:", "blob:")):
            self.problems.append(f"asked another host: {url}")


def open_page(browser: Browser, found: Running, **options: Any) -> tuple[Page, Seen]:
    """The page in a browser of its own: nothing is remembered from another test."""
    size = {"width": 1280, "height": 900}
    context = browser.new_context(**{"viewport": size, "locale": "en-US", "reduced_motion": "reduce", **options})
    context.set_default_timeout(15_000)
    page = context.new_page()
    seen = Seen(page, found.url)
    page.goto(found.url)
    return page, seen


def close(page: Page) -> None:
    """Close the page and its browser context. Answers still being changed are dropped first: their handlers would
    otherwise fail in whichever test runs next."""
    page.unroute_all(behavior="ignoreErrors")
    page.context.close()


@pytest.fixture
def page(browser: Browser, service: Running) -> Iterator[Page]:
    """The page of the shared service; it must end without an error and without a request to another host."""
    page, seen = open_page(browser, service)
    yield page
    close(page)
    assert seen.problems == []


def serious(page: Page) -> list[str]:
    """What axe-core finds serious or critical on the page as it is now."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{item['impact']}: {item['id']}: {node['html'][:150]}"
        for item in found["violations"]
        if item["impact"] in {"serious", "critical"}
        for node in item["nodes"]
    ]
