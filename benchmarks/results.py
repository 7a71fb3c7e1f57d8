"""Builds the tables of docs/results.md from JSON files, one file per cell of the comparison.

    python benchmarks/results.py [FOLDER] [--page docs/results.md]

A cell is one system on one dataset:

    {"dataset": "gutenberg-lcsh", "system": "stacked ranker, 3 members", "kind": "stacked ranker",
     "metrics": {"P@1": 50.89, "nDCG@5": 52.83}, "seconds": 1267, "commit": "d6e022a", "command": "elias fit ..."}

`kind` is one of KINDS: the network (ELIAS), the paper's ranker (ELIAS++), our stacked ranker, or a peer. Cells of our
own systems must all be of one commit, so that a table never mixes versions; a peer's `commit` is its version. Tables
go between the two marker lines of the page; the rest of the page stays as it is. Without cells nothing is written.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PEER = "peer"
KINDS = (PEER, "network (ELIAS)", "paper's ranker (ELIAS++)", "stacked ranker")  # in the order of the rows
COLUMNS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "R@10", "R@100")
START, END = "<!-- tables: python benchmarks/results.py -->", "<!-- end of tables -->"
FIELDS = {
    "dataset": str, "system": str, "kind": str, "metrics": dict, "seconds": (int, float), "commit": str, "command": str,
}  # fmt: skip


class CellError(Exception):
    """A cell that cannot go into a table; the message names the file and the remedy."""


@dataclass(frozen=True)
class Cell:
    dataset: str
    system: str
    kind: str
    metrics: dict[str, float]
    seconds: float
    commit: str
    command: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "docs" / "results", help="folder of the cells")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "results.md")
    args = parser.parse_args()
    try:
        cells = read_cells(args.folder)
        if not cells:
            print(f"{args.folder}: no cells (*.json) here, so there are no tables to write; {args.page} is unchanged")
            return
        args.page.write_text(with_tables(args.page.read_text(encoding="utf-8"), tables(cells)), encoding="utf-8")
    except CellError as problem:
        sys.exit(str(problem))
    print(f"{args.page}: {len(cells)} cells of commit {commit_of(cells) or '(peers only)'}")


def read_cells(folder: Path) -> list[Cell]:
    """All cells of a folder by file name, checked one by one and together."""
    read = {path: read_cell(path) for path in sorted(folder.glob("*.json"))}
    places: dict[tuple[str, str], Path] = {}
    for path, cell in read.items():
        other = places.setdefault((cell.dataset, cell.system), path)
        if other != path:
            raise CellError(f"{path}: {cell.system} on {cell.dataset} is already in {other.name}; remove one of them")
    cells = list(read.values())
    commit_of(cells)
    return cells


def read_cell(path: Path) -> Cell:
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as problem:
        raise CellError(f"{path}: not JSON: {problem}") from None
    if not isinstance(content, dict) or set(content) != set(FIELDS):
        raise CellError(f"{path}: a cell is an object with exactly the keys {', '.join(FIELDS)}")
    for name, kind in FIELDS.items():
        if not isinstance(content[name], kind) or content[name] in ("", {}):
            raise CellError(f"{path}: {name} is {content[name]!r}; see benchmarks/results.py for what it must be")
    if content["kind"] not in KINDS:
        raise CellError(f'{path}: kind "{content["kind"]}" is none of {", ".join(KINDS)}')
    if not all(isinstance(value, int | float) for value in content["metrics"].values()):
        raise CellError(f"{path}: every metric must be a number")
    return Cell(**content)


def commit_of(cells: list[Cell]) -> str:
    """The one commit of our own systems; empty if there are none."""
    commits: dict[str, Cell] = {}
    for cell in cells:
        if cell.kind != PEER:
            commits.setdefault(cell.commit, cell)
    if len(commits) > 1:
        found = ", ".join(f"{commit} ({cell.system} on {cell.dataset})" for commit, cell in commits.items())
        raise CellError(f"cells of different commits: {found}; measure all of our own systems with one commit")
    return next(iter(commits), "")


def tables(cells: list[Cell]) -> str:
    """One section per dataset: the table, then the commands."""
    sections = []
    for dataset in dict.fromkeys(cell.dataset for cell in cells):
        rows = sorted((cell for cell in cells if cell.dataset == dataset), key=lambda cell: KINDS.index(cell.kind))
        columns = [name for name in COLUMNS if any(name in row.metrics for row in rows)]
        best = {name: max(round(row.metrics[name], 2) for row in rows if name in row.metrics) for name in columns}
        lines = [f"## {dataset}", "", table_row(["system", "what it is", *columns, "training s"])]
        lines.append("|" + "---|" * (len(columns) + 3))
        for row in rows:
            values = [shown(row.metrics.get(name), best[name]) for name in columns]
            lines.append(table_row([row.system, row.kind, *values, f"{row.seconds:,.0f}"]))
        lines += ["", *(f"- {row.system}: `{row.command}` ({row.commit})" for row in rows)]
        sections.append("\n".join(lines))
    return "\n\n".join(sections)


def table_row(values: list[str]) -> str:
    return f"| {' | '.join(values)} |"


def shown(value: float | None, best: float) -> str:
    if value is None:
        return ""
    text = f"{value:.2f}"
    return f"**{text}**" if round(value, 2) == best else text


def with_tables(page: str, made: str) -> str:
    """The page with everything between its markers replaced."""
    before, start, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise CellError(f"the page has no lines {START} and {END}; put them where the tables go")
    return f"{before}{START}\n\n{made}\n\n{END}{after}"


if __name__ == "__main__":
    main()
