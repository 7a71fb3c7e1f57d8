"""The paper's tables on any dataset folder, measured on its test rows.

    python benchmarks/tables.py ablation DATA [--members 3] [--one-versus-all] [--stacked]     tables 3, 8 (and 2)
    python benchmarks/tables.py cost     DATA [--members 1] [--stacked]                        table 6
    python benchmarks/tables.py lambda   DATA [--values 0 .01 .02 .05 .1 .5]                   table 7, first half
    python benchmarks/tables.py kappa    DATA [--values N ...]                                 table 7, second half
    python benchmarks/tables.py prune    DATA [--values X ...] [--counts N ...]                tables 9a, 9b

    all of them: [--recipe NAME] [--set SECTION.KEY=VALUE] [--work runs/tables] [--json]

ablation, one row per part:
    stage 1            clusters fixed before training
    control            stage 1 for as many epochs as both stages together
    + stage 2          the graph learned: the network alone, ELIAS
    + ranker           the network's candidates ranked by p q
    + calibration      ranked by T + p q: ELIAS++
    + N members        an ensemble of N such models
    one-versus-all     every label trained on every text, same encoder
    stacked ranker     ours, not the paper's: apart from the others, because it trains on other rows too

Everything is trained in WORK/NAME, and all tables share the steps in which they do not differ. A cell is stored in
WORK/NAME/TABLE.json as soon as it is measured, under a key of the data and the settings (not of the code: delete it to
measure again), and read back from there; TABLE.md is the same as Markdown. A killed run continues inside the step.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from timing import batch_ms, machine, peak_bytes, single_ms
from train_step import reset_peak

import elias
from elias.core.defaults import resolve
from elias.core.errors import EliasError, InputError
from elias.core.files import link_tree, read_json, read_tensors, remove, write_json
from elias.core.progress import Progress
from elias.core.settings import Settings, known
from elias.dataset.label_names import with_names
from elias.model.compaction import with_index
from elias.model.ensemble import Ensemble
from elias.model.evaluate import evaluate_model
from elias.pipeline.run_folder import hash_of

COLUMNS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "R@10", "R@20", "R@100")
SHORT = ("P@1", "P@5", "R@10", "R@100")  # of table 7
CALIBRATION_ROWS = 5000
LAMBDAS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.5)
# The paper's kappa of 100 to 10,000 and its 300 to 50 edges that are kept belong to Amazon-670K: 670,091 labels, 8,192
# clusters, kappa 1,000. Other datasets get the same multiples of L / C and of kappa.
KAPPAS = tuple(kappa / (670_091 / 8192) for kappa in (100, 200, 500, 1000, 2000, 10_000))
SHARES_CUT = (73.6, 84.5, 89.1, 92.0)  # percent of the edges, by threshold
SHARES_KEPT = (0.3, 0.2, 0.1, 0.05)  # of kappa, by count
SINGLES = 500  # texts that are timed one by one
CHAIN, FIRST = "chain.run", "chain.run/member-0"  # run folders: of the published system, of its first member
FEATURES, CLUSTERS = ("05-tokens", "10-features"), ("20-clusters", "22-first-stage", "24-clusters")
STAGES = ("30-stage1", "40-adjacency", "50-stage2")
STAGE_1, STAGE_2, RANKER, WHOLE = 40, 60, 65, 85  # steps with a smaller number train a row
LAST = {"none": STAGE_2, "published": WHOLE, "stacked": WHOLE}
NETWORK = {"ranking.kind": "none"}
STAGE_1_ALONE = {**NETWORK, "stage2.epochs": "0"}
PRODUCT = {"ranking.kind": "published", "published.calibration": "false"}
CALIBRATED = {"ranking.kind": "published", "published.calibration": "true"}
Changes = dict[str, str]


# -- models -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bench:
    """A dataset and the folder its models are trained in. `changes`: settings of all of them."""

    data: elias.Dataset
    changes: Changes
    work: Path

    @property
    def base(self) -> Changes:
        """Settings of the published system: the paper's loss, and rows for T held out of every row of a table.

        `changes`, those of a recipe too, come before them.
        """
        own, rows = len(self.data.validation or ()), len(self.data.train)
        wanted = min(CALIBRATION_ROWS, own // 2 if own else rows // 8)
        return {"split.calibration_rows": str(wanted), "linear_ranker.loss": "logistic", **self.changes}

    def resolved(self, changes: Changes) -> Settings:
        settings = Settings().updated(changes)
        return resolve(settings, with_names(self.data, settings.features.label_texts).size())

    def fit(self, run: str, changes: Changes, members: int = 1) -> elias.Model | Ensemble:
        """The model with these settings. Of the steps in the run folder those that do not depend on them are kept."""
        folder = self.work / run
        built = steps_built(folder)
        reset_peak()
        model = elias.fit(
            self.data,
            settings=Settings().updated(changes),
            run_dir=folder,
            members=members,
            progress=Progress(),
            force=True,
        )
        if steps_built(folder) > built:
            path, kind = folder / "peak.json", changes["ranking.kind"]
            peaks = read_json(path) if path.exists() else {}
            write_json(path, {**peaks, kind: max(peak_bytes(), peaks.get(kind, 0))})
        return model

    def link(self, run: str, steps: Sequence[str]) -> None:
        """Give a run the finished steps of the first member; those that depend on other settings are built anew."""
        for step in steps:
            if (self.work / FIRST / step / "done.json").exists():
                target = self.work / run / step
                part = target.with_name(f"{step}.linked")  # whole or not at all, if this is killed
                remove(part)
                link_tree(self.work / FIRST / step, part)
                remove(target)
                os.replace(part, target)

    def folders(self, run: str, members: int) -> list[Path]:
        """The run folders of the members of a run; others may be there from an earlier call."""
        return [self.work / run / f"member-{n}" for n in range(members)] if members > 1 else [self.work / run]

    def seconds(self, run: str, before: int, members: int = 1) -> float:
        """Time of the steps of a run with a smaller number, in folds and members too; shared steps count once."""
        steps = (path for folder in self.folders(run, members) for path in folder.rglob("done.json"))
        needed = (path for path in steps if number_of(path.parent) < before)
        return float(sum(read_json(path)["seconds"] for path in each_once(needed)))

    def model_bytes(self, run: str, members: int = 1) -> int:
        """Size of a model or an ensemble on disk; files that members share count once."""
        files = (path for folder in self.folders(run, members) for path in (folder / "90-model").rglob("*"))
        return sum(path.stat().st_size for path in each_once(path for path in files if path.is_file()))

    def peak(self, run: str, kind: str, members: int = 1) -> int | None:
        """Most memory that was held while a model was trained, its network included; None where it was not measured."""
        folders = {self.work / run, *self.folders(run, members)}
        peaks = [read_json(folder / "peak.json") for folder in folders if (folder / "peak.json").exists()]
        return max((held for peak in peaks for name, held in peak.items() if name in ("none", kind)), default=None)

    def row_counts(self) -> dict[str, int]:
        """How many rows the network is trained on, are held out for validation and calibration, and tested on."""
        parts = read_tensors(self.work / FIRST / "10-features" / "split.safetensors")[0]
        return {**{name: len(rows) for name, rows in parts.items()}, "test": len(known(self.data.test))}


def number_of(step: Path) -> int:
    number = step.name.split("-")[0]
    return int(number) if number.isdigit() else WHOLE


def each_once(files: Iterator[Path]) -> list[Path]:
    """Of files that are hard links of one another, one."""
    return list({path.stat().st_ino: path for path in files}.values())


def steps_built(run: Path) -> int:
    """Steps that this run has built so far, by its logs."""
    logs = [path.read_text(encoding="utf-8") for path in run.rglob("log.jsonl")]
    return sum('"step"' in line for log in logs for line in log.splitlines())


# -- tables -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """One row of a table. `settings` and `row` make its key; `measure` is called where it is not stored yet."""

    row: str
    settings: Changes
    measure: Callable[[], dict[str, Any]]
    group: str = ""  # a heading in the Markdown


@dataclass
class Table:
    """Finished cells in NAME.json, and as Markdown in NAME.md."""

    name: str
    title: str
    columns: dict[str, str]  # name in the JSON -> heading and number format, as "P@1|.2f"
    bench: Bench
    note: Callable[[dict[str, Any]], str]  # of the first row
    rows: list[dict[str, Any]] = field(default_factory=list)  # of this call

    def run(self, cells: Sequence[Cell], *, as_json: bool) -> None:
        path, fingerprint = self.bench.work / f"{self.name}.json", self.bench.data.fingerprint()
        if not as_json:
            print(" " * 20 + "".join(f"{heading:>12}" for heading, _ in self._formats()), flush=True)
        for cell in cells:
            stored = read_json(path)["cells"] if path.exists() else {}
            key = hash_of(fingerprint, self.name, cell.row, cell.settings)
            if key not in stored:
                about = {"data": self.bench.data.name, "fingerprint": fingerprint, "row": cell.row}
                stored[key] = {**about, "group": cell.group, "settings": cell.settings, **cell.measure()}
                write_json(path, {"table": self.name, "cells": stored})
            self.rows.append(stored[key])
            print(json.dumps(stored[key]) if as_json else self._line(stored[key]), flush=True)
            path.with_suffix(".md").write_text(self.markdown(), encoding="utf-8")

    def _formats(self) -> list[tuple[str, str]]:
        return [(heading, form) for heading, _, form in (value.partition("|") for value in self.columns.values())]

    def _values(self, row: dict[str, Any]) -> list[str]:
        found = [(row.get(name), form) for name, (_, form) in zip(self.columns, self._formats(), strict=True)]
        return ["" if value is None else format(value, form) for value, form in found]

    def _line(self, row: dict[str, Any]) -> str:
        return f"{row['row']:<20}" + "".join(f"{value:>12}" for value in self._values(row))

    def markdown(self) -> str:
        """The rows of this call, those of each group under a heading of their own."""
        lines = [f"# {self.title}: {self.bench.data.name}", "", self.note(self.rows[0]), ""]
        headings = [heading for heading, _ in self._formats()]
        for group in dict.fromkeys(row["group"] for row in self.rows):
            lines += [f"## {group}", ""] if group else []
            lines += [f"| | {' | '.join(headings)} |", "|---" * (len(headings) + 1) + "|"]
            rows = [row for row in self.rows if row["group"] == group]
            lines += [f"| {row['row']} | {' | '.join(self._values(row))} |" for row in rows]
            lines.append("")
        return "\n".join(lines)


def measured(model: elias.Model | Ensemble, data: elias.Dataset) -> dict[str, float]:
    """Metrics on the test rows, in percent."""
    metrics = evaluate_model(model, data).metrics
    return {name: round(float(metrics[name]), 4) for name in COLUMNS}


def metric_columns(names: Sequence[str]) -> dict[str, str]:
    return {name: f"{name}|.2f" for name in names}


# -- tables 3, 8 and 2: what each part is worth -----------------------------------------------------------------------


def ablation(bench: Bench, args: argparse.Namespace) -> tuple[Table, list[Cell]]:
    def row(
        name: str, run: str, changes: Changes, before: int, *, members: int = 1, linked: Sequence[str] = (),
        group: str = "",
    ) -> Cell:  # fmt: skip
        def measure() -> dict[str, Any]:
            bench.link(run, linked)
            found = measured(bench.fit(run, changes, members), bench.data)
            return {**found, "seconds": round(bench.seconds(run, before, members), 1), "rows": bench.row_counts()}

        return Cell(name, {**changes, "members": str(members)}, measure, group)

    base, members = bench.base, args.members
    epochs = bench.resolved({**base, **NETWORK})
    both = str(known(epochs.stage1.epochs) + known(epochs.stage2.epochs))
    control = {**base, **STAGE_1_ALONE, "stage1.epochs": both}
    cells = [
        row("stage 1", FIRST, {**base, **STAGE_1_ALONE}, STAGE_1),
        row("control", "control.run", control, STAGE_1, linked=FEATURES + CLUSTERS),
        row("+ stage 2", FIRST, {**base, **NETWORK}, STAGE_2),
    ]
    if not args.no_ranker:
        cells.append(row("+ ranker", FIRST, {**base, **PRODUCT}, RANKER))
        whole = CALIBRATED if bench.resolved({**base, **CALIBRATED}).split.calibration_rows else PRODUCT
        if whole is CALIBRATED:  # a recipe can leave no rows for T
            cells.append(row("+ calibration", FIRST, {**base, **CALIBRATED}, WHOLE))
        if members > 1:
            cells.append(row(f"+ {members} members", CHAIN, {**base, **whole}, WHOLE, members=members))
    if args.one_versus_all:
        of_index = ("clustering", "index", "stage2")
        others = {key: value for key, value in base.items() if key.split(".")[0] not in of_index}
        exact = {**others, **NETWORK, "network.kind": "one-versus-all", "stage1.epochs": both, "stage1.accumulate": "1"}
        cells.append(row("one-versus-all", "one-versus-all.run", exact, WHOLE, linked=FEATURES))
    if args.stacked:
        group, changes = "Our stacked ranker", {**bench.changes, "ranking.kind": "stacked"}
        cells.append(row("stacked ranker", "stacked.run/member-0", changes, WHOLE, group=group))
        if members > 1:
            name = f"{members} members of it"
            cells.append(row(name, "stacked.run", changes, WHOLE, members=members, group=group))

    def note(first: dict[str, Any]) -> str:
        rows = first["rows"]
        return (
            f"{rows['test']:,} test rows; percent; training is the time of all steps that a row needs. All rows but "
            f"those of the stacked ranker train on the same {rows['train']:,} rows: {rows['calibration']:,} are held "
            f"out of everything for T, {rows['validation']:,} for the choice among checkpoints. Control: stage 1 for "
            f"{both} epochs, as many as both stages together.{described(bench)}"
        )

    columns = {**metric_columns(COLUMNS), "seconds": "training s|,.0f"}
    return Table("ablation", "Tables 3 and 8, what each part is worth", columns, bench, note), cells


def described(bench: Bench) -> str:
    """Settings that differ from the defaults, as a sentence."""
    return f" Settings: {', '.join(f'{key}={value}' for key, value in bench.base.items())}."


# -- table 6: cost ----------------------------------------------------------------------------------------------------


def cost(bench: Bench, args: argparse.Namespace) -> tuple[Table, list[Cell]]:
    def row(name: str, run: str, changes: Changes, *, members: int = 1) -> Cell:
        def measure() -> dict[str, Any]:
            kind = changes["ranking.kind"]
            found = times(bench.fit(run, changes, members), bench.data)
            trained, peak = bench.seconds(run, LAST[kind], members), bench.peak(run, kind, members)
            found |= {"training_hours": trained / 3600, "model_gb": bench.model_bytes(run, members) / 1e9}
            return {**found, "peak_gb": None if peak is None else peak / 1e9, **machine()}

        return Cell(name, {**changes, "members": str(members)}, measure)

    base, members = bench.base, args.members
    cells = [row("ELIAS", FIRST, {**base, **NETWORK})]
    if not args.no_ranker:
        cells.append(row("ELIAS++", FIRST, {**base, **CALIBRATED}))
        if members > 1:
            cells.append(row(f"ELIAS++, {members} members", CHAIN, {**base, **CALIBRATED}, members=members))
    if args.stacked:
        changes = {**bench.changes, "ranking.kind": "stacked"}
        cells.append(row("stacked ranker", "stacked.run/member-0", changes))

    def note(first: dict[str, Any]) -> str:
        machine = ", ".join(f"{key} {first[key]}" for key in ("cores", "machine", "cpu_pressure"))
        return (
            "On this machine, from raw text to the 5 best labels. Batch: all test texts in one call, per text; single: "
            f"the median of up to {SINGLES} texts, one per call. Peak: of the process that trains, measured while it "
            f"does; empty where the steps were there before. Machine: {machine}.{described(bench)}"
        )

    columns = {
        "batch_ms": "batch ms|.3f",
        "single_ms": "single ms|.3f",
        "training_hours": "training h|.3f",
        "model_gb": "model GB|.3f",
        "peak_gb": "peak GB|.2f",
    }
    return Table("cost", "Table 6, cost", columns, bench, note), cells


def times(model: elias.Model | Ensemble, data: elias.Dataset) -> dict[str, float]:
    """Milliseconds per text, in one batch and one by one."""
    rows = known(data.test)
    inputs: Any = list(rows.texts) if rows.texts is not None else rows.vectors
    chosen = np.linspace(0, len(rows) - 1, min(SINGLES, len(rows))).astype(int).tolist()
    single, _ = single_ms(lambda i: model.predict(inputs[chosen[i] : chosen[i] + 1], k=5), len(chosen))
    return {"batch_ms": batch_ms(lambda i: model.predict(inputs, k=5), len(rows), 1), "single_ms": single}


# -- table 7: lambda and kappa ----------------------------------------------------------------------------------------


def sweep(bench: Bench, run: str, row: str, changes: Changes, more: dict[str, Any]) -> Cell:
    """A network whose stage 2 has other settings; stage 1 is that of the ablation."""
    settings = {**bench.base, **NETWORK, **changes}

    def measure() -> dict[str, Any]:
        bench.fit(FIRST, {**bench.base, **STAGE_1_ALONE})
        bench.link(run, FEATURES + CLUSTERS + STAGES)
        found = measured(bench.fit(run, settings), bench.data)
        return {**more, **found, "seconds": round(bench.seconds(run, STAGE_2), 1)}

    return Cell(row, settings, measure)


def lambdas(bench: Bench, args: argparse.Namespace) -> tuple[Table, list[Cell]]:
    """lambda changes in stage 2 only, as in the authors' program, whose stage 1 has a lambda of its own."""
    values = args.values if args.values is not None else LAMBDAS
    key = "stage2.shortlist_loss_weight"
    cells = [sweep(bench, "lambda.run", f"{value:g}", {key: f"{value:g}"}, {"lambda": value}) for value in values]

    def note(_: dict[str, Any]) -> str:
        stage1 = bench.resolved(bench.base).stage1.shortlist_loss_weight
        return (
            f"The network alone; percent. lambda is changed in stage 2 only: stage 1, with lambda = {stage1:g}, is the "
            f"same in all rows.{described(bench)}"
        )

    columns = {**metric_columns(SHORT), "seconds": "training s|,.0f"}
    return Table("lambda", "Table 7, lambda", columns, bench, note), cells


