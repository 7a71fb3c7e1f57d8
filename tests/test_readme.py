"""README and docs stay true: links lead somewhere, commands, settings and files exist."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import fields
from pathlib import Path

from elias.core.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
SECTIONS = [section.name for section in fields(Settings)]
SETTINGS = {f"{section}.{item.name}" for section in SECTIONS for item in fields(getattr(Settings(), section))}
REMOVED = {  # named in an experiment as what it was
    "encoder.word_dropout", "score_model.kind", "linear_ranker.embedding", "linear_ranker.negatives_from",
}  # fmt: skip


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere() -> None:
    links = 0
    for page in PAGES:
        for link, anchor in LINK.findall(page.read_text(encoding="utf-8")):
            if "://" in link:
                continue
            links += 1
            target = page.parent / link if link else page
            assert target.exists(), f"{page.relative_to(ROOT)}: {link}"
            if anchor:
                assert anchor in anchors(target), f"{page.relative_to(ROOT)}: {link}#{anchor}"
    assert links > 100, "the pattern finds links"


def test_every_page_can_be_reached_from_the_index() -> None:
    reached, todo = set(), [DOCS / "README.md"]
    while todo:
        page = todo.pop().resolve()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        found = LINK.findall(page.read_text(encoding="utf-8"))
        todo += [page.parent / link for link, _ in found if link and "://" not in link]
    lost = [page.relative_to(ROOT).as_posix() for page in DOCS.rglob("*.md") if page.resolve() not in reached]
    assert not lost


def code_lines(page: str) -> list[str]:
    """Lines of code, indented by four spaces or inside a fence, without indentation and prompt."""
    found, fenced = [], False
    for line in page.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            found.append(line.strip().removeprefix("$ "))
    return found


def words_after(program: str, lines: list[str]) -> set[str]:
    return {line.split()[1] for line in lines if line.split()[:1] == [program] and len(line.split()) > 1}


def test_commands_of_readme_and_docs_exist() -> None:
    from elias.cli import COMMANDS

    names = {command.__name__.rsplit(".", 1)[-1] for command in COMMANDS}
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    lines = code_lines(README)
    assert {"fit", "predict"} <= words_after("elias", lines) <= names
    assert {"demo", "test"} <= words_after("make", lines) <= targets
    for page in PAGES:
        lines = code_lines(page.read_text(encoding="utf-8"))
        assert words_after("elias", lines) <= names | {"COMMAND"}, page
        assert words_after("make", lines) <= targets | {"#"}, page


def test_the_reader_of_code_lines() -> None:
    page = "make no\n\n    elias fit x  # why\n\n```sh\n$ make test\nelias\n```\nelias nothing"
    assert code_lines(page) == ["elias fit x  # why", "make test", "elias"]
    assert words_after("elias", code_lines(page)) == {"fit"}
    assert words_after("make", code_lines(page)) == {"test"}


def test_the_page_of_settings_is_that_of_the_package() -> None:
    page = (DOCS / "reference" / "settings.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([a-z0-9_]+\.[a-z0-9_]+)` \|.*\|.*\|.*\|$", page, flags=re.MULTILINE)
    rules = page.index("## What auto becomes")
    keys = [key for key in listed if page.index(f"| `{key}` |") < rules]
    assert set(keys) == SETTINGS
    spec = importlib.util.spec_from_file_location("make_settings", DOCS / "make_settings.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert made.page() == page, "run python docs/make_settings.py"


def named_settings(text: str) -> set[str]:
    """Everything in a text that looks like a setting; `stage*.key` is both stages'."""
    names = re.findall(rf"\b((?:{'|'.join(SECTIONS)})\.[a-z0-9_]+)\b(?!\.\w|\()", text.replace("stage*.", "stage1."))
    return {
        name for name in names if not name.endswith((".py", ".json", ".md", ".safetensors", ".tsv", ".npy", ".html"))
    }


def test_no_page_names_a_setting_that_does_not_exist() -> None:
    known = SETTINGS | REMOVED | {f"{section}.key" for section in SECTIONS}
    pages = [page for page in PAGES if page.name != "CHANGELOG.md"]  # which names what was renamed
    found = {page: named_settings(page.read_text(encoding="utf-8")) for page in pages}
    assert sum(map(len, found.values())) > 100, "the pattern finds settings"
    wrong = {page.relative_to(ROOT).as_posix(): sorted(names - known) for page, names in found.items()}
    assert not {page: names for page, names in wrong.items() if names}


def test_the_reader_of_settings() -> None:
    text = "`stage*.decay`, --set knn.neighbors=5, features.py, index.safetensors, network.network.Network, split.seed."
    assert named_settings(text) == {"stage1.decay", "knn.neighbors", "split.seed"}


def test_the_map_of_files_is_complete() -> None:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    files = {path.relative_to(ROOT / "src" / "elias").as_posix() for path in (ROOT / "src" / "elias").rglob("*.py")}
    listed = set(re.findall(r"^\| `([\w/]+\.py)` \|", page, flags=re.MULTILINE))
    assert listed <= files
    assert {file for file in files - listed if not file.endswith("/__init__.py")} == set()


def test_paths_of_the_docs_exist() -> None:
    """`chapter/file.py` in a page is a file of src/elias, or a path of the repository."""
    found = 0
    for page in [page for page in PAGES if page.name != "CHANGELOG.md"]:
        for path in re.findall(r"`((?:[\w-]+/)+[\w-]+\.py)`", page.read_text(encoding="utf-8")):
            found += 1
            places = [ROOT / path, ROOT / "src" / "elias" / path]
            assert any(place.exists() for place in places), f"{page.relative_to(ROOT)}: {path}"
    assert found > 50, "the pattern finds paths"
