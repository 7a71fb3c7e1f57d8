"""`elias fit DATA [-o MODEL]`: train a model. `elias fit --settings` lists every setting."""

from __future__ import annotations

import argparse
import os
import signal
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .options import add_fields, add_settings, add_threads, changed_settings, chosen_fields

if TYPE_CHECKING:
    from ..core.distributed import Ranks
    from ..core.settings import Settings
    from ..dataset import Dataset


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "fit",
        help="train a model",
        description="Train a model on a file or a folder of data. Works in MODEL.run/ and puts the finished model at "
        "MODEL. After an interruption, the same command continues where it stopped.",
    )
    parser.add_argument(
        "data", nargs="?", help="a file, a dataset folder, or - for standard input (docs/reference/data-layouts.md)"
    )
    parser.add_argument(
        "-o", "--output", metavar="MODEL", help="folder of the model to write (default: shop.csv -> shop-model)"
    )
    add_fields(parser)
    add_settings(parser)
    add_threads(parser)
    parser.add_argument("--members", type=int, default=1, metavar="N", help="train an ensemble of N models (default 1)")
    parser.add_argument("--force", action="store_true", help="replace MODEL, and let a run continue with new settings")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    parser.add_argument("--settings", dest="list", action="store_true", help="list every setting and its default")
    parser.set_defaults(run=run, parser=parser)


def run(args: argparse.Namespace) -> int:
    launched = os.environ.get("WORLD_SIZE", "1") != "1"  # by torchrun, as one of several processes
    if launched:
        # For `core/distributed.py`, and before numpy and torch are imported, whose threads would take the signal.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    from ..core.settings import Settings

    if args.list:
        print(settings_table())
        return 0
    if args.data is None:
        args.parser.error("DATA is needed: a file, a folder, or - for standard input")
    settings = Settings().updated(changed_settings(args))
    if launched:
        from ..core.distributed import launched_ranks
        from ..pipeline.stage_task import leading, run_tasks

        with launched_ranks() as ranks:
            if not ranks.is_first:
                run_tasks(ranks)
                return 0
            with leading(ranks):
                return _fit(args, settings, ranks)
    return _fit(args, settings)


def _fit(args: argparse.Namespace, settings: Settings, ranks: Ranks | None = None) -> int:
    """The whole fit; of several ranks, what the first does."""
    from ..core.progress import Progress

    progress = Progress(quiet=args.quiet)
    output = Path(args.output or default_output(args.data))
    if output.exists():  # before anything is read
        from ..pipeline.fit import check_output

        check_output(output, force=args.force)
    data = _read(args, output, settings.features.label_texts)
    progress.say(data.layout)
    for note in data.notes:
        progress.say(f"  note: {note}")
    if args.output is None:
        progress.say(f"the model will be {output} (-o MODEL chooses another name)")
    from ..pipeline.fit import fit_to

    options: dict[str, Any] = {"members": args.members, "progress": progress, "force": args.force}
    if ranks is not None:
        options["ranks"] = ranks
    folder = fit_to(data, output, settings=settings, **options)
    example = f' Try: elias predict {folder} "some text"' if data.train.texts is not None else ""
    progress.say(f"{folder} is ready; {folder}.run can be removed.{example}")
    return 0


def default_output(data: str) -> str:
    """The model's name where -o gives none: shop.csv -> shop-model, my-data/ -> my-data-model, - -> elias-model."""
    if data == "-":
        return "elias-model"
    path = Path(data)
    name = path.resolve().name
    if not path.is_dir():
        name = name.removesuffix(".gz")
        name = Path(name).stem
    return f"{name or 'elias'}-model"


def _read(args: argparse.Namespace, output: Path, label_texts: bool | None) -> Dataset:
    """The data. Standard input is copied into the run folder first, so that a killed fit can read it again."""
    from ..core.files import FolderLock, disk_errors
    from ..dataset import load_dataset
    from ..dataset.label_names import with_names
    from .standard_input import keep, spool

    if args.data != "-":
        return load_dataset(args.data, **chosen_fields(args))
    run_dir = output.with_name(output.name + ".run")
    with disk_errors(run_dir):
        run_dir.mkdir(parents=True, exist_ok=True)
    with FolderLock(run_dir):
        file = spool(run_dir)
        data = replace(load_dataset(file, **chosen_fields(args)), name=output.name)
        keep(file, with_names(data, label_texts).fingerprint())  # the fingerprint that the run folder will have
    return data


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
