"""`elias compact MODEL -o SMALLER`: classifiers in fewer bytes, fewer edges per cluster; and what that costs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import InputError
from ..core.settings import PRECISIONS
from .options import add_threads

if TYPE_CHECKING:
    from ..dataset import Dataset
    from ..model.model import Model

METRICS = ("P@1", "P@5", "nDCG@5", "R@100")


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "compact",
        help="save a smaller copy of a model",
        description="Save a copy with classifiers in fewer bytes or with fewer edges. --data measures what that costs.",
    )
    parser.add_argument("model", help="model folder")
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER", help="folder of the copy; must not exist")
    parser.add_argument("--precision", choices=PRECISIONS, help="how classifiers are stored (default: as they are)")
    parser.add_argument("--prune", type=int, metavar="N", help="edges kept per cluster (default: all)")
    parser.add_argument(
        "--prune-below", type=float, metavar="X", help="cut edges that score less, from 0 to 1 (default: none)"
    )
    parser.add_argument("--drop-texts", action="store_true", help="without the training texts that --explain shows")
    parser.add_argument("--data", metavar="DATA", help="dataset to measure both models on")
    parser.add_argument("--split", default="test", choices=("test", "validation", "train"), help="which of its rows")
    add_threads(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from ..dataset import load_dataset
    from ..model.compaction import compact
    from ..model.ensemble import load, only_member

    if Path(args.output).exists():
        raise InputError(f"-o {args.output}: exists; remove it first, or choose another name")
    data = load_dataset(args.data) if args.data else None  # an error here must come before anything is written
    model = only_member(load(args.model, threads=args.threads), args.model, "compact")
    wanted = {"prune": args.prune, "prune_below": args.prune_below}
    smaller = compact(model, precision=args.precision, **wanted, drop_texts=args.drop_texts)
    smaller.save(args.output)
    before, after = _size(Path(args.model)), _size(Path(args.output))
    print(f"{args.model}: {before / 1e6:,.1f} MB, {model.network.index.n_edges:,} edges")
    print(f"{args.output}: {after / 1e6:,.1f} MB, {smaller.network.index.n_edges:,} edges")
    if args.prune is not None or args.prune_below is not None:
        print(_cut(smaller.about["compacted"]))
    if data is not None:
        _compare(model, smaller, data, args.split)
    return 0


def _cut(done: dict[str, Any]) -> str:
    """How many edges were cut, and what became of labels that would have lost all of theirs."""
    edges, cut, lost = done["edges"] + done["edges_cut"], done["edges_cut"], done["labels_kept_reachable"]
    said = f"cut {cut:,} of {edges:,} edges ({100 * cut / max(1, edges):.1f} %)"
    return f"{said}; {lost:,} labels would have become unreachable and keep their strongest edge"


def _compare(model: Model, smaller: Model, data: Dataset, split: str) -> None:
    from ..model.evaluate import evaluate_model

    before, after = (evaluate_model(each, data, split).metrics.values for each in (model, smaller))
    title = f"{data.name}, {split} rows"
    print(f"\n{title}" + "".join(f"{name:>9}" for name in METRICS))
    for row, values in (("before", before), ("after", after)):
        print(f"{row:<{len(title)}}" + "".join(f"{values[name]:>9.2f}" for name in METRICS))
    print(f"{'change':<{len(title)}}" + "".join(f"{after[name] - before[name]:>+9.2f}" for name in METRICS))


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
