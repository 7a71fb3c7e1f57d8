"""`elias compact MODEL -o SMALLER`"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from .options import add_threads

if TYPE_CHECKING:
    from ..predictor import Model

SHOWN = ("P@1", "P@5", "nDCG@5", "R@100")


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "compact",
        help="save a smaller copy of a model",
        description="A copy with classifiers in fewer bytes or fewer edges. --data measures what that costs.",
    )
    parser.add_argument("model", help="model folder")
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER", help="folder of the copy; must not exist")
    precisions = ("float32", "bfloat16", "int8")
    parser.add_argument("--precision", choices=precisions, help="how classifiers are stored (default: as they are)")
    parser.add_argument("--prune", type=int, metavar="N", help="edges a cluster keeps (default: all)")
    parser.add_argument("--data", metavar="DATA", help="dataset to measure both models on")
    parser.add_argument("--split", default="test", choices=("test", "validation", "train"), help="which of its rows")
    add_threads(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from ..compaction import compact
    from ..predictor import load

    if Path(args.output).exists():
        raise InputError(f"-o {args.output}: exists; remove it first, or choose another name")
    model = load(args.model, threads=args.threads)
    smaller = compact(model, precision=args.precision, prune=args.prune)
    smaller.save(args.output)
    before, after = _size(Path(args.model)), _size(Path(args.output))
    print(f"{args.model}: {before / 1e6:,.1f} MB, {model.network.index.n_edges:,} edges")
    print(f"{args.output}: {after / 1e6:,.1f} MB, {smaller.network.index.n_edges:,} edges")
    if args.data:
        _compare(model, smaller, args)
    return 0


def _compare(model: Model, smaller: Model, args: argparse.Namespace) -> None:
    from ..dataset import load_dataset
    from ..evaluation import evaluate_model

    data = load_dataset(args.data)
    values = [evaluate_model(each, data, args.split).metrics.values for each in (model, smaller)]
    print(f"\n{data.name}, {args.split} rows" + "".join(f"{name:>9}" for name in SHOWN))
    for title, row in (("before", values[0]), ("after", values[1])):
        print(f"{title:<{len(data.name) + len(args.split) + 7}}" + "".join(f"{row[name]:>9.2f}" for name in SHOWN))
    changes = "".join(f"{values[1][name] - values[0][name]:>+9.2f}" for name in SHOWN)
    print(f"{'change':<{len(data.name) + len(args.split) + 7}}{changes}")


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
