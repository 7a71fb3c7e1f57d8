"""docs/results.md from one command: every system on every dataset, measured unless it has been, then the tables.

    python benchmarks/results.py DATA [DATA ...] [--rows 1500 4000] [--systems NAME ...] [--datasets NAME ...]
                                 [--seeds 3] [--threads 2] [--cells FOLDER] [--work FOLDER] [--page docs/results.md]

DATA are dataset folders with test rows. Of one with more than 10,000 training rows there are cuts too (`--rows`;
without its validation file). The rivals are those of peers.py; `network`, `published` (ELIAS++ as published), `member`
(the default, 3 seeds) and `members` (an ensemble of 3) are ours. A cell is one system on one dataset, a JSON file in
CELLS: it is written when it is measured, so an interrupted run continues with the next one. A rival's cell serves as
long as data, settings and versions are the same; a cell of ours belongs to the last commit that changed src/ (but for
the service, the commands and the engines), and none is measured while src/ has changes that are not committed. A cell
with another number of threads is measured anew, because its times are others.

Tables go between the two marker lines of the page; the rest of the page stays as it is. `--tables` measures nothing.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from peers.catalogue import BASELINE, PEER, PEERS, RESCORED
from peers.cells import Cell, CellError, mean_of, metrics_of, ranks_of, read_cell
from peers.comparison import METRICS, compare, score_rows, value
from peers.cuts import cuts
from peers.environment import ROOT
from peers.rivals import LeftOut, Race, figures_of, key_of_rival, measure, run

import elias
from elias.core.metrics import PerRow

NETWORK, PUBLISHED, STACKED = "network (ELIAS)", "paper's ranker (ELIAS++)", "stacked ranker"
KINDS = (BASELINE, PEER, RESCORED, NETWORK, PUBLISHED, STACKED)  # in the order of the rows
RIVALS = (BASELINE, PEER, RESCORED, PUBLISHED)
START, END = "<!-- tables: python benchmarks/results.py -->", "<!-- end of tables -->"
COSTS = {  # column: (name in the cell, factor, digits)
    "training s": ("train_seconds", 1.0, 0),
    "training MB": ("train_peak_bytes", 1e-6, 0),
    "predicting MB": ("predict_peak_bytes", 1e-6, 0),
    "model MB": ("model_bytes", 1e-6, 1),
    "ms per text": ("batch_ms", 1.0, 2),
}
NOT_OF_MODELS = ("server", "cli", "engines")  # what they change, no figure depends on
KEPT = (*(name for name, _, _ in COSTS.values()), "single_p50_ms", "load_seconds", "calibration_error", "cpu_pressure")


@dataclass(frozen=True)
class Ours:
    """A system of our own: settings of `elias fit`, one cell per seed."""

    title: str
    kind: str
    settings: dict[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0,)
    members: int = 1


OURS = {
    "network": Ours("network alone", NETWORK, {"ranking.kind": "none"}),
    "published": Ours(
        "ELIAS++ as published", PUBLISHED, {"ranking.kind": "published", "linear_ranker.loss": "logistic"}
    ),
    "member": Ours("stacked ranker, one member", STACKED, seeds=(0, 1, 2)),
    "members": Ours("stacked ranker, 3 members", STACKED, members=3),
}


def main() -> None:
    args = arguments()
    try:
        datasets = [
            folder
            for source in args.data
            for folder in (source, *cuts(source, args.rows, args.work / "data"))
            if not args.datasets or folder.resolve().name in args.datasets
        ]
        left_out: list[str] = []
        if not args.tables:
            commit = commit_of_source()
            for folder in sorted(datasets, key=lambda folder: folder in args.data):  # small ones first
                left_out += measure_cells(folder, args, commit)
        sections = [section for folder in datasets if (section := tables(folder, args.cells))]
        if sections:
            page = args.page.read_text(encoding="utf-8")
            args.page.write_text(with_tables(page, "\n\n".join(sections)), encoding="utf-8")
            print(f"{args.page}: {len(sections)} datasets")
        else:
            print(
                f"{args.cells}: no cells of these datasets, so there are no tables to write; {args.page} is unchanged"
            )
    except CellError as problem:
        sys.exit(str(problem))
    for line in left_out:
        print(f"left out: {line}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--rows", type=int, nargs="*", default=[1500, 4000], help="training rows of the cuts")
    names = [*PEERS, *OURS]
    parser.add_argument("--systems", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--datasets", nargs="+", metavar="NAME", help="only these, such as debian-packages-1500")
    parser.add_argument("--seeds", type=int, default=3, help="of `member`, at most")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tables", action="store_true", help="measure nothing, only write the tables")
    parser.add_argument("--cells", type=Path, default=ROOT / "benchmarks" / "cells")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "results.md")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "results", help="cuts, matrices, models")
    parser.add_argument("--environment", type=Path, default=ROOT / ".venv-peers")
    return parser.parse_args()


def commit_of_source() -> str:
    """The last commit that changed what a model of ours depends on; empty where that is not committed."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else "?"

    paths = ("--", "src", *(f":!src/elias/{room}" for room in NOT_OF_MODELS))
    return "" if git("status", "--porcelain", *paths) else git("log", "-1", "--format=%h", *paths)


