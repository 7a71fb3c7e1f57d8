"""The main job on the dataset in this repository: what learning the index is worth.

Trains on datasets/debian-packages without pretrained weights and prints a table, once with a small shortlist K and once
with the large one that prediction uses by default:

    stage 1     clusters fixed before training
    control     stage 1 again, trained for as many epochs as both stages together
    stage 2     the cluster-to-label graph learned
    stacked     candidates by words too, ranked by a score learned on held-out rows from all features

then a few test texts with their best labels. It trains for EPOCHS, fewer than `elias fit` does by default, and holds
the rows that the score is learned from out of the model itself (ONE_SPLIT): done in five minutes, in six if kernels
must be compiled. Run it with `make demo`; killed, it continues where it stopped.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import elias
from elias.core.files import link_tree
from elias.core.progress import Progress, duration
from elias.model.evaluate import Evaluation, evaluate_model
from elias.network.storage import load_network
from elias.pipeline.fit import fit_to

COLUMNS = ("P@1", "P@3", "P@5", "PSP@5", "R@10", "R@20", "R@100")
EPOCHS = {"stage1.epochs": 2, "stage2.epochs": 3}
ONE_SPLIT = {"score_model.folds": 0}
NARROW = 500
SHOWN = 3
ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=ROOT / "datasets" / "debian-packages", type=Path)
    parser.add_argument("--output", default=ROOT / "models" / "debian", type=Path)
    parser.add_argument("--seed", default=0, type=int)
    parser.add_argument("--json", action="store_true", help="the table as one JSON object per line, too")
    args = parser.parse_args()

    progress = Progress()
    data = elias.load_dataset(args.data)
    model = train(data, args.output, args.seed, {**EPOCHS, **ONE_SPLIT}, progress)
    run = args.output.with_name(args.output.name + ".run")
    network_alone = replace(model, reranker=None)
    stage1 = replace(
        network_alone,
        network=load_network(run / "30-stage1" / "network", device=model.network.device, threads=model.network.threads),
    )

    control_output = args.output.with_name(args.output.name + "-control")
    share_steps(run, control_output.with_name(control_output.name + ".run"))
    progress.say("\nThe control: stage 1 alone, for as many epochs.")
    # Without a ranker other defaults hold, and the control must differ in nothing but its stages.
    same = ("split.calibration_rows", "split.validation_rows", "encoder.dim", "stage1.batch_size")
    used = model.about["settings"]
    changes = {name: used[section][key] for name in same for section, key in [name.split(".")]}
    changes |= {"ranking.kind": "none", "stage1.epochs": sum(EPOCHS.values()), "stage2.epochs": 0}
    control = train(data, control_output, args.seed, changes, progress)
    control_run = control_output.with_name(control_output.name + ".run")

    models = {
        "stage 1": (stage1, seconds(run, "30-stage1")),
        "control": (control, seconds(control_run, "30-stage1")),
        "stage 2": (network_alone, seconds(run, "30-stage1", "40-adjacency", "50-stage2")),
    }
    usual = model.network.settings.shortlist_size
    for size in (NARROW, usual):
        if size == usual:
            models["stacked"] = (model, seconds(run))
        rows = {name: (measure(one, data, size), took) for name, (one, took) in models.items()}
        print(f"\nK = {size} labels classified per text")
        print_table(rows)
        if args.json:
            for name, (found, took) in rows.items():
                about = {"row": name, "K": size, "data": data.name, "seed": args.seed, "seconds": took}
                print(json.dumps({**about, **found.metrics.as_dict()}))
    print_examples(model, data)


def train(data: elias.Dataset, output: Path, seed: int, changes: dict[str, Any], progress: Progress) -> elias.Model:
    """The model at `output`, trained unless it is there."""
    if not output.exists():
        settings = elias.Settings().updated({"run.seed": seed, **changes})
        fit_to(data, output, settings=settings, progress=progress)
    return elias.load(output)


def share_steps(run: Path, other: Path) -> None:
    """Tokens, features and clusters are the same for the control: link those of the first run."""
    for name in ("05-tokens", "10-features", "20-clusters"):
        if not (other / name).exists():
            link_tree(run / name, other / name)


def measure(model: elias.Model, data: elias.Dataset, shortlist_size: int) -> Evaluation:
    """A model on the test rows, with K as given."""
    search = replace(model.network.settings, shortlist_size=shortlist_size)
    model.network.settings, before = search, model.network.settings
    try:
        return evaluate_model(model, data)
    finally:
        model.network.settings = before


def seconds(run: Path, *steps: str) -> float:
    """Time that steps took, all of a run if none are named; of a step that was interrupted, its last part."""
    files = [run / step / "done.json" for step in steps] or list(run.glob("*/done.json"))
    return float(sum(json.loads(file.read_text())["seconds"] for file in files))


def print_table(rows: dict[str, tuple[Evaluation, float]]) -> None:
    print(" " * 10 + "".join(f"{name:>8}" for name in COLUMNS) + f"{'time':>12}")
    for name, (found, took) in rows.items():
        print(f"{name:<10}" + "".join(f"{found.metrics[column]:8.2f}" for column in COLUMNS) + f"{duration(took):>12}")
    best = max(rows[name][0].metrics["R@100"] for name in ("stage 1", "control"))
    gain = rows["stage 2"][0].metrics["R@100"] - best
    print(f"Learning the index: {gain:+.2f} points of R@100 over the better of the other two.")


def print_examples(model: elias.Model, data: elias.Dataset) -> None:
    assert data.test is not None
    assert data.test.texts is not None
    picked = range(0, len(data.test), max(1, len(data.test) // SHOWN))[:SHOWN]
    ids = [data.test.ids[row] for row in picked] if data.test.ids else None
    found = model.predict([data.test.texts[row] for row in picked], k=5, ids=ids)
    for row, names in zip(picked, found.named(), strict=True):
        right = {data.labels.ids[label] for label in data.test.labels[row].indices}
        print(f"\n{data.test.texts[row][:90]}")
        for name, score in names:
            print(f"  {score:.3f}  {name}{'  (right)' if name in right else ''}")


if __name__ == "__main__":
    main()
