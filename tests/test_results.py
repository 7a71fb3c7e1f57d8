"""benchmarks/results.py: tables from JSON files of one commit."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
CELL = {
    "dataset": "books", "system": "stacked ranker, one member", "kind": "stacked ranker",
    "metrics": {"P@1": 50.114, "nDCG@5": 52.19}, "seconds": 1267.4, "commit": "abc", "command": "elias fit DATA",
}  # fmt: skip
PEER = {
    **CELL, "system": "Bonsai", "kind": "peer", "metrics": {"P@1": 48.89, "nDCG@5": 60.0}, "commit": "0.5.1",
    "seconds": 124,
}  # fmt: skip


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("results")


def write(folder: Path, *cells: Any) -> Path:
    folder.mkdir(exist_ok=True)
    for number, cell in enumerate(cells):
        (folder / f"{number}.json").write_text(json.dumps(cell))
    return folder


def page(folder: Path, results: Any) -> Path:
    path = folder / "page.md"
    path.write_text(f"# Results\n\nbefore\n\n{results.START}\n\nold\n\n{results.END}\n\nafter\n")
    return path


def run(*arguments: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / "results.py"), str(arguments[0]), "--page", str(arguments[1])]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_tables_go_between_the_markers(tmp_path: Path, results: Any) -> None:
    path = page(tmp_path, results)
    done = run(write(tmp_path / "cells", CELL, PEER), path)
    assert done.returncode == 0, done.stderr
    text = path.read_text()
    assert text.startswith("# Results\n\nbefore\n")
    assert text.endswith("\n\nafter\n")
    assert "old" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert rows == [
        "| system | what it is | P@1 | nDCG@5 | training s |",
        "|---|---|---|---|---|",
        "| Bonsai | peer | 48.89 | **60.00** | 124 |",
        "| stacked ranker, one member | stacked ranker | **50.11** | 52.19 | 1,267 |",
    ]
    assert "- stacked ranker, one member: `elias fit DATA` (abc)" in text
    again = run(tmp_path / "cells", path)
    assert again.returncode == 0
    assert path.read_text() == text


@pytest.mark.parametrize("exists", [True, False])
def test_an_empty_folder_is_named_and_the_page_left_alone(tmp_path: Path, results: Any, exists: bool) -> None:
    path = page(tmp_path, results)
    before = path.read_text()
    done = run(write(tmp_path / "cells") if exists else tmp_path / "cells", path)
    assert done.returncode == 0
    assert "no cells" in done.stdout
    assert path.read_text() == before


def test_our_cells_of_different_commits_are_refused(tmp_path: Path, results: Any) -> None:
    path = page(tmp_path, results)
    before = path.read_text()
    done = run(write(tmp_path / "cells", CELL, {**CELL, "dataset": "laws", "commit": "def"}, PEER), path)
    assert done.returncode == 1
    assert "different commits: abc (stacked ranker, one member on books), def" in done.stderr
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("cell", "problem"),
    [
        ({**CELL, "kind": "best"}, 'kind "best" is none of'),
        ({name: value for name, value in CELL.items() if name != "command"}, "exactly the keys"),
        ({**CELL, "note": "x"}, "exactly the keys"),
        ({**CELL, "commit": ""}, "commit is ''"),
        ({**CELL, "metrics": {"P@1": "50"}}, "every metric must be a number"),
        ([], "exactly the keys"),
    ],
)
def test_a_broken_cell_is_named(tmp_path: Path, results: Any, cell: Any, problem: str) -> None:
    with pytest.raises(results.CellError, match=r"0\.json") as caught:
        results.read_cells(write(tmp_path / "cells", cell))
    assert problem in str(caught.value)


def test_two_cells_in_one_place_are_refused(tmp_path: Path, results: Any) -> None:
    with pytest.raises(results.CellError, match=r"is already in 0\.json"):
        results.read_cells(write(tmp_path / "cells", CELL, CELL))


def test_a_page_without_markers_is_refused(results: Any) -> None:
    with pytest.raises(results.CellError, match="end of tables"):
        results.with_tables("# Results", "")


def test_the_page_of_this_repository_has_the_markers(results: Any) -> None:
    assert results.with_tables((ROOT / "docs" / "results.md").read_text(encoding="utf-8"), "x")
