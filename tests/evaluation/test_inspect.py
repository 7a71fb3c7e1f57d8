"""What an index has learned, against a slow count over its edges."""

from __future__ import annotations

import json

import numpy as np
import pytest

from elias.evaluation.edge_analysis import ASSIGNED
from elias.evaluation.inspect import clusters_of_label, labels_of_cluster, overview
from elias.model.model import Model


def edges_of(model: Model) -> list[tuple[int, int, float]]:
    index = model.searcher.index
    scores = index.edge_scores()
    return [
        (cluster, int(index.labels[place]), float(scores[place]))
        for cluster in range(index.n_clusters)
        for place in range(index.indptr[cluster], index.indptr[cluster + 1])
    ]


def test_overview(tiny_model: Model) -> None:
    found, edges = overview(tiny_model), edges_of(tiny_model)
    assert (found.labels, found.clusters, found.edges, found.learned) == (60, 4, len(edges), True)
    assert found.labels_without_edges == 0
    strong = [(cluster, label) for cluster, label, score in edges if score > ASSIGNED]
    kept = [pair for pair in strong if tiny_model.stage1_clusters[pair[1]] == pair[0]]
    assert found.stage1_edges_kept == pytest.approx(len(kept) / 60, abs=1e-4)
    name, count = found.most_shared[0]
    assert count == max(np.bincount([label for _, label in strong]))
    assert count == sum(label == tiny_model.labels.number_of[name] for _, label in strong)
    assert len(found.clusters_per_label_by_decile) == 10
    json.dumps(found.as_dict())


def test_one_label_and_one_cluster(tiny_model: Model) -> None:
    edges = edges_of(tiny_model)
    for label in (0, 17, 59):
        found = clusters_of_label(tiny_model, label)
        assert [item["cluster"] for item in found] == [
            cluster for cluster, _, _ in sorted((e for e in edges if e[1] == label), key=lambda e: (-e[2], e[0]))
        ]
        assert sum(item["stage1"] for item in found) <= 1
        assert all(item["words"] for item in found)
    for cluster in range(4):
        strongest = sorted((e for e in edges if e[0] == cluster), key=lambda e: (-e[2], e[1]))[:20]
        found = labels_of_cluster(tiny_model, cluster)
        assert [item["label"] for item in found] == [tiny_model.labels.ids[label] for _, label, _ in strongest]
        json.dumps(found)
