"""What comes from others: the lock file fits the project, and vendored files are the ones that the docs name."""

from __future__ import annotations

import hashlib
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENDORED = (ROOT / "src/elias/server/page/swagger", ROOT / "tests/browser/axe")
LOCKED = re.compile(r"([a-z0-9-]+)==(\S+) --hash=sha256:([0-9a-f]{64})")


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return {normalized(name): version for name, _, version in (line.partition("==") for line in lines) if version}


def test_the_lock_file_has_every_dependency_at_the_tested_version() -> None:
    about, *lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    assert about.startswith("# Made by `make lock`")
    locked = {}
    for line in lines:
        found = LOCKED.fullmatch(line)
        assert found, f"{line}: name==version --hash=sha256:...; no address of an index"
        locked[found[1]] = found[2]
    assert list(locked) == sorted(locked)
    versions = pinned()
    assert {name: versions.get(name) for name in locked} == locked
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["serve"]]
    names = {normalized(re.split(r"[><=;\[ ]", requirement)[0]) for requirement in wanted}
    assert names - set(locked) == {"torch"}


def test_the_page_names_the_pinned_torch() -> None:
    assert f"pip install torch=={pinned()['torch']}\n" in page()


def test_vendored_files_are_those_of_the_table() -> None:
    rows = re.findall(r"^\| `([^`]+)` \|.*\| `([0-9a-f]{64})` \|$", page(), flags=re.MULTILINE)
    files = [path for folder in VENDORED for path in folder.iterdir()]
    assert {str(path.relative_to(ROOT)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files} == dict(rows)


def page() -> str:
    return (ROOT / "docs/reference/supply-chain.md").read_text(encoding="utf-8")
