"""The input of `elias predict`, texts, files or standard input, as rows of text, id and candidates.

Files with a known extension are read by `dataset/record_files.py`, as `fit` reads them. Standard input, and files with
another extension, are told by how they begin: `{` one object per line; a header line with the text field of the model,
gzip or parquet a file; anything else one text per line.
"""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from ..core.errors import DataError, InputError, did_you_mean
from .standard_input import HEAD_BYTES, is_binary, open_standard_input, suffix_of

if TYPE_CHECKING:
    from ..dataset.fields import Fields

READ = (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".txt")
# One word with such an extension is a missing file, and not a text.
OTHER = (".npz", ".npy", ".xlsx", ".xls", ".ods", ".pdf", ".docx", ".zip", ".xml", ".html", ".md", ".feather", ".arrow")
MAX_FILE_NAME = 1024
DELIMITERS = (",", ";", "\t", "|")


class InputRow(NamedTuple):
    """One row: `number` counts the rows of its file from 1."""

    text: str
    id: Any = None  # echoed as it was given: a text or a number
    candidates: list[str] | None = None
    number: int = 0
    file: str = ""


def suffix_of_name(name: str) -> str:
    """The extension that tells the format: .csv of rows.csv and of rows.csv.gz."""
    return Path(name.removesuffix(".gz")).suffix.lower()


def are_files(inputs: Sequence[str]) -> bool:
    """Whether INPUT is files or standard input (-), and not texts. InputError for what cannot be read."""
    files = [source for source in inputs if source == "-" or _is_file(source)]
    if not files:
        return False
    if "-" in files and len(inputs) > 1:
        raise InputError("- is standard input and goes alone; name the other files in a second call")
    if len(files) < len(inputs):
        text = next(source for source in inputs if source not in files)
        raise InputError(f"{files[0]} is a file, {_short(text)} is not: give files or texts, not both")
    return True


def _is_file(source: str) -> bool:
    if len(source) >= MAX_FILE_NAME or "\n" in source or "\0" in source or not source.strip():
        return False
    path = Path(source)
    try:
        if path.is_dir():
            hint = f"elias evaluate MODEL {source} measures a dataset folder; " if _has_rows(path) else ""
            raise InputError(
                f"{source} is a folder; name the files in it; {hint}if it is meant as a text: echo {source} | elias "
                "predict MODEL -"
            )
        if path.exists():
            return True
        siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    except OSError:  # a name that no file can have
        return False
    if len(source.split()) == 1 and suffix_of_name(source) in (*READ, *OTHER):
        raise InputError(f"{source}: there is no such file{did_you_mean(path.name, siblings)}")
    return False


def _has_rows(folder: Path) -> bool:
    return any(entry.name.startswith(("train", "test")) for entry in folder.iterdir())


def _short(text: str) -> str:
    return f'"{text}"' if len(text) <= 40 else f'"{text[:37]}..."'