def kappas(bench: Bench, args: argparse.Namespace) -> tuple[Table, list[Cell]]:
    settings = bench.resolved({**bench.base, **NETWORK})
    labels = with_names(bench.data, settings.features.label_texts).size().labels
    per_cluster = labels / known(settings.clustering.clusters)
    values = args.values if args.values is not None else [multiple * per_cluster for multiple in KAPPAS]
    whole = sorted({min(labels, max(1, round(value))) for value in values})
    cells = [
        sweep(bench, "kappa.run", f"{kappa:,}", {"index.kappa": str(kappa)}, {"multiple": kappa / per_cluster})
        for kappa in whole
    ]

    def note(_: dict[str, Any]) -> str:
        clusters, beta = known(settings.clustering.clusters), known(settings.index.beta)
        return (
            f"The network alone; percent. L / C = {labels:,} / {clusters:,} = {per_cluster:.1f}. The paper's 100, 200, "
            f"500, 1,000, 2,000 and 10,000 on Amazon-670K are {', '.join(f'{multiple:.1f}' for multiple in KAPPAS)} "
            f"times L / C. Stage 1 is the same in all rows; beta is {beta:g} in all.{described(bench)}"
        )

    columns = {"multiple": "of L / C|.1f", **metric_columns(SHORT), "seconds": "training s|,.0f"}
    return Table("kappa", "Table 7, kappa", columns, bench, note), cells


