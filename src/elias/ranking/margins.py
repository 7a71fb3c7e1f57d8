"""Ranker and label tree as one table, to look closer at the labels that were found (`kernels/closer.py`).

Words that many labels have are part of the labels' rows, as narrow numbers where there are many labels; of the others
each is a list of labels. In: a ranker's rows and a `LabelTree`. Out: margins and paths of labels.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from .. import kernels
from .label_tree import LabelTree
from .sparse_rows import NARROW_FROM, SparseRows, csr_arrays, exact_columns

if TYPE_CHECKING:
    from ..kernels.closer import Closer, PairSums

COMMON_SHARE = 16  # a word that more than 1 / 16 of the labels have is common
NODE_SHARE = 4  # the same for nodes of the tree, which are all added up
LARGEST_CODE = 32767


class CloserLook:
    """Holds no state of a query; any number of threads may call it."""

    def __init__(self, ranker: SparseRows, tree: LabelTree, n_words: int) -> None:
        self.ranker, self.tree, self.n_words = ranker, tree, n_words

    @cached_property
    def table(self) -> Closer:
        """As the kernels read it; made when it is first asked for."""
        kind = np.int16 if len(self.ranker) >= NARROW_FROM else np.float32
        return closer_of(self.ranker, self.tree, self.n_words, np.dtype(kind))

    def new_sums(self) -> PairSums:
        """Scratch of one thread."""
        from ..kernels.closer import PairSums

        n_labels = len(self.ranker)
        n_nodes = max(0, len(self.tree.parents) - n_labels)
        return PairSums(np.zeros((n_labels, 2), dtype=np.float32), np.empty(n_nodes, dtype=np.float32))

    def look(self, x: sp.csr_matrix, labels: np.ndarray, *, threads: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """(margin, path) of the labels of each row, -1 after the last; 0 there, and paths where there is no tree."""
        from ..kernels.closer import closer_rows

        labels = np.ascontiguousarray(labels, dtype=np.int32)
        margin, path = np.zeros(labels.shape, dtype=np.float32), np.zeros(labels.shape, dtype=np.float32)
        table, given = self.table, csr_arrays(x)

        def rows(start: int, stop: int) -> None:
            closer_rows(start, stop, *given, table, self.new_sums(), labels, margin, path)

        kernels.run(rows, len(labels), threads)
        return margin, path


def closer_of(ranker: SparseRows, tree: LabelTree, n_words: int, kind: np.dtype) -> Closer:
    """The table; `kind` of the numbers of common words is int16 or float32."""
    from ..kernels.closer import Closer
    from ..kernels.turned import sizes_of_pairs, turn_pairs

    n_labels = len(ranker)
    leaves, nodes = divided(tree.rows, n_labels)
    matrices = (*arrays_of(ranker), *arrays_of(leaves))
    sizes, largest = sizes_of_pairs(*matrices, n_words)
    common = np.flatnonzero(sizes * COMMON_SHARE > n_labels)
    column_of = np.full(n_words, -1, dtype=np.int32)
    column_of[common] = np.arange(len(common), dtype=np.int32)
    steps = np.ones((len(common), 2), dtype=np.float32)
    if kind == np.int16:
        steps = np.where(largest[common] > 0, largest[common] / LARGEST_CODE, 1).astype(np.float32)
    indptr = np.concatenate([[0], np.cumsum(np.where(column_of < 0, sizes, 0))]).astype(np.int64)
    codes = np.zeros((n_labels, 2 * len(common)), dtype=kind)
    labels, pairs = np.empty(indptr[-1], dtype=np.uint32), np.zeros((indptr[-1], 2), dtype=np.float32)
    turn_pairs(*matrices, column_of, steps, indptr[:-1].copy(), codes, labels, pairs)
    biases = np.stack([ranker.biases, leaves.biases], axis=1)
    by_word = exact_columns(nodes, NODE_SHARE)
    return Closer(column_of, codes, steps, indptr, labels, pairs, biases, by_word, nodes.biases, tree.parents)


def divided(rows: SparseRows, n_labels: int) -> tuple[SparseRows, SparseRows]:
    """The labels and the nodes of a tree; of no tree, labels without weights and no nodes."""
    if len(rows) == 0:
        return SparseRows.nobody(rows.n_words, n_labels), rows
    end = rows.indptr[n_labels]
    leaves = rows.indptr[: n_labels + 1], rows.words[:end], rows.weights[:end], rows.biases[:n_labels]
    nodes = rows.indptr[n_labels:] - end, rows.words[end:], rows.weights[end:], rows.biases[n_labels:]
    return SparseRows(*leaves, rows.n_words), SparseRows(*nodes, rows.n_words)


def arrays_of(rows: SparseRows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return rows.indptr, rows.words, rows.weights
