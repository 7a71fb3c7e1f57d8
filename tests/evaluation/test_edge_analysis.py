"""Figures 3, 7a and 7b of the paper, against loops over the edges."""

from __future__ import annotations

import numpy as np
import pytest

from elias.core.metrics import deciles, mean_by_decile
from elias.core.predictions import PAD
from elias.evaluation.edge_analysis import (
    ASSIGNED,
    clusters_per_label,
    edge_histogram,
    share_above,
    stage1_edge_scores,
)
from elias.index.label_index import LabelIndex

C, L = 5, 40


@pytest.fixture
def index() -> LabelIndex:
    """Random edges, 12 from each of 5 clusters."""
    rng = np.random.default_rng(0)
    labels = [np.sort(rng.choice(L, 12, replace=False)) for _ in range(C)]
    return LabelIndex(
        indptr=np.arange(C + 1, dtype=np.int64) * 12,
        labels=np.concatenate(labels).astype(np.int32),
        n_labels=L,
        logits=rng.normal(0, 2, C * 12).astype(np.float32),
        beta=3.0,
    )


def edges_of(index: LabelIndex) -> dict[tuple[int, int], float]:
    scores = index.edge_scores().tolist()
    return {
        (cluster, int(index.labels[place])): scores[place]
        for cluster in range(index.n_clusters)
        for place in range(index.indptr[cluster], index.indptr[cluster + 1])
    }


def test_histogram_and_shares(index: LabelIndex) -> None:
    scores = index.edge_scores()
    found = edge_histogram(scores, 10)
    assert found.sum() == len(scores)
    assert found[-1] == sum(score >= 0.9 for score in scores.tolist()), "1 belongs to the last bin"
    thresholds = np.array([0.0, 0.1, 0.25, 0.9, 1.0])
    expected = [sum(score > np.float32(limit) for score in scores) / len(scores) for limit in thresholds]
    assert share_above(scores, thresholds).tolist() == expected
    assert share_above(np.array([0.1], np.float32), np.array([0.1])).tolist() == [0.0], "equal is not above"
    assert share_above(np.zeros(0, np.float32), thresholds).tolist() == [0.0] * 5


def test_edges_of_stage_1_that_are_left(index: LabelIndex) -> None:
    stage1 = np.random.default_rng(1).integers(0, C, L).astype(np.int32)
    stage1[[3, 17]] = PAD
    edges = edges_of(index)
    expected = [edges.get((int(stage1[label]), label), 0.0) for label in range(L) if stage1[label] >= 0]
    assert stage1_edge_scores(index, stage1).tolist() == expected
    assert 0 < np.count_nonzero(expected) < len(expected)


def test_clusters_per_label_by_decile(index: LabelIndex) -> None:
    edges, found = edges_of(index), clusters_per_label(index)
    assert found.tolist() == [
        sum(score > ASSIGNED for (_, other), score in edges.items() if other == label) for label in range(L)
    ]
    of_label = deciles(np.arange(L)[::-1])
    counts, means = mean_by_decile(found, of_label)
    for decile in range(10):
        members = [found[label] for label in range(L) if of_label[label] == decile]
        assert counts[decile] == len(members)
        assert means[decile] == pytest.approx(np.mean(members)) if members else np.isnan(means[decile])
