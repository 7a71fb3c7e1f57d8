"""`elias predict MODEL TEXT ...`, `elias predict MODEL FILE ...`, `... | elias predict MODEL -`

rows (`input_rows.py`) -> chunks -> `Model.predict` -> text, jsonl, csv, tsv or parquet -> standard output or a file
(`resumable_output.py`). Files are processed chunk by chunk, so memory does not grow with their size.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import InputError
from ..core.progress import Progress, duration
from .input_rows import InputRow, RowReader, are_files, count_lines, read_label_list, suffix_of_name
from .options import add_fields, add_threads, chosen_fields
from .prediction_tables import DELIMITERS, Columns, check_parquet, write_parquet

if TYPE_CHECKING:
    from ..model.ensemble import Ensemble
    from ..model.model import Model
    from .resumable_output import ResumableOutput

CHUNK_ROWS = 2048
FORMATS = ("table", "jsonl", "csv", "tsv", "parquet")
SUFFIXES = {".jsonl": "jsonl", ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".txt": "table"}
SHOWN_TEXT = 60  # characters of a training text in a table
SHOWN_WEIGHT = 0.05  # of a word in a table: below, it is 0.0
# Options that do not change the output, or that enter the fingerprint of the command in another form.
RAY_ONLY = ("address", "actors", "block_rows")  # options
NOT_COMPARED = {
    "command", "run", "input", "output", "allow", "block", "threads", "restart", "quiet", "engine", *RAY_ONLY,
}  # fmt: skip


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "predict",
        help="suggest labels for texts",
        description="Suggest labels. INPUT is one or several texts; or one or several files (.csv, .tsv, .jsonl, "
        ".json, .parquet, or .txt with one text per line; each but .parquet also .gz), read like the data of the "
        "model; or - for standard input (one text or one JSON object per line, or a whole file).",
    )
    parser.add_argument("model", help="model folder")
    parser.add_argument("input", nargs="*", default=["-"], metavar="INPUT", help="texts, files, or -")
    parser.add_argument("-k", type=int, default=5, help="labels per text (default 5)")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write here: .jsonl, .csv, .tsv (each also .gz), .parquet or .txt"
    )
    parser.add_argument(
        "--format", choices=FORMATS, help="default: as FILE is named, else table for texts, jsonl for files"
    )
    add_fields(parser, labels=False)
    parser.add_argument("--threshold", type=float, metavar="P", help="only labels that are right with this probability")
    parser.add_argument("--rare", type=float, default=0.0, metavar="S", help="favor rare labels: 0 (not) to 1 (most)")
    parser.add_argument("--explain", action="store_true", help="show the parts of each score")
    parser.add_argument("--allow", metavar="FILE", help="score only these labels (one id per line)")
    parser.add_argument("--block", metavar="FILE", help="never suggest these labels (one id per line)")
    parser.add_argument("--restart", action="store_true", help="with -o: start again instead of continuing")
    parser.add_argument("--quiet", action="store_true", help="with -o: no progress")
    add_threads(parser)
    ray = parser.add_argument_group("very many texts, on one machine or a cluster (docs/how-to/predict-many-texts.md)")
    ray.add_argument(
        "--engine", choices=("ray",),
        help="ray: INPUT is files, OUTPUT a folder, local or at s3:// or gs://; a pool of processes of --threads "
        "threads (default 1) each",
    )  # fmt: skip
    ray.add_argument("--address", metavar="HOST:PORT", help="of a Ray cluster (default: Ray on this machine)")
    ray.add_argument("--actors", type=int, metavar="N", help="processes (default: as many as there are CPUs for)")
    ray.add_argument("--block-rows", type=int, metavar="N", help="rows per file of the output (default 20,000)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.k < 1:
        raise InputError(f"-k {args.k}: ask for at least one label")
    options = {"k": args.k, "explain": args.explain, "threshold": args.threshold, "rare": args.rare}
    if args.engine == "ray":
        return _run_on_ray(args, options)
    given = [f"--{name.replace('_', '-')}" for name in RAY_ONLY if getattr(args, name) is not None]
    if given:
        raise InputError(f"{', '.join(given)}: only with --engine ray")
    files = args.input if are_files(args.input) else []
    output_format = _format(args, bool(files))
    options |= _label_lists(args)

    from ..model.ensemble import load  # after the arguments have been checked: it imports torch

    if args.output is None:
        model = load(args.model, threads=args.threads)
        rows = _Rows(args, files, model, output_format)
        predictor = Predictor(model, options, output_format, rows.columns)
        sys.stdout.write(predictor.head())
        for chunk in chunks(rows):
            sys.stdout.write(predictor.answer(chunk))
        return 0
    with _resumable_output(args, Path(args.output), output_format, options) as output:
        model = load(args.model, threads=args.threads)
        rows = _Rows(args, files, model, output_format)
        predictor = Predictor(model, options, output_format, rows.columns)
        progress = Progress(quiet=args.quiet or not files)
        _predict_file(predictor, rows, output, progress)
    return 0


def _run_on_ray(args: argparse.Namespace, options: dict[str, Any]) -> int:
    if args.output is None or args.input == ["-"]:
        raise InputError("--engine ray reads files and writes a folder: elias predict MODEL FILE ... -o FOLDER")
    from . import predict_ray

    options |= _label_lists(args)
    return predict_ray.run(args, options, _command(args, options))


def _label_lists(args: argparse.Namespace) -> dict[str, list[str] | None]:
    return {"allow": read_label_list(args.allow), "block": read_label_list(args.block)}


def _format(args: argparse.Namespace, from_files: bool) -> str:
    """The format of the output, by --format, the name of FILE, or the kind of the input."""
    target = None if args.output is None else Path(args.output)
    if target is not None and target.is_dir():
        raise InputError(f"-o {target}: is a folder; name a file")
    suffix = "" if target is None else suffix_of_name(target.name)
    if args.format is None and suffix and suffix not in SUFFIXES:
        raise InputError(f"-o {target}: predict writes {', '.join(SUFFIXES)}; name it so, or add --format jsonl")
    chosen = str(args.format or SUFFIXES.get(suffix) or ("jsonl" if from_files else "table"))
    if chosen == "parquet":
        if target is None or target.suffix == ".gz":
            raise InputError("parquet is written to a file, and is compressed by itself: -o FILE.parquet")
        check_parquet()
    if args.explain and chosen not in ("table", "jsonl"):
        raise InputError(f"a {chosen} file has no place for explanations; write them with --format jsonl or table")
    return chosen


class _Rows:
    """The rows of the input, and the columns of a table of predictions for them, which the first row tells."""

    def __init__(self, args: argparse.Namespace, files: list[str], model: Model | Ensemble, output_format: str) -> None:
        from ..dataset.fields import Fields

        self.files = files
        texts = (InputRow(text, number=number) for number, text in enumerate(args.input, start=1))
        reader = RowReader(Fields.of(**chosen_fields(args)), model.first.fields)
        rows: Iterator[InputRow] = reader.rows(files) if files else texts
        first = next(rows, None)
        self._rows = rows if first is None else chain([first], rows)
        has_texts = output_format in DELIMITERS and any(model.labels.texts_to_show)
        self.columns = Columns.of(first, files=len(files), has_texts=has_texts)

    def __iter__(self) -> Iterator[InputRow]:
        return self._rows


@dataclass(frozen=True)
class Predictor:
    """A model with the options of the command: rows in, formatted predictions out."""

    model: Model | Ensemble
    options: dict[str, Any]  # of `Model.predict`
    output_format: str
    columns: Columns

    def head(self) -> str:
        """What stands before the first answer."""
        return self.columns.head(self.output_format) if self.output_format in DELIMITERS else ""

    def answer(self, rows: list[InputRow]) -> str:
        has_candidates = any(row.candidates is not None for row in rows)
        if has_candidates and any(row.candidates is None for row in rows):
            raise InputError('field "candidates" must be on every row or on none')
        found = self.model.predict(
            [row.text for row in rows],
            ids=["" if row.id is None else str(row.id) for row in rows],
            candidates=[row.candidates or [] for row in rows] if has_candidates else None,
            **self.options,
        )
        records = found.records(self.model.labels.texts_to_show)
        known = [None] * len(rows) if found.known_words is None else found.known_words.tolist()
        return "".join(map(self._formatted, rows, records, known))

    def _formatted(self, row: InputRow, records: list[dict[str, Any]], known_words: int | None) -> str:
        if self.output_format in DELIMITERS:
            return self.columns.lines(row, records, self.output_format)
        if self.output_format == "table":
            return _as_table(row, records, " (no known words)" if known_words == 0 else "")
        own = self.columns.values(row)
        if self.output_format == "jsonl":  # a line without an id is found by its place
            own = {name: value for name, value in own.items() if name == "file"}
            own |= {} if row.id is None else {"id": row.id}
            own |= {} if known_words is None else {"known_words": known_words}
        return _as_jsonl(own, records)


def _predict_file(predictor: Predictor, rows: _Rows, output: ResumableOutput, progress: Progress) -> None:
    """All rows with progress: one chunk is read and written while another one is computed."""
    from .resumable_output import write_all

    began, rows_before = time.monotonic(), output.rows
    total = count_lines(rows.files) if progress.live else 0
    if rows_before:
        progress.say(f"{output.target}: continuing after {rows_before:,} rows that are done already")
    output.skip_done(iter(rows))

    def show(done: int) -> None:
        seconds = time.monotonic() - began
        speed = f"{(done - rows_before) / max(seconds, 1e-9):,.0f} per second"
        progress.update("predict", done if total else 0, total, seconds, f"{done:,} rows, {speed}")

    write_all(output, chunks(rows), predictor.answer, show, head=predictor.head())
    progress.say(f"{output.target}: {output.rows:,} rows in {duration(time.monotonic() - began)}")


def _resumable_output(
    args: argparse.Namespace, target: Path, output_format: str, options: dict[str, Any]
) -> ResumableOutput:
    """The output file, with everything that determines its content."""
    from .resumable_output import ResumableOutput

    command = {**_command(args, options), "format": output_format}
    convert = write_parquet if output_format == "parquet" else None
    return ResumableOutput(target, command, restart=args.restart, convert=convert)


def _command(args: argparse.Namespace, options: dict[str, Any]) -> dict[str, Any]:
    """What determines the output, besides its format and the input: options, lists of labels, the model's files."""
    files = sorted(file for file in Path(args.model).rglob("*") if file.is_file())
    model = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files] or args.model
    command = {name: value for name, value in vars(args).items() if name not in NOT_COMPARED}
    lists = _digest(json.dumps([options["allow"], options["block"]]))
    return {**command, "model": _digest(repr(model)), "list of labels": lists}


