"""`elias predict MODEL TEXT ...`, `elias predict MODEL FILE`, `... | elias predict MODEL -`"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any

from ..errors import InputError
from .options import add_threads

CHUNK = 2048  # inputs predicted at a time, so that memory stays flat on any file


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "predict",
        help="suggest labels for texts",
        description="Suggest labels. INPUT is a text, or several; or one file (.txt: a text a line; .jsonl or .jsonl.gz: "
        "objects with text, optional title, id, candidates); or - for standard input (a text a line, or JSON objects).",
    )
    parser.add_argument("model", help="model folder")
    parser.add_argument("input", nargs="*", default=["-"], metavar="INPUT", help="texts, a file, or -")
    parser.add_argument("-k", type=int, default=5, help="labels a text (default 5)")
    parser.add_argument("-o", "--output", metavar="FILE", help="write here instead of standard output (.gz is compressed)")
    parser.add_argument("--format", choices=("table", "jsonl", "tsv"), help="default: table for texts, jsonl for files")
    parser.add_argument("--explain", action="store_true", help="show the winning path of each label and the parts of its score")
    parser.add_argument("--allow", metavar="FILE", help="score only these labels (one id a line), each over all clusters")
    parser.add_argument("--block", metavar="FILE", help="never suggest these labels (one id a line)")
    add_threads(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.k < 1:
        raise InputError(f"-k {args.k}: ask for at least one label")
    source = args.input[0] if len(args.input) == 1 else None
    is_stream = source == "-" or (source is not None and "\n" not in source and len(source) < 1024 and Path(source).is_file())
    form = args.format or ("jsonl" if is_stream else "table")
    allow, block = _list_of(args.allow), _list_of(args.block)

    from ..persistence import written_beside
    from ..predictor import load

    model = load(args.model, threads=args.threads)
    rows = _rows(source) if is_stream and source else ({"text": text} for text in args.input)
    target = Path(args.output) if args.output else None
    with written_beside(target) if target else nullcontext(None) as part:
        with _writer(part, compress=bool(target and target.suffix == ".gz")) as out:
            for chunk in _chunks(rows):
                _predict(model, chunk, form, out, args, allow, block)
    return 0


def _predict(model: Any, chunk: list[dict[str, Any]], form: str, out: IO[str], args: argparse.Namespace,
             allow: list[str] | None, block: list[str] | None) -> None:  # fmt: skip
    texts = [row["text"] for row in chunk]
    ids = [row.get("id") for row in chunk]
    candidates = [row.get("candidates") for row in chunk]
    some = any(item is not None for item in candidates)
    if some and not all(item is not None for item in candidates):
        raise InputError('field "candidates" must be on every row or on none')
    found = model.predict(
        texts, args.k, explain=args.explain, allow=allow, block=block,
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
    lines = [_flat(text)[:100]]
    width = max([len(str(r["label"])) for r in records], default=0)
    for r in records:
        line = f"  {r['score']:.4f}  {str(r['label']).ljust(width)}  {_flat(r.get('text', ''))}"
        if "cluster" in r:
            line += (
                f"\n          = cluster {r['cluster']} {r['cluster_score']:.4f} x edge {r['edge_score']:.4f} "
                f"x classifier {r['classifier']:.4f}"
            )
        lines.append(line.rstrip())
    return "\n".join(lines if records else [*lines, "  (nothing found)"]) + "\n"


_FORMATS = {"jsonl": _as_jsonl, "tsv": _as_tsv, "table": _as_table}


def _rounded(record: dict[str, Any]) -> dict[str, Any]:
    return {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in record.items()}


def _flat(text: str) -> str:
    return " ".join(str(text).split())


def _rows(source: str) -> Iterator[dict[str, Any]]:
    """Inputs from a file or standard input; JSON objects if a line starts with a brace, else a text a line."""
    name = "standard input" if source == "-" else source
    with _reader(source) as lines:
        try:
            for number, line in enumerate(lines, start=1):
                line = line.rstrip("\r\n")
                if line.lstrip().startswith("{"):
                    yield _json_row(line, f"{name}:{number}")
                else:
                    yield {"text": line}
        except UnicodeDecodeError as problem:
            raise InputError(f"{name}: not UTF-8 ({problem.reason}); convert it, e.g. with iconv -t utf-8") from None
        except (EOFError, gzip.BadGzipFile) as problem:
            raise InputError(f"{name}: not a whole gzip file ({problem})") from None


def _json_row(line: str, place: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as problem:
        raise InputError(f"{place}: not JSON ({problem.msg} at column {problem.colno})") from None
    parts = [row[name] for name in ("title", "text") if row.get(name)]
    if not {"title", "text"} & row.keys() or not all(isinstance(part, str) for part in parts):
        raise InputError(f'{place}: needs a field "text" (and may have title, id, candidates), as text')
    return {"text": " ".join(parts), "id": row.get("id"), "candidates": row.get("candidates")}


def _chunks(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    chunk: list[dict[str, Any]] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _list_of(path: str | None) -> list[str] | None:
    if path is None:
        return None
    try:
        return [line for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"{path}: cannot be read as a list of labels ({problem})") from None


def _reader(source: str) -> Any:
    if source == "-":
        return nullcontext(sys.stdin)
    return gzip.open(source, "rt", encoding="utf-8-sig") if source.endswith(".gz") else open(source, encoding="utf-8-sig")


def _writer(part: Path | None, *, compress: bool) -> Any:
    if part is None:
        return nullcontext(sys.stdout)
    return gzip.open(part, "wt", encoding="utf-8") if compress else open(part, "w", encoding="utf-8")