# -- table 9: pruning -------------------------------------------------------------------------------------------------


def prune(bench: Bench, args: argparse.Namespace) -> tuple[Table, list[Cell]]:
    settings = {**bench.base, **NETWORK}
    resolved = bench.resolved(settings)
    if not resolved.stage2.epochs:
        raise InputError("stage2.epochs=0: no edges are learned, so there is nothing to prune; leave it out")
    model = bench.fit(FIRST, settings)
    assert isinstance(model, elias.Model)
    index = model.network.learned_index()
    scores = index.edge_scores()

    def row(name: str, group: str, **wanted: Any) -> Cell:
        def measure() -> dict[str, Any]:
            pruned, safe = index.prune(**wanted), index.prune(**wanted, keep_parents=True)
            found: dict[str, Any] = {
                "edges": pruned.n_edges,
                "cut": 100 * (1 - pruned.n_edges / index.n_edges),
                "unreachable": index.n_reachable() - pruned.n_reachable(),
                **measured(with_index(model, pruned), bench.data),
            }
            kept = found if safe.n_edges == pruned.n_edges else measured(with_index(model, safe), bench.data)
            found["cut, reachable"] = 100 * (1 - safe.n_edges / index.n_edges)
            return {**found, "P@1, reachable": kept["P@1"], "R@100, reachable": kept["R@100"]}

        return Cell(name, {**settings, **{key: repr(value) for key, value in wanted.items()}}, measure, group)

    limits = args.values
    if limits is None:
        limits = [float(f"{np.quantile(scores, share / 100):.3g}") for share in SHARES_CUT]
    counts = args.counts
    if counts is None:
        counts = [max(1, round(share * known(resolved.index.kappa))) for share in SHARES_KEPT]
    cells = [row("all edges", "9a, by threshold")]
    cells += [row(f"e >= {limit:g}", "9a, by threshold", below=limit) for limit in limits]
    cells += [row(f"{count:,} per cluster", "9b, by count", keep=count) for count in counts]

    def note(first: dict[str, Any]) -> str:
        return (
            f"The network alone; percent. {first['edges']:,} edges in {index.n_clusters:,} clusters; the softmax is "
            "computed again over the edges that are left. First as the paper cuts, where labels can lose all their "
            "edges (unreachable); then with each label's strongest edge kept, as `elias compact` does. Unless they are "
            "given, thresholds cut as many edges as the paper's, 73.6 to 92 %, and counts are its shares of kappa, 0.3 "
            f"to 0.05.{described(bench)}"
        )

    columns = {
        "cut": "cut %|.1f", "unreachable": "unreachable|,", "P@1": "P@1|.2f", "R@100": "R@100|.2f",
        "cut, reachable": "kept: cut %|.1f", "P@1, reachable": "kept: P@1|.2f", "R@100, reachable": "kept: R@100|.2f",
    }  # fmt: skip
    return Table("prune", "Table 9, edges cut after training", columns, bench, note), cells


