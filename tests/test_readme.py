"""README and docs stay true: the file map is complete, links lead somewhere, commands exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_file_map_lists_every_module_once() -> None:
    listed = re.findall(r"^\| `([\w/]+\.py|[\w/]+/)` \|", README, flags=re.MULTILINE)
    assert len(listed) == len(set(listed))
    package = ROOT / "src" / "elias"
    here = {path.relative_to(package).as_posix() for path in package.rglob("*.py")}
    covered = {
        name for name in here if name in listed or any(name.startswith(item) for item in listed if item.endswith("/"))
    }
    assert here == covered, f"not in README's file map: {sorted(here - covered)}"
    gone = [item for item in listed if not (package / item).exists()]
    assert not gone, f"in README's file map but not in src/elias: {gone}"


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in link:
                assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_commands_of_the_readme_exist() -> None:
    from elias.cli import COMMANDS

    names = {command.__name__.rsplit(".", 1)[-1] for command in COMMANDS}
    assert set(re.findall(r"^    elias (\w+)", README, flags=re.MULTILINE)) <= names
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert set(re.findall(r"^    make ([\w-]+)", README, flags=re.MULTILINE)) <= targets
