"""Beam, parents, edge scores and shortlists: kernels against their torch twins and against dense numpy."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import helpers.dense_equations as dense
from elias.core.noise import Noise
from elias.index import cluster_scores as search
from elias.index.cluster_scores import PAD, Ragged, Shortlist
from elias.index.label_index import LabelIndex

SEEDS = st.integers(0, 100_000)
SPECIAL = np.float32([0.0, -0.0, 1e-45, -1e-45, 1e-38, 1.0, -1.0, 0.5])


def both(*arrays: Any, threads: int = 1, **options: Any) -> Shortlist:
    """`shortlist` by the kernel, after checking that the torch twin says the same."""
    found = search.shortlist(*arrays, threads=threads, **options)
    twin = search.shortlist_torch(*arrays, **options)
    for name, mine, other in zip(vars(found), astuple(found), astuple(twin), strict=True):
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
        torch.from_numpy(clusters_BT), torch.from_numpy(scores_BT), index.indptr, index.labels,
        torch.from_numpy(scores_F), size=size, n_labels=n_labels, positives=positives, excluded=excluded,
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
    """Many times more candidates than places: the bar rises, and nothing below it was needed."""
    rng = np.random.default_rng(size)
    index = dense.random_index(rng, 30, 2000, density=0.3)
    clusters = torch.from_numpy(np.argsort(rng.random((5, 30)), axis=1)[:, :25].copy())
    for scores in (rng.random((5, 25)), np.ones((5, 25)), np.sort(rng.random((5, 25)), axis=1)):
        both(
            clusters, torch.from_numpy(scores.astype(np.float32)), index.indptr, index.labels,
            torch.from_numpy(index.edge_scores()), size=size, n_labels=2000,
            positives=dense.random_ragged(rng, 5, 2000, 50), excluded=dense.random_ragged(rng, 5, 2000, 300),
        )  # fmt: skip


def test_equal_scores_go_to_the_lower_label_and_the_lower_slot() -> None:
    index = LabelIndex(indptr=np.array([0, 3, 6]), labels=np.array([1, 2, 4, 0, 2, 4], dtype=np.int32), n_labels=5)
    for zero in (1.0, 0.0, -0.0, 1e-45):
        found = both(
            torch.tensor([[1, 0]]), torch.full((1, 2), zero), index.indptr, index.labels, torch.ones(6),
            size=5, n_labels=5, positives=Ragged.empty(1), excluded=Ragged.empty(1),
        )  # fmt: skip
        assert found.labels_BS.tolist() == [[0, 1, 2, 4, PAD]]
        assert found.slots_BS.tolist() == [[0, 1, 0, 0, PAD]]


def test_an_excluded_positive_is_never_reached() -> None:
    index = LabelIndex.from_clusters(np.zeros(3, dtype=int), 1)
    label = Ragged(np.array([0, 1]), np.array([1], dtype=np.int32))
    found = both(
        torch.zeros((1, 1), dtype=torch.long), torch.ones(1, 1), index.indptr, index.labels, torch.ones(3),
        size=3, n_labels=3, positives=label, excluded=label,
    )  # fmt: skip
    assert found.labels_BS.tolist() == [[0, 2, PAD]]
    assert [found.positive_slots.item(), found.positive_edges.item(), found.positive_ranks.item()] == [PAD] * 3


def test_pads_and_the_other_rows_of_a_batch_change_nothing() -> None:
    rng = np.random.default_rng(5)
    index = dense.random_index(rng, 12, 80)
    clusters = torch.from_numpy(np.argsort(rng.random((6, 12)), axis=1)[:, :5].copy())
    scores, edges = torch.from_numpy(rng.random((6, 5), dtype=np.float32)), torch.from_numpy(index.edge_scores())
    options = {"size": 20, "n_labels": 80}
    all_rows = search.shortlist(clusters, scores, index.indptr, index.labels, edges, **options)
    order = torch.from_numpy(rng.permutation(6))
    mixed = search.shortlist(clusters[order], scores[order], index.indptr, index.labels, edges, **options)
    assert torch.equal(mixed.labels_BS, all_rows.labels_BS[order])
    assert torch.equal(mixed.edges_BS, all_rows.edges_BS[order])
    padded = torch.nn.functional.pad(clusters, (0, 3), value=PAD), torch.nn.functional.pad(scores, (0, 3), value=9.0)
    assert torch.equal(
        search.shortlist(*padded, index.indptr, index.labels, edges, **options).edges_BS, all_rows.edges_BS
    )


@settings(max_examples=60)
@given(SEEDS)
def test_top_k_by_kernel_by_sorts_and_by_numpy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 5)), int(rng.integers(1, 30)))
    scores = rng.choice(SPECIAL, shape) if rng.random() < 0.7 else rng.normal(size=shape).astype(np.float32)
    order = np.argsort(rng.random((shape[0], 100)), axis=1)[:, : shape[1]].copy()
    order[rng.random(shape) < 0.3] = PAD
    k = int(rng.integers(1, 35))
    found = search.top_k(torch.from_numpy(scores), k, torch.from_numpy(order), threads=int(rng.integers(1, 4)))
    assert torch.equal(found, search.top_k_torch(torch.from_numpy(scores), k, torch.from_numpy(order)))
    for row in range(shape[0]):
        expected = [c for c in np.lexsort((order[row], -scores[row])) if order[row, c] >= 0][:k]
        assert found[row].tolist() == expected + [PAD] * (k - len(expected))


def test_top_k_without_an_order_prefers_lower_columns() -> None:
    scores = torch.tensor([[1.0, 3.0, 3.0, -0.0, 0.0]])
    assert search.top_k(scores, 7).tolist() == [[1, 2, 0, 3, 4, PAD, PAD]]
    assert search.top_k_torch(scores, 7, torch.arange(5)[None]).tolist() == [[1, 2, 0, 3, 4, PAD, PAD]]


@settings(max_examples=30)
@given(SEEDS)
def test_cluster_and_edge_scores_are_the_dense_formulas(seed: int) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=4, size=(3, int(rng.integers(1, 9)))).astype(np.float32)
    np.testing.assert_allclose(
        search.cluster_scores(torch.from_numpy(logits), 2.0).numpy(), dense.cluster_scores(logits, 2.0), rtol=1e-5
    )
    index = dense.random_index(rng, 6, 20, density=rng.choice([0.0, 0.1, 0.6]))
    expected = dense.edge_scores(index)[index.clusters, index.labels]
    np.testing.assert_allclose(index.edge_scores(), expected, rtol=1e-5)
    gradients, upstream = [], torch.from_numpy(rng.normal(size=index.n_edges).astype(np.float32))
    for function, options in ((search.edge_scores, {"threads": 3}), (search.edge_scores_torch, {})):
        leaf = torch.from_numpy(index.logits).clone().requires_grad_()
        found = function(leaf, index.indptr, index.beta, **options)
        np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-5)
        found.backward(upstream)
        gradients.append(leaf.grad.numpy())
    np.testing.assert_allclose(*gradients, rtol=1e-4, atol=1e-6)


def test_the_beam_is_the_dense_formula() -> None:
    logits = np.random.default_rng(0).integers(0, 4, (5, 9)).astype(np.float32)
    assert np.array_equal(search.top_k(torch.from_numpy(logits), 4).numpy(), dense.beam(logits, 4))


def test_parents_join_the_beam_once_and_only_where_they_are_missing() -> None:
    beam = torch.tensor([[3, 1], [0, 2], [2, 3]])
    parents, rows = torch.tensor([1, 4, 4, -1, 5, 0, 1]), torch.tensor([0, 0, 0, 1, 2, 2, 2])
    joined = search.join_parents(beam, parents, rows, 3, Noise(0), torch.arange(3), 6)
    assert torch.equal(joined[:, :2], beam)
    assert [sorted(row) for row in joined[:, 2:].tolist()] == [[PAD, PAD, 4], [PAD, PAD, PAD], [0, 1, 5]]


def test_parents_that_do_not_fit_are_sampled_by_row_and_noise() -> None:
    beam, parents = torch.tensor([[0], [0]]), torch.arange(1, 21).repeat(2)
    rows = torch.arange(2).repeat_interleave(20)

    def sample(key: int, numbers: list[int]) -> list[list[int]]:
        return search.join_parents(beam, parents, rows, 4, Noise(key), torch.tensor(numbers), 21)[:, 1:].tolist()

    first = sample(1, [7, 8])
    assert all(len(set(row)) == 4 and min(row) > 0 for row in first)
    assert first[0] != first[1]
    assert sample(1, [8, 7]) == first[::-1], "a draw belongs to the row, wherever it stands in the batch"
    assert sample(2, [7, 8]) != first
    assert search.join_parents(beam, parents, rows, 0, Noise(1), torch.arange(2), 21).tolist() == [[0], [0]]
    nobody = torch.empty(0, dtype=torch.long)
    assert search.join_parents(beam, nobody, nobody, 1, Noise(1), torch.arange(2), 21).tolist() == [[0, PAD]] * 2


def test_free_slots_take_random_clusters_that_are_new_to_their_row() -> None:
    clusters = torch.tensor([[0, 1, 2, PAD, PAD], [3, 0, PAD, PAD, PAD]])
    rows, noise = torch.tensor([7, 8]), Noise.of(0, "stage", 1)
    filled = search.fill_free(clusters, 2, noise, rows, 40)
    assert torch.equal(filled[clusters >= 0], clusters[clusters >= 0])
    for row in filled:
        real = row[row >= 0]
        assert len(set(real.tolist())) == len(real)
        assert int(real.max()) < 40
    assert (filled >= 0).sum() > (clusters >= 0).sum()
    assert torch.equal(filled, search.fill_free(clusters, 2, noise, rows, 40))
    assert not torch.equal(filled, search.fill_free(clusters, 2, Noise.of(0, "stage", 2), rows, 40))
    assert (
        search.fill_free(torch.tensor([[0, PAD]]), 1, noise, torch.tensor([0]), 1) == torch.tensor([[0, PAD]])
    ).all()


def test_edge_scores_do_not_depend_on_where_memory_lies() -> None:
    """Arrays one behind the other, as a small heap lays them, and far apart."""
    from elias.kernels.edges import backward, forward

    rng = np.random.default_rng(0)
    indptr = np.asarray([0, 60, 120, 180, 240])
    logits, grad = rng.normal(size=(2, 240)).astype(np.float32)
    answers = set()
    for gap in (0, 4, 16, 64, 4096):
        buffer = np.empty(2 * 240 + gap, dtype=np.float32)
        scaled, out = buffer[:240], buffer[240 + gap :]
        forward(0, 4, indptr, logits, 15.0, scaled)
        backward(0, 4, indptr, scaled, 15.0, grad, out)
        answers.add((scaled.tobytes(), out.tobytes()))
    assert len(answers) == 1
