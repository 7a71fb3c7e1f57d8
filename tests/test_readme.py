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


def test_commands_of_the_readme_exist() -> None:
    from elias.cli import COMMANDS

    names = {command.__name__.rsplit(".", 1)[-1] for command in COMMANDS}
    used = set(re.findall(r"^    elias (\w+)", README, flags=re.MULTILINE))
    assert {"fit", "predict"} <= used <= names
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    used = set(re.findall(r"^    make ([\w-]+)", README, flags=re.MULTILINE))
    assert {"demo", "test"} <= used <= targets
