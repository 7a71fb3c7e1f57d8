"""Maps of single labels: t-SNE of the texts of a label among the texts of its clusters (the paper's figures 8 and 9).

    labels       frequent ones with 2 to 5 strong edges (e > 0.25), and with one; no two with the same strongest cluster
    a label      at most 40 of its texts
    background   at most 120 texts without the label that belong to its clusters (s_c > 0.25), evenly over the clusters;
                 a text of several of them counts for the one with the largest s_c
    map          t-SNE of phi, one per label

In: the assigned clusters of each label, rows x L labels, and of some encoded rows phi and s_c. Out: points.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from ..core.predictions import PAD
from ..core.rng import generator
from ..index.label_index import LabelIndex
from .edge_analysis import ASSIGNED

OWN, BACKGROUND = 40, 120  # texts per map, at most: 12 maps of them are 1,920 points
LEAST_OWN = 5  # texts of a label, below which there is nothing to see
PERPLEXITY = 30.0


class LabelMap(NamedTuple):
    label: int
    clusters: np.ndarray  # that the label is assigned to, strongest edge first
    points: np.ndarray  # [n, 2], each column from 0 to 1
    places: np.ndarray  # [n]: the place in `clusters` of the cluster that a text belongs to; PAD: a text of the label


class EncodedRows(NamedTuple):
    """Rows as the network sees them."""

    numbers: np.ndarray  # rising
    phi: np.ndarray  # [rows, D]
    clusters: sp.csr_matrix  # [rows, C]: s_c where it is above 0.25


def choose_labels(
    n_clusters: np.ndarray, n_texts: np.ndarray, parents: np.ndarray, edges: tuple[int, int], count: int
) -> np.ndarray:
    """Of the labels with so many clusters (fewest, most), the `count` with the most texts, no two of one parent.

    Ties go to the lower label. Without the rule for parents one topic with many frequent labels would fill a figure.
    """
    usable = (n_clusters >= edges[0]) & (n_clusters <= edges[1]) & (n_texts >= LEAST_OWN)
    order = np.lexsort((np.arange(len(n_texts)), -n_texts))
    order = order[usable[order]]
    _, firsts = np.unique(parents[order], return_index=True)
    return np.asarray(order[np.sort(firsts)[:count]])


def assigned_clusters(index: LabelIndex, label: int) -> np.ndarray:
    """The clusters that a label is assigned to, strongest edge first."""
    edges = np.flatnonzero(index.labels == label)
    scores, clusters = index.edge_scores()[edges], index.clusters[edges]
    order = np.lexsort((clusters, -scores))
    return np.asarray(clusters[order][scores[order] > ASSIGNED])


def own_rows(labels_by_text: sp.csc_matrix, label: int) -> np.ndarray:
    """At most `OWN` rows that have the label, rising."""
    rows = labels_by_text.indices[labels_by_text.indptr[label] : labels_by_text.indptr[label + 1]]
    return some_of(np.sort(rows), OWN, "own texts", label)


def background_rows(clusters_of_rows: sp.csr_matrix, clusters: np.ndarray, label: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows, place in `clusters`) of at most `BACKGROUND` rows that belong to one of the clusters, evenly over them."""
    scores = clusters_of_rows[:, clusters].toarray()
    best, belongs = scores.argmax(axis=1), scores.max(axis=1) > 0
    share = BACKGROUND // max(1, len(clusters))
    chosen = [
        some_of(np.flatnonzero(belongs & (best == place)), share, "background", label, place)
        for place in range(len(clusters))
    ]
    places = np.repeat(np.arange(len(clusters)), [len(rows) for rows in chosen])
    return np.concatenate([np.zeros(0, np.int64), *chosen]), places


def label_map(label: int, clusters: np.ndarray, labels_by_text: sp.csc_matrix, encoded: EncodedRows) -> LabelMap:
    """The map of one label; its own texts must be among the encoded rows."""
    own = np.searchsorted(encoded.numbers, own_rows(labels_by_text, label))
    has = np.zeros(labels_by_text.shape[0], dtype=np.bool_)
    has[labels_by_text.indices[labels_by_text.indptr[label] : labels_by_text.indptr[label + 1]]] = True
    others = np.flatnonzero(~has[encoded.numbers])
    found, places = background_rows(encoded.clusters[others], clusters, label)
    points = tsne(encoded.phi[np.concatenate([others[found], own])])
    return LabelMap(label, clusters, points, np.concatenate([places, np.full(len(own), PAD)]))


def tsne(vectors: np.ndarray) -> np.ndarray:
    """Two dimensions by t-SNE of vectors of length 1, each scaled to 0 .. 1."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    perplexity = min(PERPLEXITY, (len(unit) - 1) / 3)
    # All equal: PCA, from which t-SNE starts, divides by their spread.
    start = "pca" if len(unit) > 1 and unit.std(axis=0).max() > 0 else "random"
    with threadpool_limits(1):  # so few points keep no second thread busy, and sums have one order
        points = TSNE(perplexity=perplexity, init=start, random_state=0, n_jobs=1).fit_transform(unit)
    low, high = points.min(axis=0), points.max(axis=0)
    scaled: np.ndarray = (points - low) / np.maximum(high - low, 1e-12)
    return scaled


def some_of(rows: np.ndarray, most: int, *place: int | str) -> np.ndarray:
    """At most so many of the rows, in their order; the same ones in every run."""
    if len(rows) <= most:
        return rows
    return np.sort(generator(0, "report", *place).choice(rows, most, replace=False))
