"""Standard input as a file: its format guessed from its content, and a copy in the run folder of `elias fit -`.

    MODEL.run/input.csv                  as it came in
    MODEL.run/input-FINGERPRINT.csv      the same once it could be read, named after the data in it

A fit that was killed goes on with the same command and an empty standard input: it reads the copy whose fingerprint is
that of the run. A copy with other data is kept beside it, since the run folder decides which of the two it accepts.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
import zlib
from pathlib import Path
from typing import IO, Any

from ..core.errors import InputError, RunError

HEAD_BYTES = 1 << 16  # enough to tell a format by
NAME = "input"
SPARSE_HEADER = re.compile(rb"\d+ \d+ \d+\s*\n")


def is_given() -> bool:
    """Whether anything can come from standard input: it is neither closed nor a terminal."""
    return sys.stdin is not None and not sys.stdin.closed and not sys.stdin.isatty()


def open_standard_input() -> IO[bytes]:
    """Its bytes; nothing where it is closed."""

    if sys.stdin is None or sys.stdin.closed:
        return io.BytesIO()
    binary: Any = getattr(sys.stdin, "buffer", None)
    return io.BytesIO(sys.stdin.read().encode()) if binary is None else binary


def suffix_of(head: bytes) -> str:
    """The file extension that fits content which begins like this: .csv, .tsv, .jsonl, .json, .parquet, .txt, .gz."""
    if head.startswith(b"\x1f\x8b"):
        try:
            return suffix_of(zlib.decompressobj(31).decompress(head, HEAD_BYTES)) + ".gz"
        except zlib.error as problem:
            raise InputError(f"standard input: damaged gzip data ({problem})") from None
    if head.startswith(b"PAR1"):
        return ".parquet"
    if is_binary(head):
        raise InputError(
            "standard input: binary data; csv, tsv, jsonl, json or parquet is read, each but parquet also gzipped"
        )
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    first_line = text.split(b"\n", 1)[0]
    if text.startswith(b"{"):
        return ".jsonl" if _is_json(first_line) else ".json"
    if text.startswith(b"["):
        return ".json"
    if SPARSE_HEADER.match(text):
        return ".txt"
    return ".tsv" if b"\t" in first_line else ".csv"


def is_binary(head: bytes) -> bool:
    """UTF-16, which has NUL bytes too, is text: its reader names the remedy."""
    return b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff"))


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def spool(run_dir: Path) -> Path:
    """Standard input as a file of the run folder; the copy of an earlier start where nothing comes in."""
    from ..core.files import replacing

    source = open_standard_input()
    head = source.read(HEAD_BYTES) if is_given() else b""
    if not head:
        kept = _kept(run_dir)
        if kept is None:
            raise InputError("standard input is empty; pipe data into it: elias fit - -o MODEL < data.csv")
        return kept
    path = run_dir / f"{NAME}{suffix_of(head)}"
    with replacing(path) as part, open(part, "wb") as copy:
        copy.write(head)
        shutil.copyfileobj(source, copy, 1 << 20)
    return path


def keep(file: Path, fingerprint: str) -> None:
    """Name the copy after the data in it, so that an empty standard input finds it again."""
    os.replace(file, file.with_name(f"{NAME}-{fingerprint}{_suffixes(file)}"))


def _suffixes(file: Path) -> str:
    return "".join(file.suffixes)


def _kept(run_dir: Path) -> Path | None:
    """The copy that the run was started with; before it has started, the last one."""
    from ..core.files import read_object

    copies = sorted(run_dir.glob(f"{NAME}-*"), key=lambda file: file.stat().st_mtime_ns)
    for settings in (run_dir / "settings.json", run_dir / "member-0" / "settings.json"):
        if settings.exists():
            fingerprint = read_object(settings, error=RunError).get("data")
            return next((file for file in copies if file.name.startswith(f"{NAME}-{fingerprint}.")), None)
    return copies[-1] if copies else None
