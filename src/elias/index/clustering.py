"""Clustering of the labels: recursive balanced spherical 2-means over their centroids.

    node of m labels and q clusters: split q into q // 2 and the rest, and the labels in proportion, so that in the
    end the sizes of all clusters differ by at most one, whatever m and q
    2-means: scores = x . (c_left / |c_left| - c_right / |c_right|), the n_left best go left, repeat

In: L x F centroids (rows of length 1 or 0). Out: the cluster of each label, int32, -1 for labels that take no part.
A node's first pair of labels is drawn by a generator keyed on (seed, node), so threads do not change the result.
With more clusters than labels, the clusters that cannot be filled stay empty.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from ..core.errors import InputError
from ..core.rng import generator

__all__ = ["balanced_clusters"]


@dataclass(frozen=True)
class _Node:
    """Labels still to be divided into clusters first_cluster .. first_cluster + n_clusters - 1."""

    number: int  # 1 is the root, 2n and 2n + 1 the children of n
    members: np.ndarray  # label numbers, rising
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
    """The cluster of each label; -1 where the mask `members` is False.

    `progress(levels done, levels)` is called after each level of the tree.
    """
    taking_part = _check(centroids, n_clusters, members, iterations, threads)
    from ..kernels.clustering import split_node  # numba is imported when it is needed

    if isinstance(centroids, np.ndarray):
        nothing = np.zeros(1, dtype=np.int32)
        matrix = (np.ascontiguousarray(centroids, dtype=np.float32), nothing, nothing)
    else:
        matrix = (np.asarray(centroids.data, dtype=np.float32), centroids.indices, centroids.indptr)
    n_columns, own = int(centroids.shape[1]), threading.local()

    def give_scratch() -> None:
        own.scratch = (np.zeros(n_columns), np.zeros(n_columns), np.zeros(n_columns, dtype=np.bool_))

    def divide(node: _Node) -> list[_Node]:
        left_clusters, n_left, n_right = node.sizes()
        goes_left = np.arange(len(node.members)) < n_left
        if n_left and n_right:
            pair = generator("clustering", seed, node.number).choice(len(node.members), 2, replace=False)
            first, second = (int(label) for label in node.members[pair])
            goes_left = split_node(*matrix, node.members, n_left, first, second, iterations, *own.scratch)
        right_clusters = node.n_clusters - left_clusters
        return [
            _Node(2 * node.number, node.members[goes_left], node.first_cluster, left_clusters),
            _Node(2 * node.number + 1, node.members[~goes_left], node.first_cluster + left_clusters, right_clusters),
        ]

    clusters = np.full(centroids.shape[0], -1, dtype=np.int32)
    level = [_Node(1, taking_part, 0, n_clusters)]
    n_levels, done = (n_clusters - 1).bit_length(), 0
    with ThreadPoolExecutor(threads, "clustering", initializer=give_scratch) as pool:
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
        raise InputError("the centroids hold values that are not finite; look for NaN in the features")
    if members is None:
        return np.arange(centroids.shape[0], dtype=np.int64)
    if members.shape != (centroids.shape[0],) or members.dtype != np.bool_:
        raise InputError(f"members must be one bool a label; it is {members.dtype} of shape {members.shape}")
    return np.flatnonzero(members)
