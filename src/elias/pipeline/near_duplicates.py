"""Texts that nearly say the same: cosine of tf-idf rows.

A held-out text whose near twin stays in training tells little about texts of a new kind: everything looks surer than
it is. So `split` holds twins out together, where it can.
In: tf-idf rows, the numbers of some of them. Out: for each of these the rows that are its twins.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from .. import kernels
from ..core.predictions import PAD
from ..core.ragged import Ragged
from ..encoders.centroids import normalize_rows
from ..ranking.sparse_rows import SparseRows, csr_arrays, no_sums, postings_with_columns

LEAST_COSINE = 0.5
MOST_TWINS = 50  # of a text with more, which is rather a form that was filled in, none are named


def near_twins(bow: sp.csr_matrix, rows: np.ndarray, *, threads: int = 1) -> list[np.ndarray]:
    """For each of `rows`, the other rows with a cosine of at least LEAST_COSINE."""
    from ..kernels.postings import find_labels

    unit = normalize_rows(bow)
    by_word = sp.csr_matrix(unit.T)
    asked = sp.csr_matrix(unit[rows])
    found = np.full((len(rows), MOST_TWINS + 2), PAD, dtype=np.int32)  # itself, and one more than may be
    scores = np.zeros(found.shape, dtype=np.float32)
    nothing = Ragged.empty(len(rows))
    nobody = np.empty((len(rows), 0), dtype=np.int32), np.empty((len(rows), 0), dtype=np.float32)
    table = postings_with_columns(SparseRows.of(by_word), unit.shape[0], threads=threads)

    def search(start: int, stop: int) -> None:
        find_labels(
            start, stop, *csr_arrays(asked), table, nothing.indptr, nothing.labels, no_sums(unit.shape[0]), found,
            scores, *nobody,
        )  # fmt: skip

    kernels.run(search, len(rows), threads)
    near = (scores >= LEAST_COSINE) & (found != rows[:, None])
    return [line[chosen] if chosen.sum() <= MOST_TWINS else line[:0] for line, chosen in zip(found, near, strict=True)]
