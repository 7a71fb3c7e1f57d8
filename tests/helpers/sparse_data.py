"""Random sparse matrices and label trees."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from elias.ranking.label_tree import TOP, LabelTree
from elias.ranking.sparse_rows import SparseRows


def sparse(
    rng: np.random.Generator, rows: int, columns: int, *, signed: bool = False, coarse: bool = False
) -> sp.csr_matrix:
    """Some rows are empty; coarse values are halves, so that sums are exact and ties are many."""
    values = rng.integers(1, 4, size=(rows, columns)) / 2 if coarse else rng.random((rows, columns))
    if signed:
        values = values * rng.choice([-1, 1], size=values.shape)
    kept = rng.random((rows, columns)) < rng.choice([0.1, 0.4])
    kept[rng.random(rows) < 0.15] = False
    return sp.csr_matrix((values * kept).astype(np.float32))


def random_tree(rng: np.random.Generator, n_labels: int, n_words: int) -> LabelTree:
    """Labels below nodes below nodes; some labels outside, some nodes without labels."""
    n_leaves, n_tops = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    leaf = np.where(rng.random(n_labels) < 0.8, n_labels + rng.integers(0, n_leaves, n_labels), TOP)
    above = n_labels + n_leaves + rng.integers(0, n_tops, n_leaves)
    parents = np.concatenate([leaf, above, np.full(n_tops, TOP)]).astype(np.int32)
    rows = SparseRows.from_csr(sparse(rng, len(parents), n_words, signed=True), rng.normal(size=len(parents)))
    rows.weights[:] *= np.float32(0.3)
    return LabelTree(rows, parents)
