"""The plain layout: train, test and validation as .jsonl, .csv, .tsv or .parquet (.gz for all but the last).

    train.jsonl     {"text": "red apple", "labels": ["fruit", "red"]}          one object per line
    train.csv       text,labels                                                a header line, then
                    red apple,fruit;red                                        labels between `label_separator`

The same rules hold for all of them: a row is a mapping of field to value, and `RecordParser` turns it into a `Record`.
Labels may be

    ["a", "b"]  [3, 7]                                   ids or names
    [["a", 0.5], ["b", 1]]   {"a": 0.5, "b": 1}          graded relevance
    [{"id": "a", "weight": 0.5}, {"id": "b"}]            the same, spelled out
"""

from __future__ import annotations

import csv
import json
import math
import numbers
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import cast

from ..core.errors import DataError, MissingExtraError, did_you_mean
from .defects import BAR_SEPARATOR, BLANK_LINE, UNREAD_FIELD, ZERO_WEIGHT, ReadLog, place
from .files import SPLIT_WORDS, Folder, file_errors, numbered_lines, one_line
from .labels import LabelSetBuilder, read_label_file
from .records import DatasetRecords, Record, SplitRecords, collect
from .settings import DatasetSettings
from .skos import read_vocabulary

LABEL_KEYS = ("id", "label", "name")
LARGEST_CELL = 2**31 - 1  # the csv module stops at 128 KB unless told otherwise
PARQUET_BATCH = 1024


def load_record_files(folder: Folder, settings: DatasetSettings, log: ReadLog) -> DatasetRecords | None:
    files = {split: file for split in SPLIT_WORDS if (file := folder.split_file(split)) is not None}
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
    found = DatasetRecords(layout, label_set, language=vocabulary.language if vocabulary is not None else "")
    for split, file in files.items():
        try:
            found.splits[split] = read_record_file(file, settings, label_set, log)
        except DataError as error:
            log.defect(error)
    if vocabulary is not None:
        vocabulary.settle_ids(found.splits)
    return found


def read_record_file(file: Path, settings: DatasetSettings, label_set: LabelSetBuilder, log: ReadLog) -> SplitRecords:
    """The records of one file, whose format follows from its name."""
    return collect(_records(file, settings, label_set, log), file, log)


def _records(file: Path, settings: DatasetSettings, label_set: LabelSetBuilder, log: ReadLog) -> Iterator[Record]:
    suffix = Path(file.name.removesuffix(".gz")).suffix
    parser = RecordParser(file, settings, label_set, split_cells=suffix in (".csv", ".tsv", ".parquet"))
    if suffix == ".parquet":
        rows = read_parquet(file)
    elif suffix in (".csv", ".tsv"):
        rows = read_table(file, "," if suffix == ".csv" else "\t", log)
    else:
        rows = read_objects(file, log)
    for line, row in rows:
        try:
            record = parser.parse(row, line)
        except DataError as error:
            log.defect(error)
            continue
        yield record
    parser.finish()


def read_objects(file: Path, log: ReadLog) -> Iterator[tuple[int, dict[str, object]]]:
    """(line, object) of each line that is a JSON object; blank lines are skipped and counted."""
    for line, text in numbered_lines(file, log):
        if not text or text.isspace():
            log.note(BLANK_LINE, place(file, line))
            continue
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            log.defect(DataError(_json_problem(text, error, line), file=file, line=line))
            continue
        if isinstance(found, dict):
            yield line, cast("dict[str, object]", found)
        else:
            kind = type(found).__name__
            log.defect(DataError(f"a JSON {kind}, not an object; one {{...}} per line is read", file=file, line=line))


def _json_problem(text: str, error: Exception, line: int) -> str:
    if line == 1 and text.strip() in ("[", "{"):
        return "JSON spread over several lines; one object per line is read, make it so with: jq -c '.[]' (or '.')"
    if isinstance(error, json.JSONDecodeError):
        near = text[max(0, error.pos - 15) : error.pos + 15]
        return f"not JSON: {error.msg} at position {error.pos + 1}, near {near!r}"
    return f"not JSON: {error}"


