"""`elias predict MODEL TEXT ...`, `elias predict MODEL FILE`, `... | elias predict MODEL -`

lines (`input_lines.py`) -> chunks of rows -> `Model.predict` -> table, jsonl or tsv -> standard output or a file
(`resumable_output.py`). Files are processed chunk by chunk, so memory does not grow with their size.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ..core.errors import InputError
from ..core.progress import Progress, duration
from .input_lines import InputLine, InputRow, ReadPosition, is_stream, parse_line, read_label_list, read_lines
from .options import add_threads

if TYPE_CHECKING:
    from ..model.ensemble import Ensemble
    from ..model.model import Model
    from .resumable_output import ResumableOutput

CHUNK_ROWS = 2048
SHOWN_TEXT = 60  # characters of a training text in a table
SHOWN_WEIGHT = 0.05  # of a word in a table: below, it is 0.0
# Options that do not change the output, or that enter the fingerprint of the command in another form.
NOT_COMPARED = {"command", "run", "input", "output", "allow", "block", "threads", "restart", "quiet"}


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "predict",
        help="suggest labels for texts",
        description="Suggest labels. INPUT is one or several texts; or one file (.txt: one text per line; .jsonl: "
        "objects with text and optionally title, id, candidates; either may be .gz); or - for standard input (one "
        "text or one object per line).",
    )
    parser.add_argument("model", help="model folder")
    parser.add_argument("input", nargs="*", default=["-"], metavar="INPUT", help="texts, a file, or -")
    parser.add_argument("-k", type=int, default=5, help="labels per text (default 5)")
    parser.add_argument("-o", "--output", metavar="FILE", help="write here, not to standard output (.gz: compressed)")
    parser.add_argument("--format", choices=("table", "jsonl", "tsv"), help="default: table for texts, jsonl for files")
    parser.add_argument("--threshold", type=float, metavar="P", help="only labels that are right with this probability")
    parser.add_argument("--rare", type=float, default=0.0, metavar="S", help="favor rare labels: 0 (not) to 1 (most)")
    parser.add_argument("--explain", action="store_true", help="show the parts of each score")
    parser.add_argument("--allow", metavar="FILE", help="score only these labels (one id per line)")
    parser.add_argument("--block", metavar="FILE", help="never suggest these labels (one id per line)")
    parser.add_argument("--restart", action="store_true", help="with -o: start again instead of continuing")
    parser.add_argument("--quiet", action="store_true", help="with -o: no progress")
    add_threads(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.k < 1:
        raise InputError(f"-k {args.k}: ask for at least one label")
    target = Path(args.output) if args.output else None
    if target is not None and target.is_dir():
        raise InputError(f"-o {target}: is a folder; name a file")
    from_stream = is_stream(args.input)
    output_format = args.format or ("jsonl" if from_stream else "table")
    options = {"k": args.k, "explain": args.explain, "threshold": args.threshold, "rare": args.rare}
    options |= {"allow": read_label_list(args.allow), "block": read_label_list(args.block)}

    from ..model.ensemble import load  # after the arguments have been checked: it imports torch

    if target is not None and from_stream:
        with _resumable_output(args, target, output_format, options) as output:
            predictor = Predictor(load(args.model, threads=args.threads), options, output_format)
            _predict_file(predictor, args.input[0], output, quiet=args.quiet)
        return 0
    predictor = Predictor(load(args.model, threads=args.threads), options, output_format)
    lines = read_lines(args.input[0]) if from_stream else map(InputLine, args.input)
    with _writer(target) as out:
        for chunk in _chunks(lines):
            out.write(predictor.answer(chunk))
    return 0


@dataclass(frozen=True)
class Predictor:
    """A model with the options of the command: lines in, formatted predictions out."""

    model: Model | Ensemble
    options: dict[str, Any]  # of `Model.predict`
    output_format: str

    def answer(self, chunk: list[InputLine]) -> str:
        rows = [parse_line(line) for line in chunk]
        has_candidates = any(row.candidates is not None for row in rows)
        if has_candidates and any(row.candidates is None for row in rows):
            raise InputError('field "candidates" must be on every row or on none')
        found = self.model.predict(
            [row.text for row in rows],
            ids=["" if row.id is None else str(row.id) for row in rows],
            candidates=[row.candidates or [] for row in rows] if has_candidates else None,
            **self.options,
        )
        as_text, records = _FORMATS[self.output_format], found.records(self.model.labels.texts)
        return "".join(map(as_text, rows, records))


def _predict_file(predictor: Predictor, source: str, output: ResumableOutput, *, quiet: bool) -> None:
    """A whole file with progress: one chunk is read and written while another one is computed."""
    from .resumable_output import write_all

    progress, began, rows_before = Progress(quiet=quiet), time.monotonic(), output.rows
    position = ReadPosition(source)
    lines = read_lines(source, position)
    if rows_before:
        progress.say(f"{output.target}: continuing after {rows_before:,} rows that are done already")
    output.skip_done(lines)

    def show(rows: int) -> None:
        seconds = time.monotonic() - began
        speed = (rows - rows_before) / max(seconds, 1e-9)
        progress.update(
            "predict", position.bytes_read(), position.size, seconds, f"{rows:,} rows, {speed:,.0f} per second"
        )

    write_all(output, _chunks(lines), predictor.answer, show)
    progress.say(f"{output.target}: {output.rows:,} rows in {duration(time.monotonic() - began)}")


def _resumable_output(
    args: argparse.Namespace, target: Path, output_format: str, options: dict[str, Any]
) -> ResumableOutput:
    """The output file, with everything that determines its content: options, lists of labels, the model's files."""
    from .resumable_output import ResumableOutput

    files = sorted(file for file in Path(args.model).rglob("*") if file.is_file())
    model = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    command = {name: value for name, value in vars(args).items() if name not in NOT_COMPARED}
    command |= {
        "model": _digest(repr(model)),
        "format": output_format,
        "list of labels": _digest(json.dumps([options["allow"], options["block"]])),
    }
    return ResumableOutput(target, command, restart=args.restart)


