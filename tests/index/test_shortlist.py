"""Equation (6): the kernels against their definitions, and against dense numpy."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import helpers.dense_equations as dense
from elias import kernels
from elias.core.predictions import PAD
from elias.core.ragged import Ragged
from elias.index.label_index import LabelIndex
from elias.index.shortlist import Shortlist, TouchedEdges, best_paths, shortlist
from elias.kernels.shortlist import EdgesByLabel

SEEDS = st.integers(0, 100_000)


def both(*arrays: Any, **options: Any) -> Shortlist:
    """`shortlist` by the kernel, after checking that its definition returns the same."""
    found = shortlist(*arrays, **options)
    with kernels.reference():
        expected = shortlist(*arrays, **options)
    for name, mine, other in zip(vars(found), astuple(found), astuple(expected), strict=True):
        assert torch.equal(mine, other), name
    return found


@settings(max_examples=80)
@given(SEEDS)
def test_shortlist_is_the_dense_formula(seed: int) -> None:
    """Scores are small integers, so products are exact and ties are everywhere."""
    rng = np.random.default_rng(seed)
    n_rows, n_clusters, n_labels = (int(rng.integers(1, top)) for top in (6, 8, 40))
    index = dense.random_index(rng, n_clusters, n_labels, density=rng.choice([0.0, 0.2, 0.7, 1.0]))
    highest = rng.choice([1, 2, 5])
    scores_F = rng.integers(0, highest + 1, index.n_edges).astype(np.float32)
    slots = int(rng.integers(1, n_clusters + 1))
    clusters_BT = np.argsort(rng.random((n_rows, n_clusters)), axis=1)[:, :slots]
    clusters_BT[rng.random(clusters_BT.shape) < 0.2] = PAD
    scores_BT = rng.integers(0, highest + 1, clusters_BT.shape).astype(np.float32)
    positives = dense.random_ragged(rng, n_rows, n_labels, 6)
    excluded = dense.random_ragged(rng, n_rows, n_labels, 3)
    size = int(rng.integers(1, n_labels + 5))
    found = both(
        torch.from_numpy(clusters_BT), torch.from_numpy(scores_BT),
        TouchedEdges.of(index.indptr, index.labels, torch.from_numpy(scores_F)),
        size=size, n_labels=n_labels, positives=positives, excluded=excluded,
        threads=int(rng.integers(1, 4)),
    )  # fmt: skip

    e_CL = np.full((n_clusters, n_labels), np.nan)
    e_CL[index.clusters, index.labels] = scores_F
    edge_CL = np.full((n_clusters, n_labels), PAD)
    edge_CL[index.clusters, index.labels] = np.arange(index.n_edges)
    for row in range(n_rows):
        slots_used = [slot for slot in range(slots) if clusters_BT[row, slot] >= 0]
        s_C = np.zeros(n_clusters)
        s_C[clusters_BT[row, slots_used]] = scores_BT[row, slots_used]
        left_out = excluded.labels[excluded.indptr[row] : excluded.indptr[row + 1]]
        yhat_L, place_L = dense.best_paths(clusters_BT[row, slots_used].tolist(), s_C, e_CL, left_out)
        expected = dense.shortlist(yhat_L, size)
        real = found.labels_BS[row].numpy() >= 0
        assert found.labels_BS[row].numpy()[real].tolist() == expected.tolist()
        assert real[: len(expected)].all()
        assert found.slots_BS[row].numpy()[real].tolist() == [slots_used[place_L[label]] for label in expected]
        through = [clusters_BT[row, slots_used[place_L[label]]] for label in expected]
        assert found.edges_BS[row].numpy()[real].tolist() == edge_CL[through, expected].tolist()
        for j in range(positives.indptr[row], positives.indptr[row + 1]):
            label = positives.labels[j]
            is_reached = yhat_L[label] >= 0
            assert found.positive_slots[j] == (slots_used[place_L[label]] if is_reached else PAD)
            assert found.positive_ranks[j] == (expected.tolist().index(label) if label in expected else PAD)


@pytest.mark.parametrize("size", [1, 7, 40])
def test_a_shortlist_much_smaller_than_what_is_reached(size: int) -> None:
    """Many times more candidates than places: the threshold rises, and nothing below it was needed."""
    rng = np.random.default_rng(size)
    index = dense.random_index(rng, 30, 2000, density=0.3)
    clusters = torch.from_numpy(np.argsort(rng.random((5, 30)), axis=1)[:, :25].copy())
    for scores in (rng.random((5, 25)), np.ones((5, 25)), np.sort(rng.random((5, 25)), axis=1)):
        both(
            clusters, torch.from_numpy(scores.astype(np.float32)),
            TouchedEdges.of(index.indptr, index.labels, torch.from_numpy(index.edge_scores())),
            size=size, n_labels=2000, positives=dense.random_ragged(rng, 5, 2000, 50),
            excluded=dense.random_ragged(rng, 5, 2000, 300),
        )  # fmt: skip


def test_equal_scores_go_to_the_lower_label_and_the_lower_slot() -> None:
    index = LabelIndex(indptr=np.array([0, 3, 6]), labels=np.array([1, 2, 4, 0, 2, 4], dtype=np.int32), n_labels=5)
    for zero in (1.0, 0.0, -0.0, 1e-45):
        found = both(
            torch.tensor([[1, 0]]), torch.full((1, 2), zero),
            TouchedEdges.of(index.indptr, index.labels, torch.ones(6)), size=5, n_labels=5,
            positives=Ragged.empty(1), excluded=Ragged.empty(1),
        )  # fmt: skip
        assert found.labels_BS.tolist() == [[0, 1, 2, 4, PAD]]
        assert found.slots_BS.tolist() == [[0, 1, 0, 0, PAD]]


def test_an_excluded_positive_is_never_reached() -> None:
    index = LabelIndex.from_clusters(np.zeros(3, dtype=int), 1)
    label = Ragged(np.array([0, 1]), np.array([1], dtype=np.int32))
    found = both(
        torch.zeros((1, 1), dtype=torch.long), torch.ones(1, 1),
        TouchedEdges.of(index.indptr, index.labels, torch.ones(3)),
        size=3, n_labels=3, positives=label, excluded=label,
    )  # fmt: skip
    assert found.labels_BS.tolist() == [[0, 2, PAD]]
    assert [found.positive_slots.item(), found.positive_edges.item(), found.positive_ranks.item()] == [PAD] * 3


def test_pads_and_the_other_rows_of_a_batch_change_nothing() -> None:
    rng = np.random.default_rng(5)
    index = dense.random_index(rng, 12, 80)
    clusters = torch.from_numpy(np.argsort(rng.random((6, 12)), axis=1)[:, :5].copy())
    scores = torch.from_numpy(rng.random((6, 5), dtype=np.float32))
    edges = TouchedEdges.of(index.indptr, index.labels, torch.from_numpy(index.edge_scores()))
    options = {"size": 20, "n_labels": 80}
    all_rows = shortlist(clusters, scores, edges, **options)
    order = torch.from_numpy(rng.permutation(6))
    mixed = shortlist(clusters[order], scores[order], edges, **options)
    assert torch.equal(mixed.labels_BS, all_rows.labels_BS[order])
    assert torch.equal(mixed.edges_BS, all_rows.edges_BS[order])
    padded = torch.nn.functional.pad(clusters, (0, 3), value=PAD), torch.nn.functional.pad(scores, (0, 3), value=9.0)
    assert torch.equal(shortlist(*padded, edges, **options).edges_BS, all_rows.edges_BS)


@settings(max_examples=50)
@given(SEEDS)
def test_best_paths_to_given_labels_are_the_dense_formula(seed: int) -> None:
    """Scores are small integers, so that paths tie: then the lower cluster wins."""
    rng = np.random.default_rng(seed)
    n_clusters, n_labels = (int(rng.integers(1, top)) for top in (8, 20))
    index = dense.random_index(rng, n_clusters, n_labels, density=rng.choice([0.0, 0.3, 1.0]))
    scores_F = rng.integers(0, 3, index.n_edges).astype(np.float32)
    indptr, positions = index.by_label()
    edges = EdgesByLabel(indptr, index.clusters[positions], scores_F[positions])
    s_BC = rng.integers(0, 3, (4, n_clusters)).astype(np.float32)
    labels_BS = rng.integers(PAD, n_labels, (4, 7)).astype(np.int32)
    found = best_paths(s_BC, labels_BS, edges, threads=2)
    with kernels.reference():
        for mine, other in zip(found, best_paths(s_BC, labels_BS, edges), strict=True):
            np.testing.assert_array_equal(mine, other)
    e_CL = np.full((n_clusters, n_labels), np.nan)
    e_CL[index.clusters, index.labels] = scores_F
    for row, column in np.ndindex(labels_BS.shape):
        label = labels_BS[row, column]
        paths_C = np.full(n_clusters, -1.0) if label == PAD else np.nan_to_num(s_BC[row] * e_CL[:, label], nan=-1.0)
        expected = (PAD, 0.0, 0.0)
        if paths_C.max() >= 0:
            cluster = int(paths_C.argmax())
            expected = (cluster, s_BC[row, cluster], e_CL[cluster, label])
        assert tuple(values[row, column] for values in found) == expected
