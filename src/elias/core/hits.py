"""Where the right labels of each row are among its predictions: what every metric is made of.

In: as in `metrics`. Out: the right pairs with their ranks, excluded ones taken out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from .errors import InputError

_BLOCK = 1 << 21  # comparisons made at once


@dataclass(frozen=True)
class Scored:
    """The right pairs, row by row, and where the predictions have them."""

    predicted: np.ndarray
    rows: np.ndarray
    labels: np.ndarray
    ranks: np.ndarray  # 0 is the best; the number of predictions a row if it is not there
    counts: np.ndarray  # labels of each row
    n_labels: int

    @property
    def n_scored(self) -> int:
        return int((self.counts > 0).sum())


def find_hits(
    predicted: np.ndarray,
    labels: sp.csr_matrix,
    label_counts: np.ndarray,
    width: int,
    excluded: sp.csr_matrix | None,
) -> Scored:
    """Check the arguments, take out what is excluded, and find each right pair among the first `width` predictions."""
    n_rows, n_labels = (int(size) for size in labels.shape)
    if predicted.ndim != 2 or len(predicted) != n_rows:
        raise InputError(f"predictions of shape {predicted.shape} for {n_rows} rows; pass rows x k label numbers")
    if len(label_counts) != n_labels:
        raise InputError(f"{len(label_counts)} label counts for {n_labels} labels; pass one a label")
    if predicted.size and not -1 <= predicted.min() <= predicted.max() < n_labels:
        found = f"{predicted.min()} to {predicted.max()}"
        raise InputError(f"predicted label numbers from {found}; there are {n_labels} labels, and -1 means nothing")
    rows, numbers = _pairs(labels)
    if excluded is not None:
        if excluded.shape != labels.shape:
            raise InputError(f"excluded pairs of shape {excluded.shape} for labels of shape {labels.shape}")
        out_rows, out_numbers = _pairs(excluded)
        kept = np.isin(rows * n_labels + numbers, out_rows * n_labels + out_numbers, invert=True)
        rows, numbers = rows[kept], numbers[kept]
        predicted = _without(predicted, out_rows, out_numbers)
    predicted = _moved_up(predicted)[:, :width]
    counts = np.bincount(rows, minlength=n_rows)
    return Scored(predicted, rows, numbers, _ranks(predicted, rows, numbers, width), counts, n_labels)


def _pairs(matrix: sp.csr_matrix) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the values above 0, row by row, each once."""
    n_columns = max(1, int(matrix.shape[1]))
    rows = np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))
    keys = rows * n_columns + matrix.indices
    keys = np.unique(keys[matrix.data > 0])
    return keys // n_columns, keys % n_columns


def _blocks(predicted: np.ndarray, n_pairs: int) -> list[slice]:
    size = max(1, _BLOCK // max(1, predicted.shape[1]))
    return [slice(start, start + size) for start in range(0, n_pairs, size)]


def _ranks(predicted: np.ndarray, rows: np.ndarray, labels: np.ndarray, width: int) -> np.ndarray:
    """The place of each pair's label in its row's predictions, `width` if it is not there."""
    ranks = np.full(len(rows), width, dtype=np.int64)
    if predicted.shape[1]:
        for block in _blocks(predicted, len(rows)):
            same = predicted[rows[block]] == labels[block, None]
            ranks[block] = np.where(same.any(axis=1), same.argmax(axis=1), width)
    return ranks


def _without(predicted: np.ndarray, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """A copy with -1 in place of the given pairs."""
    predicted = predicted.copy()
    for block in _blocks(predicted, len(rows)):
        pair, place = np.nonzero(predicted[rows[block]] == labels[block, None])
        predicted[rows[block][pair], place] = -1
    return predicted


def _moved_up(predicted: np.ndarray) -> np.ndarray:
    """Each row's labels in order without gaps, -1 after them."""
    missing = predicted < 0
    gaps = np.flatnonzero((missing[:, :-1] & ~missing[:, 1:]).any(axis=1))
    if len(gaps):
        predicted = predicted.copy()
        order = np.argsort(missing[gaps], axis=1, kind="stable")
        predicted[gaps] = np.take_along_axis(predicted[gaps], order, axis=1)
    return predicted
