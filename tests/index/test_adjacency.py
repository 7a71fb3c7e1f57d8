"""Equations (9) and (10): edges from matching, with rescues, against dense numpy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from elias.index import adjacency
from elias.index.adjacency import learnable_index, matching


def dense_edges(counts: np.ndarray, cluster_of_label: np.ndarray, kappa: int) -> tuple[np.ndarray, int, int]:
    """(10) and the rescues, C x L booleans; ties by lower label and lower cluster."""
    kept = np.zeros(counts.shape, dtype=bool)
    for cluster, row in enumerate(counts):
        best = [label for label in np.argsort(-row, kind="stable") if row[label] > 0][:kappa]
        kept[cluster, best] = True
    by_matching = by_cluster = 0
    for label in np.flatnonzero(~kept.any(axis=0)):
        if counts[:, label].max(initial=0) > 0:
            kept[counts[:, label].argmax(), label] = True
            by_matching += 1
        elif cluster_of_label[label] >= 0:
            kept[cluster_of_label[label], label] = True
            by_cluster += 1
    return kept, by_matching, by_cluster


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.sampled_from(["counts", "random"]))
def test_edges_are_the_dense_formula(seed: int, logits: str) -> None:
    rng = np.random.default_rng(seed)
    n_clusters, n_labels = int(rng.integers(1, 6)), int(rng.integers(1, 15))
    counts = rng.integers(0, 4, (n_clusters, n_labels)) * (rng.random((n_clusters, n_labels)) < rng.choice([0, 0.3, 1]))
    clusters = rng.integers(-1, n_clusters, n_labels)
    kappa = int(rng.integers(1, 6))
    sparse = sp.csr_matrix(counts.astype(np.float32))
    found = learnable_index(sparse, clusters, kappa=kappa, beta=7.0, logits=logits, rng=np.random.default_rng(0))
    kept, by_matching, by_cluster = dense_edges(counts, clusters, kappa)
    index = found.index
    edges = np.zeros(counts.shape, dtype=bool)
    edges[index.clusters, index.labels] = True
    assert np.array_equal(edges, kept)
    assert (found.rescued_by_matching, found.rescued_by_cluster) == (by_matching, by_cluster)
    assert index.n_edges == kept.sum()
    assert all((np.diff(index.labels[a:b]) > 0).all() for a, b in zip(index.indptr, index.indptr[1:], strict=False))
    assert index.beta == 7.0
    assert index.logits.dtype == np.float32
    if logits == "random":
        assert ((index.logits >= 0) & (index.logits <= 1)).all()
    else:
        floor = counts[counts > 0].min(initial=4 if counts.any() else 1)
        strength = np.where(kept & (counts == 0), floor, counts)[index.clusters, index.labels]
        np.testing.assert_allclose(np.exp(index.logits), strength, rtol=1e-5)


def test_explicit_zeros_are_no_edges_and_the_callers_matrix_stays() -> None:
    counts = sp.csr_matrix(np.float32([[1, 2], [3, 4]]))
    counts.data[1] = 0.0
    found = learnable_index(counts, np.array([0, 0]), kappa=2, beta=1.0, logits="counts", rng=np.random.default_rng(0))
    assert found.index.indptr.tolist() == [0, 1, 3]
    assert counts.nnz == 4


@pytest.mark.parametrize("n_rows", [0, 1, 37])
def test_matching_is_m_transposed_times_y(n_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adjacency, "PENDING", 3)
    rng = np.random.default_rng(n_rows)
    beams = np.argsort(rng.random((n_rows, 6)), axis=1)[:, :3]
    scores = rng.random((n_rows, 3), dtype=np.float32)
    labels = sp.random(n_rows, 8, density=0.3, format="csr", dtype=np.float32, random_state=0)
    batches = [(beams[start : start + 2], scores[start : start + 2]) for start in range(0, n_rows, 2)]
    found = matching(batches, labels, 6)
    m = np.zeros((n_rows, 6))
    np.put_along_axis(m, beams, scores, axis=1)
    np.testing.assert_allclose(found.toarray(), m.T @ labels.toarray(), rtol=1e-5, atol=1e-6)
