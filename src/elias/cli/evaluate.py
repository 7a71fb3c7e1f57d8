"""`elias evaluate MODEL DATA`: the metrics of a model on the rows of a dataset, in percent."""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import InputError
from .input_rows import suffix_of_name
from .options import add_fields, add_threads, chosen_fields

if TYPE_CHECKING:
    from ..dataset import Dataset
    from ..model.ensemble import Ensemble
    from ..model.evaluate import Evaluation
    from ..model.model import Model

PER_LABEL = (
    "label", "label_text", "training_count", "test_count", "predicted@5", "hits@5", "precision@5", "recall@5",
)  # fmt: skip


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "evaluate",
        help="measure a model on labeled rows",
        description="P, nDCG, PSP, PSnDCG at 1, 3, 5 and R at 10, 20, 100 in percent: on the test rows of a dataset "
        "folder, or on all rows of a labeled file, read like the data of the model.",
    )
    parser.add_argument("model", help="model folder")
    parser.add_argument("data", help="a labeled file, or a dataset folder")
    splits = ("test", "validation", "train")
    parser.add_argument("--split", choices=splits, help="which rows of a folder (default test)")
    add_fields(parser)
    parser.add_argument("--rare", type=float, default=0.0, metavar="S", help="favor rare labels: 0 (not) to 1 (most)")
    parser.add_argument("--deciles", action="store_true", help="also recall by popularity of the labels")
    parser.add_argument("--per-label", metavar="FILE", help="write one line per label (.csv or .tsv)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    add_threads(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from dataclasses import asdict

    from ..core.metrics import format_metrics
    from ..dataset.fields import Fields
    from ..model.ensemble import load
    from ..model.evaluate import evaluate_model, labeled_rows

    if args.per_label:
        _check_per_label(Path(args.per_label))
    model = load(args.model, threads=args.threads)
    data, usual = labeled_rows(model, args.data, None, Fields.of(**chosen_fields(args)))
    split = args.split or usual
    found = evaluate_model(model, data, split, rare=args.rare)
    if args.per_label:
        _write_per_label(Path(args.per_label), found, model, data)
    if args.json:
        about = {"seconds": round(found.seconds, 3), "data": data.name, "split": split}
        deciles = {"deciles": [asdict(decile) for decile in found.deciles]} if args.deciles else {}
        print(json.dumps({**found.metrics.as_dict(), **about, **deciles}, ensure_ascii=False, allow_nan=False))
        return 0
    print(format_metrics(found.metrics))
    if found.calibration_error is not None:
        print(f"calibration error {found.calibration_error:.3f}")
    if args.deciles:
        print("\ndecile (popular first)   labels   recall@100   share of R@100")
        for item in found.deciles:
            print(f"{item.decile + 1:>22} {item.labels:>8,} {item.recall:>12.2f} {item.contribution:>16.2f}")
    unknown = len(found.label_ids) - len(model.labels)
    if unknown:
        share = f"{unknown:,} of {len(data.labels):,} labels of {data.name}"
        print(f"{share} are not in the model; where a row has one, it counts as missed", file=sys.stderr)
    print(f"{found.metrics.rows:,} rows in {found.seconds:.1f} s", file=sys.stderr)
    return 0


def _check_per_label(path: Path) -> None:
    if path.is_dir():
        raise InputError(f"--per-label {path}: is a folder; name a file")
    if suffix_of_name(path.name) not in (".csv", ".tsv"):
        raise InputError(f"--per-label {path}: name it .csv or .tsv")


def _write_per_label(path: Path, found: Evaluation, model: Model | Ensemble, data: Dataset) -> None:
    """A table of the labels that occur in these rows or were predicted for one of them; shares in percent."""
    from ..core.files import replacing

    counts = found.per_label()
    texts = list(model.labels.texts_to_show)
    texts += [data.labels.texts_to_show[data.labels.number_of[label]] for label in found.label_ids[len(texts) :]]
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with (
        replacing(path) as part,
        opener(part, "wt", encoding="utf-8", errors="backslashreplace", newline="") as out,
    ):
        delimiter = "\t" if suffix_of_name(path.name) == ".tsv" else ","
        table = csv.writer(out, delimiter=delimiter, lineterminator="\n")
        table.writerow(PER_LABEL)
        for number, label in enumerate(found.label_ids):
            tested, predicted = int(counts.test_count[number]), int(counts.predicted_count[number])
            if tested or predicted:
                precision = f"{counts.precision[number]:.2f}" if predicted else ""
                recall = f"{counts.recall[number]:.2f}" if tested else ""
                trained, hits = int(found.label_counts[number]), int(counts.hits[number])
                table.writerow([label, texts[number], trained, tested, predicted, hits, precision, recall])
