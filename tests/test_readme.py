"""README and docs stay true: links lead somewhere, commands exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_links_lead_somewhere() -> None:
    links = 0
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in link:
                links += 1
                assert (page.parent / link).exists(), f"{page.name}: {link}"
    assert links > 10, "the pattern finds links"


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


def test_commands_of_the_readme_exist() -> None:
    from elias.cli import COMMANDS

    names = {command.__name__.rsplit(".", 1)[-1] for command in COMMANDS}
    lines = code_lines(README)
    assert {"fit", "predict"} <= words_after("elias", lines) <= names
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert {"demo", "test"} <= words_after("make", lines) <= targets


def test_the_reader_of_code_lines() -> None:
    page = "make no\n\n    elias fit x  # why\n\n```sh\n$ make test\nelias\n```\nelias nothing"
    assert code_lines(page) == ["elias fit x  # why", "make test", "elias"]
    assert words_after("elias", code_lines(page)) == {"fit"}
    assert words_after("make", code_lines(page)) == {"test"}