# Measuring


def measure_cells(folder: Path, args: argparse.Namespace, commit: str) -> list[str]:
    """Every missing cell of a dataset; returns what was left out, and why."""
    data = elias.load_dataset(folder)
    if data.test is None:
        raise CellError(f"{folder} has no test rows, so there is nothing to measure on; add a test file")
    race = Race(data, args.work / data.name, args.environment, args.threads)
    left_out = []
    for name in args.systems:
        try:
            if name in PEERS:
                rival_cell(name, race, args.cells)
            else:
                for seed in OURS[name].seeds[: args.seeds]:
                    our_cell(name, seed, folder, race, args.cells, commit)
        except LeftOut as reason:
            left_out.append(f"{data.name}: {name}: {reason}")
            print(left_out[-1], file=sys.stderr, flush=True)
    return left_out


def is_there(path: Path, key: str, race: Race) -> bool:
    if not path.exists():
        return False
    cell = read_cell(path)
    return cell.key == key and cell.threads == race.threads and cell.fingerprint == race.data.fingerprint()


def rival_cell(name: str, race: Race, cells: Path) -> None:
    path, (key, versions) = cells / race.data.name / f"{name}.json", key_of_rival(name, race)
    if is_there(path, key, race):
        return
    found, peer = measure(name, race), PEERS[name]
    cell_of(
        race, found.folder, system=peer.title, kind=peer.kind, key=key, settings=found.settings, tried=found.tried,
        versions={peer.package: versions[peer.package]} if peer.package else {},
    ).write(path)  # fmt: skip


def our_cell(name: str, seed: int, folder: Path, race: Race, cells: Path, commit: str) -> None:
    system = OURS[name]
    path = cells / race.data.name / f"{name}-{seed}.json"
    if commit and is_there(path, commit, race):
        return
    if not commit:
        raise LeftOut("src/ has changes that are not committed; commit them, so that the figures have a commit")
    output = race.work / f"{name}-{seed}-{commit}"
    output.mkdir(parents=True, exist_ok=True)
    settings = {**system.settings, "run.seed": seed}
    given = json.dumps({"threads": race.threads, "members": system.members, "settings": settings})
    for step in ("fit", "predict"):
        print(f"{race.data.name}: {system.title}, seed {seed}: {step}", file=sys.stderr, flush=True)
        command = [
            sys.executable,
            "-m",
            "peers.our_model",
            step,
            str(folder),
            str(output / "model"),
            str(output),
            given,
        ]
        problem = run(command, output / f"{step}.log", race.threads)
        if problem:
            raise LeftOut(f"{step} failed: {problem}")
    cell_of(
        race, output, system=system.title, kind=system.kind, key=commit, settings=settings, seed=seed, versions={}
    ).write(path)
    shutil.rmtree(output)  # models and runs are large; the cell has what is needed


def cell_of(race: Race, output: Path, **about: Any) -> Cell:
    predicted = np.load(output / "predictions.npz")["labels"]
    cost = {name: figure for name, figure in figures_of(output).items() if name in KEPT}
    return Cell(
        dataset=race.data.name, fingerprint=race.data.fingerprint(), threads=race.threads, cost=cost,
        metrics=metrics_of(score_rows(predicted, race.data)), ranks=ranks_of(predicted, race.data), **about,
    )  # fmt: skip


# Tables


@dataclass(frozen=True)
class Line:
    """A row of a table: the cells of one system, one per seed."""

    cells: list[Cell]

    @property
    def first(self) -> Cell:
        return self.cells[0]

    def mean(self, values: Iterable[float | None]) -> float | None:
        known = [number for number in values if number is not None]
        return sum(known) / len(known) if known else None


def lines_of(folder: Path, fingerprint: str) -> list[Line]:
    """The cells of a dataset, by system; those of ours must be of one commit."""
    found: dict[str, list[Cell]] = {}
    commits: dict[str, Cell] = {}
    for path in sorted(folder.glob("*.json")):
        cell = read_cell(path)
        if cell.kind not in KINDS:
            raise CellError(f'{path}: kind "{cell.kind}" is none of {", ".join(KINDS)}; remove the file')
        if cell.fingerprint != fingerprint:
            raise CellError(f"{path}: measured on other data than {folder.name} is now; remove the file")
        found.setdefault(cell.system, []).append(cell)
        if cell.kind in (NETWORK, PUBLISHED, STACKED):
            commits.setdefault(cell.key, cell)
    if len(commits) > 1:
        which = ", ".join(f"{commit} ({cell.system})" for commit, cell in commits.items())
        raise CellError(f"{folder}: cells of different commits: {which}; measure all of ours with one commit")
    titles = [system.title for system in (*PEERS.values(), *OURS.values())]
    lines = [Line(cells) for cells in found.values()]
    order = {title: number for number, title in enumerate(titles)}
    return sorted(lines, key=lambda line: (KINDS.index(line.first.kind), order.get(line.first.system, len(order))))


