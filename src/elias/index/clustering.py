"""Clustering of the labels: recursive balanced spherical 2-means over their centroids.

    node of m labels and q clusters: split q into q // 2 and the rest, and the labels in proportion, so that in the
    end the sizes of all clusters differ by at most one, whatever m and q
    2-means: scores = x . (c_left / |c_left| - c_right / |c_right|), the n_left best go left; c is the sum of a side's
    centroids; repeat until no label changes sides

In: L x F centroids (rows of length 1 or 0). Out: the cluster of each label, int32, PAD for labels that take no part.
`split_reference` is the definition of one split; `kernels/clustering.py` does the same without a copy of the rows.
A node's first pair of labels is drawn by a generator keyed on (seed, node), so threads do not change the result.
With more clusters than labels, the clusters that cannot be filled stay empty.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from .. import kernels
from ..core.errors import InputError
from ..core.files import read_tensors
from ..core.predictions import PAD
from ..core.rng import generator
from ..core.scratch import ScratchPool
from ..encoders.centroids import normalize_rows

# (members, labels that go left, the places of the first pair, iterations) -> True for each member that goes left
Split = Callable[[np.ndarray, int, np.ndarray, int], np.ndarray]


@dataclass(frozen=True)
class _Node:
    """Labels still to be divided into clusters first_cluster .. first_cluster + n_clusters - 1."""

    number: int  # 1 is the root, 2n and 2n + 1 the children of n
    members: np.ndarray  # label numbers, ascending
    first_cluster: int
    n_clusters: int

    def sizes(self) -> tuple[int, int, int]:
        """Clusters on the left, labels on the left, labels on the right."""
        left_clusters = self.n_clusters // 2
        size, larger = divmod(len(self.members), self.n_clusters)  # `larger` clusters have one label more
        n_left = left_clusters * size + larger * left_clusters // self.n_clusters
        return left_clusters, n_left, len(self.members) - n_left


def balanced_clusters(
    centroids: sp.csr_matrix | np.ndarray,
    n_clusters: int,
    *,
    seed: int,
    members: np.ndarray | None = None,
    iterations: int = 20,
    threads: int = 2,
    progress: Callable[[int, int], None] | None = None,
) -> np.ndarray:
    """The cluster of each label; PAD where the mask `members` is False.

    `progress(levels done, levels)` is called after each level of the tree.
    """
    taking_part = _check(centroids, n_clusters, members, iterations, threads)
    # Decided here: the threads of a pool do not inherit `kernels.reference()`.
    split = _split_by_kernel(centroids) if kernels.serve() else partial(split_reference, centroids)

    def divide(node: _Node) -> list[_Node]:
        left_clusters, n_left, n_right = node.sizes()
        goes_left = np.arange(len(node.members)) < n_left
        if n_left and n_right:
            pair = generator("clustering", seed, node.number).choice(len(node.members), 2, replace=False)
            goes_left = split(node.members, n_left, pair, iterations)
        right_clusters = node.n_clusters - left_clusters
        return [
            _Node(2 * node.number, node.members[goes_left], node.first_cluster, left_clusters),
            _Node(2 * node.number + 1, node.members[~goes_left], node.first_cluster + left_clusters, right_clusters),
        ]

    clusters = np.full(centroids.shape[0], PAD, dtype=np.int32)
    level = [_Node(1, taking_part, 0, n_clusters)]
    n_levels, done = (n_clusters - 1).bit_length(), 0
    with ThreadPoolExecutor(threads, "clustering") as pool:
        while level:
            for node in level:
                if node.n_clusters == 1:
                    clusters[node.members] = node.first_cluster
            pairs = pool.map(divide, [node for node in level if node.n_clusters > 1 and len(node.members)])
            level = [child for pair in pairs for child in pair]
            done += 1
            if progress is not None and done <= n_levels:
                progress(done, n_levels)
    return clusters


def split_reference(
    centroids: sp.csr_matrix | np.ndarray, members: np.ndarray, n_left: int, pair: np.ndarray, iterations: int
) -> np.ndarray:
    """One balanced 2-means: True for the members that go left. `pair` holds the places of the first two centers."""
    x = centroids[members].astype(np.float32).astype(np.float64)
    left, right, goes_left = x[pair[:1]], x[pair[1:]], np.zeros(len(members), dtype=np.bool_)
    for iteration in range(iterations):
        direction = _unit(left) - _unit(right)
        # Rounded, so that equal labels tie whatever the order of sums; the sort is stable: ties to the lower label.
        scores = (x @ direction).astype(np.float32)
        now_left = np.zeros_like(goes_left)
        now_left[np.argsort(-scores, kind="stable")[:n_left]] = True
        if iteration and np.array_equal(now_left, goes_left):
            break
        goes_left = now_left
        left, right = x[goes_left], x[~goes_left]
    return goes_left


def _unit(rows: sp.csr_matrix | np.ndarray) -> np.ndarray:
    """The sum of some rows, scaled to length 1; 0 stays 0."""
    total = np.asarray(rows.sum(axis=0)).ravel()
    length = float(np.linalg.norm(total))
    return total / length if length else total


def _split_by_kernel(centroids: sp.csr_matrix | np.ndarray) -> Split:
    from ..kernels.clustering import split_node  # numba is imported when it is needed

    if isinstance(centroids, np.ndarray):
        unused = np.zeros(1, dtype=np.int32)
        matrix = (np.ascontiguousarray(centroids, dtype=np.float32), unused, unused)
    else:
        matrix = (np.asarray(centroids.data, dtype=np.float32), centroids.indices, centroids.indptr)
    n_columns = int(centroids.shape[1])
    # Sums of a side and marks of columns are as long as there are columns, and all zero between two splits.
    scratches = ScratchPool(lambda _: (np.zeros(n_columns), np.zeros(n_columns), np.zeros(n_columns, dtype=np.bool_)))

    def split(members: np.ndarray, n_left: int, pair: np.ndarray, iterations: int) -> np.ndarray:
        scratch = scratches.take()
        first, second = (int(label) for label in members[pair])
        goes_left: np.ndarray = split_node(*matrix, members, n_left, first, second, iterations, *scratch)
        scratches.give_back(scratch)
        return goes_left

    return split


def extended_clusters(
    clusters: np.ndarray, centroids: sp.csr_matrix, members: np.ndarray, n_clusters: int
) -> np.ndarray:
    """`clusters` with every label of the mask `members` in one: a new label in that of the nearest mean of centroids.

    Clusters that were balanced are no longer quite so.
    """
    known, new = np.flatnonzero(clusters >= 0), np.flatnonzero(members & (clusters < 0))
    ones = np.ones(len(known), dtype=np.float32)
    sums = sp.csr_matrix((ones, (clusters[known], known)), shape=(n_clusters, len(clusters))) @ centroids
    scores = sp.csr_matrix(centroids[new]) @ normalize_rows(sp.csr_matrix(sums)).T
    extended = clusters.copy()
    extended[new] = np.asarray(scores.argmax(axis=1)).ravel()
    return extended


def _check(
    centroids: sp.csr_matrix | np.ndarray,
    n_clusters: int,
    members: np.ndarray | None,
    iterations: int,
    threads: int,
) -> np.ndarray:
    """The numbers of the labels that take part."""
    for name, value in (("n_clusters", n_clusters), ("iterations", iterations), ("threads", threads)):
        if value < 1:
            raise InputError(f"{name} is {value}; it must be 1 or more")
    values = centroids if isinstance(centroids, np.ndarray) else centroids.data
    if not np.isfinite(values).all():
        raise InputError("the centroids hold values that are not finite; check the features for NaN")
    if members is None:
        return np.arange(centroids.shape[0], dtype=np.int64)
    if members.shape != (centroids.shape[0],) or members.dtype != np.bool_:
        raise InputError(f"members must be one bool per label; it is {members.dtype} of shape {members.shape}")
    return np.flatnonzero(members)


def read_clusters(folder: Path) -> np.ndarray:
    """The cluster of each label, from the folder of a step."""
    return read_tensors(folder / "clusters.safetensors")[0]["cluster_of_label"]
