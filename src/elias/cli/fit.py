"""`elias fit DATA -o MODEL`: train a model. `elias fit --settings` lists every setting."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import Any

from .options import add_settings, add_threads, changed_settings


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "fit",
        help="train a model",
        description="Train a model on a dataset. Works in MODEL.run/ and puts the finished model at MODEL. "
        "After an interruption, the same command continues where it stopped.",
    )
    parser.add_argument("data", nargs="?", help="dataset folder or file (see docs/reference/data-layouts.md)")
    parser.add_argument("-o", "--output", metavar="MODEL", help="folder of the model to write")
    add_settings(parser)
    add_threads(parser)
    parser.add_argument("--members", type=int, default=1, metavar="N", help="train an ensemble of N models (default 1)")
    parser.add_argument("--force", action="store_true", help="replace MODEL, and let a run continue with new settings")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    parser.add_argument("--settings", dest="list", action="store_true", help="list every setting and its default")
    parser.set_defaults(run=run, parser=parser)


def run(args: argparse.Namespace) -> int:
    from ..core.settings import Settings

    if args.list:
        print(settings_table())
        return 0
    if args.data is None or args.output is None:
        args.parser.error("DATA and -o MODEL are needed")
    settings = Settings().updated(changed_settings(args))

    from ..core.progress import Progress
    from ..dataset import load_dataset

    progress = Progress(quiet=args.quiet)
    data = load_dataset(args.data)
    progress.say(data.layout)
    for note in data.notes:
        progress.say(f"  note: {note}")
    from ..pipeline.fit import fit_to

    folder = fit_to(data, args.output, settings=settings, members=args.members, progress=progress, force=args.force)
    example = f' Try: elias predict {folder} "some text"' if data.train.texts is not None else ""
    progress.say(f"{folder} is ready; {folder}.run can be removed.{example}")
    return 0


def settings_table() -> str:
    """Every setting: name, default, the paper's letter, meaning."""
    from ..core.settings import Settings

    lines = []
    for section in fields(Settings):
        values = getattr(Settings(), section.name)
        for item in fields(values):
            default = getattr(values, item.name)
            text = "auto" if default is None else f"{default}"
            lines.append((f"{section.name}.{item.name}", text, item.metadata["letter"], item.metadata["what"]))
    widths = [max(len(line[column]) for line in lines) for column in range(3)]
    return "\n".join(
        "  ".join([*(text.ljust(width) for text, width in zip(line, widths, strict=False)), line[3]]) for line in lines
    )
