"""`elias evaluate MODEL DATA`: the metrics of a model on the rows of a dataset, in percent."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from ..core.errors import InputError
from .options import add_threads


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "evaluate",
        help="measure a model on test rows",
        description="P, nDCG, PSP, PSnDCG at 1, 3, 5 and R at 10, 20, 100 on the test rows of a dataset, in percent.",
    )
    parser.add_argument("model", help="model folder")
    parser.add_argument("data", help="dataset folder or file")
    splits = ("test", "validation", "train")
    parser.add_argument("--split", default="test", choices=splits, help="which rows (default test)")
    parser.add_argument("--rare", type=float, default=0.0, metavar="S", help="favor rare labels: 0 (not) to 1 (most)")
    parser.add_argument("--deciles", action="store_true", help="also recall by popularity of the labels")
    parser.add_argument("--per-label", metavar="FILE", help="write one line per label (tsv): counts and hits")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    add_threads(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from dataclasses import asdict

    from ..core.metrics import format_metrics
    from ..dataset import load_dataset
    from ..model.ensemble import load
    from ..model.evaluate import evaluate_model

    if args.per_label and Path(args.per_label).is_dir():
        raise InputError(f"--per-label {args.per_label}: is a folder; name a file")
    model = load(args.model, threads=args.threads)
    data = load_dataset(args.data)
    found = evaluate_model(model, data, args.split, rare=args.rare)
    if args.per_label:
        _write_per_label(Path(args.per_label), found)
    if args.json:
        about = {"seconds": round(found.seconds, 3), "data": data.name, "split": args.split}
        deciles = {"deciles": [asdict(decile) for decile in found.deciles]} if args.deciles else {}
        print(json.dumps({**found.metrics.as_dict(), **about, **deciles}, ensure_ascii=False))
        return 0
    print(format_metrics(found.metrics))
    if args.deciles:
        print("\ndecile (popular first)   labels   recall@100   share of R@100")
        for item in found.deciles:
            print(f"{item.decile + 1:>22} {item.labels:>8,} {item.recall:>12.2f} {item.contribution:>16.2f}")
    print(f"{found.metrics.rows:,} rows in {found.seconds:.1f} s", file=sys.stderr)
    return 0


def _write_per_label(path: Path, found: Any) -> None:
    """A table of the labels that occur in these rows or were predicted for one of them."""
    from ..core.files import replacing

    per_label = found.per_label()
    with replacing(path) as part, open(part, "w", encoding="utf-8", errors="backslashreplace") as out:
        out.write("label\ttraining_count\ttest_count\tpredicted@5\thits@5\n")
        for number, label_id in enumerate(found.label_ids):
            if per_label.test_count[number] or per_label.predicted_count[number]:
                out.write(
                    f"{label_id}\t{found.label_counts[number]}\t{per_label.test_count[number]}\t"
                    f"{per_label.predicted_count[number]}\t{per_label.hits[number]}\n"
                )
