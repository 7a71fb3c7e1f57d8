"""Accuracy and time of fits on few rows: cuts of the training rows of datasets, one row per dataset, size and seed.

    python benchmarks/small_fits.py DATA [DATA ...] [--rows 1500 4000 10000] [--seeds 0] [--threads 2]
                                    [--name default] [--set SECTION.KEY=VALUE] [--work FOLDER] [--families]

A cut is made of the training file alone, so settings may be chosen on it: 2,500 random rows to measure on, and of the
others as many to train on as asked. With --families rows whose ids share a stem (`libfoo1`, `foo-doc`) stay on one
side, as in a test file that was split by origin. Where texts can be labels of each other (`exclude_own_id`), a
measured text is no label in training: the pair would stand there with text and label exchanged. Prints one JSON object
per fit: metrics, the seconds of all steps and of each. A fit with the same --name that is in WORK/rows.jsonl (default:
runs/small-fits) is printed and not repeated. Fits of one cut share the steps in which they do not differ; --anew builds
all.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import elias
from elias.core.progress import Progress
from elias.model.evaluate import evaluate_model
from elias.pipeline.estimate import estimate_fit
from elias.pipeline.fit import fit_to

METRICS = ("P@1", "P@5", "nDCG@5", "PSP@5", "R@100")
LARGEST = 30  # rows of a family that stays together
KEY = ("name", "data", "rows", "seed", "threads")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--rows", type=int, nargs="+", default=[1500, 4000, 10_000])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--measured", type=int, default=2500, help="rows to measure on")
    parser.add_argument("--name", default="default", help="of the settings, in the rows that are printed")
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--families", action="store_true", help="keep rows whose ids share a stem on one side")
    parser.add_argument("--anew", action="store_true", help="build every step, for a time without other fits")
    parser.add_argument("--work", type=Path, default=Path("runs/small-fits"))
    args = parser.parse_args()

    args.work.mkdir(parents=True, exist_ok=True)
    known = args.work / "rows.jsonl"
    done = [json.loads(line) for line in known.read_text().splitlines()] if known.exists() else []
    changes = dict(item.split("=", 1) for item in args.changes)
    for rows in args.rows:
        for source in args.data:
            data = source.resolve().name + "-families" * args.families
            for seed in args.seeds:
                cell = dict(zip(KEY, (args.name, data, rows, seed, args.threads), strict=True))
                row = next((row for row in done if all(row[key] == cell[key] for key in KEY)), None)
                if row is None:
                    row = {**cell, "settings": changes, **measure(source, cell, changes, args)}
                    with known.open("a") as file:
                        file.write(json.dumps(row) + "\n")
                print(json.dumps(row), flush=True)


def measure(source: Path, cell: dict[str, Any], changes: dict[str, str], args: argparse.Namespace) -> dict[str, Any]:
    """Fit one cell and measure it on rows that are not in it."""
    name = f"{cell['data']}-{cell['rows']}"
    folder = cut(source, args.work / "data" / name, cell["rows"], args.measured, families=args.families)
    output = args.work / f"{name}-{cell['seed']}-{cell['threads']}"
    if args.anew:
        shutil.rmtree(output.with_name(output.name + ".run"), ignore_errors=True)
    settings = elias.Settings().updated({**changes, "run.seed": cell["seed"], "run.threads": cell["threads"]})
    started = time.monotonic()
    data = elias.load_dataset(folder)
    fit_to(data, output, settings=settings, progress=Progress(), force=True)
    wall = time.monotonic() - started
    run = output.with_name(output.name + ".run")
    steps: Counter[str] = Counter()
    for path in used_steps(run):
        inside = "fold/" if path.parent.parent != run else ""
        steps[inside + path.parent.name] += json.loads(path.read_text())["seconds"]
    evaluation = evaluate_model(elias.load(output), data)
    resolved = elias.load(output).about["settings"]
    guess = estimate_fit(data, elias.Settings.from_dict(resolved), data.size()).seconds
    found: dict[str, float | None] = {metric: round(evaluation[metric], 3) for metric in METRICS}
    found["calibration error"] = evaluation.calibration_error
    times = {"seconds": round(sum(steps.values()), 1), "wall": round(wall, 1), "estimate": round(guess, 1)}
    return {**found, **times, "steps": {key: round(steps[key], 1) for key in sorted(steps)}}


def used_steps(run: Path) -> list[Path]:
    """done.json of the steps of the last fit; a fit with more folds may have left some."""
    folds = json.loads((run / "settings.json").read_text())["resolved"]["score_model"]["folds"]
    names = {f"fold-{fold}" for fold in range(folds)}
    return [path for path in sorted(run.rglob("done.json")) if path.parent.parent in (run, *map(run.joinpath, names))]


def family_of(row_id: str) -> str:
    """The stem of an id: without the prefixes of libraries and languages, up to the first digit or hyphen."""
    stem = re.match(r"(?:lib|python3?-|ruby-|golang-[a-z]+-|node-|r-[a-z]+-|fonts-|texlive-)*([a-z]*)", row_id)
    return stem[1] if stem and len(stem[1]) > 2 else row_id


def measured_first(rows: list[dict[str, Any]], measured: int, *, families: bool) -> list[int]:
    """Row numbers in random order, those to measure on first: families of at most LARGEST rows stay together."""
    order = np.random.default_rng(0).permutation(len(rows)).tolist()
    if not families:
        return order
    family = [family_of(row["id"]) for row in rows]
    size = Counter(family)
    key = [name if size[name] <= LARGEST else row["id"] for name, row in zip(family, rows, strict=True)]
    chosen: set[str] = set()
    taken = 0
    for row in order:
        if taken < measured and key[row] not in chosen:
            chosen.add(key[row])
            taken += size[key[row]] or 1
    return sorted(order, key=lambda row: key[row] not in chosen)


def cut(source: Path, folder: Path, count: int, measured: int, *, families: bool = False) -> Path:
    """A dataset of `count` training rows and `measured` test rows, all from the training file of `source`."""
    if (folder / "test.jsonl").exists():
        return folder
    with gzip.open(source / "train.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    order = measured_first(rows, measured, families=families)
    test, train = [rows[i] for i in order[:measured]], [rows[i] for i in order[measured:]]
    folder.mkdir(parents=True, exist_ok=True)
    for path in (source / "labels.tsv.gz", source / "dataset.toml"):
        if path.exists():
            shutil.copyfile(path, folder / path.name)
    if (source / "dataset.toml").exists() and "exclude_own_id = true" in (source / "dataset.toml").read_text():
        known = {row["id"] for row in test}
        train = [{**row, "labels": [label for label in row["labels"] if label not in known]} for row in train]
    train = [row for row in train if row["labels"]][:count]
    if families:  # and labels that training does not have are no labels of new texts either
        known = {label for row in train for label in row["labels"]}
        test = [{**row, "labels": [label for label in row["labels"] if label in known]} for row in test]
        test = [row for row in test if row["labels"]]
    for name, some in (("train", train), ("test", test)):
        text = "".join(json.dumps(row) + "\n" for row in some)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return folder


if __name__ == "__main__":
    main()
