"""A tree of linear classifiers over the labels: a label against those with similar texts, those against the rest.

    leaves of at most 32 labels      balanced clusters of the labels' centroids; 16 of them have one parent, and so on
    margin(x, n) = w_n . x + b_n     of a label or a node n, its own texts against the other texts of its parent
    path(x, l)   = sum over l and the nodes above it of -max(0, 1 - margin)^3      (`closer.py`)

The path is the logarithm of a product of the ranker's q. The ranker learns from what words find wrongly, the tree from
labels with similar texts, level by level; the final score (`fusion.py`) takes both.
In: tf-idf rows and their labels. Out: `LabelTree`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from .. import kernels
from ..core.errors import ModelError
from ..core.files import read_tensors, write_tensors
from ..core.settings import RankerSettings
from ..encoders.centroids import label_centroids, rows_by_label
from ..index.clustering import balanced_clusters
from .linear_ranker import NO_POSITIVES, solve
from .sparse_rows import SparseRows, stacked

NAME = "label_tree.safetensors"
FANOUT = 4  # a node has 2^4 children
WIDEST = 5  # the top has 2^5 nodes at most
ITERATIONS = 8  # of a division of labels in two
LOSS = "squared-hinge"
EPSILON = 0.5  # how tightly a classifier is solved; 0.1 takes half as long again and gains nothing (docs/log.md)
TOP = -1  # the parent of those that have none
PAIRS_AT_A_TIME = 1 << 24
PIECES = 128  # of the nodes that threads take in turn


@dataclass(frozen=True)
class LabelTree:
    """Rows 0 .. L - 1 are labels, those after them nodes, each level after the one below it. No rows: no tree.

    All labels in the tree are equally deep.
    """

    rows: SparseRows
    parents: np.ndarray  # int32 [L + nodes]: a row, or TOP

    @classmethod
    def none(cls, n_words: int) -> LabelTree:
        return cls(SparseRows.nobody(n_words), np.empty(0, dtype=np.int32))

    def save(self, folder: Path) -> None:
        write_tensors(folder / NAME, {**self.rows.arrays("tree"), "parents": self.parents})

    @classmethod
    def load(cls, folder: Path, *, n_labels: int, n_words: int) -> LabelTree:
        path = folder / NAME
        arrays, _ = read_tensors(path)
        parents = arrays.get("parents", np.empty(0))
        rows = SparseRows.from_arrays(arrays, "tree", path, len(parents), n_words)
        inside = parents != TOP
        climbs = (parents >= n_labels) & (parents > np.arange(len(parents))) & (parents < len(parents))
        if parents.dtype != np.int32 or len(parents) < n_labels or not climbs[inside].all():
            raise ModelError(f"{path}: its parents do not fit the other files of this model; restore it from a copy")
        return cls(rows, parents)


def tree_of(folder: Path, is_there: bool, n_labels: int, n_words: int) -> LabelTree:
    """That of a folder; none in models made without one, or before there was any."""
    return LabelTree.load(folder, n_labels=n_labels, n_words=n_words) if is_there else LabelTree.none(n_words)


def grow(
    bow: sp.csr_matrix, labels: sp.csr_matrix, excluded: sp.csr_matrix, settings: RankerSettings, *, seed: int = 0,
    threads: int = 1,
) -> LabelTree:  # fmt: skip
    """The tree of some rows. Labels without a positive stand outside: no weights, no parent, a bias of -1."""
    texts = rows_by_label(labels)
    learned = np.diff(texts.indptr) > 0
    levels, settings = levels_of(int(learned.sum()), settings.leaf), replace(settings, loss=LOSS, epsilon=EPSILON)
    leaf_of = balanced_clusters(
        label_centroids(bow, labels), 1 << levels[0], seed=seed, members=learned, iterations=ITERATIONS, threads=threads
    )
    parts, parents, left_out = [], [], rows_by_label(excluded)
    groups = [leaf_of, *(np.arange(1 << here, dtype=np.int32) >> (here - above) for here, above in pairwise(levels))]
    first = labels.shape[1]  # row of the first parent
    for depth, group in zip(levels, groups, strict=True):
        above = joined(texts, group, 1 << depth)
        parts.append(_solve_level(bow, texts, above, left_out, group, settings, threads))
        parents.append(np.where((group >= 0) & (depth > 0), first + group, TOP).astype(np.int32))
        first += 1 << depth
        texts, left_out = above, nobody(above)
    return LabelTree(stacked(parts), np.concatenate(parents))


def _solve_level(
    bow: sp.csr_matrix, texts: sp.csr_matrix, above: sp.csr_matrix, left_out: sp.csr_matrix, group: np.ndarray,
    settings: RankerSettings, threads: int,
) -> SparseRows:  # fmt: skip
    """One classifier a node, its own texts against the other texts of its parent; some nodes at a time."""
    from ..kernels.pairs import pairs_of_siblings

    most = np.where(group >= 0, np.diff(above.indptr)[group], 0)
    piece, parts = np.cumsum(most) // PAIRS_AT_A_TIME, []
    for number in np.unique(piece):
        nodes = np.flatnonzero(piece == number)
        starts = np.concatenate([[0], np.cumsum(most[nodes])])
        rows, signs = np.empty(starts[-1], dtype=np.int32), np.empty(starts[-1], dtype=np.int8)
        ends = np.empty(len(nodes), dtype=np.int64)
        matrices = (texts.indptr, texts.indices, above.indptr, above.indices, left_out.indptr, left_out.indices)
        kernels.run(pairs_of_siblings, len(nodes), threads, nodes[0], group, *matrices, starts, ends, rows, signs)
        parts.append(
            solve(
                bow,
                starts[:-1],
                ends,
                rows,
                signs,
                settings,
                labels_at_a_time=1 + len(nodes) // PIECES,
                threads=threads,
            )
        )
    solved = stacked(parts)
    solved.biases[group < 0] = NO_POSITIVES
    return solved


def nobody(texts: sp.csr_matrix) -> sp.csr_matrix:
    """As many rows without texts."""
    return sp.csr_matrix((np.empty(0), np.empty(0, dtype=np.int32), np.zeros_like(texts.indptr)), shape=texts.shape)


def joined(texts: sp.csr_matrix, group: np.ndarray, size: int) -> sp.csr_matrix:
    """Groups x rows: the texts of all that are in a group, each once."""
    inside = np.flatnonzero(group >= 0)
    ones = np.ones(len(inside), dtype=np.float32)
    above = sp.csr_matrix(sp.csr_matrix((ones, (group[inside], inside)), shape=(size, len(group))) @ texts)
    above.sort_indices()
    return above


def levels_of(n_labels: int, leaf: int) -> list[int]:
    """Depths of the levels, leaves first and the root last: level d has 2^d nodes."""
    depth = max(0, int(np.ceil(np.log2(max(n_labels, 1) / leaf))))
    levels = [depth]
    while levels[-1] > WIDEST:
        levels.append(levels[-1] - FANOUT)
    return levels if depth == 0 else [*levels, 0]