def tables(folder: Path, cells: Path) -> str | None:
    """The section of a dataset: systems, differences of ours to the best rival, settings. None without cells."""
    data = elias.load_dataset(folder)
    lines = lines_of(cells / data.name, data.fingerprint())
    if not lines:
        return None
    shares = {line.first.system: mean_of([cell.shares(data) for cell in line.cells]) for line in lines}
    assert data.test is not None
    trained = int(np.count_nonzero(data.training_counts()[0]))
    size = f"{len(data.train):,} training rows, {trained:,} labels in them, {len(data.test):,} test rows."
    parts = [f"## {data.name}", "", size, "", *system_table(lines, shares)]
    parts += differences(lines, shares)
    return "\n".join([*parts, "", *map(settings_line, lines)])


def system_table(lines: Sequence[Line], shares: dict[str, PerRow]) -> list[str]:
    values = {name: {metric: value(found, metric) for metric in METRICS} for name, found in shares.items()}
    best = {metric: max(round(one[metric], 2) for one in values.values()) for metric in METRICS}
    rows = [table_row(["system", "what it is", *METRICS, *COSTS]), "|" + "---|" * (2 + len(METRICS) + len(COSTS))]
    for line in lines:
        metrics = [shown(values[line.first.system][metric], best[metric]) for metric in METRICS]
        costs = [cost(line, *COSTS[column]) for column in COSTS]
        rows.append(table_row([line.first.system, line.first.kind, *metrics, *costs]))
    return rows


def differences(lines: Sequence[Line], shares: dict[str, PerRow]) -> list[str]:
    """Ours minus the best rival of each metric, with the paired 95 % interval."""
    rivals = [line.first.system for line in lines if line.first.kind in RIVALS]
    ours = [line.first.system for line in lines if line.first.kind == STACKED]
    if not ours or not rivals:
        return []
    found = compare({name: shares[name] for name in (*rivals, *ours)}, ours)["against_best_peer"]
    rows = ["", table_row(["minus the best rival", *METRICS]), "|" + "---|" * (1 + len(METRICS))]
    for name in ours:
        against = found[name]
        texts = [f"{d['difference']:+.2f} [{d['low']:.2f}, {d['high']:.2f}] {d['verdict']}" for d in against.values()]
        rows.append(table_row([name, *texts]))
    return [*rows, table_row(["best rival", *(d["peer"] for d in found[ours[0]].values())])]


def settings_line(line: Line) -> str:
    """What was run: chosen settings and versions of a rival; settings, seeds, spread and commit of ours."""
    cell = line.first
    threads = f"{cell.threads} thread{'s' if cell.threads > 1 else ''}"
    words = ", ".join(f"{name} {setting}" for name, setting in cell.settings.items() if name != "run.seed")
    if cell.kind in (NETWORK, PUBLISHED, STACKED):
        seeds = ", ".join(str(one.seed) for one in line.cells)
        text = f"- {cell.system}: {words or 'default settings'}; seed {seeds}; commit {cell.key}; {threads}"
        if len(line.cells) > 1:
            spreads = {metric: np.std([one.metrics[metric] for one in line.cells], ddof=1) for metric in METRICS}
            text += "; standard deviation over seeds " + ", ".join(f"{m} {s:.2f}" for m, s in spreads.items())
        error = line.mean(one.cost.get("calibration_error") for one in line.cells)
        return text if error is None else f"{text}; calibration error {error:.4f}"
    package = "".join(f"{name} {version}; " for name, version in cell.versions.items())
    tried = f", the best of {len(cell.tried)} on validation rows" if len(cell.tried) > 1 else ""
    return f"- {cell.system}: {package}{words or 'default settings'}{tried}; {threads}"


def cost(line: Line, name: str, factor: float, digits: int) -> str:
    figure = line.mean(cell.cost.get(name) for cell in line.cells)
    return "" if figure is None else f"{figure * factor:,.{digits}f}"


def table_row(values: Iterable[str]) -> str:
    return f"| {' | '.join(values)} |"


def shown(value: float, best: float) -> str:
    return f"**{value:.2f}**" if round(value, 2) == best else f"{value:.2f}"


def with_tables(page: str, made: str) -> str:
    """The page with everything between its markers replaced."""
    before, start, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise CellError(f"the page has no lines {START} and {END}; put them where the tables go")
    return f"{before}{START}\n\n{made}\n\n{END}{after}"


if __name__ == "__main__":
    main()