class RowReader:
    """Rows of files, with the text in the fields that the options name, else those of the model, else the usual ones.

    Parameters
    ----------
    chosen
        The fields that the options of the command name.
    remembered
        The fields of the data that the model was trained on.
    """

    def __init__(self, chosen: Fields, remembered: Fields) -> None:
        self.chosen, self.remembered = chosen, remembered

    def rows(self, files: Sequence[str]) -> Iterator[InputRow]:
        for file in files:
            if file != "-" and suffix_of_name(file) in READ:
                yield from self._read(Path(file), file)
            else:
                yield from self._stream(file)

    def _read(self, path: Path, name: str) -> Iterator[InputRow]:
        from ..dataset.defects import ReadLog
        from ..dataset.record_files import file_kind, read_rows

        is_table = file_kind(path) in (".csv", ".tsv")
        try:
            yield from self._parse(read_rows(path, ReadLog()), name, is_table=is_table)
        except DataError as error:  # the copy of standard input has a name that users never saw
            if error.file != path:
                raise
            raise DataError(error.message, file=name, line=error.line, field=error.field) from None

    def _parse(
        self, rows: Iterator[tuple[int, Mapping[str, object]]], name: str, *, is_table: bool = False
    ) -> Iterator[InputRow]:
        """Rows with their lines as texts; the first of them tell the fields."""
        from ..dataset.fields import TYPED_ROWS, Columns, is_missing, resolve_fields
        from ..dataset.record_parser import row_id, row_text

        first = list(islice(rows, TYPED_ROWS))
        if not first:
            return
        columns = Columns(rows=[row for _, row in first], file=name, has_header=is_table)
        fields = resolve_fields(columns, self._known_fields(columns.names), labels_needed=False)
        for number, (line, row) in enumerate(chain(first, rows), start=1):
            text = row_text(row, fields, name, line, words=is_table)
            own: object = None if fields.id is None else row.get(fields.id)
            if type(own) not in (str, int) or is_missing(own, words=is_table):
                own = row_id(row, fields, name, line, words=is_table)
            candidates = row.get("candidates")
            if isinstance(candidates, str) and is_table:
                candidates = None  # a column of another meaning: a cell is no list
            if candidates is not None and not isinstance(candidates, list):
                raise DataError("must be a list of label ids", file=name, line=line, field="candidates")
            yield InputRow(text, own, candidates, number, name)

    def _known_fields(self, names: Sequence[str]) -> Fields:
        """What the options name, and what the model remembers where the rows have it."""
        known = self.remembered
        text = tuple(name for name in known.text or () if name in names)
        there = replace(known, text=text or None, labels=None, id=known.id if known.id in names else None)
        return self.chosen.or_else(there)

    def _stream(self, source: str) -> Iterator[InputRow]:
        """Texts or JSON objects, one per line, as they come in; a whole file is copied first, and then read as such."""
        name = "standard input" if source == "-" else source
        with _opened(source) as stream:
            first = stream.readline()
            if not self._is_whole_file(first, name):
                yield from self._lines(chain([first], stream) if first else iter(()), name)
                return
            first += stream.read(HEAD_BYTES)
            with tempfile.TemporaryDirectory(prefix="elias-") as folder:
                path = Path(folder) / f"input{suffix_of(first)}"
                with open(path, "wb") as copy:
                    copy.write(first)
                    shutil.copyfileobj(stream, copy, 1 << 20)
                yield from self._read(path, name)

    def _is_whole_file(self, first: bytes, name: str) -> bool:
        """Whether content that begins with this line is a file (gzip, parquet, a table), and not a text per line."""
        if first.startswith((b"\x1f\x8b", b"PAR1")):
            return True
        if is_binary(first):
            raise InputError(f"{name}: a binary file; predict reads {', '.join(READ)}, each but .parquet also as .gz")
        fields = self.chosen.text or self.remembered.text or ()
        line = first.decode("utf-8-sig", "replace").strip()
        headers = [[cell.strip().strip('"') for cell in line.split(delimiter)] for delimiter in DELIMITERS]
        return bool(fields) and any(len(cells) > 1 and set(fields) <= set(cells) for cells in headers)

    def _lines(self, lines: Iterator[bytes], name: str) -> Iterator[InputRow]:
        """One text or one JSON object per line; the first line that is not blank decides."""
        from ..dataset.files import decode_line

        texts = ((line, decode_line(raw, Path(name), line)) for line, raw in enumerate(lines, start=1))
        blank = list[tuple[int, str]]()  # a blank line is an empty text: the n-th answer belongs to the n-th line
        for line, text in texts:
            if text.lstrip().startswith("{"):
                yield from self._parse(_objects(chain([(line, text)], texts), name), name)
                return
            if text.strip():
                blank.append((line, text))
                break
            blank.append((line, text))
        yield from (InputRow(text, None, None, line, name) for line, text in chain(blank, texts))


@contextmanager
def _opened(source: str) -> Iterator[IO[bytes]]:
    from ..dataset.files import file_errors

    if source == "-":
        yield open_standard_input()
        return
    with file_errors(Path(source)), open(source, "rb") as stream:
        yield stream


def _objects(lines: Iterator[tuple[int, str]], name: str) -> Iterator[tuple[int, Mapping[str, object]]]:
    for line, text in lines:
        if not text.strip():
            continue
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as problem:
            raise DataError(f"not JSON ({problem})", file=name, line=line) from None
        if not isinstance(found, dict):
            raise DataError('needs an object such as {"text": "..."}', file=name, line=line)
        yield line, found


def count_lines(files: Sequence[str]) -> int:
    """About how many rows files have, for the progress of a run; 0 where that is not known before they are read."""
    try:
        return sum(map(_count_lines, files)) if all(map(_can_be_counted, files)) else 0
    except (OSError, EOFError, ValueError, ImportError, zlib.error):  # named when the rows are read
        return 0


def _can_be_counted(file: str) -> bool:
    return file != "-" and Path(file).is_file() and suffix_of_name(file) != ".json"


def _count_lines(file: str) -> int:
    if suffix_of_name(file) == ".parquet":
        import pyarrow.parquet as pq

        return int(pq.read_metadata(file).num_rows)
    opener: Any = gzip.open if file.endswith(".gz") else open
    with opener(file, "rb") as stream:
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b""))


def read_label_list(path: str | None) -> list[str] | None:
    """Label ids from a file with one id per line."""
    if path is None:
        return None
    try:
        return [line for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"{path}: cannot be read as a list of labels ({problem})") from None
