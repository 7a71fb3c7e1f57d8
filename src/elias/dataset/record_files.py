"""Files of rows: .jsonl, .json, .csv, .tsv, .parquet and .txt (.gz for all but parquet).

    train.jsonl     {"text": "red apple", "labels": ["fruit", "red"]}          one object per line
    train.json      [{"text": ...}, ...], {"data": [...]}, or columns as pandas writes them; or as .jsonl
    train.csv       text,labels                                                a header line, then rows;
                    red apple,fruit;red                                        cells between , ; tab or |
    train.txt       __label__fruit __label__red red apple                      fastText; else one text per line

`read_rows` yields (line, mapping of field to value) for any of them, and `RecordReader` makes records of that. A file
whose name says nothing is read as what its first bytes look like.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import cast

from ..core.errors import DataError, MissingExtraError
from .defects import BLANK_LINE, ReadLog, place
from .fields import USUAL_NAMES, Fields
from .files import ROW_SUFFIXES, SPLIT_WORDS, Folder, file_errors, first_bytes, numbered_lines, one_line
from .labels import LabelSetBuilder, read_label_file
from .record_parser import RecordReader, RowSource
from .records import DatasetRecords
from .settings import DatasetSettings
from .skos import read_vocabulary

FASTTEXT_LABEL = "__label__"
LARGEST_CELL = 2**31 - 1  # the csv module stops at 128 KB unless told otherwise
PARQUET_BATCH = 1024
DELIMITERS = (",", ";", "\t", "|")
LINES_LOOKED_AT, CHARACTERS_LOOKED_AT = 200, 1_000_000  # to find the delimiter of a table
GOOD_SHARE = 0.9  # of the rows that have as many cells as the header, for the usual delimiter to be taken

Row = tuple[int, Mapping[str, object]]


def load_record_files(folder: Folder, given: Fields, settings: DatasetSettings, log: ReadLog) -> DatasetRecords | None:
    files = {split: file for split in SPLIT_WORDS if (file := folder.split_file(split)) is not None}
    if "train" not in files:
        files = {split: file for split in SPLIT_WORDS if (file := _fasttext_file(folder, split)) is not None}
    if "train" not in files:
        return None
    label_set = LabelSetBuilder(log)
    layout = ", ".join(file.name for file in files.values())
    label_file = folder.find("labels.tsv")
    if label_file is not None:
        read_label_file(label_file, label_set)
        layout += f" with {label_file.name}"
    vocabulary = None if label_file is not None else read_vocabulary(folder, settings.language, label_set)
    if vocabulary is not None:
        layout += f" with {vocabulary.file.name} (SKOS, {vocabulary.language or 'no language'})"
    found = read_record_files(files, layout, RecordReader(given, settings, label_set))
    if vocabulary is not None:
        vocabulary.settle_ids(found.splits)
        found.language = vocabulary.language
    return found


def _fasttext_file(folder: Folder, split: str) -> Path | None:
    """train.txt with labels in it; other files of that name belong to other layouts."""
    if not folder.has(*(f"{word}.txt" for word in SPLIT_WORDS[split])):
        return None
    name = next(n for word in SPLIT_WORDS[split] for n in (f"{word}.txt", f"{word}.txt.gz") if n in folder.names)
    return folder.find(name) if is_fasttext(folder.path / name) else None


def read_record_files(files: Mapping[str, Path], layout: str, reader: RecordReader) -> DatasetRecords:
    """The records of each split's file; what was understood follows the layout."""
    found, log = DatasetRecords(layout, reader.label_set), reader.log
    for split, file in files.items():
        try:
            kind = file_kind(file)
            rows = _labeled(read_rows(file, log), file) if kind == ".txt" else read_rows(file, log)
            found.splits[split] = reader.read(RowSource(rows, file, is_table=kind in (".csv", ".tsv")))
        except DataError as error:
            log.defect(error)
    if "train" in found.splits and (understood := reader.description(found.splits["train"])):
        found.layout += f": {understood}"
    found.fields = reader.fields or reader.given
    return found


def _labeled(rows: Iterable[Row], file: Path) -> Iterator[Row]:
    for line, row in rows:
        if "labels" not in row:
            remedy = f"write {FASTTEXT_LABEL}NAME before each text, or make it a .csv with columns text,labels"
            raise DataError(f"plain text has no labels; {remedy}", file=file)
        yield line, row


def file_kind(file: Path) -> str:
    """The suffix that says how a file is read; by its first bytes where its name does not say."""
    suffix = Path(file.name.removesuffix(".gz")).suffix.lower()
    if suffix in (*ROW_SUFFIXES, ".txt"):
        return suffix
    head = first_bytes(file, 1 << 16)
    if head.startswith(b"PAR1"):
        return ".parquet"
    text = head.decode("utf-8-sig", "replace").lstrip()
    if text.startswith(("{", "[")):
        return ".json"
    lines = text.splitlines()
    if FASTTEXT_LABEL in text[:1000].split("\n")[0] or len(lines) < 2:
        return ".txt"
    delimiter = find_delimiter(lines[:LINES_LOOKED_AT], ",")
    return ".csv" if _matching_share(lines[:LINES_LOOKED_AT], delimiter) >= GOOD_SHARE else ".txt"


