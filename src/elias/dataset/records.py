"""One row of a file -> one Record. The same rules for .jsonl, .csv, .tsv and .parquet.

A row is a mapping of field to value. Labels may be

    ["a", "b"]  [3, 7]                                   ids or names
    [["a", 0.5], ["b", 1]]   {"a": 0.5, "b": 1}          graded relevance
    [{"id": "a", "weight": 0.5}, {"id": "b"}]            the same, spelled out
"""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..core.errors import DataError, did_you_mean
from .log import BAR_SEPARATOR, UNREAD_FIELD, ZERO_WEIGHT, Log, place
from .settings import DatasetSettings
from .vocabulary import Vocabulary

LABEL_KEYS = ("id", "label", "name")


class Record(NamedTuple):
    """One row as read: label numbers, and their weights where any differs from 1."""

    line: int
    text: str
    labels: list[int]
    grades: list[float] | None = None
    id: str | None = None
    group: str | None = None
    weight: float | None = None


class RecordParser:
    """Turns the rows of one file into records; each wrong value becomes a DataError with its place."""

    def __init__(
        self, file: Path | str, settings: DatasetSettings, vocabulary: Vocabulary, *, split_cells: bool = False
    ) -> None:
        self.file, self.settings, self.vocabulary = file, settings, vocabulary
        self.split_cells = split_cells  # a label cell may be one text: "a;b"
        self._log: Log = vocabulary.log
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
        known = self.vocabulary.numbers
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
            labels.append(self.vocabulary.number(name, self.file, line))
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
            with suppress(ValueError):  # what is no number is said below, as for every other wrong weight
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
    """Whole numbers of Python and numpy; True and False are not meant as labels."""
    return not isinstance(value, bool) and isinstance(value, numbers.Integral)


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
