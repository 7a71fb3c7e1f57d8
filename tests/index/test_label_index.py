"""The label index: clusters to labels as ragged rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import helpers.dense_equations as dense
from elias.index.label_index import LabelIndex

SEEDS = st.integers(0, 10_000)


def test_stage_1_hangs_each_label_on_its_cluster() -> None:
    index = LabelIndex.from_clusters(np.array([2, 0, -1, 2]), 4)
    assert index.indptr.tolist() == [0, 1, 1, 3, 3]
    assert index.labels.tolist() == [1, 0, 3]
    assert index.clusters.tolist() == [0, 2, 2]
    assert index.parents().tolist() == [2, 0, -1, 2]
    assert index.edge_scores().tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("clusters", [np.array([-1, -1]), np.empty(0, dtype=np.int64)])
def test_an_index_without_edges(clusters: np.ndarray) -> None:
    index = LabelIndex.from_clusters(clusters, 3)
    assert index.n_edges == 0
    assert index.parents().tolist() == [-1] * len(clusters)
    assert index.prune(keep=1).n_edges == 0
    assert index.by_label()[0].tolist() == [0] * (len(clusters) + 1)
    assert index.positions_of(np.arange(3))[1].tolist() == []


@settings(max_examples=50)
@given(SEEDS)
def test_probabilities_and_parents_are_the_dense_formulas(seed: int) -> None:
    rng = np.random.default_rng(seed)
    index = dense.random_index(rng, 7, 15, density=rng.choice([0.1, 0.5, 1.0]))
    if rng.random() < 0.5:
        index = LabelIndex(
            indptr=index.indptr, labels=index.labels, n_labels=15, logits=np.zeros_like(index.logits), beta=2.0
        )
    expected = dense.softmax(dense.dense_logits(index), axis=1)[index.clusters, index.labels]
    np.testing.assert_allclose(index.probabilities(), expected, rtol=1e-5)
    assert index.parents().tolist() == dense.parents(index).tolist()
    assert index.parents().dtype == np.int32


@settings(max_examples=30)
@given(SEEDS)
def test_rows_of_edges_seen_from_clusters_and_from_labels(seed: int) -> None:
    rng = np.random.default_rng(seed)
    index = dense.random_index(rng, 6, 12)
    chosen = rng.choice(6, 3, replace=False)
    indptr, positions = index.positions_of(chosen)
    for place, cluster in enumerate(chosen):
        expected = np.arange(index.indptr[cluster], index.indptr[cluster + 1])
        assert positions[indptr[place] : indptr[place + 1]].tolist() == expected.tolist()
    indptr, positions = index.by_label()
    for label in range(12):
        mine = positions[indptr[label] : indptr[label + 1]]
        assert mine.tolist() == np.flatnonzero(index.labels == label).tolist()


def test_pruning_keeps_the_strongest_and_renormalizes() -> None:
    logits = np.float32([1.0, 3.0, 3.0, 0.0, 5.0])
    index = LabelIndex(
        indptr=np.array([0, 4, 4, 5]), labels=np.int32([0, 2, 5, 6, 2]), n_labels=7, logits=logits, beta=1.0
    )
    pruned = index.prune(keep=2)
    assert pruned.indptr.tolist() == [0, 2, 2, 3]
    assert pruned.labels.tolist() == [2, 5, 2]
    np.testing.assert_allclose(pruned.probabilities(), [0.5, 0.5, 1.0])
    assert index.prune(keep=1).labels.tolist() == [2, 2], "ties go to the lower label"
    assert index.prune(keep=0).n_edges == 0
    assert index.prune(keep=99).labels.tolist() == index.labels.tolist()


def test_pruning_by_edge_score() -> None:
    logits = np.float32([0.0, np.log(2), np.log(3), np.log(4), 5.0])  # softmax .1 .2 .3 .4, and 1
    index = LabelIndex(
        indptr=np.array([0, 4, 4, 5]), labels=np.int32([0, 2, 5, 6, 2]), n_labels=7, logits=logits, beta=2.0
    )
    np.testing.assert_allclose(index.edge_scores(), [0.2, 0.4, 0.6, 0.8, 1.0], rtol=1e-6)
    pruned = index.prune(below=0.5)
    assert pruned.indptr.tolist() == [0, 2, 2, 3]
    assert pruned.labels.tolist() == [5, 6, 2]
    np.testing.assert_allclose(pruned.probabilities(), [3 / 7, 4 / 7, 1.0], rtol=1e-6)
    assert (index.n_reachable(), pruned.n_reachable()) == (4, 3), "label 0 has no other edge"
    assert index.prune(below=0.5, keep_parents=True).labels.tolist() == [0, 5, 6, 2]
    assert index.prune(below=1.0).labels.tolist() == [2], "an edge that scores exactly as much stays"
    assert index.prune(below=0.3, keep=1).labels.tolist() == [6, 2], "both limits hold"
    assert index.prune().labels.tolist() == index.labels.tolist()
    fixed = LabelIndex.from_clusters(np.array([2, 0, -1, 2]), 4)
    assert fixed.prune(below=1.0).n_edges == 3, "every edge of stage 1 scores 1"
