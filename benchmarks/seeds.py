"""Accuracy of the default settings on a dataset, over several seeds: one row per seed, then the mean.

    python benchmarks/seeds.py DATA --seeds 0 1 2 [--set SECTION.KEY=VALUE] [--json] [--work FOLDER]

Each seed is a fit of its own in WORK (default runs/seeds/NAME-SEED), resumable, and is measured on the test rows.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import elias
from elias.core.progress import Progress, duration
from elias.model.evaluate import evaluate_model
from elias.pipeline.fit import fit_to

COLUMNS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "R@10", "R@20", "R@100")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--work", type=Path, default=Path("runs/seeds"))
    parser.add_argument("--json", action="store_true", help="one JSON object per line instead of a table")
    args = parser.parse_args()

    data = elias.load_dataset(args.data)
    changes = dict(item.split("=", 1) for item in args.changes)
    found = [measure(data, seed, changes, args.work) for seed in args.seeds]
    mean = {name: sum(row[name] for row in found) / len(found) for name in (*COLUMNS, "seconds")}
    if args.json:
        for row in [*found, {"seed": "mean", **mean}]:
            print(json.dumps({"data": data.name, "settings": changes, **row}))
        return
    print(f"{'seed':<6}" + "".join(f"{name:>8}" for name in COLUMNS) + f"{'fit':>12}")
    for row in [*found, {"seed": "mean", **mean}]:
        values = "".join(f"{row[name]:8.2f}" for name in COLUMNS)
        print(f"{row['seed']!s:<6}{values}{duration(float(row['seconds'])):>12}")


def measure(data: elias.Dataset, seed: int, changes: dict[str, str], work: Path) -> dict[str, float]:
    """Fit one seed (unless it is there) and measure it on the test rows."""
    output = work / f"{data.name}-{seed}"
    if not output.exists():
        fit_to(data, output, settings=elias.Settings().updated({**changes, "run.seed": seed}), progress=Progress())
    steps = output.with_name(output.name + ".run").rglob("done.json")  # of folds too
    seconds = sum(json.loads(path.read_text())["seconds"] for path in steps)
    metrics = evaluate_model(elias.load(output), data).metrics
    return {"seed": seed, "seconds": seconds, **{name: metrics[name] for name in COLUMNS}}


if __name__ == "__main__":
    main()
