"""Equations (9) and (10): the edges that stage 2 starts with, from the beams of the training rows.

    (9)   M = N x C, s_c at each training row's beam, 0 elsewhere;   A' = M^T Y
    (10)  row c keeps its kappa largest entries of A' as edges

Every label with a training row keeps at least one edge on top of kappa, since a label without an edge could never be
predicted: its best cluster in A', else its stage-1 cluster. Those rescues are counted. Logits start as log A' (softmax
proportional to the counts) or uniform(0, 1).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np
import scipy.sparse as sp

from .label_index import LabelIndex

PENDING = 16  # products that are added up at once: adding each to a large sum would copy the sum each time


@dataclass(frozen=True)
class Adjacency:
    """The learnable index, and how many labels it would have lost without their rescue."""

    index: LabelIndex
    rescued_by_matching: int  # labels outside every cluster's kappa, kept at their best cluster of A'
    rescued_by_cluster: int  # labels without an entry in A', kept at their stage-1 cluster


def matching(beams: Iterable[tuple[np.ndarray, np.ndarray]], labels: sp.csr_matrix, n_clusters: int) -> sp.csr_matrix:
    """(9) A' = M^T Y, C x L. `beams`: (clusters, s_c) of the beam of each training row, batch after batch."""
    empty = (np.empty(0, dtype=np.float32), (np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32)))
    sums = [sp.csr_matrix(empty, shape=(n_clusters, labels.shape[1]))]
    start = 0
    for clusters_BT, scores_BT in beams:
        stop = start + len(clusters_BT)
        row_of = np.repeat(np.arange(len(clusters_BT)), clusters_BT.shape[1])
        entries = (scores_BT.ravel(), (clusters_BT.ravel(), row_of))
        sums.append(sp.csr_matrix(entries, shape=(n_clusters, len(clusters_BT))) @ labels[np.arange(start, stop)])
        if len(sums) == PENDING:
            sums = [reduce(add, sums)]
        start = stop
    assert start == labels.shape[0], "a beam for every row"
    return reduce(add, sums)


def learnable_index(
    counts: sp.csr_matrix,
    cluster_of_label: np.ndarray,
    *,
    kappa: int,
    beta: float,
    logits: str,
    rng: np.random.Generator,
) -> Adjacency:
    """(10) from A', with rescues. `logits` is "counts" or "random"."""
    if not counts.data.all():
        counts = counts.copy()  # the caller's stays as it is
        counts.eliminate_zeros()
    clusters = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    order = np.lexsort((counts.indices, -counts.data, clusters))
    rank = np.empty(counts.nnz, dtype=np.int64)
    rank[order] = np.arange(counts.nnz) - np.repeat(counts.indptr[:-1], np.diff(counts.indptr))
    kept = rank < kappa

    # Rescue by matching: the first entry of each label in order of (label, descending count, cluster) is its best one.
    best_first = np.lexsort((clusters, -counts.data, counts.indices))
    known, first = np.unique(counts.indices[best_first], return_index=True)
    missing = ~np.isin(known, counts.indices[kept])
    rescued = best_first[first[missing]]
    kept[rescued] = True
    trained = np.flatnonzero(cluster_of_label >= 0)
    unknown = np.setdiff1d(trained, known)

    edge_clusters = np.concatenate([clusters[kept], cluster_of_label[unknown]])
    edge_labels = np.concatenate([counts.indices[kept], unknown])
    # An edge that A' does not know starts as weak as the weakest that it knows: log 0 would be -inf.
    floor = float(counts.data.min()) if counts.nnz else 1.0
    strength = np.concatenate([counts.data[kept], np.full(len(unknown), floor, dtype=np.float32)])
    order = np.lexsort((edge_labels, edge_clusters))
    per_row = np.bincount(edge_clusters, minlength=counts.shape[0])
    values = np.log(strength[order]) if logits == "counts" else rng.uniform(0.0, 1.0, len(order))
    index = LabelIndex(
        indptr=np.concatenate([[0], np.cumsum(per_row)]).astype(np.int64),
        labels=edge_labels[order].astype(np.int32),
        n_labels=counts.shape[1],
        logits=values.astype(np.float32),
        beta=beta,
    )
    return Adjacency(index, int(missing.sum()), len(unknown))