def _digest(content: str) -> str:
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def _chunks(lines: Iterator[InputLine]) -> Iterator[list[InputLine]]:
    while chunk := list(islice(lines, CHUNK_ROWS)):
        yield chunk


@contextmanager
def _writer(target: Path | None) -> Iterator[IO[str]]:
    """Standard output, or a file that appears complete or not at all."""
    if target is None:
        yield sys.stdout
        return
    from ..core.files import replacing

    opener: Any = gzip.open if target.suffix == ".gz" else open
    with replacing(target) as part, opener(part, "wt", encoding="utf-8", errors="backslashreplace") as out:
        yield out


# -- formats: the predictions of one row as text ----------------------------------------------------------------------


def _as_jsonl(row: InputRow, records: list[dict[str, Any]]) -> str:
    head = {} if row.id is None else {"id": row.id}
    return json.dumps({**head, "labels": [_rounded(record) for record in records]}, ensure_ascii=False) + "\n"


def _as_tsv(row: InputRow, records: list[dict[str, Any]]) -> str:
    name = _one_line(row.text if row.id is None else row.id)
    return "".join(f"{name}\t{_one_line(record['label'])}\t{record['score']:.6g}\n" for record in records)


def _as_table(row: InputRow, records: list[dict[str, Any]]) -> str:
    lines = [("" if row.id is None else f"{_one_line(row.id)}: ") + _one_line(row.text)[:100]]
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
    if "explanation" not in record:
        return [f"= {network}"]
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


_FORMATS = {"jsonl": _as_jsonl, "tsv": _as_tsv, "table": _as_table}


def _rounded(record: dict[str, Any]) -> dict[str, Any]:
    """Six significant digits: a float32 has no more."""
    return {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in record.items()}


def _one_line(value: Any) -> str:
    return " ".join(str(value).split())