def read_rows(file: Path, log: ReadLog) -> Iterator[Row]:
    """(line, values by field) of each row of a file; parquet and a JSON list count rows from 1.

    A .txt file yields the field text, and labels too if it is a fastText file; there blank lines are texts, elsewhere
    they are skipped and noted.
    """
    kind = file_kind(file)
    if kind == ".parquet":
        return read_parquet(file)
    if kind in (".csv", ".tsv"):
        return read_table(file, "," if kind == ".csv" else "\t", log)
    if kind == ".txt":
        return read_text_lines(file, log)
    return read_json(file, log) if _is_one_document(file, kind) else read_objects(file, log)


# JSON


def read_objects(file: Path, log: ReadLog) -> Iterator[tuple[int, dict[str, object]]]:
    """(line, object) of each line that is a JSON object; blank lines are skipped and counted."""
    for line, text in numbered_lines(file, log):
        if not text or text.isspace():
            log.note(BLANK_LINE, place(file, line))
            continue
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            log.defect(DataError(_json_problem(text, error), file=file, line=line))
            continue
        if isinstance(found, dict):
            yield line, cast("dict[str, object]", found)
        else:
            kind = type(found).__name__
            log.defect(DataError(f"a JSON {kind}, not an object; one {{...}} per line is read", file=file, line=line))


