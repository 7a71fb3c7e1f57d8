"""What the index has learned, asked one label or one cluster at a time; and as a whole.

Edge scores (5) and the graph seen from the labels are computed once for a model.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch

from ..evaluation.inspect import ASSIGNED, overview
from ..model.model import Model

NEAREST = 10
MOST_CLUSTERS = 50  # of a label
MOST_COMPARED = 20_000  # labels a label is compared with
HISTOGRAM = 20


class Explorer:
    def __init__(self, model: Model) -> None:
        self.model = model
        self.index = model.finder.index
        self.edge_scores: np.ndarray = model.finder.edge_scores.cpu().numpy()
        self.indptr_L, self.edges_L = self.index.by_label()
        self.clusters_F = self.index.clusters

    def label(self, number: int) -> dict[str, Any]:
        model = self.model
        home = int(model.stage1_clusters[number])
        return {
            **self._named(number),
            "training_count": int(model.label_counts[number]),
            "stage1_cluster": home if home >= 0 else None,
            "clusters_total": len(self._edges_of(number)),
            "clusters": self._clusters_of(number),
            "nearest": self._nearest(number),
        }

    def cluster(self, cluster: int, most: int) -> dict[str, Any]:
        model, index = self.model, self.index
        span = slice(int(index.indptr[cluster]), int(index.indptr[cluster + 1]))
        labels, scores = index.labels[span], self.edge_scores[span]
        order = np.lexsort((labels, -scores))[:most]
        return {
            "cluster": cluster,
            "words": model.cluster_words[cluster],
            "total": len(labels),
            "stage1_total": int((model.stage1_clusters == cluster).sum()),
            "labels": [
                {
                    **self._named(int(labels[place])),
                    "edge_score": _rounded(scores[place]),
                    "stage1": bool(model.stage1_clusters[labels[place]] == cluster),
                    "training_count": int(model.label_counts[labels[place]]),
                }
                for place in order
            ],
        }

    @cached_property
    def overview(self) -> dict[str, Any]:
        """The whole index in one picture; computed when it is first asked for."""
        found = overview(self.model).as_dict()
        histogram, _ = np.histogram(self.edge_scores, bins=HISTOGRAM, range=(0.0, 1.0))
        number_of = self.model.labels.number_of
        shared = [{**self._named(number_of[label]), "clusters": n} for label, n in found.pop("most_shared")]
        sizes = np.bincount(self.clusters_F[self.edge_scores > ASSIGNED], minlength=self.index.n_clusters)
        largest = np.lexsort((np.arange(len(sizes)), -sizes))[:12].tolist()
        return {
            **found,
            "assigned": ASSIGNED,
            "edge_score_histogram": histogram.tolist(),
            "most_shared": shared,
            "largest_clusters": [
                {"cluster": c, "labels": int(sizes[c]), "words": self.model.cluster_words[c]} for c in largest
            ],
        }

    def _clusters_of(self, number: int) -> list[dict[str, Any]]:
        edges = self._edges_of(number)
        home = self.model.stage1_clusters[number]
        order = np.lexsort((self.clusters_F[edges], -self.edge_scores[edges]))[:MOST_CLUSTERS]
        return [
            self._cluster(
                int(self.clusters_F[edge]), float(self.edge_scores[edge]), bool(self.clusters_F[edge] == home)
            )
            for edge in edges[order]
        ]

    def _nearest(self, number: int) -> list[dict[str, Any]]:
        """By cosine between classifiers, among the labels that share its clusters."""
        edges = self._edges_of(number)
        strongest = self.clusters_F[edges[np.argsort(-self.edge_scores[edges], kind="stable")]]
        spans = [self.index.labels[self.index.indptr[c] : self.index.indptr[c + 1]] for c in strongest[:20]]
        others = np.unique(np.concatenate([*spans, np.empty(0, np.int32)]))[:MOST_COMPARED]
        others = others[others != number]
        if len(others) == 0:
            return []
        table = self.model.network.classifier_weights
        with torch.no_grad():
            rows = table.gather(torch.from_numpy(np.append(others, number).astype(np.int64))).cpu().numpy()
        norms = np.maximum(np.linalg.norm(rows, axis=1), 1e-12)
        cosines = (rows[:-1] @ rows[-1]) / (norms[:-1] * norms[-1])
        order = np.lexsort((others, -cosines))[:NEAREST]
        return [{**self._named(int(others[i])), "similarity": _rounded(cosines[i])} for i in order]

    def _edges_of(self, number: int) -> np.ndarray:
        return self.edges_L[self.indptr_L[number] : self.indptr_L[number + 1]]

    def _cluster(self, cluster: int, score: float, stage1: bool) -> dict[str, Any]:
        return {
            "cluster": cluster,
            "edge_score": _rounded(score),
            "stage1": stage1,
            "words": self.model.cluster_words[cluster],
        }

    def _named(self, number: int) -> dict[str, Any]:
        return {"label": self.model.labels.ids[number], "text": self.model.labels.texts[number]}


def _rounded(value: Any) -> float:
    return float(f"{float(value):.6g}")