# -- the program ------------------------------------------------------------------------------------------------------

TABLES = {"ablation": ablation, "cost": cost, "lambda": lambdas, "kappa": kappas, "prune": prune}


def main() -> None:
    args = arguments()
    try:
        data = elias.load_dataset(args.data)
        if data.test is None or not data.test.labels.nnz:
            raise InputError(f"{args.data} has no labeled test rows to measure on; add a test file")
        changes = {**recipe_of(args.recipe), **dict(pair(item) for item in args.changes)}
        table, cells = TABLES[args.table](Bench(data, changes, args.work / data.name), args)
        table.run(cells, as_json=args.json)
    except EliasError as error:
        print(f"tables.py: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def recipe_of(name: str | None) -> Changes:
    """The settings of a recipe, as strings like those of --set."""
    if name is None:
        return {}
    from elias.core.recipes import read_recipe

    return {key: str(value) for key, value in read_recipe(name).items()}


def pair(item: str) -> tuple[str, str]:
    key, sign, value = item.partition("=")
    if not sign:
        raise InputError(f"--set {item}: write SECTION.KEY=VALUE, such as stage2.epochs=5")
    return key, value


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tables = parser.add_subparsers(dest="table", required=True, metavar="TABLE")
    for name in TABLES:
        own = tables.add_parser(name)
        own.add_argument("data", type=Path)
        own.add_argument("--recipe", metavar="NAME", help="settings of a recipe (elias recipes); --set wins over it")
        own.add_argument("--set", dest="changes", action="append", default=[], metavar="SECTION.KEY=VALUE")
        own.add_argument("--work", type=Path, default=Path("runs/tables"))
        own.add_argument("--json", action="store_true", help="one JSON object per line instead of a table")
        if name in ("ablation", "cost"):
            own.add_argument("--members", type=int, default=3 if name == "ablation" else 1)
            own.add_argument("--no-ranker", action="store_true", help="the network alone: for vectors without words")
            own.add_argument("--stacked", action="store_true", help="our stacked ranker too")
        else:
            own.add_argument("--values", type=float, nargs="+", help="instead of the paper's; of prune: thresholds")
        if name == "ablation":
            own.add_argument("--one-versus-all", action="store_true", help="the baseline without an index too")
        if name == "prune":
            own.add_argument("--counts", type=int, nargs="+", help="edges kept per cluster, instead of the paper's")
    return parser.parse_args()


if __name__ == "__main__":
    main()
