"""What an index has learned: edges, clusters of a label, labels of a cluster, sharing by popularity.

"Assigned" means an edge score above 0.25 (`edge_analysis.py`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..core.metrics import deciles, mean_by_decile
from ..model.model import Model
from .edge_analysis import ASSIGNED, clusters_per_label, share_above, stage1_edge_scores

QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class Overview:
    labels: int
    labels_without_edges: int
    clusters: int
    edges: int
    edge_score_quantiles: dict[str, float]
    stage1_edges_kept: float  # share of the stage-1 assignments that are still assigned
    clusters_per_label_by_decile: list[float]  # most popular labels first
    most_shared: list[tuple[str, int]]  # labels assigned to the most clusters
    learned: bool

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def overview(model: Model) -> Overview:
    index = model.searcher.index
    scores, clusters_of = index.edge_scores(), clusters_per_label(index)
    trained = model.stage1_clusters >= 0
    _, by_decile = mean_by_decile(clusters_of[trained], deciles(model.label_counts)[trained])
    kept = share_above(stage1_edge_scores(index, model.stage1_clusters), np.array([ASSIGNED]))
    quantiles = QUANTILES if len(scores) else ()
    shared = np.lexsort((np.arange(len(clusters_of)), -clusters_of))[:10]
    return Overview(
        labels=index.n_labels,
        labels_without_edges=int((np.bincount(index.labels, minlength=index.n_labels) == 0).sum()),
        clusters=index.n_clusters,
        edges=index.n_edges,
        edge_score_quantiles={f"{100 * q:g} %": round(float(np.quantile(scores, q)), 4) for q in quantiles},
        stage1_edges_kept=round(float(kept[0]), 4),
        clusters_per_label_by_decile=[round(mean, 3) for mean in by_decile.tolist() if not np.isnan(mean)],
        most_shared=[(model.labels.ids[label], int(clusters_of[label])) for label in shared],
        learned=index.logits is not None,
    )


def clusters_of_label(model: Model, label: int, most: int = 20) -> list[dict[str, Any]]:
    """The clusters that have an edge to a label, strongest first."""
    index = model.searcher.index
    edges = np.flatnonzero(index.labels == label)
    scores, clusters = index.edge_scores()[edges], index.clusters[edges]
    order = np.lexsort((clusters, -scores))[:most]
    return [
        {
            "cluster": int(clusters[i]),
            "edge_score": round(float(scores[i]), 4),
            "stage1": bool(clusters[i] == model.stage1_clusters[label]),
            "words": model.cluster_words[clusters[i]],
        }
        for i in order
    ]


def labels_of_cluster(model: Model, cluster: int, most: int = 20) -> list[dict[str, Any]]:
    """The labels of a cluster, strongest edge first."""
    index = model.searcher.index
    span = slice(index.indptr[cluster], index.indptr[cluster + 1])
    labels, scores = index.labels[span], index.edge_scores()[span]
    order = np.lexsort((labels, -scores))[:most]
    return [
        {
            "label": model.labels.ids[labels[i]],
            "text": model.labels.texts_to_show[labels[i]],
            "edge_score": round(float(scores[i]), 4),
            "stage1": bool(model.stage1_clusters[labels[i]] == cluster),
        }
        for i in order
    ]
