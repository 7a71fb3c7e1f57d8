"""The page in a real browser: its views, by mouse and by keyboard, at phone width, and checked by axe-core."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from elias.dataset.labels import LabelSet
from elias.model.model import Model
from helpers.serving import Running, running

from .conftest import open_page, serious

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser
VIEWS = ["#/suggest", "#/explore", "#/explore/label/label-07", "#/explore/cluster/1", "#/batch", "#/about"]
CAPTION = "name => document.querySelector('figcaption').textContent.startsWith(name)"
NOTICE = "words => document.querySelector('#work .notice')?.textContent.includes(words)"
PHONE = {"width": 360, "height": 740}


@pytest.fixture(scope="module")
def text(tiny_dataset: Path) -> str:
    row: dict[str, Any] = json.loads((tiny_dataset / "test.jsonl").read_text(encoding="utf-8").splitlines()[0])
    return str(row["text"])


def names(page: Page) -> list[str]:
    return [str(item.get_attribute("data-label")) for item in page.locator(".suggestion").all()]


def best(model: Model, text: str, k: int) -> list[str]:
    return [label for label, _ in model.predict([text], k).named()[0]]


def show(page: Page, found: Running, view: str) -> None:
    page.goto(f"{found.url}/{view}")
    page.wait_for_selector("[data-view] h1")


def test_suggestions_appear_while_typing(page: Page, tiny_model: Model, text: str) -> None:
    page.locator("#text").press_sequentially(text[:20])
    page.wait_for_function("() => document.querySelectorAll('.suggestion').length === 10")
    page.fill("#text", text)
    expected = best(tiny_model, text, 10)
    shown = "names => [...document.querySelectorAll('.suggestion')].map(b => b.dataset.label).join() === names"
    page.wait_for_function(shown, arg=",".join(expected))
    first = page.locator(".suggestion").first
    bars = first.locator(".bar").all()
    assert [bar.get_attribute("class") for bar in bars[:3]] == ["bar cluster", "bar edge", "bar classifier"]
    item = tiny_model.predict([text], 1, explain=True).records()[0][0]
    share = first.locator(".bar.classifier > span").evaluate("span => parseFloat(span.style.width)")
    assert share == pytest.approx(100 * item["classifier"] ** 0.5, abs=0.5)
    assert f"{item['score']:.3f}" in first.locator(".score").inner_text()
    page.select_option("#k", "5")
    page.wait_for_function("() => document.querySelectorAll('.suggestion').length === 5")
    page.fill("#text", "")
    page.wait_for_selector(".empty")


def test_a_label_shows_its_winning_path(page: Page, tiny_model: Model, text: str) -> None:
    page.fill("#text", text)
    page.wait_for_selector(".graph")
    records = tiny_model.predict([text], 3, explain=True).records()[0]
    second = records[1]
    page.locator(".suggestion").nth(1).click()
    page.wait_for_function(
        "name => document.querySelector('figcaption').textContent.startsWith(name)", arg=second["label"]
    )
    assert f"through cluster {second['cluster']}," in page.locator("figcaption").inner_text()
    assert page.locator(".suggestion").nth(1).get_attribute("aria-pressed") == "true"
    assert page.locator(".suggestion").nth(0).get_attribute("aria-pressed") == "false"
    assert page.locator(".graph path.chosen.wins").count() == 2, "from the text to the cluster, from there to the label"
    widths = page.locator(".graph path.chosen").evaluate_all("paths => paths.map(p => +p.getAttribute('stroke-width'))")
    winner = page.locator(".graph path.chosen.wins").last.evaluate("p => +p.getAttribute('stroke-width')")
    assert winner == max(widths[2:] or [winner])
    page.locator("details summary").first.click()
    assert page.locator("#why td .badge").inner_text() == "wins"


def test_by_keyboard_alone(page: Page, text: str) -> None:
    page.locator("#text").focus()
    page.keyboard.insert_text(text)
    page.wait_for_selector(".graph")
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.classList.contains('suggestion')"):
            break
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelectorAll('.suggestion')[1].getAttribute('aria-pressed') === 'true'")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid", "focus can be seen"
    label = names(page)[1]
    page.wait_for_function(CAPTION, arg=label)
    node = page.locator(f'.graph [role=button][aria-label^="{names(page)[0]}:"]')
    node.focus()
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelectorAll('.suggestion')[0].getAttribute('aria-pressed') === 'true'")


def test_walking_through_the_index(page: Page, service: Running, tiny_model: Model) -> None:
    show(page, service, "#/explore")
    assert page.locator(".chart rect").count() == 20 + len(
        service.get("/v1/index").json["clusters_per_label_by_decile"]
    )
    page.fill("#search", "label-07")
    page.locator("#hits a").first.click()
    page.wait_for_selector("h1:text-is('label-07')")
    home = int(tiny_model.stage1_clusters[tiny_model.labels.number_of["label-07"]])
    assert f"cluster {home}" in page.locator("[data-view]").inner_text()
    page.locator("table a").first.click()
    page.wait_for_selector("h1:has-text('Cluster ')")
    cluster = int(page.locator("h1").inner_text().split()[1])
    assert page.locator(".chip").all_inner_texts() == tiny_model.cluster_words[cluster]
    other = page.locator("table a").first.inner_text()
    page.locator("table a").first.click()
    page.wait_for_selector(f"h1:text-is('{other}')")
    page.go_back()
    page.wait_for_selector(f"h1:text-is('Cluster {cluster}')")


@pytest.mark.parametrize("kind", ["txt", "csv", "jsonl.gz"])
def test_a_file_of_texts(page: Page, service: Running, tiny_model: Model, kind: str) -> None:
    texts = ["bada kuku", 'with "quotes", commas', "Ähre", *(f"text {n}" for n in range(250))]
    if kind == "txt":
        content = "".join(f"{text}\n" for text in texts).encode()
    elif kind == "csv":
        rows = [f'{n},"{text.replace(chr(34), chr(34) * 2)}"' for n, text in enumerate(texts)]
        content = "\r\n".join(["id,text", *rows]).encode()
    else:
        lines = [json.dumps({"id": str(n), "text": text}) for n, text in enumerate(texts)]
        content = gzip.compress("\n".join(lines).encode())
    show(page, service, "#/batch")
    page.set_input_files("#file", {"name": f"my texts.{kind}", "mimeType": "text/plain", "buffer": content})
    page.wait_for_selector("a[download]")
    with page.expect_download() as waiting:
        page.locator("a[download]").first.click()
    assert waiting.value.suggested_filename == "my texts.labels.jsonl"
    lines = Path(waiting.value.path()).read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    expected = [[label for label, _ in row] for row in tiny_model.predict(texts, 5).named()]
    assert [[item["label"] for item in row["labels"]] for row in found] == expected
    assert [row.get("id") for row in found] == [None if kind == "txt" else str(n) for n in range(len(texts))]
    assert "253 of 253 texts" in page.locator("#work").inner_text()


def test_a_dropped_file_and_a_wrong_one(page: Page, service: Running) -> None:
    show(page, service, "#/batch")
    drop = """([name, content]) => {
        const data = new DataTransfer();
        data.items.add(new File([content], name));
        document.getElementById("drop").dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true }));
    }"""
    page.evaluate(drop, ["texts.txt", "one\ntwo\n"])
    page.wait_for_selector("a[download]")
    for name, content, words in (
        ("a.jsonl", '{"text": "a"}\n{"text": 5}\n', "a.jsonl:2"),
        ("a.csv", "name,label\n1,2\n", 'one of them "text"'),
        ("a.pdf", "x", "give a .txt"),
        ("a.txt", "", "holds no text"),
    ):
        page.evaluate(drop, [name, content])
        page.wait_for_function(
            "words => document.querySelector('#work .notice')?.textContent.includes(words)", arg=words
        )


def test_about(page: Page, service: Running) -> None:
    show(page, service, "#/about")
    content = page.locator("[data-view]").inner_text()
    assert "Model tiny" in content
    assert "P@5" in content
    page.locator("summary:text-is('encoder')").click()
    assert "dropout" in page.locator("[data-view]").inner_text()


def test_another_model_can_be_chosen(page: Page, text: str) -> None:
    page.select_option("#model", "again")
    with page.expect_request("**/v1/predict") as waiting:
        page.fill("#text", text)
    assert waiting.value.post_data_json["model"] == "again"
    page.wait_for_selector(".suggestion")


@pytest.mark.parametrize("view", VIEWS)
def test_on_a_phone_nothing_is_cut_off(browser: Browser, service: Running, text: str, view: str) -> None:
    page, seen = open_page(browser, service, viewport=PHONE, is_mobile=True, has_touch=True)
    show(page, service, view)
    if view == "#/suggest":
        page.fill("#text", text)
        page.wait_for_selector(".graph")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    for link in page.locator("nav a").all():
        box = link.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= PHONE["width"]
        assert box["height"] >= 24
    assert serious(page) == []
    page.context.close()
    assert seen.problems == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser: Browser, service: Running, text: str, scheme: Any) -> None:
    page, seen = open_page(browser, service, color_scheme=scheme, reduced_motion="reduce")
    page.fill("#text", text)
    page.wait_for_selector(".graph")
    found = {"#/suggest with a text": serious(page)}
    for view in VIEWS[1:]:
        show(page, service, view)
        found[view] = serious(page)
    show(page, service, "#/batch")
    page.set_input_files("#file", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"one\ntwo\n"})
    page.wait_for_selector("a[download]")
    found["#/batch with results"] = serious(page)
    assert found == {view: [] for view in found}
    page.locator("#theme").click()
    other = "light" if scheme == "dark" else "dark"
    assert page.evaluate("document.documentElement.dataset.theme") == other
    page.context.close()
    assert seen.problems == []


def test_axe_would_find_something(page: Page) -> None:
    """The check itself can fail."""
    page.evaluate("document.body.append(Object.assign(document.createElement('input'), {type: 'text'}))")
    assert any("label" in finding for finding in serious(page))


def test_a_token_is_asked_for(browser: Browser, tiny_model: Model, tiny_model_folder: Path, text: str) -> None:
    with running({"tiny": tiny_model_folder}, lambda folder: tiny_model, token="the-token-of-this-test") as found:
        page, seen = open_page(browser, found)
        seen.expected = ("401",)
        page.wait_for_selector("#token-dialog[open]")
        page.fill("#token", "the-token-of-this-test")
        page.keyboard.press("Enter")
        page.wait_for_selector("#text")
        page.fill("#text", text)
        page.wait_for_selector(".graph")
        page.context.close()
        assert seen.problems == []


def test_names_are_shown_as_text(browser: Browser, tiny_model: Model, tiny_model_folder: Path, text: str) -> None:
    """A label may be called anything; it is never run."""
    evil = [f"<img src=x onerror=alert({number})>/%2F?#{number}" for number in range(60)]
    model = replace(tiny_model, labels=LabelSet(evil, [f"<script>alert({n})</script>" for n in range(60)]))
    with running({"evil": tiny_model_folder}, lambda folder: model) as found:
        page, seen = open_page(browser, found)
        page.fill("#text", text)
        page.wait_for_selector(".graph")
        name = names(page)[0]
        page.locator("text=Explore this label").click()
        page.wait_for_selector("[data-view=explore] h1")
        assert page.locator("h1").inner_text() == name
        assert page.locator("main img").count() == 0
        assert page.locator("main script").count() == 0
        page.context.close()
        assert seen.problems == []


def test_when_the_service_is_busy(browser: Browser, service: Running, text: str) -> None:
    page, seen = open_page(browser, service)
    seen.expected = ("503",)
    page.route("**/v1/predict", lambda route: route.fulfill(status=503, json={"error": {"message": "busy now"}}))
    page.fill("#text", text)
    page.wait_for_selector(".notice:has-text('busy now')")
    page.unroute("**/v1/predict")
    page.fill("#text", text + " ")
    page.wait_for_selector(".suggestion")
    page.context.close()
    assert seen.problems == []


def test_the_description_of_the_interface(page: Page, service: Running) -> None:
    page.goto(f"{service.url}/docs")
    page.wait_for_selector(".opblock >> nth=5")
    assert "/v1/predict" in page.inner_text("#docs")
