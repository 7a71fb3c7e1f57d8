"""Every curl command of docs/reference/http.md is run, and its answer has the form the page shows."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elias.dataset.labels import LabelSet
from elias.model.model import Model
from elias.server.admission import Limits
from helpers.serving import Running, running

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "http.md").read_text(encoding="utf-8")
EXAMPLE = re.compile(r"^ +\$ (curl .+)\n((?: +\{.+\n)*)", re.MULTILINE)
EXAMPLES = [(match[1], [line.strip() for line in match[2].splitlines()]) for match in EXAMPLE.finditer(PAGE)]
NAMES = ["evince", "xpdf", "inkscape"]
TOKEN = "the-token-of-the-page"


@pytest.fixture(scope="module")
def services(
    stacked_model: Model, stacked_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Running, Running]]:
    """(open, with a token); some labels are called as on the page."""
    ids = [*NAMES, *stacked_model.labels.ids[len(NAMES) :]]
    file = tmp_path_factory.mktemp("feedback") / "feedback.jsonl"
    model = replace(stacked_model, labels=LabelSet(ids, stacked_model.labels.texts))
    with (
        running({"mine": stacked_folder}, lambda folder: model, feedback=file) as free,
        running({"mine": stacked_folder}, lambda folder: model, token=TOKEN) as guarded,
    ):
        yield free, guarded


def form(value: Any) -> Any:
    """Names and types, without values; of a list its first item."""
    if isinstance(value, dict):
        # The model here knows no word of the examples, so it names none in an explanation, and no text.
        return {name: [] if name in ("words", "texts") else form(item) for name, item in value.items()}
    if isinstance(value, list):
        return [form(value[0])] if value else []
    return "number" if isinstance(value, int | float) else type(value).__name__


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 15
    assert sum(bool(answers) for _, answers in EXAMPLES) >= 5


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
@pytest.mark.parametrize(
    ("command", "answers"), EXAMPLES, ids=lambda value: value[-60:] if isinstance(value, str) else ""
)
def test_an_example(services: tuple[Running, Running], tmp_path: Path, command: str, answers: list[str]) -> None:
    found = services["Authorization" in command]
    (tmp_path / "token").write_text(TOKEN + "\n", encoding="utf-8")
    here = command.replace("127.0.0.1:8000", f"127.0.0.1:{found.port}")
    done = subprocess.run(here, shell=True, capture_output=True, text=True, cwd=tmp_path, timeout=30, check=True)
    lines = done.stdout.splitlines()
    assert lines
    if answers:
        assert len(lines) == len(answers)
        for line, shown in zip(lines, answers, strict=True):
            assert form(json.loads(line)) == form(json.loads(shown))
    elif "/metrics" not in command:
        assert "error" not in json.loads(done.stdout)


def test_the_table_of_limits_is_complete() -> None:
    named = re.search(r"^## Limits\n(.+?)(?=^## |\Z)", PAGE, flags=re.DOTALL | re.MULTILINE)
    assert named
    for name, value in vars(Limits()).items():
        assert f"`{name}`" in named[1], name
        shown = f"{value / 2**20:g} MiB" if value >= 1 << 20 and value % (1 << 20) == 0 else f"{value:,.10g}"
        assert shown in named[1], f"{name}: {shown}"
