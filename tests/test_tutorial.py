"""The tutorial, line by line: its Python block and every command, with the printed output compared in form.

What a fit learns differs in the last digits from machine to machine, so numbers and the labels of a table are not
compared; the words that begin a line, the columns and the number of lines are. `...` in the page stands for any lines.
README's commands are those of the tutorial.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
SERVED = "elias serve packages-model"  # tests/server and tests/browser serve models


def commands() -> list[tuple[str, list[str]]]:
    """(command, lines shown below it) of the page, in order."""
    found: list[tuple[str, list[str]]] = []
    inside = False
    for line in TUTORIAL.splitlines():
        if line.startswith("    $ "):
            found.append((line[6:], []))
            inside = True
        elif inside and line.startswith("    "):
            found[-1][1].append(line[4:])
        elif line.strip():
            inside = False
    return found


def form(line: str) -> str:
    """What must be the same on every machine: the indentation and the first word, with numbers as 0."""
    indent = len(line) - len(line.lstrip())
    if ", base -" in line or ", base +" in line:
        return " " * indent + "contributions"  # the largest comes first, whichever it is
    if re.match(r"\s*-?\d", line):  # a row of a table: scores and labels
        return " " * indent + "0"
    return " " * indent + re.sub(r"\d[\d,.:]*", "0", line.split()[0]) if line.strip() else ""


def same_form(shown: list[str], printed: list[str]) -> bool:
    """Whether the printed lines are those of the page, `...` standing for any number of lines."""
    pattern = "".join(".*" if line.strip() == "..." else re.escape(form(line)) + "\n" for line in shown if line.strip())
    lines = "".join(form(line) + "\n" for line in printed if line.strip())
    return re.fullmatch(pattern, lines, flags=re.DOTALL) is not None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like the root of the repository, with the files that the page makes."""
    work = tmp_path_factory.mktemp("tutorial")
    (work / "datasets").symlink_to(ROOT / "datasets")
    blocks = re.findall(r"```python\n(.*?)```", TUTORIAL, flags=re.DOTALL)
    assert len(blocks) == 1
    subprocess.run([sys.executable, "-c", blocks[0]], cwd=work, check=True)
    return work


def test_the_commands_of_the_tutorial(folder: Path) -> None:
    examples = commands()
    assert len(examples) >= 8
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "NO_COLOR": "1"}
    for command, shown in examples:
        done = subprocess.run(
            command, shell=True, cwd=folder, env=environment, text=True, timeout=300,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        if shown:
            printed = [line for line in done.stdout.splitlines() if "compiling the kernels" not in line]
            assert same_form(shown, printed), f"{command}\n{done.stdout}"


def test_the_commands_of_the_readme_are_those_of_the_tutorial() -> None:
    shown = re.findall(r"^    (elias [^#\n]*?)\s*(?:#.*)?$", README, flags=re.MULTILINE)
    assert len(shown) >= 6
    known = [command.removesuffix(" -k 3") for command, _ in commands()]
    assert [command for command in shown if command not in (*known, SERVED)] == []


def test_the_comparison_of_forms_can_fail() -> None:
    printed = ["labels  12", "  0.5  a", "and about 3 s"]
    assert same_form(["labels  99", "...", "and about 1:00 min"], printed)
    assert same_form(["labels  99", "  0.7  other", "and"], printed)
    assert not same_form(["labels  99", "and about"], printed)
    assert not same_form(["rows  99", "..."], printed)
