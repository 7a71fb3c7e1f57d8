"""Label trees: linear classifiers of a label against labels with similar texts, level by level.

    leaves of at most 32 labels      balanced clusters of the labels' centroids; 16 of them have one parent, and so on
    margin(x, n) = w_n . x + b_n     of a label or a node n: its own texts against the other texts of its parent
    path(x, l)   = sum over l and the nodes above it of -max(0, 1 - margin)^3      (`margins.py`)

The path is the logarithm of a product of the q of the paper's ranker, as in PECOS and Parabel. Several trees with other
clusters and larger leaves make other mistakes, so the feature is the mean of their paths
(docs/experiments/several-label-trees.md). The linear ranker learns from what words retrieve wrongly, the trees from
labels with similar texts; the score model takes both as features. In: tf-idf rows and their labels. Out: `LabelTree`s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from .. import kernels
from ..core import model_schema
from ..core.errors import ModelError
from ..core.files import read_tensors, write_tensors
from ..core.schema import check_arrays
from ..core.settings import LabelTreeSettings, LinearRankerSettings
from ..encoders.centroids import label_centroids, rows_by_label
from ..index.clustering import balanced_clusters
from .linear_ranker import NO_POSITIVES, TrainingPairs, solve
from .sparse_rows import SparseRows, largest_entries, stacked

NAME = "label_tree.safetensors"
FANOUT = 4  # a node has 2^4 children
WIDEST = 5  # the top has 2^5 nodes at most
WORDS = 512  # of the texts of a label, by which labels are clustered
ITERATIONS = 8  # of a division of labels in two
LOSS = "squared-hinge"
TOLERANCE = 0.5  # tolerance of the solver; 0.1 takes half as long again and gains nothing (docs/experiments)
TOP = -1  # the parent of those that have none
PAIRS_AT_ONCE = 1 << 24
PIECES = 128  # of the nodes that threads take in turn


@dataclass(frozen=True)
class LabelTree:
    """Rows 0 .. L - 1 are labels, those after them nodes, each level after the one below it.

    All labels in the tree are equally deep.
    """

    rows: SparseRows
    parents: np.ndarray  # int32 [L + nodes]: a row, or TOP


def save_trees(trees: Sequence[LabelTree], folder: Path) -> None:
    arrays: dict[str, np.ndarray] = {}
    for number, tree in enumerate(trees):
        arrays |= {**tree.rows.coded().arrays(f"tree{number}"), f"parents{number}": tree.parents}
    write_tensors(folder / NAME, arrays)


def load_trees(folder: Path, count: int, *, n_labels: int, n_words: int) -> tuple[LabelTree, ...]:
    """The trees of a folder; refused where they do not fit a model with this number of labels and words."""
    path, trees = folder / NAME, []
    arrays, _ = read_tensors(path)
    for number in range(count):
        found = check_arrays(path, arrays, model_schema.label_tree(number), {"words": n_words})
        parents = found[f"parents{number}"]
        inside = parents != TOP
        climbs = (parents >= n_labels) & (parents > np.arange(len(parents))) & (parents < len(parents))
        if len(parents) < n_labels or not climbs[inside].all():
            raise ModelError(f'{path}: "parents{number}" is no tree of {n_labels} labels; restore it from a copy')
        trees.append(LabelTree(SparseRows.from_arrays(found, f"tree{number}", n_words), parents))
    return tuple(trees)


def build_label_trees(
    bow: sp.csr_matrix, labels: sp.csr_matrix, excluded: sp.csr_matrix, settings: LinearRankerSettings,
    trees: LabelTreeSettings, *, seed: int = 0, threads: int = 1,
) -> tuple[LabelTree, ...]:  # fmt: skip
    """Trees of the same rows: each has clusters of its own, and leaves twice as large as the one before."""
    settings = replace(settings, min_weight=trees.min_weight)
    # A long text has a thousand words, most of them weak, and every text is a negative of many labels.
    bow = largest_entries(bow, trees.words_per_text, threads=threads)
    centroids = largest_entries(label_centroids(bow, labels), WORDS, threads=threads)
    return tuple(
        build_label_tree(
            bow, labels, excluded, settings,
            centroids=centroids, leaf_size=trees.leaf_size << number, seed=seed + number, threads=threads,
        )
        for number in range(trees.trees)
    )  # fmt: skip


def build_label_tree(
    bow: sp.csr_matrix, labels: sp.csr_matrix, excluded: sp.csr_matrix, settings: LinearRankerSettings, *,
    centroids: sp.csr_matrix | np.ndarray | None = None, leaf_size: int = 32, seed: int = 0, threads: int = 1,
) -> LabelTree:  # fmt: skip
    """The tree of some rows. Labels without a positive stay outside: no weights, no parent, a bias of -1.

    `centroids`: of the labels, where they are known.
    """
    texts = rows_by_label(labels)
    learned = np.diff(texts.indptr) > 0
    levels, settings = levels_of(int(learned.sum()), leaf_size), replace(settings, loss=LOSS, tolerance=TOLERANCE)
    centroids = label_centroids(bow, labels) if centroids is None else centroids
    leaf_of = balanced_clusters(
        centroids, 1 << levels[0], seed=seed, members=learned, iterations=ITERATIONS, threads=threads
    )
    parts, parents, masked = [], [], rows_by_label(excluded)
    groups = [leaf_of, *(np.arange(1 << here, dtype=np.int32) >> (here - above) for here, above in pairwise(levels))]
    first = labels.shape[1]  # row of the first parent
    for depth, group in zip(levels, groups, strict=True):
        above = joined(texts, group, 1 << depth)
        parts.append(_solve_level(bow, Level(texts, above, masked, group), settings, threads))
        parents.append(np.where((group >= 0) & (depth > 0), first + group, TOP).astype(np.int32))
        first += 1 << depth
        texts, masked = above, without_entries(above)
    return LabelTree(stacked(parts), np.concatenate(parents))


class Level(NamedTuple):
    """One level of the tree: labels, or nodes, and their parents."""

    texts: sp.csr_matrix  # nodes x rows
    above: sp.csr_matrix  # parents x rows
    masked: sp.csr_matrix  # nodes x rows: pairs that are no negatives
    group: np.ndarray  # the parent of each node, -1 outside the tree


def _solve_level(bow: sp.csr_matrix, level: Level, settings: LinearRankerSettings, threads: int) -> SparseRows:
    """One classifier per node, its own texts against the other texts of its parent; some nodes at a time."""
    most = np.where(level.group >= 0, np.diff(level.above.indptr)[level.group], 0)
    piece, parts = np.cumsum(most) // PAIRS_AT_ONCE, []
    for number in np.unique(piece):
        nodes = np.flatnonzero(piece == number)
        pairs = _sibling_pairs(level, nodes, most[nodes], threads)
        parts.append(solve(bow, pairs, settings, labels_at_once=1 + len(nodes) // PIECES, threads=threads))
    solved = stacked(parts)
    solved.biases[level.group < 0] = NO_POSITIVES
    return solved


def _sibling_pairs(level: Level, nodes: np.ndarray, most: np.ndarray, threads: int) -> TrainingPairs:
    """The texts of the parent of each node, positive where they are the node's own."""
    starts = np.concatenate([[0], np.cumsum(most)])
    rows, signs = np.empty(starts[-1], dtype=np.int32), np.empty(starts[-1], dtype=np.int8)
    ends = np.empty(len(nodes), dtype=np.int64)
    if not kernels.serve():
        for place, node in enumerate(nodes.tolist()):
            own, masked = level.texts[node].indices, level.masked[node].indices
            parent = level.above[level.group[node]].indices if level.group[node] >= 0 else own[:0]
            used = parent[np.isin(parent, own) | ~np.isin(parent, masked)]
            ends[place] = starts[place] + len(used)
            rows[starts[place] : ends[place]] = used
            signs[starts[place] : ends[place]] = np.where(np.isin(used, own), 1, -1)
        return TrainingPairs(starts[:-1], ends, rows, signs)
    from ..kernels.linear_ranker import pairs_of_siblings

    matrices = [part for matrix in level[:3] for part in (matrix.indptr, matrix.indices)]
    kernels.run(pairs_of_siblings, len(nodes), threads, nodes[0], level.group, *matrices, starts, ends, rows, signs)
    return TrainingPairs(starts[:-1], ends, rows, signs)


def without_entries(texts: sp.csr_matrix) -> sp.csr_matrix:
    """A matrix of the same shape without entries."""
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