def read_table(file: Path, delimiter: str, log: ReadLog) -> Iterator[tuple[int, dict[str, object]]]:
    """(line, cells by column name) of each row, quoted as the csv module reads it."""
    csv.field_size_limit(LARGEST_CELL)
    rows = _cells(file, delimiter)
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


def _cells(file: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """(line in which the row starts, its cells); the cells of a blank line are []."""
    reader = csv.reader((text + "\n" for _, text in numbered_lines(file)), delimiter=delimiter, strict=True)
    while True:
        start = reader.line_num + 1  # a quoted cell may span lines: line_num is where the row before ended
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            remedy = 'a quote inside a quoted cell is written twice: ""'
            raise DataError(f"not a table: {one_line(error)}; {remedy}", file=file, line=start) from None
        yield start, cells


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


class RecordParser:
    """Turns the rows of one file into records; each wrong value becomes a DataError with its place."""

    def __init__(
        self, file: Path | str, settings: DatasetSettings, label_set: LabelSetBuilder, *, split_cells: bool = False
    ) -> None:
        self.file, self.settings, self.label_set = file, settings, label_set
        self.split_cells = split_cells  # tables: a label cell may be one text, "a;b", and an empty cell is no value
        self._log: ReadLog = label_set.log
        self._first: bool = True
        self._bars, self._separators, self._first_bar = 0, 0, ""

    def parse(self, row: Mapping[str, object], line: int) -> Record:
        names = self.settings
        if self._first:
            self._first = False
            self._note_unread(row, line)
        text = self._text(row, line)
        if names.labels_field not in row:
            raise self._missing(names.labels_field, row, line)
        labels, grades = self._labels(row[names.labels_field], line)
        return Record(
            line,
            text,
            labels,
            grades,
            self._name(row.get(names.id_field), line, names.id_field),
            self._name(row.get(names.group_field), line, names.group_field),
            self._weight(row.get(names.weight_field), line, names.weight_field),
        )

    def finish(self) -> None:
        """Notes that need the whole file."""
        if self._bars and not self._separators and self.settings.label_separator == ";":
            self._log.note(BAR_SEPARATOR, self._first_bar, self._bars)

    def _text(self, row: Mapping[str, object], line: int) -> str:
        title_field, text_field = self.settings.title_field, self.settings.text_field
        if text_field not in row and title_field not in row:
            raise self._missing(text_field, row, line)
        parts = []
        for field in (title_field, text_field):
            value = row.get(field)
            if value is not None and not isinstance(value, str):
                raise DataError(f"{_shown(value)}, not a text", file=self.file, line=line, field=field)
            if value:
                parts.append(value)
        return " ".join(parts)

    def _labels(self, value: object, line: int) -> tuple[list[int], list[float] | None]:
        if isinstance(value, str) and self.split_cells:
            value = self._cell(value, line)
        if isinstance(value, dict):
            value = list(value.items())
        if not isinstance(value, list | tuple):
            remedy = "write [] for a row without labels" if value is None else 'put it in a list: ["...", ...]'
            raise self._wrong_labels(f"{_shown(value)}, not a list of labels; {remedy}", line)
        known = self.label_set.numbers  # the common case in one pass: known ids without weights
        try:
            labels = [known[label] for label in value]
        except (KeyError, TypeError):
            return self._labels_one_by_one(value, line)
        return labels, None

    def _labels_one_by_one(
        self, value: list[object] | tuple[object, ...], line: int
    ) -> tuple[list[int], list[float] | None]:
        labels: list[int] = []
        grades: list[float] = []
        for item in value:
            name, grade = (item, 1.0) if type(item) is str else self._name_and_grade(item, line)
            if grade == 0.0:
                self._log.note(ZERO_WEIGHT, place(self.file, line, f'"{name}"'))
                continue
            labels.append(self.label_set.number(name, self.file, line))
            grades.append(grade)
        return labels, None if all(grade == 1.0 for grade in grades) else grades

    def _name_and_grade(self, item: object, line: int) -> tuple[str, float]:
        label, grade = item, 1.0
        weight: object = 1.0
        if isinstance(item, dict):
            key = next((key for key in LABEL_KEYS if key in item), None)
            if key is None:
                raise self._wrong_labels(f'{_shown(item)} has no "id"', line)
            label, weight = item[key], item.get("weight", 1.0)
        elif isinstance(item, list | tuple):
            if len(item) != 2:
                raise self._wrong_labels(f"{_shown(item)} is not a pair of label and weight", line)
            label, weight = item
        grade = _number(weight)
        if not (math.isfinite(grade) and grade >= 0.0):
            raise self._wrong_labels(f"weight {_shown(weight)} is not a number of 0 or more", line)
        if isinstance(label, str):
            return label, grade
        if _is_whole(label):
            return str(label), grade
        raise self._wrong_labels(f"label {_shown(label)} is not a text or a whole number", line)

    def _cell(self, cell: str, line: int) -> list[object]:
        """The labels of one .csv or .tsv cell: a JSON list, or ids between separators."""
        cell = cell.strip()
        if cell.startswith("[") and cell.endswith("]"):
            try:
                parsed: list[object] = json.loads(cell)
            except ValueError as error:
                raise self._wrong_labels(f"{_shown(cell)} is not a JSON list: {error}", line) from None
            return parsed
        separator = self.settings.label_separator
        if separator in cell:
            self._separators += 1
        elif "|" in cell:
            self._bars += 1
            self._first_bar = self._first_bar or place(self.file, line, cell)
        return [part.strip() for part in cell.split(separator) if part.strip()]

    def _name(self, value: object, line: int, field: str) -> str | None:
        if value is None or (value == "" and self.split_cells):
            return None
        if isinstance(value, str):
            return value
        if _is_whole(value):
            return str(value)
        raise DataError(f"{_shown(value)} is not a text or a whole number", file=self.file, line=line, field=field)

    def _weight(self, value: object, line: int, field: str) -> float | None:
        if value is None or (value == "" and self.split_cells):
            return None
        if isinstance(value, str) and self.split_cells:
            with suppress(ValueError):  # what is not a number fails below, like every other wrong weight
                value = float(value)
        weight = _number(value)
        if not (math.isfinite(weight) and weight > 0.0):
            message = f"{_shown(value)} is not a number above 0; leave out rows that should not count"
            raise DataError(message, file=self.file, line=line, field=field)
        return weight

    def _wrong_labels(self, message: str, line: int) -> DataError:
        return DataError(message, file=self.file, line=line, field=self.settings.labels_field)

    def _missing(self, field: str, row: Mapping[str, object], line: int) -> DataError:
        close = did_you_mean(field, [str(key) for key in row])
        fields = ", ".join(f'"{key}"' for key in list(row)[:10]) or "none"
        hint = close or f"; fields of this row: {fields}; dataset.toml can name another field"
        return DataError(f"missing{hint}", file=self.file, line=line, field=field)

    def _note_unread(self, row: Mapping[str, object], line: int) -> None:
        names = self.settings
        known = {names.text_field, names.title_field, names.labels_field, names.id_field}
        known |= {names.group_field, names.weight_field}
        for field in row:
            if field not in known:
                self._log.note(UNREAD_FIELD, place(self.file, line, f'"{field}"'))


def _number(value: object) -> float:
    """A real number as a float; NaN for everything else."""
    if isinstance(value, bool):
        return math.nan
    return float(value) if isinstance(value, numbers.Real) else math.nan


def _is_whole(value: object) -> bool:
    """Integers of Python and numpy; True and False are no labels."""
    return not isinstance(value, bool) and isinstance(value, numbers.Integral)


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
