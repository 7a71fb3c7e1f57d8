"""The input of `elias predict`: texts on the command line, a file, or standard input.

Reading has two steps, so that a file can be read by one thread while another one parses and predicts: `read_lines`
yields raw lines with their place, `parse_line` turns a line into a row with text, id and candidates.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from ..core.errors import InputError

SUFFIXES = (".txt", ".jsonl", ".txt.gz", ".jsonl.gz")
# One word with such a suffix is a file that `predict` cannot read, and not a text.
OTHER_SUFFIXES = (".csv", ".tsv", ".parquet", ".npz", ".npy", ".json")
MAX_FILE_NAME = 1024


class InputLine(NamedTuple):
    line: str
    place: str = ""  # file:number, for messages
    is_json: bool = False


class InputRow(NamedTuple):
    text: str
    id: Any = None  # echoed as it was given: a text or a number
    candidates: list[str] | None = None


def is_stream(inputs: list[str]) -> bool:
    """Whether INPUT is a file or standard input (-), and not texts. InputError for a file that cannot be read."""
    if len(inputs) != 1:
        return False
    source = inputs[0]
    if source == "-":
        return True
    is_one_word = len(source) < MAX_FILE_NAME and len(source.split()) == 1
    looks_like_a_file = is_one_word and source.endswith((*SUFFIXES, *OTHER_SUFFIXES))
    if not looks_like_a_file and ("\n" in source or len(source) > MAX_FILE_NAME or not Path(source).is_file()):
        return False
    if source.endswith(OTHER_SUFFIXES):
        raise InputError(f"{source}: predict reads {', '.join(SUFFIXES)}; convert the file")
    if not Path(source).is_file():
        raise InputError(f"{source}: there is no such file")
    return True


class ReadPosition:
    """How far a file has been read, in bytes of the file itself, for the progress line. A pipe has size 0."""

    def __init__(self, source: str) -> None:
        self.size = 0 if source == "-" else os.path.getsize(source)
        self.file: IO[bytes] | None = None

    def bytes_read(self) -> int:
        return 0 if self.file is None or self.file.closed else self.file.tell()


def read_lines(source: str, position: ReadPosition | None = None) -> Iterator[InputLine]:
    """Lines of a file or of standard input; blank lines of JSON are left out.

    A .txt has one text per line, a .jsonl one object per line. Elsewhere the first line that is not blank decides.
    """
    name = "standard input" if source == "-" else source
    plain = source.removesuffix(".gz")
    is_json = True if plain.endswith(".jsonl") else False if plain.endswith(".txt") else None
    try:
        with _opened(source, position) as lines:
            for number, line in enumerate(lines, start=1):
                line = line.rstrip("\r\n")
                if is_json is None and line.strip():
                    is_json = line.lstrip().startswith("{")
                # A blank line of plain text is an empty text: the n-th answer belongs to the n-th line.
                if not is_json or line.strip():
                    yield InputLine(line, f"{name}:{number}", bool(is_json))
    except UnicodeDecodeError as problem:
        raise InputError(f"{name}: not UTF-8 ({problem.reason}); convert it, e.g. with iconv -t utf-8") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as problem:
        raise InputError(f"{name}: not a whole gzip file ({problem})") from None
    except PermissionError as problem:
        raise InputError(f"{name}: cannot be read ({problem.strerror})") from None


@contextmanager
def _opened(source: str, position: ReadPosition | None) -> Iterator[IO[str]]:
    """Text lines. utf-8-sig: files from Windows may begin with a byte order mark."""
    if source == "-":
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict")
        yield sys.stdin
        return
    with open(source, "rb") as file:
        if position is not None:
            position.file = file
        content: Any = gzip.GzipFile(fileobj=file) if source.endswith(".gz") else file
        with io.TextIOWrapper(content, encoding="utf-8-sig", newline="\n") as lines:
            yield lines


def parse_line(line: InputLine) -> InputRow:
    """A line as a row; title and text of a JSON object are joined."""
    if not line.is_json:
        return InputRow(line.line)
    try:
        fields = json.loads(line.line)
    except (ValueError, RecursionError) as problem:
        raise InputError(f"{line.place}: not JSON ({problem})") from None
    if not isinstance(fields, dict) or not {"title", "text"} & fields.keys():
        raise InputError(f'{line.place}: needs an object with a field "text" (and maybe title, id, candidates)')
    parts = [fields[name] for name in ("title", "text") if fields.get(name) is not None]
    if not all(isinstance(part, str) for part in parts):
        raise InputError(f"{line.place}: title and text must be texts")
    candidates = fields.get("candidates")
    if candidates is not None and not isinstance(candidates, list):
        raise InputError(f'{line.place}: field "candidates" must be a list of label ids')
    return InputRow(" ".join(part for part in parts if part), fields.get("id"), candidates)


def read_label_list(path: str | None) -> list[str] | None:
    """Label ids from a file with one id per line."""
    if path is None:
        return None
    try:
        return [line for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"{path}: cannot be read as a list of labels ({problem})") from None
