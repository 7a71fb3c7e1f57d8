"""Margins of the linear ranker and paths of the label trees for given labels, from one table.

    margin(x, l) = w_l . x + b_l
    path(x, l)   = mean over the trees of the path in each:
                   sum over l and the nodes above it of -max(0, 1 - margin in the tree)^3,   at least LOWEST

All are linear in the words of a text, so their weights are stored side by side (`kernels/margins.py`): the weights of
common words by label, any other word as a list of labels; quantized to 8 bits where there are many labels.
In: the rows of a linear ranker and some `LabelTree`s. Out: margins and paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from .. import kernels
from ..core.files import give_back
from .label_tree import TOP, LabelTree
from .sparse_rows import QUANTIZED_FROM, SparseRows, coded_columns, csr_arrays, exact_columns, stacked

if TYPE_CHECKING:
    from ..kernels.inverted_index import Postings
    from ..kernels.margins import MarginSums, MarginTable

COMMON_SHARE = 8  # a word that more than 1 / 16 of the labels have is common
NODE_SHARE = 4  # the same for nodes of the tree, which are all summed
LOWEST = -10.0  # of a path: below, differences carry no information


class Margins:
    """Holds no state of a query; any number of threads may call it."""

    def __init__(self, ranker: SparseRows, trees: Sequence[LabelTree], n_words: int) -> None:
        self.ranker, self.trees, self.n_words = ranker, tuple(trees), n_words

    @cached_property
    def table(self) -> MarginTable:
        """As the kernels read it; made at the first call."""
        kind = np.int8 if len(self.ranker) >= QUANTIZED_FROM else np.float32
        table = margin_table(self.ranker, self.trees, self.n_words, np.dtype(kind))
        for rows in (self.ranker, *(tree.rows for tree in self.trees)):
            give_back(rows.words, rows.weights)
        return table

    def new_sums(self) -> MarginSums:
        """Scratch of one thread."""
        from ..kernels.margins import COLUMNS, MarginSums

        n_labels = len(self.ranker)
        n_nodes = sum(len(tree.parents) - n_labels for tree in self.trees)
        return MarginSums(np.zeros((n_labels, COLUMNS), dtype=np.float32), np.empty(n_nodes, dtype=np.float32))

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
        """Tree by tree and label by label, up to the top."""
        out = np.zeros(labels.shape, dtype=np.float32)
        for tree in self.trees:
            margins = np.asarray((x @ tree.rows.to_csr().T).todense()) + tree.rows.biases
            for row, column in zip(*np.nonzero(labels >= 0), strict=True):
                node, total = labels[row, column], 0.0
                while node != TOP:
                    total -= max(0.0, 1.0 - margins[row, node]) ** 3
                    node = tree.parents[node]
                out[row, column] += max(total, LOWEST) / len(self.trees)
        return out


def margin_table(ranker: SparseRows, trees: Sequence[LabelTree], n_words: int, kind: np.dtype) -> MarginTable:
    """The table; `kind` of its numbers is int8, int16 or float32."""
    from ..kernels.margins import COLUMNS, MarginTable
    from ..kernels.transpose import sizes_side_by_side, transpose_side_by_side

    n_labels = len(ranker)
    parts = [labels_and_nodes(tree.rows, n_labels) for tree in trees]
    of_nodes, node_steps, node_biases = _node_columns([nodes for _, nodes in parts], n_words, kind)
    for tree in trees:
        give_back(tree.rows.words, tree.rows.weights)
    matrices = tuple(_arrays(rows) for rows in (ranker, *(leaves for leaves, _ in parts)))
    sizes, largest = sizes_side_by_side(matrices, n_words, COLUMNS)
    common = np.flatnonzero(sizes * COMMON_SHARE > n_labels)
    column_of = np.full(n_words, -1, dtype=np.int32)
    column_of[common] = np.arange(len(common), dtype=np.int32)
    steps = np.ones((n_words, COLUMNS), dtype=np.float32)
    if kind != np.float32:
        steps = np.where(largest > 0, largest / np.iinfo(kind).max, 1).astype(np.float32)
    indptr = np.concatenate([[0], np.cumsum(np.where(column_of < 0, sizes, 0))]).astype(np.int64)
    codes = np.zeros((n_labels, COLUMNS * len(common)), dtype=kind)
    labels, listed = np.empty(indptr[-1], dtype=np.uint32), np.zeros((indptr[-1], COLUMNS), dtype=kind)
    transpose_side_by_side(matrices, column_of, steps, indptr[:-1].copy(), codes, labels, listed)
    biases = np.zeros((n_labels, COLUMNS), dtype=np.float32)
    for which, rows in enumerate((ranker, *(leaves for leaves, _ in parts))):
        biases[:, which] = rows.biases
    starts = np.cumsum([0, *(len(nodes) for _, nodes in parts)])  # of the nodes of each tree among all
    numbers = [
        np.where(tree.parents == TOP, TOP, tree.parents - n_labels + start)
        for tree, start in zip(trees, starts[:-1], strict=True)
    ]
    leaf_of = np.stack([found[:n_labels] for found in numbers], axis=1) if trees else np.empty((n_labels, 0))
    parents = np.concatenate([np.empty(0), *(found[n_labels:] for found in numbers)])
    return MarginTable(
        column_of, codes, steps, indptr, labels, listed, biases, of_nodes, node_steps, node_biases,
        np.ascontiguousarray(leaf_of, dtype=np.int32), parents.astype(np.int32),
    )  # fmt: skip


def _node_columns(trees: Sequence[SparseRows], n_words: int, kind: np.dtype) -> tuple[Postings, np.ndarray, np.ndarray]:
    """(nodes of all trees by word, steps of the words, biases).

    Made first: its exact copies of the nodes are gone when the rest of the table is allocated.
    """
    nodes = stacked([SparseRows.empty(n_words), *(rows.decoded() for rows in trees)])
    return *coded_columns(exact_columns(nodes, NODE_SHARE), kind), nodes.biases


def labels_and_nodes(rows: SparseRows, n_labels: int) -> tuple[SparseRows, SparseRows]:
    """The rows of the labels and of the nodes of a tree."""
    end = rows.indptr[n_labels]
    leaves = rows.indptr[: n_labels + 1], rows.words[:end], rows.weights[:end], rows.biases[:n_labels]
    nodes = rows.indptr[n_labels:] - end, rows.words[end:], rows.weights[end:], rows.biases[n_labels:]
    steps = (None, None) if rows.steps is None else (rows.steps[:n_labels], rows.steps[n_labels:])
    return SparseRows(*leaves, rows.n_words, steps[0]), SparseRows(*nodes, rows.n_words, steps[1])


def _arrays(rows: SparseRows) -> tuple[np.ndarray, ...]:
    """(indptr, words, weights, steps of the rows); read-only, whether they are of a file or of memory, so that kernels
    see arrays of one type."""
    steps = np.ones(len(rows), dtype=np.float32) if rows.steps is None else rows.steps
    views = rows.indptr.view(), rows.words.view(), rows.weights.view(), steps.view()
    for view in views:
        view.flags.writeable = False
    return views
