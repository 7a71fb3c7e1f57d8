"""`elias predict MODEL TEXT ...`, `elias predict MODEL FILE`, `... | elias predict MODEL -`"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ..core.errors import InputError
from ..core.progress import Progress, duration
from .options import add_threads

if TYPE_CHECKING:
    from .resumable import ResumableOutput

CHUNK = 2048  # inputs predicted at a time, so that memory stays flat on any file
READ = (".txt", ".jsonl", ".txt.gz", ".jsonl.gz")
NOT_ASKED = {"command", "run", "input", "output", "allow", "block", "threads", "restart", "quiet"}  # may differ
NOT_READ = (".csv", ".tsv", ".parquet", ".npz", ".npy", ".json")


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "predict",
        help="suggest labels for texts",
        description="Suggest labels. INPUT is a text, or several; or one file (.txt: a text a line; .jsonl: objects "
        "with text and optionally title, id, candidates; either may be .gz); or - for standard input (a text a line, "
        "or objects).",
    )
    parser.add_argument("model", help="model folder")
    parser.add_argument("input", nargs="*", default=["-"], metavar="INPUT", help="texts, a file, or -")
    parser.add_argument("-k", type=int, default=5, help="labels a text (default 5)")
    parser.add_argument("-o", "--output", metavar="FILE", help="write here, not to standard output (.gz: compressed)")
    parser.add_argument("--format", choices=("table", "jsonl", "tsv"), help="default: table for texts, jsonl for files")
    parser.add_argument("--threshold", type=float, metavar="P", help="only labels right with at least this probability")
    parser.add_argument("--rare", type=float, default=0.0, metavar="S", help="rare labels first: 0 (not) to 1")
    parser.add_argument("--explain", action="store_true", help="show how the score of each label arises")
    parser.add_argument("--allow", metavar="FILE", help="score only these labels (one id a line)")
    parser.add_argument("--block", metavar="FILE", help="never suggest these labels (one id a line)")
    parser.add_argument("--restart", action="store_true", help="with -o: begin again where a run was cut short")
    parser.add_argument("--quiet", action="store_true", help="with -o: no progress")
    add_threads(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.k < 1:
        raise InputError(f"-k {args.k}: ask for at least one label")
    target = Path(args.output) if args.output else None
    if target is not None and target.is_dir():
        raise InputError(f"-o {target}: is a folder; name a file")
    is_stream = len(args.input) == 1 and _is_stream(args.input[0])
    form = args.format or ("jsonl" if is_stream else "table")
    allow, block = _list_of(args.allow), _list_of(args.block)

    from ..model.ensemble import load

    if target is not None and is_stream:
        with _output(args, target, form, allow, block) as output:
            _predict_file(load(args.model, threads=args.threads), output, form, args, allow, block)
        return 0
    model = load(args.model, threads=args.threads)
    lines = _lines(args.input[0]) if is_stream else ((text, "", False) for text in args.input)
    with _writer(target) as out:
        for chunk in _chunks(lines):
            _predict(model, [_row(*line) for line in chunk], form, out, args, allow, block)
    return 0


def _output(args: argparse.Namespace, target: Path, form: str, allow: Any, block: Any) -> ResumableOutput:
    """Where the answers go, at the place where an earlier run of the same command stopped."""
    from .resumable import ResumableOutput

    lists = json.dumps([allow, block]).encode()
    files = sorted(file for file in Path(args.model).rglob("*") if file.is_file())
    model = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    asked = {name: value for name, value in vars(args).items() if name not in NOT_ASKED}
    asked |= {
        "model": hashlib.blake2b(repr(model).encode(), digest_size=16).hexdigest(),
        "format": form,
        "list of labels": hashlib.blake2b(lists, digest_size=16).hexdigest(),
    }
    return ResumableOutput(target, asked, restart=args.restart)


def _predict_file(
    model: Any, output: ResumableOutput, form: str, args: argparse.Namespace, allow: Any, block: Any
) -> None:
    """A whole file at full speed and in constant memory: a chunk is read and written while another is computed."""
    from .resumable import write_all

    progress, began, before = Progress(quiet=args.quiet), time.monotonic(), output.rows
    reading = _Reading(args.input[0])
    lines = _lines(args.input[0], reading)
    if before:
        progress.say(f"{output.target}: {before:,} rows are there already; going on")
    output.skip(lines, raw=itemgetter(0))

    def answered(chunk: list[tuple[str, str, bool]]) -> str:
        out = io.StringIO()
        _predict(model, [_row(*line) for line in chunk], form, out, args, allow, block)
        return out.getvalue()

    def told(rows: int) -> None:
        seconds = time.monotonic() - began
        info = f"{rows:,} rows, {(rows - before) / max(seconds, 1e-9):,.0f} a second"
        progress.update("predict", reading.place(), reading.size, seconds, info)

    write_all(output, _chunks(lines), itemgetter(0), answered, told)
    progress.say(f"{output.target}: {output.rows:,} rows in {duration(time.monotonic() - began)}")


def _is_stream(source: str) -> bool:
    """Whether the one INPUT is a file or standard input, and not a text."""
    if source == "-":
        return True
    looks_like_a_file = len(source) < 1024 and len(source.split()) == 1 and source.endswith((*READ, *NOT_READ))
    if not looks_like_a_file and ("\n" in source or len(source) > 1024 or not Path(source).is_file()):
        return False
    if source.endswith(NOT_READ):
        raise InputError(f"{source}: predict reads {', '.join(READ)}; convert the file")
    if not Path(source).is_file():
        raise InputError(f"{source}: there is no such file")
    return True


def _predict(
    model: Any,
    chunk: list[dict[str, Any]],
    form: str,
    out: IO[str],
    args: argparse.Namespace,
    allow: list[str] | None,
    block: list[str] | None,
) -> None:
    texts = [row["text"] for row in chunk]
    ids = [row.get("id") for row in chunk]
    candidates = [row.get("candidates") for row in chunk]
    some = any(item is not None for item in candidates)
    if some and not all(item is not None for item in candidates):
        raise InputError('field "candidates" must be on every row or on none')
    found = model.predict(
        texts, args.k, explain=args.explain, threshold=args.threshold, rare=args.rare, allow=allow, block=block,
        ids=[str(i) if i is not None else "" for i in ids], candidates=candidates if some else None,
    )  # fmt: skip
    for row_id, text, records in zip(ids, texts, found.records(model.labels.texts), strict=True):
        out.write(_FORMATS[form](row_id, text, records))


def _as_jsonl(row_id: Any, text: str, records: list[dict[str, Any]]) -> str:
    head = {} if row_id is None else {"id": row_id}
    return json.dumps({**head, "labels": [_rounded(record) for record in records]}, ensure_ascii=False) + "\n"


def _as_tsv(row_id: Any, text: str, records: list[dict[str, Any]]) -> str:
    name = text if row_id is None else str(row_id)
    return "".join(f"{_flat(name)}\t{_flat(r['label'])}\t{r['score']:.6g}\n" for r in records)


def _as_table(row_id: Any, text: str, records: list[dict[str, Any]]) -> str:
    lines = [("" if row_id is None else f"{_flat(row_id)}: ") + _flat(text)[:100]]
    width = max([len(str(r["label"])) for r in records], default=0)
    for r in records:
        line = f"  {r['score']:.4f}  {str(r['label']).ljust(width)}  {_flat(r.get('text', ''))}"
        if "cluster" in r:
            network = (
                f"cluster {r['cluster']} {r['cluster_score']:.4f} x edge {r['edge_score']:.4f} "
                f"x classifier {r['classifier']:.4f}"
            )
            # With ELIAS++ the product is one part of the score among others; without, it is the score.
            if "ranker" in r:
                line += f"\n          from {network}; ranker {r['ranker']:.4f}; words {r['words']:.4f}"
            else:
                line += f"\n          = {network}"
        lines.append(line.rstrip())
    return "\n".join(lines if records else [*lines, "  (nothing found)"]) + "\n"


_FORMATS = {"jsonl": _as_jsonl, "tsv": _as_tsv, "table": _as_table}


def _rounded(record: dict[str, Any]) -> dict[str, Any]:
    return {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in record.items()}


def _flat(text: str) -> str:
    return " ".join(str(text).split())


class _Reading:
    """How far a file has been read, in bytes of the file itself; a stream has no size."""

    def __init__(self, source: str) -> None:
        self.size = 0 if source == "-" else os.path.getsize(source)
        self.file: IO[bytes] | None = None

    def place(self) -> int:
        return 0 if self.file is None or self.file.closed else self.file.tell()


def _lines(source: str, reading: _Reading | None = None) -> Iterator[tuple[str, str, bool]]:
    """(line, file:number, whether it is JSON) from a file or standard input; blank lines of JSON are left out.

    A .txt holds a text a line, a .jsonl an object a line; otherwise the first line that is not blank decides.
    """
    name = "standard input" if source == "-" else source
    plain = source.removesuffix(".gz")
    is_json = True if plain.endswith(".jsonl") else False if plain.endswith(".txt") else None
    try:
        with _reader(source, reading) as lines:
            for number, line in enumerate(lines, start=1):
                line = line.rstrip("\r\n")
                if is_json is None and line.strip():
                    is_json = line.lstrip().startswith("{")
                if not is_json or line.strip():
                    yield line, f"{name}:{number}", bool(is_json)
    except UnicodeDecodeError as problem:
        raise InputError(f"{name}: not UTF-8 ({problem.reason}); convert it, e.g. with iconv -t utf-8") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as problem:
        raise InputError(f"{name}: not a whole gzip file ({problem})") from None
    except PermissionError as problem:
        raise InputError(f"{name}: cannot be read ({problem.strerror})") from None


def _row(line: str, place: str, is_json: bool) -> dict[str, Any]:
    return _json_row(line, place) if is_json else {"text": line}


def _json_row(line: str, place: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as problem:
        raise InputError(f"{place}: not JSON ({problem})") from None
    if not isinstance(row, dict) or not {"title", "text"} & row.keys():
        raise InputError(f'{place}: needs an object with a field "text" (and maybe title, id, candidates)')
    parts = [row[name] for name in ("title", "text") if row.get(name) is not None]
    if not all(isinstance(part, str) for part in parts):
        raise InputError(f"{place}: title and text must be texts")
    candidates = row.get("candidates")
    if candidates is not None and not isinstance(candidates, list):
        raise InputError(f'{place}: field "candidates" must be a list of label ids')
    return {"text": " ".join(part for part in parts if part), "id": row.get("id"), "candidates": candidates}


def _chunks(lines: Iterator[Any]) -> Iterator[list[Any]]:
    while chunk := list(islice(lines, CHUNK)):
        yield chunk


def _list_of(path: str | None) -> list[str] | None:
    if path is None:
        return None
    try:
        return [line for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"{path}: cannot be read as a list of labels ({problem})") from None


@contextmanager
def _reader(source: str, reading: _Reading | None = None) -> Iterator[IO[str]]:
    if source == "-":
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict")
        yield sys.stdin
        return
    with open(source, "rb") as file:
        if reading is not None:
            reading.file = file
        opened: Any = gzip.GzipFile(fileobj=file) if source.endswith(".gz") else file
        with io.TextIOWrapper(opened, encoding="utf-8-sig", newline="\n") as lines:
            yield lines


@contextmanager
def _writer(target: Path | None) -> Iterator[IO[str]]:
    """Standard output, or a file that appears whole or not at all."""
    if target is None:
        yield sys.stdout
        return
    from ..core.files import replacing

    opener: Any = gzip.open if target.suffix == ".gz" else open
    with replacing(target) as part, opener(part, "wt", encoding="utf-8", errors="backslashreplace") as out:
        yield out
