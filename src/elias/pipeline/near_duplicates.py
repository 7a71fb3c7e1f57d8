"""Near-duplicate texts by the cosine of their tf-idf rows.

A held-out text whose near-duplicate stays in training says little about new texts: every score looks too certain. So
`dataset.split` holds near-duplicates out together, where it can.
In: tf-idf rows, the numbers of some of them. Out: for each of these the rows that nearly repeat it.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from .. import kernels
from ..core.predictions import PAD
from ..core.ragged import Ragged
from ..encoders.centroids import normalize_rows
from ..ranking.sparse_rows import SparseRows, csr_arrays, new_sums, postings_with_columns

LEAST_COSINE = 0.5
MOST = 50  # a text with more near-duplicates is rather a form that was filled in: none are named


def near_duplicates(bow: sp.csr_matrix, rows: np.ndarray, *, threads: int = 1) -> list[np.ndarray]:
    """For each of `rows`, the other rows with a cosine of at least LEAST_COSINE."""
    unit = normalize_rows(bow)
    if not kernels.serve():
        cosines = np.asarray((unit[rows] @ unit.T).todense())
        found = [
            np.setdiff1d(np.flatnonzero(line >= LEAST_COSINE), [row]) for line, row in zip(cosines, rows, strict=True)
        ]
        return [others if len(others) <= MOST else others[:0] for others in found]
    from ..kernels.inverted_index import search_rows

    asked = sp.csr_matrix(unit[rows])
    labels = np.full((len(rows), MOST + 2), PAD, dtype=np.int32)  # the row itself, and one more than may be
    scores = np.zeros(labels.shape, dtype=np.float32)
    nothing = Ragged.empty(len(rows))
    not_asked = np.empty((len(rows), 0), dtype=np.int32), np.empty((len(rows), 0), dtype=np.float32)
    table = postings_with_columns(SparseRows.from_csr(sp.csr_matrix(unit.T)), unit.shape[0], threads=threads)
    fixed = (*csr_arrays(asked), table, nothing.indptr, nothing.labels)

    def search(start: int, stop: int) -> None:
        search_rows(start, stop, *fixed, new_sums(unit.shape[0]), labels, scores, *not_asked)

    kernels.run(search, len(rows), threads)
    near = (scores >= LEAST_COSINE) & (labels != rows[:, None])
    return [line[chosen] if chosen.sum() <= MOST else line[:0] for line, chosen in zip(labels, near, strict=True)]
