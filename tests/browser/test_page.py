"""The page in a real browser, against a real service: by mouse and by keyboard, at phone width, in both languages, and
checked by axe-core. Parts that depend on the model or on options of the service (explanations, feedback, quality) are
tested with answers that are changed on their way to the browser."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import elias
from elias.dataset.labels import LabelSet
from elias.model.model import Model
from elias.server.routes import PAGE_FOLDER
from helpers.serving import Running, running

from .conftest import GOLDEN, close, open_page, serious

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

pytestmark = pytest.mark.browser
TEXT = "Development files for a Perl library that parses XML documents, with search & Umlauts: Größe"
LANGUAGES = ["en", "de"]
CAPTION = "name => document.querySelector('figcaption').textContent.startsWith(name)"
MOVING = (
    "[...document.querySelectorAll('*')].filter(each => getComputedStyle(each).transitionProperty != 'none').length"
)
PHONE = {"width": 360, "height": 740}
EXPLANATION = {
    "words": [{"word": "perl", "weight": 1.5}, {"word": "größe", "weight": 0.5}],
    "texts": [
        {"id": "libxml-perl", "text": "<b>A parser</b> of XML in Perl", "similarity": 0.61, "row": 3},
        {"id": None, "text": "Another text", "similarity": 0.25, "row": 9},
    ],
    "contributions": {
        "base": -2.0,
        "network": 1.25,
        "label text": 0.5,
        "label's texts": 0.25,
        "linear classifiers": -0.25,
        "similar texts": 0.75,
        "popularity": 0.0,
    },
    "score": 0.5,
}
QUALITY = {
    "rows": "held-out",
    "n_rows": 1234,
    "metrics": {"P@1": 41.25, "P@5": 20.0, "nDCG@5": 33.3, "R@100": 77.7},
    "calibration_error": 0.021,
    "baselines": {
        "most frequent labels": {"P@1": 2.0, "P@5": 1.0, "nDCG@5": 1.5, "R@100": 9.0},
        "nearest texts": {"P@1": 30.0, "P@5": 15.0, "nDCG@5": 25.0, "R@100": 60.0},
    },
}


def names(page: Page) -> list[str]:
    return [str(item.get_attribute("data-label")) for item in page.locator(".suggestion").all()]


def accepted(page: Page) -> list[str]:
    return [str(item.get_attribute("data-label")) for item in page.locator("#accepted li").all()]


def best(model: Model, text: str, k: int) -> list[str]:
    return [label for label, _ in model.predict([text], k).named()[0]]


def show(page: Page, found: Running, view: str) -> None:
    page.goto(f"{found.url}/{view}")
    page.wait_for_selector("[data-view] h1")


def ask(page: Page, text: str = TEXT, *, all_of_them: bool = True) -> None:
    """Give a text and wait for its suggestions, also for those below the threshold."""
    if all_of_them:
        page.locator("#threshold").fill("0")
    with page.expect_response("**/v1/predict"):
        page.fill("#text", text)
    page.wait_for_selector(".suggestion")


def downloaded(page: Page, act: Callable[[], Any]) -> tuple[str, str]:
    """Name and content of the file that an action downloads."""
    with page.expect_download() as waiting:
        act()
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_text(encoding="utf-8")


def change_answers(page: Page, pattern: str, change: Callable[[Any, Route], None]) -> None:
    def handle(route: Route) -> None:
        body = route.fetch().json()
        change(body, route)
        route.fulfill(json=body)

    page.route(pattern, handle)
    page.reload()
    page.wait_for_selector("[data-view] h1")


def explain(page: Page, **changes: Any) -> None:
    """Let every explained suggestion carry an explanation."""

    def change(body: Any, route: Route) -> None:
        if route.request.post_data_json.get("explain"):
            for item in body["results"][0]["labels"]:
                item.update({"explanation": EXPLANATION, **changes})

    change_answers(page, "**/v1/predict", change)


def test_suggestions_appear_while_typing(page: Page, model: Model) -> None:
    assert page.locator("#done").is_disabled()
    page.locator("#threshold").fill("0")
    page.locator("#text").press_sequentially(TEXT[:20])
    page.wait_for_function("() => document.querySelectorAll('.suggestion').length === 20")
    ask(page)
    shown = "names => [...document.querySelectorAll('.suggestion')].map(row => row.dataset.label).join() === names"
    page.wait_for_function(shown, arg=",".join(best(model, TEXT, 20)))
    first = model.predict([TEXT], 1).records()[0][0]
    row = page.locator(".suggestion").first
    share = row.locator(".bar > span").first.evaluate("span => parseFloat(span.style.width)")
    assert share == pytest.approx(100 * first["score"], abs=0.1)
    assert float(row.locator(".score").inner_text().rstrip("%")) == pytest.approx(100 * first["score"], abs=0.5)
    page.select_option("#k", "5")
    page.wait_for_function("() => document.querySelectorAll('.suggestion').length === 5")
    assert "suggestions, first" in page.locator("#status").inner_text(), "a screen reader is told"
    page.fill("#text", "")
    page.wait_for_selector("#results .empty")


def test_a_threshold_is_kept(page: Page, model: Model) -> None:
    scores = [score for _, score in model.predict([TEXT], 20).named()[0]]
    limit = round(100 * scores[3])
    ask(page)
    page.locator("#threshold").fill(str(limit))
    expected = sum(score >= limit / 100 for score in scores)
    assert 0 < expected < 20
    assert len(names(page)) == expected
    assert f"{20 - expected} suggestions are below" in page.locator("#hidden").inner_text()
    page.reload()
    page.wait_for_selector(".suggestion")
    assert page.locator("#threshold").input_value() == str(limit), "remembered"
    assert page.locator("#text").input_value() == TEXT, "the text at hand survives a reload"
    assert len(names(page)) == expected
    page.locator("#hidden button").click()
    assert len(names(page)) == 20


def test_accept_reject_undo(page: Page) -> None:
    ask(page)
    first, second, third = names(page)[:3]
    row = page.locator(".suggestion")
    row.nth(0).locator(".yes").click()
    row.nth(1).locator(".no").click()
    row.nth(2).locator(".yes").click()
    assert accepted(page) == [first, third]
    assert row.nth(0).locator(".yes").get_attribute("aria-pressed") == "true"
    assert row.nth(1).locator(".no").get_attribute("aria-pressed") == "true"
    assert page.locator("#accepted-count").inner_text() == "2"
    assert page.locator(".accepted-card summary").inner_text() == "1 rejected"
    page.locator("#undo").click()
    assert accepted(page) == [first]
    row.nth(0).locator(".no").click()
    assert accepted(page) == []
    page.locator("#undo").click()
    assert accepted(page) == [first], "the former verdict is back"
    row.nth(0).locator(".yes").click()
    assert accepted(page) == [], "the same verdict twice takes it back"
    page.locator("#undo").click()
    page.locator("#accepted button").click()
    assert accepted(page) == []
    page.locator(".accepted-card summary").click()
    page.locator(".rejected-list button").click()
    assert row.nth(1).locator(".no").get_attribute("aria-pressed") == "false"
    for _ in range(7):
        page.keyboard.press("u")
    assert accepted(page) == []
    assert page.locator("#undo").is_disabled(), "everything is undone"
    row.nth(1).locator(".yes").click()
    page.locator("#clear").click()
    page.wait_for_selector("#results .empty")
    page.locator("#undo").click()
    page.wait_for_selector(".suggestion.accepted")
    assert page.locator("#text").input_value() == TEXT
    assert accepted(page) == [second]


def test_a_label_that_was_not_suggested(page: Page, model: Model) -> None:
    page.locator("#threshold").fill("0")
    page.select_option("#k", "5")
    ask(page)
    other = next(label for label in model.labels.ids if label not in best(model, TEXT, 20))
    page.fill("#add-label", other)
    hit = page.locator(f'#add-label-hits [data-label="{other}"]')
    hit.wait_for()
    number = model.labels.number_of[other]
    assert f"{model.label_counts[number]} training text" in hit.inner_text()
    assert model.labels.texts[number] in hit.inner_text()
    hit.click()
    assert accepted(page) == [other]
    assert "added" in page.locator("#accepted li").inner_text()
    page.fill("#add-label", "no label is called like this")
    page.wait_for_selector(".search:has-text('No label has these words')")
    suggested = names(page)[0]
    page.fill("#add-label", suggested)
    page.locator(f'#add-label-hits [data-label="{suggested}"]').click()
    assert page.locator(".suggestion.accepted").count() == 1, "a suggestion found by name is accepted as a suggestion"
    assert "added" not in page.locator("#accepted li").last.inner_text()


def test_by_keyboard_alone(browser: Browser, service: Running, model: Model) -> None:
    page, seen = open_page(browser, service, permissions=["clipboard-read", "clipboard-write"])
    page.locator("#threshold").focus()
    page.keyboard.press("Home")
    page.locator("#text").focus()
    page.keyboard.insert_text(TEXT)
    page.wait_for_selector(".suggestion")
    page.keyboard.press("j")
    assert page.locator("#text").input_value() == f"{TEXT}j", "where someone types, a key is a letter"
    page.keyboard.press("Backspace")
    page.wait_for_function("() => document.querySelectorAll('.suggestion').length === 20")
    page.keyboard.press("Escape")
    shown = names(page)
    focused = "document.activeElement.closest('.suggestion')?.dataset.label"
    assert page.evaluate(focused) == shown[0]
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid", "focus can be seen"
    page.keyboard.press("a")
    assert page.evaluate(focused) == shown[1], "on to the next"
    page.keyboard.press("r")
    page.keyboard.press("Enter")
    assert accepted(page) == [shown[0], shown[2]]
    page.keyboard.press("Delete")
    assert page.locator(".suggestion.rejected").count() == 2
    page.keyboard.press("u")
    page.keyboard.press("k")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowDown")
    assert page.evaluate(focused) == shown[3]
    page.keyboard.press(" ")
    page.wait_for_selector(".why")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "add-label"
    other = next(label for label in model.labels.ids if label not in shown)
    page.keyboard.insert_text(other)
    page.wait_for_selector("#add-label-hits li")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert accepted(page) == [shown[0], shown[2], other]
    page.keyboard.press("Escape")
    page.keyboard.press("c")
    page.wait_for_selector("#toast:has-text('3 labels copied')")
    assert page.evaluate("navigator.clipboard.readText()") == "".join(f"{name}\n" for name in accepted(page))
    page.keyboard.press("?")
    page.wait_for_selector("dialog.help[open]")
    assert serious(page) == []
    page.locator("#keys-on").focus()
    page.keyboard.press(" ")
    page.keyboard.press("Escape")
    page.locator(".pick").first.focus()
    page.keyboard.press("r")
    assert page.locator(".suggestion.rejected").count() == 1, "single keys are switched off"
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#results .empty")
    assert page.evaluate("document.activeElement.id") == "text", "ready for the next text"
    assert page.locator("#text").input_value() == ""
    close(page)
    assert seen.problems == []


def test_what_was_accepted_can_be_exported(browser: Browser, model: Model) -> None:
    """Names, ids and csv; a cell that a spreadsheet would run is defused."""
    ids = [f"{'=+-@'[number % 4]}label {number}" for number in range(len(model.labels))]
    texts = [f'{"+-=@"[number % 4]}cmd|" /C calc", {number}' for number in range(len(ids))]
    with running({"evil": GOLDEN}, lambda folder: replace(model, labels=LabelSet(ids, texts))) as found:
        page, seen = open_page(browser, found)
        ask(page)
        for place in range(4):
            page.locator(".suggestion .yes").nth(place).click()
        chosen = accepted(page)
        for kind, name in (("names", "labels.txt"), ("ids", "labels.txt"), ("csv", "labels.csv")):
            page.select_option("#format", kind)
            file, content = downloaded(page, page.locator("#download").click)
            assert file == name
            if kind != "csv":
                assert content.splitlines() == chosen
        assert content.startswith("\ufeff"), "spreadsheets need it to see UTF-8"
        rows = list(csv.DictReader(io.StringIO(content.removeprefix("\ufeff"))))
        assert [row["id"] for row in rows] == [f"'{label}" for label in chosen]
        assert [row["origin"] for row in rows] == ["suggested"] * 4
        assert float(rows[0]["score"]) == pytest.approx(model.predict([TEXT], 1).scores[0, 0], rel=1e-4)
        page.locator("#done").click()
        page.locator("nav a[href='#/history']").click()
        _, table = downloaded(page, page.locator("text=Download .csv").click)
        assert not re.search(r'(^|[,\n])"?[=+\-@]', table)
        close(page)
        assert seen.problems == []


def test_history_survives_a_reload(page: Page, tmp_path: Path) -> None:
    done: list[dict[str, Any]] = []
    for text, picks in ((TEXT, [0, 2]), ('second "text", with = and\nline', [1]), ("nothing fits here", [])):
        ask(page, text)
        for place in picks:
            page.locator(".suggestion .yes").nth(place).click()
        page.locator(".suggestion .no").nth(3).click()
        done.insert(0, {"text": text, "labels": accepted(page)})
        page.locator("#done").click()
        assert accepted(page) == []
    page.reload()
    page.locator("nav a[href='#/history']").click()
    page.wait_for_selector(".entry")
    assert page.locator(".entry").count() == 3
    assert page.locator(".entry").nth(2).locator(".chip").all_inner_texts() == done[2]["labels"]
    assert "this browser only" in page.locator("[data-view]").inner_text()

    file, content = downloaded(page, page.locator("text=Download .jsonl").click)
    assert file == "elias-history.jsonl"
    assert [json.loads(line) for line in content.splitlines()] == done[1:], (
        "what fit reads; a text without labels is not"
    )
    (tmp_path / "train.jsonl").write_text(content, encoding="utf-8")
    data = elias.load_dataset(tmp_path)
    assert data.train.texts is not None
    assert sorted(data.train.texts) == sorted(row["text"] for row in done[1:])

    _, table = downloaded(page, page.locator("text=Download .csv").click)
    rows = list(csv.DictReader(io.StringIO(table.removeprefix("\ufeff"))))
    assert [row["text"] for row in rows] == [row["text"] for row in done]
    assert [row["labels"] for row in rows] == [";".join(row["labels"]) for row in done]
    assert all(row["model"] == "debian" and row["rejected"] for row in rows)

    page.fill("#history-filter", "PERL umlauts")
    assert page.locator(".entry").count() == 1
    page.locator(".entry >> text=Open again").click()
    page.wait_for_selector(".suggestion.rejected")
    assert accepted(page) == done[2]["labels"]
    page.locator("#accepted button").first.click()
    page.locator("#done").click()
    page.locator("nav a[href='#/history']").click()
    page.wait_for_selector(".entry")
    assert page.locator(".entry").count() == 3, "it took the place of its old version"
    assert page.locator(".entry").first.locator(".chip").all_inner_texts() == done[2]["labels"][1:]
    page.locator(".entry >> nth=0 >> text=Delete").click()
    assert page.locator(".entry").count() == 2
    page.locator("#history-clear").click()
    page.locator("dialog >> text=Keep it").click()
    assert page.locator(".entry").count() == 2
    page.locator("#history-clear").click()
    page.locator("dialog[open] button.main").click()
    page.wait_for_selector(".empty:visible")
    page.reload()
    page.wait_for_selector(".empty:visible")
    assert page.locator(".entry").count() == 0


def test_the_history_is_capped(page: Page) -> None:
    page.evaluate("""() => {
        const same = {time: "2026-01-01T00:00:00Z", model: "debian", text: "old", accepted: [], rejected: []};
        const entry = i => ({id: `old-${i}`, ...same});
        localStorage.setItem("elias.history", JSON.stringify(Array.from({length: 500}, (_, i) => entry(i))));
    }""")
    ask(page)
    page.locator("#done").click()
    kept = page.evaluate("JSON.parse(localStorage.getItem('elias.history'))")
    assert len(kept) == 500
    assert kept[0]["text"] == TEXT
    assert kept[-1]["id"] == "old-498", "the oldest is gone"


def test_feedback_is_sent_only_where_it_is_stored(browser: Browser, service: Running) -> None:
    page, seen = open_page(browser, service)
    seen.expected = ("500",)
    sent: list[Any] = []
    answers = [{"status": 200, "json": {"stored": True}}, {"status": 500, "json": {"error": {"message": "disk full"}}}]

    def receive(route: Route) -> None:
        sent.append(route.request.post_data_json)
        route.fulfill(**answers[min(len(sent), 2) - 1])

    page.route("**/v1/feedback", receive)

    def finish() -> tuple[str, str]:
        ask(page)
        page.locator(".suggestion .yes").nth(0).click()
        page.locator(".suggestion .no").nth(1).click()
        labels = names(page)
        page.locator("#done").click()
        page.wait_for_selector("#results .empty")
        return labels[0], labels[1]

    assert "stay in this browser" in page.locator("#feedback").inner_text()
    finish()
    assert sent == []
    change_answers(page, "**/v1/models", lambda body, route: body.update(feedback=True))
    assert "stored on the server" in page.locator("#feedback").inner_text()
    with page.expect_response("**/v1/feedback"):
        yes, no = finish()
    stored = {name: value for name, value in sent[0].items() if name != "id"}
    assert stored == {"model": "debian", "text": TEXT, "accepted": [yes], "rejected": [no]}
    ask(page, "a text without a decision")
    page.locator("#done").click()
    assert len(sent) == 1
    finish()
    page.wait_for_selector("#messages .notice:has-text('disk full')")
    page.locator("nav a[href='#/history']").click()
    page.wait_for_selector(".entry >> nth=3")
    assert page.locator(".entry .badge").all_inner_texts() == ["not stored on the server"]
    answers[1] = answers[0]
    page.locator("text=Send again").click()
    page.wait_for_function("() => !document.querySelector('.entry .badge')")
    assert sent[-1] == sent[-2]
    close(page)
    assert seen.problems == []


def test_why_a_label_was_suggested(page: Page) -> None:
    explain(page, uri="https://vocabulary.example/7")
    ask(page)
    page.locator(".pick").first.click()
    page.wait_for_selector(".why")
    assert page.locator(".pick").first.get_attribute("aria-expanded") == "true"
    assert page.locator(".marks mark").all_inner_texts() == ["Perl", "Größe"], "marked in the text"
    assert page.locator(".why .chip").all_inner_texts() == ["perl", "größe"]
    assert page.locator(".why .texts li").count() == 2
    assert "<b>A parser</b> of XML" in page.locator(".why .texts").inner_text(), "as text, not as markup"
    bars = page.locator(".contributions li").evaluate_all(
        "rows => rows.map(row => [row.children[0].textContent, row.querySelector('.signed span').className, "
        "parseFloat(row.querySelector('.signed span').style.width), row.children[2].textContent])"
    )
    assert bars[0] == ["starting value", "minus", 50, "-2.00"]
    assert bars[1] == ["network", "plus", 31.25, "+1.25"], "the strongest first"
    assert sum(float(value) for *_, value in bars) == pytest.approx(EXPLANATION["score"])
    assert "Together +0.50" in page.locator(".why").inner_text()
    assert page.locator(".why a[target=_blank]").get_attribute("href") == "https://vocabulary.example/7"
    page.locator(".pick").nth(1).click()
    page.wait_for_selector(".suggestion >> nth=1 >> .why")
    assert page.locator(".why:visible").count() == 1, "one at a time"
    page.locator(".pick").nth(1).click()
    assert page.locator(".marks mark").count() == 0
    page.unroute("**/v1/predict")
    explain(page, uri="javascript:alert(1)")
    ask(page, f"{TEXT} again")
    page.locator(".pick").first.click()
    page.wait_for_selector(".why")
    assert page.locator(".why a[target=_blank]").count() == 0


def test_a_model_without_explanations_shows_its_parts(page: Page, model: Model) -> None:
    def change(body: Any, route: Route) -> None:
        for item in body["results"][0]["labels"]:
            item.pop("explanation", None)

    change_answers(page, "**/v1/predict", change)
    ask(page)
    page.locator(".pick").first.click()
    page.wait_for_selector(".why")
    item = model.predict([TEXT], 1, explain=True).records()[0][0]
    shown = page.locator(".contributions .number").all_inner_texts()
    assert shown[:2] == [f"{item['cluster_score']:.3f}", f"{item['edge_score']:.3f}"]
    assert page.locator(".contributions .bar").count() == len(shown)


def test_a_text_without_a_known_word(page: Page) -> None:
    def change(body: Any, route: Route) -> None:
        body["results"][0]["known_words"] = 0 if "qwx" in route.request.post_data_json["texts"][0] else 5

    change_answers(page, "**/v1/predict", change)
    ask(page, "qwx")
    page.wait_for_selector("#unknown:has-text('knows none of the words')")
    ask(page)
    page.wait_for_selector("#unknown", state="detached")


def test_scores_that_are_no_probabilities(page: Page) -> None:
    change_answers(page, "**/v1/models", lambda body, route: [each.update(threshold=False) for each in body["models"]])
    ask(page)
    assert "not calibrated" in page.locator(".suggestions-card").inner_text()
    assert re.fullmatch(r"0\.\d+", page.locator(".suggestion .score").first.inner_text())
    page.locator("nav a[href='#/batch']").click()
    page.wait_for_selector("#drop")
    assert page.locator("#batch-threshold").count() == 0, "the service would refuse a threshold"


def test_a_dropped_text_file(page: Page) -> None:
    drop = """([name, bytes]) => {
        const data = new DataTransfer();
        data.items.add(new File([new Uint8Array(bytes)], name));
        document.getElementById("text").dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true }));
    }"""
    for name, content in (("a.txt", TEXT.encode()), ("b.txt", TEXT.encode("windows-1252"))):
        page.fill("#text", "")
        page.evaluate(drop, [name, list(content)])
        page.wait_for_function("text => document.getElementById('text').value === text", arg=TEXT)
    page.evaluate(drop, ["a.pdf", [37, 80]])
    page.wait_for_selector("#messages .notice:has-text('a.pdf')")
    assert page.locator("#text").input_value() == TEXT


def test_how_it_works(page: Page, service: Running, model: Model) -> None:
    ask(page)
    page.locator(".pick").nth(1).click()
    page.locator("text=Path through the index").click()
    page.wait_for_selector(".graph")
    second = model.predict([TEXT], 2, explain=True).records()[0][1]
    page.wait_for_function(CAPTION, arg=second["label"])
    assert f"through cluster {second['cluster']}," in page.locator("figcaption").inner_text()
    assert page.locator(".graph path.chosen.wins").count() == 2, "from the text to the cluster, from there to the label"
    page.locator("details summary").first.click()
    assert page.locator("#why td .badge").inner_text() == "wins"
    first = best(model, TEXT, 1)[0]
    page.locator(f'.graph [role=button][aria-label^="{first}:"]').focus()
    page.keyboard.press("Enter")
    page.wait_for_function(CAPTION, arg=first)
    page.wait_for_selector(".chart >> nth=1")
    deciles = service.get("/v1/index").json["clusters_per_label_by_decile"]
    assert page.locator(".chart rect").count() == 20 + len(deciles)
    other = model.labels.ids[7]
    page.fill("#search", other)
    page.locator(f'#search-hits [data-label="{other}"]').click()
    page.wait_for_selector(f"h1:text-is('{other}')")
    assert f"luster {model.stage1_clusters[7]}" in page.locator("[data-view]").inner_text()
    page.locator("table a").first.click()
    page.wait_for_selector("h1:has-text('Cluster ')")
    cluster = int(page.locator("h1").inner_text().split()[1])
    assert page.locator(".chip").all_inner_texts() == model.cluster_words[cluster]
    page.go_back()
    page.wait_for_selector(f"h1:text-is('{other}')")


@pytest.mark.parametrize("kind", ["txt", "csv", "jsonl.gz"])
def test_a_file_of_texts(page: Page, service: Running, model: Model, kind: str) -> None:
    texts = ["perl library", 'with "quotes", commas', "=Ähre", *(f"python {n}" for n in range(230))]
    if kind == "txt":
        content = "".join(f"{text}\n" for text in texts).encode()
    elif kind == "csv":
        cells = [f'{n},"{text.replace(chr(34), chr(34) * 2)}"' for n, text in enumerate(texts)]
        content = "\r\n".join(["id,text", *cells]).encode()
    else:
        lines = [json.dumps({"id": str(n), "text": text}) for n, text in enumerate(texts)]
        content = gzip.compress("\n".join(lines).encode())
    show(page, service, "#/batch")
    page.select_option("#batch-k", "3")
    page.fill("#batch-threshold", "10")
    page.set_input_files("#file", {"name": f"my texts.{kind}", "mimeType": "text/plain", "buffer": content})
    page.wait_for_selector("#batch-download")
    assert "233 of 233 texts" in page.locator("#work").inner_text()
    expected = [[label for label, _ in row] for row in model.predict(texts, 3, threshold=0.1).named()]
    assert any(len(row) < 3 for row in expected), "the threshold matters"
    ids = [None if kind == "txt" else str(n) for n in range(len(texts))]

    page.select_option("#batch-format", "jsonl")
    file, found = downloaded(page, page.locator("#batch-download").click)
    assert file == "my texts.labels.jsonl"
    rows = [json.loads(line) for line in found.splitlines()]
    assert [[item["label"] for item in row["labels"]] for row in rows] == expected
    assert [row["text"] for row in rows] == texts
    assert [row.get("id") for row in rows] == ids
    assert {(row["model"], row["k"], row["threshold"]) for row in rows} == {("debian", 3, 0.1)}

    page.locator("nav a[href='#/about']").click()
    page.wait_for_selector("[data-view=about] h1")
    page.locator("nav a[href='#/batch']").click()
    page.select_option("#batch-format", "csv")
    file, found = downloaded(page, page.locator("#batch-download").click)
    assert file == "my texts.labels.csv", "the result is still there"
    table = list(csv.DictReader(io.StringIO(found.removeprefix("\ufeff"))))
    assert [row["label"] for row in table] == [label for labels in expected for label in labels or [""]]
    assert {row["text"] for row in table} == {text.replace("=", "'=") for text in texts}
    assert {(row["model"], row["k"], row["threshold"]) for row in table} == {("debian", "3", "0.1")}


def test_wrong_files(page: Page, service: Running) -> None:
    show(page, service, "#/batch")
    for name, content, words in (
        ("a.jsonl", '{"text": "a"}\n{"text": 5}\n', "a.jsonl:2"),
        ("a.csv", "name,label\n1,2\n", 'one of them "text"'),
        ("a.pdf", "x", "give a .txt"),
        ("a.txt", "", "holds no text"),
    ):
        page.set_input_files("#file", {"name": name, "mimeType": "text/plain", "buffer": content.encode()})
        page.wait_for_selector(f"#work .notice:has-text('{words}')")


def test_about_says_how_good_the_model_is(page: Page, service: Running) -> None:
    show(page, service, "#/about")
    change_answers(page, "**/v1/model?*", lambda body, route: body.update(quality=None))
    assert page.locator("#quality").count() == 0, "this one was not measured"
    assert "Model debian" in page.locator("h1").inner_text()
    page.locator("summary:text-is('encoder')").click()
    assert "dropout" in page.locator("[data-view]").inner_text()
    page.unroute("**/v1/model?*")
    change_answers(page, "**/v1/model?*", lambda body, route: body.update(quality=QUALITY))
    page.wait_for_selector("#quality")
    assert page.locator("#quality tr.own td").all_inner_texts() == ["41.3", "20.0", "33.3", "77.7"]
    assert page.locator("#quality tbody tr").count() == 3
    content = page.locator("#quality").inner_text()
    assert "1,234 texts that were held out" in content
    assert "2.1 percentage points" in content


def test_both_languages_are_complete(page: Page) -> None:
    texts = page.evaluate("import('/page/texts.js').then(module => module.texts)")
    assert list(texts) == LANGUAGES
    english, german = texts["en"], texts["de"]
    assert list(english) == list(german)
    for key, text in english.items():
        assert type(text) is type(german[key]), key
        for form in [None] if isinstance(text, str) else text:
            one, other = (text, german[key]) if form is None else (text[form], german[key][form])
            assert one.strip(), key
            assert other.strip(), key
            assert set(re.findall(r"{\w+}", one)) == set(re.findall(r"{\w+}", other)), key
    source = "".join(
        path.read_text(encoding="utf-8") for path in PAGE_FOLDER.glob("*.[jh]*") if path.name != "texts.js"
    )
    used = set(re.findall(r'\bt\("([^"]+)"', source)) | set(re.findall(r'data-t(?:-label|-title)?="([^"]+)"', source))
    assert used <= set(english)
    made = re.compile(r"(part|nav|decision|about)\.|accepted\.(names|ids|csv)$")  # keys that are put together
    assert [key for key in english if key not in source and not made.match(key)] == [], "no text is left over"


def test_the_language_is_chosen_and_kept(browser: Browser, service: Running) -> None:
    page, seen = open_page(browser, service, locale="de-AT")
    page.wait_for_selector("h1:text-is('Schlagwörter vorschlagen')")
    assert page.evaluate("document.documentElement.lang") == "de"
    ask(page)
    page.locator(".suggestion .yes").first.click()
    assert re.fullmatch(r"\d+(,\d)?\s%", page.locator(".suggestion .score").first.inner_text()), "as German writes it"
    page.locator(".pick").first.click()
    page.wait_for_selector(".contributions .number:has-text(',')")
    chosen = accepted(page)
    page.locator("#language").focus()
    page.select_option("#language", "en")
    page.wait_for_selector("h1:text-is('Suggest labels')")
    page.wait_for_selector(".suggestion.accepted")
    assert accepted(page) == chosen, "nothing is lost"
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.evaluate("document.activeElement.id") == "language"
    page.reload()
    page.wait_for_selector("h1:text-is('Suggest labels')")
    close(page)
    assert seen.problems == []


def test_another_model_can_be_chosen(page: Page) -> None:
    page.select_option("#model", "again")
    page.wait_for_selector("#text")
    with page.expect_request("**/v1/predict") as waiting:
        page.fill("#text", TEXT)
    assert waiting.value.post_data_json["model"] == "again"


def each_view(page: Page, base: str) -> Any:
    """Every view, with content in it: (its name, after it is drawn)."""
    ask(page)
    page.locator(".suggestion .yes").first.click()
    page.locator(".suggestion .no").nth(1).click()
    page.locator(".pick").first.click()
    page.wait_for_selector(".why")
    page.fill("#add-label", "lib")
    page.wait_for_selector("#add-label-hits li")
    yield "suggest"
    page.keyboard.press("Escape")
    page.locator("#done").click()
    page.locator("nav a[href='#/history']").click()
    page.wait_for_selector(".entry")
    yield "history"
    page.locator("nav a[href='#/batch']").click()
    page.set_input_files("#file", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"one\ntwo\n"})
    page.wait_for_selector("#batch-download")
    yield "batch"
    page.locator("nav a[href='#/how']").click()
    page.fill("#path-text", TEXT)
    page.wait_for_selector(".graph")
    page.wait_for_selector(".chart >> nth=1")
    yield "how"
    for part in ("label/make", "cluster/1"):
        page.goto(f"{base}/#/how/{part}")
        page.wait_for_selector("table a")
        yield part
    page.locator("nav a[href='#/about']").click()
    page.wait_for_selector("#quality")
    yield "about"


@pytest.mark.parametrize("language", LANGUAGES)
def test_axe_finds_nothing_serious(browser: Browser, service: Running, language: str) -> None:
    page, seen = open_page(browser, service, locale=language)
    explain(page)
    change_answers(page, "**/v1/model?*", lambda body, route: body.update(quality=QUALITY))
    found = {}
    for view in each_view(page, service.url):
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            found[view, scheme] = serious(page)
    assert found == {key: [] for key in found}
    assert len(found) == 2 * 7
    page.locator("#theme").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "light", "it was dark"
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "light", "remembered"
    close(page)
    assert seen.problems == []


def test_axe_would_find_something(page: Page) -> None:
    """The check itself can fail."""
    page.evaluate("document.body.append(Object.assign(document.createElement('input'), {type: 'text'}))")
    assert any("label" in finding for finding in serious(page))


@pytest.mark.parametrize("language", LANGUAGES)
def test_on_a_phone_nothing_is_cut_off(browser: Browser, service: Running, language: str) -> None:
    page, seen = open_page(browser, service, viewport=PHONE, is_mobile=True, has_touch=True, locale=language)
    explain(page)
    change_answers(page, "**/v1/model?*", lambda body, route: body.update(quality=QUALITY))
    for view in each_view(page, service.url):
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], view
        boxes = page.locator("nav a, main button:visible").evaluate_all(
            "all => all.map(each => each.getBoundingClientRect()).map(box => [box.left, box.right, box.height])"
        )
        assert all(left >= 0 and right <= PHONE["width"] and height >= 24 for left, right, height in boxes), view
        assert page.evaluate(MOVING) == 0, "reduced motion is respected"
    close(page)
    assert seen.problems == []


def test_a_token_is_asked_for(browser: Browser, model: Model) -> None:
    with running({"debian": GOLDEN}, lambda folder: model, token="the-token-of-this-test") as found:
        page, seen = open_page(browser, found)
        seen.expected = ("401",)
        page.wait_for_selector("#token-dialog[open]")
        page.fill("#token", "the-token-of-this-test")
        page.keyboard.press("Enter")
        page.wait_for_selector("#text")
        ask(page)
        close(page)
        assert seen.problems == []


def test_names_and_texts_are_shown_as_text(browser: Browser, model: Model) -> None:
    """A label may be called anything, and a text may contain anything; it is never run."""
    evil = [f"<img src=x onerror=alert({number})>/%2F?#{number}" for number in range(len(model.labels))]
    labels = LabelSet(evil, [f"<script>alert({n})</script>" for n in range(len(evil))])
    text = f"<img src=x onerror=alert(1)> {TEXT} <script>alert(2)</script>"
    with running({"evil": GOLDEN}, lambda folder: replace(model, labels=labels)) as found:
        page, seen = open_page(browser, found)
        explain(page)
        ask(page, text)
        name = names(page)[0]
        page.locator(".suggestion .yes").first.click()
        page.locator(".pick").first.click()
        page.wait_for_selector(".why")
        assert page.locator(".marks mark").count() == 2
        bad = "main img, main script"
        assert page.locator(bad).count() == 0
        page.locator("text=About this label").click()
        page.wait_for_selector("[data-view=how] h1")
        assert page.locator("h1").inner_text() == name
        assert page.locator(bad).count() == 0
        page.locator("nav a[href='#/suggest']").click()
        page.locator("#done:enabled").click()
        page.locator("nav a[href='#/history']").click()
        page.wait_for_selector(".entry")
        assert text in page.locator(".entry .excerpt").inner_text()
        assert page.locator(bad).count() == 0
        close(page)
        assert seen.problems == []


def test_when_the_service_is_busy(browser: Browser, service: Running) -> None:
    page, seen = open_page(browser, service)
    seen.expected = ("503",)
    page.route("**/v1/predict", lambda route: route.fulfill(status=503, json={"error": {"message": "busy now"}}))
    page.fill("#text", TEXT)
    page.wait_for_selector(".notice:has-text('busy now')")
    page.unroute("**/v1/predict")
    ask(page, f"{TEXT} ")
    close(page)
    assert seen.problems == []


def test_the_description_of_the_interface(page: Page, service: Running) -> None:
    page.goto(f"{service.url}/docs")
    page.wait_for_selector(".opblock >> nth=5")
    assert "/v1/predict" in page.inner_text("#docs")
