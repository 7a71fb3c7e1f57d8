"""The edges of a learned index: how their scores are distributed, and what is left of the clusters of stage 1.

"Assigned" means an edge score above 0.25, as in the paper's figures 3, 7a, 7b, 8 and 9.

In: edge scores e (equation (5)), an index, the stage-1 cluster of each label (PAD: none). Out: counts and shares.
"""

from __future__ import annotations

import numpy as np

from ..index.label_index import LabelIndex

ASSIGNED = 0.25


def edge_histogram(scores: np.ndarray, bins: int) -> np.ndarray:
    """How many scores fall into each of `bins` intervals of equal width from 0 to 1; 1 belongs to the last."""
    return np.histogram(scores, bins=bins, range=(0.0, 1.0))[0]


def share_above(scores: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """The share of scores above each threshold; 0 of none."""
    # A score is stored as float32: compared with the float64 threshold 0.1, the nearest float32 to 0.1 would be above.
    rising, limits = np.sort(scores.astype(np.float32)), np.asarray(thresholds, dtype=np.float32)
    above = len(rising) - np.searchsorted(rising, limits, side="right")
    return np.asarray(above / max(1, len(rising)))


def stage1_edge_scores(index: LabelIndex, stage1_clusters: np.ndarray) -> np.ndarray:
    """For each label that has a cluster in stage 1, the score of the edge from it; 0 where that edge is gone."""
    found = np.zeros(index.n_labels, dtype=np.float32)
    home = stage1_clusters[index.labels] == index.clusters
    found[index.labels[home]] = index.edge_scores()[home]
    return found[stage1_clusters >= 0]


def clusters_per_label(index: LabelIndex) -> np.ndarray:
    """The number of clusters that each label is assigned to."""
    return np.bincount(index.labels[index.edge_scores() > ASSIGNED], minlength=index.n_labels)
