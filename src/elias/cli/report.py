"""`elias report MODEL DATA -o REPORT`: the paper's figures of a model, as one page that opens offline."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import EliasError, InputError
from .options import add_fields, add_threads, chosen_fields

if TYPE_CHECKING:
    from ..model.ensemble import Ensemble
    from ..model.model import Model


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "report",
        help="write the figures of the paper for a model",
        description="Edge scores, scores and recall by label frequency, stage 1 against stage 2, t-SNE of labels and a "
        "reliability diagram, on the test rows of a dataset folder: a page with charts, each also as .svg and .csv.",
    )
    parser.add_argument("model", help="model folder")
    parser.add_argument("data", help="a dataset folder with test rows, or a labeled file")
    parser.add_argument("-o", "--output", required=True, metavar="REPORT", help="folder of the report to write")
    parser.add_argument(
        "--run", dest="run_folder", metavar="FOLDER", help="run folder of the model (default MODEL.run)"
    )
    parser.add_argument("--force", action="store_true", help="replace REPORT")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    add_fields(parser)
    add_threads(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from ..evaluation.report_page import PAGE, check_output

    output = Path(args.output)
    check_output(output, force=args.force)  # before anything is read

    from ..core.progress import Progress
    from ..dataset.fields import Fields
    from ..evaluation.report import Subject, make_report
    from ..evaluation.report_page import write_report
    from ..model.ensemble import load
    from ..model.evaluate import labeled_rows

    progress = Progress(quiet=args.quiet)
    model = load(args.model, threads=args.threads)
    data, split = labeled_rows(model, args.data, None, Fields.of(**chosen_fields(args)))
    if split not in data.splits:
        raise InputError(
            f"{data.name} has no test rows, which a report is measured on; it has {', '.join(data.splits)}"
        )
    folder = Path(args.model)
    stage1, reason = _stage1(model, folder, args.run_folder)
    name = folder.resolve().name
    report = make_report(Subject(name, _saved(folder), model, data, split, stage1, reason), progress)
    for figure in report.figures:
        if figure.missing:
            progress.say(f"{figure.title}: {figure.missing}")
    write_report(report, output, force=args.force)
    progress.say(f"{output / PAGE} is ready")
    return 0


def _stage1(model: Model | Ensemble, folder: Path, named: str | None) -> tuple[Model | None, str]:
    """The model after stage 1, or why it is not there. A folder that the user names must be right."""
    from ..pipeline.stage1_model import open_stage1, run_folder_of

    try:
        return open_stage1(model, run_folder_of(folder) if named is None else Path(named)), ""
    except EliasError as error:
        if named is not None:
            raise
        return None, f"{error}. --run FOLDER names a run folder elsewhere."


def _saved(folder: Path) -> str:
    """The day a model was saved."""
    from datetime import UTC, datetime

    files = (folder / "ensemble.json", folder / "config.json")
    time = next(file.stat().st_mtime for file in files if file.exists())
    return datetime.fromtimestamp(time, UTC).date().isoformat()
