"""Labels per row in CSR form: positives of training rows, labels that are excluded, candidates that a caller gives.

labels of row i = labels[indptr[i] : indptr[i + 1]]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from .predictions import PAD


@dataclass(frozen=True)
class Ragged:
    indptr: np.ndarray  # int64 [rows + 1]
    labels: np.ndarray  # int32

    @classmethod
    def empty(cls, n_rows: int) -> Ragged:
        """No label in any row."""
        return cls(np.zeros(n_rows + 1, dtype=np.int64), np.empty(0, dtype=np.int32))

    @classmethod
    def of(cls, lists: Sequence[np.ndarray]) -> Ragged:
        """One list of labels per row."""
        indptr = np.concatenate([[0], np.cumsum([len(item) for item in lists])]).astype(np.int64)
        return cls(indptr, np.concatenate([*lists, np.empty(0, dtype=np.int64)]).astype(np.int32))

    @classmethod
    def from_rows(cls, matrix: sp.csr_matrix, rows: np.ndarray) -> tuple[Ragged, np.ndarray]:
        """The columns of some rows of a sparse matrix, and their values."""
        labels, values, indptr = take_rows(matrix, rows)
        return cls(indptr, labels.astype(np.int32, copy=False)), values

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def of_row(self, row: int) -> np.ndarray:
        """The labels of one row."""
        return self.labels[self.indptr[row] : self.indptr[row + 1]]

    @property
    def rows(self) -> np.ndarray:
        """The row of every label."""
        return np.repeat(np.arange(len(self)), np.diff(self.indptr))

    def padded(self) -> np.ndarray:
        """int32 [rows, most labels per row, at least 1], PAD behind the labels of a row."""
        lengths = np.diff(self.indptr)
        out = np.full((len(self), max(1, int(lengths.max(initial=1)))), PAD, dtype=np.int32)
        out[self.rows, np.arange(len(self.labels)) - np.repeat(self.indptr[:-1], lengths)] = self.labels
        return out


def take_rows(matrix: sp.csr_matrix, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(columns, values, offsets) of some rows of a CSR matrix, which may be memory-mapped."""
    starts, stops = matrix.indptr[rows], matrix.indptr[rows + 1]
    lengths = stops - starts
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    positions = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
    return matrix.indices[positions], matrix.data[positions].astype(np.float32, copy=False), offsets
