"""The label index: a sparse graph from clusters to labels, and equation (3), the parents in it.

    (3)  parent of a label = the cluster with the largest softmax_row_c(a)_l among its edges

Edges are ragged rows in CSR form: the edges of cluster c are positions indptr[c] .. indptr[c+1], and
`labels[position]` is where each leads. Stage 1 and stage 2 are two objects of this one type:

    stage 1   logits is None: every edge scores 1, each label has exactly one cluster
    stage 2   logits are learned: (5)  e = min(1, beta * softmax over the row)

There is no pad here: rows are as long as they are, and tensor views that pad are made where they are used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..core.predictions import PAD


@dataclass(frozen=True, kw_only=True)
class LabelIndex:
    """C ragged rows of edges. Labels rise within a row, so equal scores resolve to the lower label."""

    indptr: np.ndarray  # int64 [C + 1]
    labels: np.ndarray  # int32 [edges]
    n_labels: int
    logits: np.ndarray | None = None  # float32 [edges], or None: every edge scores 1
    beta: float = 1.0

    @classmethod
    def from_clusters(cls, cluster_of_label: np.ndarray, n_clusters: int) -> LabelIndex:
        """Stage 1: one edge per label, from its cluster; none where that is PAD."""
        members = np.flatnonzero(cluster_of_label >= 0)
        clusters = cluster_of_label[members]
        order = np.lexsort((members, clusters))
        counts = np.bincount(clusters, minlength=n_clusters)
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return cls(indptr=indptr, labels=members[order].astype(np.int32), n_labels=len(cluster_of_label))

    @property
    def n_clusters(self) -> int:
        return len(self.indptr) - 1

    @property
    def n_edges(self) -> int:
        return len(self.labels)

    @property
    def clusters(self) -> np.ndarray:
        """The cluster each edge starts from, int32 [edges]."""
        return np.repeat(np.arange(self.n_clusters, dtype=np.int32), np.diff(self.indptr))

    def probabilities(self) -> np.ndarray:
        """softmax of the logits over each row (1 in stage 1), float32 [edges]."""
        if self.logits is None or self.n_edges == 0:
            return np.ones(self.n_edges, dtype=np.float32)
        # `reduceat` would return the next row's first value for an empty row, so only the others take part.
        rows = np.diff(self.indptr) > 0
        starts = self.indptr[:-1][rows]
        lengths = np.diff(self.indptr)[rows]
        shifted = np.exp(self.logits - np.repeat(np.maximum.reduceat(self.logits, starts), lengths))
        return np.asarray(shifted / np.repeat(np.add.reduceat(shifted, starts), lengths), dtype=np.float32)

    def edge_scores(self) -> np.ndarray:
        """(5) of every edge, float32 [edges]."""
        if self.logits is None:
            return np.ones(self.n_edges, dtype=np.float32)
        return np.minimum(np.float32(1.0), np.float32(self.beta) * self.probabilities())

    def parents(self) -> np.ndarray:
        """(3) The strongest cluster of every label by unclamped edge probability, int32 [L]; PAD for none.

        Ties go to the lower cluster. Probabilities, not logits: logits of different rows are not comparable.
        """
        clusters, probabilities = self.clusters, self.probabilities()
        strongest = np.full(self.n_labels, -1.0, dtype=np.float32)
        np.maximum.at(strongest, self.labels, probabilities)
        wins = np.flatnonzero(probabilities == strongest[self.labels])
        parents = np.full(self.n_labels, self.n_clusters, dtype=np.int32)
        np.minimum.at(parents, self.labels[wins], clusters[wins])
        return np.where(parents < self.n_clusters, parents, np.int32(PAD))

    def by_label(self) -> tuple[np.ndarray, np.ndarray]:
        """The edges grouped by label: (indptr [L + 1], positions of each label's edges, by ascending cluster)."""
        positions = np.argsort(self.labels, kind="stable")
        counts = np.bincount(self.labels, minlength=self.n_labels)
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), positions

    def positions_of(self, clusters_U: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The edges of some clusters, row after row: (indptr [U + 1], positions)."""
        lengths = np.diff(self.indptr)[clusters_U]
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        shift = np.repeat(self.indptr[:-1][clusters_U] - indptr[:-1], lengths)
        return indptr, np.arange(indptr[-1], dtype=np.int64) + shift

    def prune(self, *, keep: int | None = None, below: float = 0.0, keep_parents: bool = False) -> LabelIndex:
        """Keep the `keep` strongest edges of every cluster, and of them those that score at least `below`, by (5).

        The softmax is then over the survivors. `keep_parents`: every label's strongest edge stays too, so that no
        label becomes unreachable.
        """
        probabilities, clusters = self.probabilities(), self.clusters
        kept = self.edge_scores() >= below
        if keep is not None:
            order = np.lexsort((self.labels, -probabilities, clusters))
            rank = np.empty(self.n_edges, dtype=np.int64)
            rank[order] = np.arange(self.n_edges) - np.repeat(self.indptr[:-1], np.diff(self.indptr))
            kept &= rank < keep
        if keep_parents:
            kept |= self.parents()[self.labels] == clusters
        counts = np.bincount(clusters[kept], minlength=self.n_clusters)
        return replace(
            self,
            indptr=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            labels=self.labels[kept],
            logits=None if self.logits is None else self.logits[kept],
        )

    def n_reachable(self) -> int:
        """Labels with an edge: the others can never be predicted."""
        return len(np.unique(self.labels))
