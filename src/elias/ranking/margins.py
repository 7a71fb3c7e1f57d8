"""Margins of the linear ranker and paths of the label tree for given labels, from one table.

    margin(x, l) = w_l . x + b_l
    path(x, l)   = sum over l and the nodes above it of -max(0, 1 - margin in the tree)^3,   at least LOWEST

Both are linear in the words of a text, so their weights are stored side by side (`kernels/margins.py`): the weights of
common words by label, quantized to 16 bits where there are many labels; any other word as a list of labels.
In: the rows of a linear ranker and a `LabelTree`. Out: margins and paths.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from .. import kernels
from .label_tree import TOP, LabelTree
from .sparse_rows import QUANTIZED_FROM, SparseRows, csr_arrays, exact_columns

if TYPE_CHECKING:
    from ..kernels.margins import MarginSums, MarginTable

COMMON_SHARE = 16  # a word that more than 1 / 16 of the labels have is common
NODE_SHARE = 4  # the same for nodes of the tree, which are all summed
LARGEST_CODE = 32767
LOWEST = -10.0  # of a path: below, differences carry no information


class Margins:
    """Holds no state of a query; any number of threads may call it."""

    def __init__(self, ranker: SparseRows, tree: LabelTree, n_words: int) -> None:
        self.ranker, self.tree, self.n_words = ranker, tree, n_words

    @cached_property
    def table(self) -> MarginTable:
        """As the kernels read it; made at the first call."""
        kind = np.int16 if len(self.ranker) >= QUANTIZED_FROM else np.float32
        return margin_table(self.ranker, self.tree, self.n_words, np.dtype(kind))

    def new_sums(self) -> MarginSums:
        """Scratch of one thread."""
        from ..kernels.margins import MarginSums

        n_labels = len(self.ranker)
        n_nodes = max(0, len(self.tree.parents) - n_labels)
        return MarginSums(np.zeros((n_labels, 2), dtype=np.float32), np.empty(n_nodes, dtype=np.float32))

    def of(self, x: sp.csr_matrix, labels: np.ndarray, *, threads: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """(margin, path) of the labels of each row, PAD after the last; 0 at PAD, and all paths 0 without a tree."""
        if not kernels.serve():
            return self.ranker.products(x, labels), self._paths_reference(x, labels)
        from ..kernels.margins import margin_rows

        labels = np.ascontiguousarray(labels, dtype=np.int32)
        margin, path = np.zeros(labels.shape, dtype=np.float32), np.zeros(labels.shape, dtype=np.float32)
        table, given = self.table, csr_arrays(x)

        def rows(start: int, stop: int) -> None:
            margin_rows(start, stop, *given, table, self.new_sums(), labels, margin, path)

        kernels.run(rows, len(labels), threads)
        return margin, path

    def _paths_reference(self, x: sp.csr_matrix, labels: np.ndarray) -> np.ndarray:
        """Label by label, up to the top of the tree."""
        out = np.zeros(labels.shape, dtype=np.float32)
        if len(self.tree.parents) == 0:
            return out
        margins = np.asarray((x @ self.tree.rows.to_csr().T).todense()) + self.tree.rows.biases
        for row, column in zip(*np.nonzero(labels >= 0), strict=True):
            node, total = labels[row, column], 0.0
            while node != TOP:
                total -= max(0.0, 1.0 - margins[row, node]) ** 3
                node = self.tree.parents[node]
            out[row, column] = max(total, LOWEST)
        return out


def margin_table(ranker: SparseRows, tree: LabelTree, n_words: int, kind: np.dtype) -> MarginTable:
    """The table; `kind` of the numbers of common words is int16 or float32."""
    from ..kernels.margins import MarginTable
    from ..kernels.transpose import sizes_of_pairs, transpose_pairs

    n_labels = len(ranker)
    leaves, nodes = labels_and_nodes(tree.rows, n_labels)
    matrices = (*_arrays(ranker), *_arrays(leaves))
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
    transpose_pairs(*matrices, column_of, steps, indptr[:-1].copy(), codes, labels, pairs)
    biases = np.stack([ranker.biases, leaves.biases], axis=1)
    by_word = exact_columns(nodes, NODE_SHARE)
    return MarginTable(column_of, codes, steps, indptr, labels, pairs, biases, by_word, nodes.biases, tree.parents)


def labels_and_nodes(rows: SparseRows, n_labels: int) -> tuple[SparseRows, SparseRows]:
    """The rows of the labels and of the nodes of a tree; without a tree, labels without weights and no nodes."""
    if len(rows) == 0:
        return SparseRows.empty(rows.n_words, n_labels), rows
    end = rows.indptr[n_labels]
    leaves = rows.indptr[: n_labels + 1], rows.words[:end], rows.weights[:end], rows.biases[:n_labels]
    nodes = rows.indptr[n_labels:] - end, rows.words[end:], rows.weights[end:], rows.biases[n_labels:]
    return SparseRows(*leaves, rows.n_words), SparseRows(*nodes, rows.n_words)


def _arrays(rows: SparseRows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return rows.indptr, rows.words, rows.weights
