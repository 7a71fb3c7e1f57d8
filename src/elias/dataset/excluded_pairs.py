"""Excluded pairs (row, label): masked in the loss and never scored.

    filter_test.tsv             row id <tab> label id         (row number from 0 where rows have no ids)
    filter_labels_test.txt      row number, label number      (the Extreme Classification Repository; from 0)
    exclude_own_id = true       every pair (row, label with the row's id)

All of them apply together, split by split.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from ..core.errors import DataError, did_you_mean
from .defects import BLANK_LINE, FILTER_UNKNOWN_LABEL, ReadLog, place
from .files import numbered_lines
from .records import SplitRecords

Pairs = tuple[np.ndarray, np.ndarray]  # row numbers, label numbers


def own_id_pairs(read: SplitRecords, numbers: dict[str, int]) -> Pairs:
    """(row, label whose id is the row's id) for every row that has one."""
    if read.ids is None:
        message = "exclude_own_id = true needs an id in every row; add the field, or name it with id_field"
        raise DataError(message, file=read.file)
    rows, labels = array("q"), array("q")
    for row, row_id in enumerate(read.ids):
        number = numbers.get(row_id)
        if number is not None:
            rows.append(row)
            labels.append(number)
    return np.array(rows, dtype=np.int64), np.array(labels, dtype=np.int64)


def read_number_pairs(file: Path, n_rows: int, n_labels: int, log: ReadLog) -> Pairs:
    """filter_labels_*.txt."""
    rows, labels = array("q"), array("q")
    for line, text in numbered_lines(file):
        words = text.split()
        if not words:
            log.note(BLANK_LINE, place(file, line))
        elif len(words) != 2 or not all(word.isdecimal() for word in words):
            log.defect(DataError(f"{text[:60]!r} is not a row number and a label number", file=file, line=line))
        elif int(words[0]) >= n_rows or int(words[1]) >= n_labels:
            what, limit = ("row", n_rows) if int(words[0]) >= n_rows else ("label", n_labels)
            value = words[0] if what == "row" else words[1]
            log.defect(DataError(f"{what} {value} is out of range; 0 to {limit - 1} exist", file=file, line=line))
        else:
            rows.append(int(words[0]))
            labels.append(int(words[1]))
    return np.array(rows, dtype=np.int64), np.array(labels, dtype=np.int64)


def read_id_pairs(file: Path, read: SplitRecords, numbers: dict[str, int], log: ReadLog) -> Pairs:
    """filter_*.tsv. A row id that occurs several times names all of its rows."""
    row_ids = read.ids if read.ids is not None else [str(row) for row in range(len(read))]
    rows_of: defaultdict[str, list[int]] = defaultdict(list)
    for row, row_id in enumerate(row_ids):
        rows_of[row_id].append(row)
    rows, labels = array("q"), array("q")
    for line, text in numbered_lines(file):
        cells = text.split("\t")
        if not text.strip():
            log.note(BLANK_LINE, place(file, line))
        elif len(cells) != 2:
            log.defect(DataError(f"{text[:60]!r} is not a row id, a tab and a label id", file=file, line=line))
        elif cells[0] not in rows_of:
            hint = did_you_mean(cells[0], list(rows_of)[:100_000])
            log.defect(DataError(f'no row has the id "{cells[0]}"{hint}', file=file, line=line))
        elif cells[1] not in numbers:
            log.note(FILTER_UNKNOWN_LABEL, place(file, line, f'"{cells[1]}"'))
        else:
            for row in rows_of[cells[0]]:
                rows.append(row)
                labels.append(numbers[cells[1]])
    return np.array(rows, dtype=np.int64), np.array(labels, dtype=np.int64)


def excluded_matrix(pairs: list[Pairs], shape: tuple[int, int]) -> sp.csr_matrix:
    """All pairs of a split as one boolean matrix."""
    rows = np.concatenate([np.empty(0, dtype=np.int64), *(pair[0] for pair in pairs)])
    labels = np.concatenate([np.empty(0, dtype=np.int64), *(pair[1] for pair in pairs)])
    matrix = sp.csr_matrix((np.ones(len(rows), dtype=np.bool_), (rows, labels)), shape=shape, dtype=np.bool_)
    matrix.sum_duplicates()
    return matrix
