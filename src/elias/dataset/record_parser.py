"""Rows into records: a row is a mapping of field to value, whatever file or object it comes from.

    text      the fields of the text, joined by spaces; numbers are texts too
    labels    a list, a number, or a cell (`label_cells.py`)
    id        a text or a whole number; so is the group. weight: a number above 0

Lists of labels may be

    ["a", "b"]  [3, 7]                                   ids or names
    [["a", 0.5], ["b", 1]]   {"a": 0.5, "b": 1}          graded relevance
    [{"id": "a", "weight": 0.5}, {"id": "b"}]            the same, spelled out

`records_of` looks at the first rows, decides on fields and separator, and then reads all of them. `row_text` and
`row_id` are for `predict`, which needs no labels.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from ..core.arrays import LARGEST_WEIGHT, SMALLEST_WEIGHT
from ..core.errors import DataError, did_you_mean
from .defects import MISSING_VALUE, NOT_SEPARATED, ZERO_WEIGHT, ReadLog, place
from .fields import MISSING_WORDS, Columns, Fields, is_missing, quoted, resolve_fields, resolve_known
from .label_cells import are_whole_floats, find_separator, pieces_of, read_list, shown_separator
from .labels import LabelSetBuilder
from .records import Record, SplitRecords, collect
from .settings import DatasetSettings

LABEL_KEYS = ("id", "label", "name")
FEW_ROWS, MANY_ROWS = 1_000, 50_000  # rows looked at before reading; many if their labels are cells
MOST_CHARACTERS = 64_000_000  # of the rows looked at

Rows = Iterable[tuple[int, Mapping[str, object]]]


@dataclass(frozen=True)
class RowSource:
    """Rows with their line numbers, and what to call them in messages."""

    rows: Rows
    file: Path | str
    is_table: bool = False  # .csv and .tsv: values are texts, and names come from a header line


class RecordReader:
    """The records of all splits of a dataset: the fields of the first split hold for the others, where they exist."""

    def __init__(self, given: Fields, settings: DatasetSettings, label_set: LabelSetBuilder) -> None:
        self.given, self.settings, self.label_set = given, settings, label_set
        self.log: ReadLog = label_set.log
        self.fields: Fields | None = None  # of the first split

    def read(self, source: RowSource) -> SplitRecords:
        """All records of one split."""
        rows = iter(source.rows)
        first = list(islice(rows, FEW_ROWS))
        if not first:
            return collect((), source.file, self.log)
        fields = self._resolve(
            Columns(
                rows=[row for _, row in first],
                file=source.file,
                has_header=source.is_table,
                not_for_labels=self._other_fields(),
            )
        )
        if any(isinstance(row.get(fields.labels or ""), str) for _, row in first):
            characters = sum(len(value) for _, row in first for value in row.values() if isinstance(value, str))
            first += islice(rows, int(min(MANY_ROWS, MOST_CHARACTERS * len(first) / max(1, characters))))
        asked = self.given.or_else(self.settings.fields(list(first[0][1]))).separator == ""
        parser = RecordParser(source, fields, self.settings, self.label_set, asked_for_names=asked)
        parser.look_at_labels(row for _, row in first)
        self.fields = self.fields or parser.fields
        self.log.unread(name for name in first[0][1] if name not in self._read_fields(parser.fields))
        return collect(self._records(chain(first, rows), parser), source.file, self.log)

    def _resolve(self, columns: Columns) -> Fields:
        given = self.given.or_else(self.settings.fields(columns.names))
        return resolve_fields(columns, given) if self.fields is None else resolve_known(columns, self.fields, given)

    def _other_fields(self) -> frozenset[str]:
        return frozenset([self.settings.title_field, self.settings.group_field, self.settings.weight_field])

    def _read_fields(self, fields: Fields) -> set[str | None]:
        return {*(fields.text or ()), fields.labels, fields.id, self.settings.group_field, self.settings.weight_field}

    def _records(self, rows: Rows, parser: RecordParser) -> Iterator[Record]:
        for line, row in rows:
            try:
                record = parser.parse(row, line)
            except DataError as error:
                self.log.defect(error)
                continue
            yield record

    def description(self, read: SplitRecords) -> str:
        """What was understood, for people: `text from title + description, labels from tags split at ";" ...`."""
        fields = self.fields
        if fields is None or not len(read):
            return ""
        per_row = f"{len(read.numbers) / len(read):.1f} per row"
        if fields.separator:
            shown = ", ".join(f'"{self.label_set.ids[number]}"' for number in read.numbers[:2].tolist())
            labels = f"split at {shown_separator(fields.separator)} ({per_row}, e.g. {shown})"
        else:
            is_single = bool(np.all(np.diff(read.starts) <= 1)) and (fields.separator == "" or len(read) > 1)
            labels = "(one per row)" if is_single else f"({per_row})"
        parts = [f"text from {' + '.join(fields.text or ())}", f"labels from {fields.labels} {labels}"]
        parts += [f"id from {fields.id}"] if read.ids is not None else []
        parts += [f"groups from {self.settings.group_field}"] if read.groups is not None else []
        parts += [f"row weights from {self.settings.weight_field}"] if read.weights is not None else []
        return ", ".join(parts)


class RecordParser:
    """Turns the rows of one source into records; each wrong value becomes a DataError with its place."""

    def __init__(
        self, source: RowSource, fields: Fields, settings: DatasetSettings, label_set: LabelSetBuilder, *,
        asked_for_names: bool = False,
    ) -> None:  # fmt: skip
        self.file, self.is_table, self.fields = source.file, source.is_table, fields
        self.settings, self.label_set = settings, label_set
        self._log: ReadLog = label_set.log
        self._whole_floats = False
        self.asked_for_names = asked_for_names  # the user said that a cell is one label, even one that begins with [

    def look_at_labels(self, rows: Iterable[Mapping[str, object]]) -> None:
        """Find out what separates the labels of a cell, if that is not known and the labels are cells."""
        values = (row.get(self.fields.labels or "") for row in rows)
        cells = [cell for value in values if isinstance(value, str) and (cell := self._plain_cell(value))]
        self._whole_floats = are_whole_floats(cells)
        if not cells or self.fields.separator is not None:
            return
        found = find_separator(cells, {*self.label_set.numbers, *filter(None, self.label_set.texts)})
        if found.value is None:
            raise self._undecided(found.candidate, found.example)
        if found.example:
            self._log.note(NOT_SEPARATED, f'"{_cut(found.example)}"', sum(found.candidate in cell for cell in cells))
        self.fields = replace(self.fields, separator=found.value)

    def _plain_cell(self, value: str) -> str:
        """A cell of labels that is no list; empty for all others."""
        cell = value.strip()
        try:
            return "" if is_missing(cell, words=self.is_table) or read_list(cell) is not None else cell
        except ValueError:  # a broken list is an error once its row is parsed
            return ""

    def _undecided(self, candidate: str, example: str, line: int | None = None) -> DataError:
        shown = shown_separator(candidate).strip('"')
        message = (
            f"cannot tell whether {shown_separator(candidate)} separates labels or belongs to them, as in "
            f'"{_cut(example)}"; say --separator "{shown}" or --separator none (separator= in Python)'
        )
        return DataError(message, file=self.file, line=line, field=self.fields.labels)

    def parse(self, row: Mapping[str, object], line: int) -> Record:
        fields, names = self.fields, self.settings
        text = row_text(row, fields, self.file, line, words=self.is_table)
        assert fields.labels is not None
        if fields.labels not in row:
            raise _missing(fields.labels, row, self.file, line)
        labels, grades = self._labels(row[fields.labels], line)
        return Record(
            line,
            text,
            labels,
            grades,
            row_id(row, fields, self.file, line, words=self.is_table),
            _name(row.get(names.group_field), self.file, line, names.group_field, words=self.is_table),
            self._weight(row.get(names.weight_field), line, names.weight_field),
        )

    def _labels(self, value: object, line: int) -> tuple[list[int], list[float] | None]:
        if isinstance(value, str):
            value = self._cell(value, line)
        elif is_missing(value):
            return [], None
        if isinstance(value, dict):
            value = list(value.items())
        items: Sequence[Any] = value if isinstance(value, list | tuple) else [value]
        known = self.label_set.numbers  # the common case in one pass: known ids without weights
        try:
            labels = [known[label] for label in items]
        except (KeyError, TypeError):
            return self._labels_one_by_one(items, line)
        return labels, None

    def _labels_one_by_one(self, items: Sequence[object], line: int) -> tuple[list[int], list[float] | None]:
        labels: list[int] = []
        grades: list[float] = []
        for item in items:
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
        if not 0.0 <= grade <= LARGEST_WEIGHT:
            limit = f"; at most {LARGEST_WEIGHT:g}" if grade > LARGEST_WEIGHT else ""
            raise self._wrong_labels(f"weight {_shown(weight)} is not a number of 0 or more{limit}", line)
        name = _as_text(label)
        if name is None:
            raise self._wrong_labels(f"label {_shown(label)} is not a text or a number", line)
        return name, grade

    def _cell(self, value: str, line: int) -> object:
        """The labels of one cell."""
        cell = value.strip()
        if is_missing(cell, words=self.is_table):
            if cell:
                self._log.note(MISSING_VALUE, place(self.file, line, cell))
            return []
        try:
            found = read_list(cell)
        except ValueError as error:
            if self.asked_for_names:
                return [cell]
            remedy = "mend it, or say --separator none if it is a name"
            raise self._wrong_labels(f"{_shown(cell)} is not a list of labels: {error}; {remedy}", line) from None
        if found is not None:
            return found
        if self.fields.separator is None:  # the rows looked at had lists only
            separator = find_separator([cell], self.label_set.numbers)
            if separator.value is None:
                raise self._undecided(separator.candidate, cell, line)
            return pieces_of(cell, separator.value)
        return [cell.partition(".")[0]] if self._whole_floats else pieces_of(cell, self.fields.separator)

    def _weight(self, value: object, line: int, field: str) -> float | None:
        if is_missing(value, words=self.is_table):
            return None
        if isinstance(value, str) and self.is_table:
            with suppress(ValueError):  # what is not a number fails below, like every other wrong weight
                value = float(value)
        weight = _number(value)
        if not SMALLEST_WEIGHT <= weight <= LARGEST_WEIGHT:
            limits = f"{SMALLEST_WEIGHT:g} to {LARGEST_WEIGHT:g}"
            message = f"{_shown(value)} is not a number above 0; leave out rows that should not count"
            if weight > 0:
                message = f"{_shown(value)} is not a number from {limits}; divide all weights by the same number"
            raise DataError(message, file=self.file, line=line, field=field)
        return weight

    def _wrong_labels(self, message: str, line: int) -> DataError:
        return DataError(message, file=self.file, line=line, field=self.fields.labels)


def row_text(row: Mapping[str, object], fields: Fields, file: Path | str, line: int, *, words: bool = False) -> str:
    """The text of a row: its text fields that are there and not empty, joined by spaces.

    Parameters
    ----------
    row
        Values by field.
    fields
        With `text` resolved.
    file, line
        Named in errors.
    words
        Whether the words nan, None and null of a table mean that a value is missing.
    """
    assert fields.text is not None
    parts = []
    is_there = False
    for field in fields.text:
        if field not in row:
            continue
        is_there = True
        value = row[field]
        if type(value) is str and not (words and value in MISSING_WORDS):
            if value:
                parts.append(value)
        elif not is_missing(value, words=words):
            text = _as_text(value)
            if text is None:
                remedy = "write one text, or choose fields with --text" if isinstance(value, dict) else "join it"
                raise DataError(f"{_shown(value)}, not a text; {remedy}", file=file, line=line, field=field)
            parts.append(text)
    if not is_there:
        raise _missing(fields.text[-1], row, file, line)
    return " ".join(parts)


def row_id(
    row: Mapping[str, object], fields: Fields, file: Path | str, line: int, *, words: bool = False
) -> str | None:
    """The id of a row, if it has one; parameters as in `row_text`."""
    return None if fields.id is None else _name(row.get(fields.id), file, line, fields.id, words=words)


def _name(value: object, file: Path | str, line: int, field: str, *, words: bool) -> str | None:
    """An id or a group."""
    if is_missing(value, words=words):
        return None
    name = _as_text(value)
    if name is None or (isinstance(value, float) and not value.is_integer()):
        raise DataError(f"{_shown(value)} is not a text or a whole number", file=file, line=line, field=field)
    return name


def _missing(field: str, row: Mapping[str, object], file: Path | str, line: int) -> DataError:
    names = [str(key) for key in row]
    hint = did_you_mean(field, names) or f"; fields of this row: {quoted(names)}"
    return DataError(f"missing{hint}", file=file, line=line, field=field)


def _as_text(value: object) -> str | None:
    """A text or a number as a text, a whole number without its point; None for everything else, True and False too."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    if isinstance(value, numbers.Integral):
        try:
            return str(int(value))
        except ValueError:  # Python refuses to write numbers of thousands of digits
            return None
    number = _number(value)
    if not math.isfinite(number):
        return None
    return str(int(number)) if number.is_integer() else repr(number)


def _number(value: object) -> float:
    """A real number as a float; NaN for everything else."""
    if isinstance(value, bool):
        return math.nan
    try:
        return float(value) if isinstance(value, numbers.Real) else math.nan
    except OverflowError:  # a whole number of hundreds of digits
        return math.inf


def _shown(value: object) -> str:
    try:
        shown = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits; brackets in brackets
        return "a value too long to show"
    return shown if len(shown) <= 60 else shown[:57] + "..."


def _cut(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
