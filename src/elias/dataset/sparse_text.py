"""Sparse text files of the Extreme Classification Repository.

    train.txt               trn_X_Xf.txt / trn_X_Y.txt
    3 5 4                   3 5
    0,2 1:0.5 4:1.0         1:0.5 4:1.0
    1 0:0.25                0:0.25

The header gives rows, features and (left) labels. Numbers count from 0. A row may be blank: no labels, no features.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from ..core.arrays import LARGEST
from ..core.errors import DataError
from .defects import ReadLog
from .files import Folder, first_line, numbered_lines
from .labels import LabelSetBuilder, read_column_labels
from .records import DatasetRecords, SplitRecords, from_label_matrix

_PAIRS = re.compile(r"\s*(?:\d+:[^\s:]+(?:\s+|$))*")
_LABELS = re.compile(r"\d+(?:,\d+)*")
FIRST_ROW_LINE = 2
LARGEST_NUMBER = 2**31 - 1
SPLITS = ("train", "validation", "test")


def load_sparse_text(folder: Folder, log: ReadLog) -> DatasetRecords | None:
    """train.txt (or name_train.txt) with an `N F L` header, and the test file beside it."""
    names = [n for n in folder.names if n.removesuffix(".gz").lower().endswith("train.txt") and "filter" not in n]
    if len(names) != 1 or not is_sparse_text(folder.path / names[0]):
        return None
    stem = names[0].removesuffix(".gz")
    word, prefix = stem[-len("train.txt") : -len(".txt")], stem[: -len("train.txt")]
    splits: dict[str, SplitRecords] = {}
    widths: dict[str, tuple[int, int]] = {}
    for split in SPLITS:
        file = folder.find(f"{prefix}{split if word.islower() else split.title()}.txt")
        if file is None:
            continue
        try:
            splits[split], widths[split] = read_sparse_text(file, log)
        except DataError as error:
            log.defect(error)
    if "train" not in splits:
        return DatasetRecords("", LabelSetBuilder(log), splits)
    check_widths(widths, folder.path)
    words = f"Extreme Classification Repository, sparse features ({names[0]})"
    return DatasetRecords(words, read_column_labels(folder, widths["train"][1], log), splits)


def is_sparse_text(file: Path) -> bool:
    return read_header(first_line(file), 3) is not None


def read_sparse_text(file: Path, log: ReadLog) -> tuple[SplitRecords, tuple[int, int]]:
    """One `N F L` file and its (features, labels)."""
    features, labels = read_features_and_labels(file, log)
    rows = from_label_matrix(labels, file=file, vectors=features, first_line=FIRST_ROW_LINE)
    return rows, (int(features.shape[1]), int(labels.shape[1]))


def check_widths(widths: dict[str, tuple[int, int]], path: Path) -> None:
    for split, (features, labels) in widths.items():
        for what, here, there in (("features", features, widths["train"][0]), ("labels", labels, widths["train"][1])):
            if here != there:
                raise DataError(f"{split} has {here:,} {what}, train has {there:,}; the numbers must agree", file=path)


class _SparseRows:
    """A growing CSR matrix of `index:value` pairs."""

    def __init__(self) -> None:
        self.indices, self.values, self.starts = array("q"), array("f"), array("q", [0])

    def append_pairs(self, text: str) -> None:
        if not _PAIRS.fullmatch(text):
            wrong = next(token for token in text.split() if not re.fullmatch(r"\d+:[^\s:]+", token))
            raise ValueError(f'"{wrong[:40]}" is not index:value')
        tokens = text.replace(":", " ").split()
        self._append(map(int, tokens[::2]), map(float, tokens[1::2]))

    def append_labels(self, text: str) -> None:
        if text and not _LABELS.fullmatch(text):
            raise ValueError(f'"{text[:40]}" is not a list of label numbers such as 3,17')
        self._append(map(int, text.split(",") if text else ()), None)

    def _append(self, indices: Iterator[int], values: Iterator[float] | None) -> None:
        before = len(self.indices)
        try:
            self.indices.extend(indices)
            self.values.extend(values if values is not None else [1.0] * (len(self.indices) - before))
        except (ValueError, OverflowError):
            del self.indices[before:], self.values[before:]
            raise
        self.starts.append(len(self.indices))

    def append_nothing(self) -> None:
        self.starts.append(len(self.indices))

    def matrix(self, width: int, file: Path, what: str, log: ReadLog) -> sp.csr_matrix:
        """Checked: every index below the width of the header, every value finite."""
        indices = np.array(self.indices, dtype=np.int64)
        values = np.array(self.values, dtype=np.float32)
        starts = np.array(self.starts, dtype=np.int64)
        for wrong, words in (
            (indices >= width, f"{what} {{index}} is out of range; the header allows 0 to {width - 1}"),
            (
                ~(np.abs(values) <= LARGEST),
                f"{what} {{index}} has the value {{value}}; values must be finite numbers of at most {LARGEST:g}",
            ),
        ):
            if wrong.any():
                at = int(np.flatnonzero(wrong)[0])
                line = int(np.searchsorted(starts, at, side="right")) - 1 + FIRST_ROW_LINE
                log.defect(DataError(words.format(index=indices[at], value=values[at]), file=file, line=line))
                indices, values = np.where(wrong, 0, indices), np.where(wrong, 0, values)
        return sp.csr_matrix((values, indices.astype(np.int32), starts), shape=(len(starts) - 1, width))


def read_header(line: str, count: int) -> list[int] | None:
    """The whole numbers of a header line, or None when it is not a header of `count` numbers."""
    words = line.split()
    return [int(word) for word in words] if len(words) == count and all(w.isdecimal() for w in words) else None


def read_features_and_labels(file: Path, log: ReadLog) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """A file with an `N F L` header: (features, labels)."""
    lines = numbered_lines(file)
    rows, n_features, n_labels = _header(lines, file, 3)
    features, labels = _SparseRows(), _SparseRows()
    for line, text in _body(lines, rows, file):
        left, _, right = text.partition(" ")
        if ":" in left:  # the leading space of a row without labels was lost
            left, right = "", text
        try:
            labels.append_labels(left.strip())
        except (ValueError, OverflowError) as error:
            log.defect(DataError(str(error), file=file, line=line))
            labels.append_nothing()
        _append_pairs(features, right, file, line, log)
    return features.matrix(n_features, file, "feature", log), labels.matrix(n_labels, file, "label", log)


def read_sparse_matrix(file: Path, what: str, log: ReadLog) -> sp.csr_matrix:
    """A file with an `N columns` header and `index:value` rows; `what` a column is, for messages."""
    lines = numbered_lines(file)
    rows, width = _header(lines, file, 2)
    matrix = _SparseRows()
    for line, text in _body(lines, rows, file):
        _append_pairs(matrix, text, file, line, log)
    return matrix.matrix(width, file, what, log)


def _append_pairs(matrix: _SparseRows, text: str, file: Path, line: int, log: ReadLog) -> None:
    try:
        matrix.append_pairs(text)
    except (ValueError, OverflowError) as error:
        log.defect(DataError(str(error), file=file, line=line))
        matrix.append_nothing()


def _header(lines: Iterator[tuple[int, str]], file: Path, count: int) -> list[int]:
    _, text = next(lines)
    header = read_header(text, count)
    if header is None:
        names = "rows, features and labels" if count == 3 else "rows and columns"
        message = f"{text[:60]!r} is not a header; the first line gives the numbers of {names}"
        raise DataError(message, file=file, line=1)
    if max(header) > LARGEST_NUMBER:
        raise DataError(f"{max(header):,} is more than the {LARGEST_NUMBER:,} allowed", file=file, line=1)
    return header


def _body(lines: Iterator[tuple[int, str]], rows: int, file: Path) -> Iterator[tuple[int, str]]:
    """The lines after the header, as many as it promises; blank lines at the very end do not count."""
    seen, extra_blank = 0, 0
    for line, text in lines:
        if seen >= rows and not text.strip():
            extra_blank += 1
            continue
        seen += 1 + extra_blank
        extra_blank = 0
        if seen <= rows:
            yield line, text
    if seen != rows:
        message = f"the header says {rows:,} rows, the file has {seen:,}; put the header right or fetch the file again"
        raise DataError(message, file=file, line=1)
    if rows == 0:
        raise DataError("no rows", file=file)