def _json_problem(text: str, error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        near = text[max(0, error.pos - 15) : error.pos + 15]
        return f"not JSON: {error.msg} at position {error.pos + 1}, near {near!r}"
    return f"not JSON: {error}"


def _is_one_document(file: Path, kind: str) -> bool:
    """Whether a file is one JSON value: a list, or in a .json file an object over several lines or of columns."""
    lines = (text for _, text in numbered_lines(file) if text and not text.isspace())
    try:
        first = next(lines, "").lstrip()
        if first.startswith("["):
            return True
        if kind != ".json" or not first.startswith("{"):
            return False
        found = json.loads(first)
    except DataError:  # its line is named when it is read
        return False
    except (ValueError, RecursionError):
        return True
    return next(lines, None) is None and _columns(found) is not None


def read_json(file: Path, log: ReadLog) -> Iterator[Row]:
    """The rows of one JSON value: a list of objects, an object with one such list in it, or an object of columns."""
    body = "\n".join(text for _, text in numbered_lines(file))
    try:
        found = json.loads(body)
    except json.JSONDecodeError as error:
        near = body[max(0, error.pos - 15) : error.pos + 15]
        raise DataError(f"not JSON: {error.msg}, near {near!r}", file=file, line=error.lineno) from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON: {one_line(error)[:200]}", file=file) from None
    rows = found if isinstance(found, list) else _columns(found)
    if rows is None:
        raise DataError("a JSON object without a list of rows; [{...}, ...] or one {...} per line is read", file=file)
    for number, row in enumerate(rows, start=1):
        if isinstance(row, dict):
            yield number, row
        else:
            message = f"a JSON {type(row).__name__}, not an object; a list of {{...}} is read"
            log.defect(DataError(message, file=file, line=number))


def _columns(found: dict[str, object]) -> list[object] | None:
    """Rows of {"data": [{...}, ...]}, {"text": [...], ...} or, as pandas writes it, {"text": {"0": ...}, ...}."""
    values = list(found.values())
    lists = [value for value in values if isinstance(value, list)]
    if len(lists) == 1 and not found.keys() & USUAL_NAMES and all(isinstance(row, dict) for row in lists[0]):
        return lists[0]
    if len(values) > 1 and len(lists) == len(values) and len(set(map(len, lists))) == 1:
        return [dict(zip(found, row, strict=True)) for row in zip(*lists, strict=True)]
    columns = [value for value in values if isinstance(value, dict)]
    if (
        len(values) > 1
        and len(columns) == len(values)
        and all(column.keys() == columns[0].keys() for column in columns)
    ):
        return [{name: column[key] for name, column in zip(found, columns, strict=True)} for key in columns[0]]
    return None


# Tables


def read_table(file: Path, usual: str, log: ReadLog) -> Iterator[tuple[int, dict[str, object]]]:
    """(line, cells by column name) of each row, quoted as the csv module reads it; `usual` is the likely delimiter."""
    csv.field_size_limit(LARGEST_CELL)
    delimiter, is_quoted, skipped = _dialect(file, usual)
    rows = _cells(file, delimiter, is_quoted, skipped)
    header = next((cells for _, cells in rows if cells), None)
    if header is None:
        raise DataError("no header line", file=file)
    header = [cell.strip() for cell in header]
    repeated = next((name for name in header if header.count(name) > 1), None)
    if repeated is not None:
        raise DataError("twice in the header line", file=file, line=1, field=repeated)
    for line, cells in rows:
        if not cells:
            log.note(BLANK_LINE, place(file, line))
        elif len(cells) != len(header):
            message = f"{len(cells)} cells, the header has {len(header)}; quote cells that contain {delimiter!r}"
            log.defect(DataError(message, file=file, line=line))
        else:
            yield line, dict(zip(header, cells, strict=True))


def _dialect(file: Path, usual: str) -> tuple[str, bool, int]:
    """(delimiter, whether cells are quoted, lines before the header)."""
    lines: list[str] = []
    characters = 0
    try:
        for _, text in islice(numbered_lines(file), LINES_LOOKED_AT):
            lines.append(text)
            characters += len(text)
            if characters > CHARACTERS_LOOKED_AT:
                break
    except DataError:  # an empty file, or bytes that are no text: named when the rows are read
        return usual, True, 0
    if lines and lines[0].lower().startswith("sep=") and len(lines[0].rstrip()) <= 5:  # written for Excel
        return lines[0][4:5] or "\t", True, 1
    delimiter = find_delimiter(lines, usual)
    return delimiter, delimiter != "\t" or not _has_bare_quotes(lines), 0


def find_delimiter(lines: list[str], usual: str) -> str:
    """The delimiter that gives most rows as many cells as the header, which must have two or more."""
    if _matching_share(lines, usual) >= GOOD_SHARE:
        return usual
    best = max(DELIMITERS, key=lambda delimiter: (_matching_share(lines, delimiter), delimiter == usual))
    return best if _matching_share(lines, best) >= max(0.5, _matching_share(lines, usual)) else usual


def _matching_share(lines: list[str], delimiter: str) -> float:
    """Share of rows with as many cells as the header; 0 for a header of one cell."""
    rows = csv.reader((line + "\n" for line in lines if line), delimiter=delimiter)
    widths = []
    with suppress(csv.Error):
        widths += [len(cells) for cells in rows if cells]
    if not widths or widths[0] < 2:
        return 0.0
    return sum(width == widths[0] for width in widths[1:]) / (len(widths) - 1) if len(widths) > 1 else 1.0


def _has_bare_quotes(lines: list[str]) -> bool:
    """Whether a file between tabs is not quoted: each line is a row, and some cell starts but does not end quoted."""
    cells = [line.split("\t") for line in lines if line]
    if len({len(row) for row in cells}) != 1:
        return False
    return any(cell.startswith('"') and not _is_quoted(cell) for row in cells for cell in row)


def _is_quoted(cell: str) -> bool:
    return len(cell) > 1 and cell.endswith('"') and '"' not in cell[1:-1].replace('""', "")


def _cells(file: Path, delimiter: str, is_quoted: bool, skipped: int) -> Iterator[tuple[int, list[str]]]:
    """(line in which the row starts, its cells); the cells of a blank line are []."""
    lines = (text + "\n" for number, text in numbered_lines(file) if number > skipped)
    if is_quoted:
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
    else:
        reader = csv.reader(lines, delimiter=delimiter, strict=True, quoting=csv.QUOTE_NONE)
    while True:
        start = reader.line_num + 1 + skipped  # a quoted cell may span lines: line_num is where the row before ended
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            remedy = 'a quote inside a quoted cell is written twice: ""'
            raise DataError(f"not a table: {one_line(error)}; {remedy}", file=file, line=start) from None
        yield start, cells


# Other formats


def is_fasttext(file: Path) -> bool:
    """Whether the first line of a .txt has labels of fastText."""
    line = first_bytes(file, 1 << 16).decode("utf-8-sig", "replace").lstrip().split("\n", 1)[0]
    return any(word.startswith(FASTTEXT_LABEL) for word in line.split())


def read_text_lines(file: Path, log: ReadLog) -> Iterator[tuple[int, dict[str, object]]]:
    """(line, text) of each line, with labels in a fastText file."""
    if not is_fasttext(file):
        for line, text in numbered_lines(file, log):
            yield line, {"text": text}
        return
    for line, text in numbered_lines(file, log):
        words = text.split()
        labels = [word[len(FASTTEXT_LABEL) :] for word in words if word.startswith(FASTTEXT_LABEL)]
        yield line, {"text": " ".join(word for word in words if not word.startswith(FASTTEXT_LABEL)), "labels": labels}


def read_parquet(file: Path) -> Iterator[tuple[int, dict[str, object]]]:
    """(row number from 1, values by column name) of each row."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtraError(f"{file.name}: reading parquet", "parquet") from None
    number = 0
    try:
        with file_errors(file), pq.ParquetFile(file) as table:
            if table.metadata.num_rows == 0:
                raise DataError("no rows", file=file)
            for batch in table.iter_batches(batch_size=PARQUET_BATCH):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except UnicodeDecodeError as error:
        raise DataError(f"a text is not UTF-8: {one_line(error)}", file=file, line=number + 1) from None
    except pa.ArrowException as error:
        raise DataError(f"not a parquet file that can be read: {one_line(error)}", file=file) from None
