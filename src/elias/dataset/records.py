"""Records: rows as they are read from files, before the number of labels is known.

    Record            one row: its text, label numbers, weights, id, group, and the line it stands in
    SplitRecords      all rows of one split, column by column
    DatasetRecords    what the reader of a layout returns: splits, labels, and the layout in words

`collect` passes records through a `TextColumn`, so that neither a list of records nor a list of texts ever exists.
`Dataset.assemble` turns records into the rows of a dataset.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from ..core.errors import DataError
from .defects import ReadLog, place
from .fields import Fields
from .labels import LabelSetBuilder
from .rows import TextColumn


class Record(NamedTuple):
    """One row as read: label numbers, and their weights (`grades`) where any differs from 1."""

    line: int
    text: str
    labels: list[int]
    grades: list[float] | None = None
    id: str | None = None
    group: str | None = None
    weight: float | None = None


@dataclass(frozen=True, kw_only=True)
class SplitRecords:
    """One split: texts or vectors, and labels of row r = numbers[starts[r]:starts[r + 1]]."""

    file: Path | str  # named in notes about these rows
    texts: TextColumn | None = None
    vectors: sp.csr_matrix | np.ndarray | None = None
    numbers: np.ndarray  # int32
    grades: np.ndarray | None = None  # float32; None: all 1
    starts: np.ndarray  # int64, rows + 1
    lines: np.ndarray | None = None  # line of each row in `file`
    first_line: int = 1  # line of the first row where `lines` is not given
    ids: list[str] | None = None
    groups: list[str] | None = None
    weights: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.starts) - 1

    def place(self, row: int, what: str = "") -> str:
        line = row + self.first_line if self.lines is None else int(self.lines[row])
        return place(self.file, line, what)


@dataclass
class DatasetRecords:
    """What the reader of a layout found: the layout in words, the labels and their language, the records by split."""

    layout: str
    labels: LabelSetBuilder
    splits: dict[str, SplitRecords] = field(default_factory=dict)
    fields: Fields = field(default_factory=Fields)
    language: str = ""  # of the label texts, where a vocabulary says it


class _Collector:
    """Columns that grow record by record; grades, weights, ids and groups exist only once a record has one."""

    def __init__(self, file: Path | str, log: ReadLog) -> None:
        self.file, self.log = file, log
        self.numbers, self.starts, self.lines = array("i"), array("q", [0]), array("q")
        self.grades: array[float] | None = None
        self.weights: array[float] | None = None
        self.ids: list[str] | None = None
        self.groups: list[str] | None = None

    def texts(self, records: Iterable[Record]) -> Iterator[str]:
        for record in records:
            if not self.lines:
                self.ids = None if record.id is None else []
                self.groups = None if record.group is None else []
            try:
                self._check_names(record)
            except DataError as error:
                self.log.defect(error)
                continue
            self._append(record)
            yield record.text

    def _check_names(self, record: Record) -> None:
        columns = (("an", "id", record.id, self.ids), ("a", "group", record.group, self.groups))
        for article, name, value, column in columns:
            if (value is None) != (column is None):
                has = f"this row has no {name}" if value is None else f"this row has {article} {name}"
                other = "has one" if value is None else "has none"
                message = f"{has}, the first row {other}; give it to every row or to none"
                raise DataError(message, file=self.file, line=record.line)

    def _append(self, record: Record) -> None:
        # The first record with a grade or weight makes the column, with 1 for all records before it.
        if record.grades is not None and self.grades is None:
            self.grades = array("f", [1.0]) * len(self.numbers)
        if record.weight is not None and self.weights is None:
            self.weights = array("f", [1.0]) * len(self.lines)
        self.numbers.extend(record.labels)
        self.starts.append(len(self.numbers))
        self.lines.append(record.line)
        if self.grades is not None:
            self.grades.extend(record.grades if record.grades is not None else [1.0] * len(record.labels))
        if self.weights is not None:
            self.weights.append(1.0 if record.weight is None else record.weight)
        if self.ids is not None:
            self.ids.append(str(record.id))
        if self.groups is not None:
            self.groups.append(str(record.group))


def collect(records: Iterable[Record], file: Path | str, log: ReadLog) -> SplitRecords:
    """All records of one split. A split without a single row is an error."""
    into = _Collector(file, log)
    texts = TextColumn(into.texts(records))
    if not len(texts) and not log.defects:
        raise DataError("no rows", file=file)
    return SplitRecords(
        file=file,
        texts=texts,
        numbers=np.array(into.numbers, dtype=np.int32),
        grades=None if into.grades is None else np.array(into.grades, dtype=np.float32),
        starts=np.array(into.starts, dtype=np.int64),
        lines=np.array(into.lines, dtype=np.int64),
        ids=into.ids,
        groups=into.groups,
        weights=None if into.weights is None else np.array(into.weights, dtype=np.float32),
    )


def from_label_matrix(
    labels: sp.csr_matrix,
    *,
    file: Path | str,
    texts: TextColumn | None = None,
    vectors: sp.csr_matrix | np.ndarray | None = None,
    first_line: int = 1,
    ids: list[str] | None = None,
    groups: list[str] | None = None,
    weights: np.ndarray | None = None,
) -> SplitRecords:
    """Rows of a layout whose labels come as a matrix."""
    return SplitRecords(
        file=file,
        texts=texts,
        vectors=vectors,
        numbers=np.asarray(labels.indices, dtype=np.int32),
        grades=None if bool(np.all(labels.data == 1)) else np.asarray(labels.data, dtype=np.float32),
        starts=np.asarray(labels.indptr, dtype=np.int64),
        first_line=first_line,
        ids=ids,
        groups=groups,
        weights=weights,
    )