def _digest(content: str) -> str:
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def chunks(rows: Iterable[InputRow]) -> Iterator[list[InputRow]]:
    rows = iter(rows)
    while chunk := list(islice(rows, CHUNK_ROWS)):
        yield chunk


# -- formats: the predictions of one row as text ----------------------------------------------------------------------


def _as_jsonl(own: dict[str, Any], records: list[dict[str, Any]]) -> str:
    return json.dumps({**own, "labels": _rounded(records)}, ensure_ascii=False, allow_nan=False) + "\n"


def _as_table(row: InputRow, records: list[dict[str, Any]], note: str = "") -> str:
    lines = [("" if row.id is None else f"{_one_line(row.id)}: ") + _one_line(row.text)[:100] + note]
    width = max([len(str(record["label"])) for record in records], default=0)
    for record in records:
        label, label_text = str(record["label"]).ljust(width), _one_line(record.get("text", ""))
        lines.append(f"  {record['score']:.4f}  {label}  {label_text}".rstrip())
        if "cluster" in record:
            lines += [f"          {line}" for line in _explanation(record)]
    return "\n".join(lines if records else [*lines, "  (nothing found)"]) + "\n"


def _explanation(record: dict[str, Any]) -> list[str]:
    """Lines below a label. The network's score is the product of its parts; a ranker's has an explanation beside it."""
    network = (
        f"cluster {record['cluster']} {record['cluster_score']:.4f} x edge {record['edge_score']:.4f} "
        f"x classifier {record['classifier']:.4f}"
    )
    if "tree" in record:
        return [f"w T + (1 - w) p q: tree T {record['tree']:.4f}, ranker q {record['ranker']:.4f}", f"p = {network}"]
    if "explanation" not in record:
        return [f"= {network}" + (f" x ranker q {record['ranker']:.4f}" if "ranker" in record else "")]
    words, texts, contributions, score = record["explanation"].values()
    lines, shown = [], [item for item in words if abs(item["weight"]) >= SHOWN_WEIGHT]
    if shown:
        lines.append("because of the words: " + ", ".join(f"{item['word']} {item['weight']:+.1f}" for item in shown))
    if texts:
        lines.append("similar texts: " + "; ".join(map(_similar_text, texts)))
    groups = sorted((item for item in contributions.items() if item[0] != "base"), key=lambda item: -abs(item[1]))
    shares = ", ".join(f"{name} {share:+.2f}" for name, share in groups)
    lines.append(f"{shares}, base {contributions['base']:+.2f} = {score:.2f}")
    return [*lines, f"path: {network}"]


def _similar_text(item: dict[str, Any]) -> str:
    name = f"row {item['row']}" if item["id"] is None else _one_line(item["id"])
    shown = textwrap.shorten(item["text"], SHOWN_TEXT, placeholder=" ...")
    return f"{name} ({item['similarity']:.2f})" + (f' "{shown}"' if shown else "")


def _rounded(value: Any) -> Any:
    """Six significant digits: a float32 has no more."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def _one_line(value: Any) -> str:
    return " ".join(str(value).split())
