"""Equations (1), (2) and (4): the kernel against its definition, and both against dense numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import helpers.dense_equations as dense
from elias import kernels
from elias.core.noise import Noise
from elias.core.predictions import PAD
from elias.core.ragged import Ragged
from elias.index.cluster_scores import (
    cluster_scores,
    fill_free,
    join_parents,
    log_cluster_scores,
    parents_of_rows,
    top_k,
    top_k_reference,
)

SEEDS = st.integers(0, 100_000)
SPECIAL = np.float32([0.0, -0.0, 1e-45, -1e-45, 1e-38, 1.0, -1.0, 0.5])


@settings(max_examples=30)
@given(SEEDS)
def test_cluster_scores_are_the_dense_formula(seed: int) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=4, size=(3, int(rng.integers(1, 9)))).astype(np.float32)
    found = cluster_scores(torch.from_numpy(logits), 2.0)
    np.testing.assert_allclose(found.numpy(), dense.cluster_scores(logits, 2.0), rtol=1e-5)
    logs = log_cluster_scores(torch.from_numpy(logits), 2.0)
    np.testing.assert_allclose(logs.numpy(), np.log(dense.cluster_scores(logits, 2.0)), rtol=1e-5, atol=1e-6)


def test_a_cluster_that_trails_far_behind_still_has_a_gradient() -> None:
    """The shortlist loss of a parent whose s_c is 0 in float32 pulls its logit up."""
    logits = torch.tensor([[0.0, -40.0, -400.0]], requires_grad=True)
    (-log_cluster_scores(logits, 2.0)[0, 1:].sum()).backward()
    assert logits.grad[0].tolist() == pytest.approx([2.0, -1.0, -1.0])


@settings(max_examples=60)
@given(SEEDS)
def test_top_k_by_kernel_by_sorts_and_by_numpy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 5)), int(rng.integers(1, 30)))
    scores = rng.choice(SPECIAL, shape) if rng.random() < 0.7 else rng.normal(size=shape).astype(np.float32)
    order = np.argsort(rng.random((shape[0], 100)), axis=1)[:, : shape[1]].copy()
    order[rng.random(shape) < 0.3] = PAD
    k = int(rng.integers(1, 35))
    found = top_k(torch.from_numpy(scores), k, torch.from_numpy(order), threads=int(rng.integers(1, 4)))
    with kernels.reference():
        assert torch.equal(found, top_k(torch.from_numpy(scores), k, torch.from_numpy(order)))
    for row in range(shape[0]):
        expected = [c for c in np.lexsort((order[row], -scores[row])) if order[row, c] >= 0][:k]
        assert found[row].tolist() == expected + [PAD] * (k - len(expected))


def test_top_k_without_an_order_prefers_lower_columns() -> None:
    scores = torch.tensor([[1.0, 3.0, 3.0, -0.0, 0.0]])
    assert top_k(scores, 7).tolist() == [[1, 2, 0, 3, 4, PAD, PAD]]
    assert top_k_reference(scores, 7, torch.arange(5)[None]).tolist() == [[1, 2, 0, 3, 4, PAD, PAD]]


def test_the_beam_is_the_dense_formula() -> None:
    logits = np.random.default_rng(0).integers(0, 4, (5, 9)).astype(np.float32)
    assert np.array_equal(top_k(torch.from_numpy(logits), 4).numpy(), dense.beam(logits, 4))


def test_parents_join_the_beam_once_and_only_where_they_are_missing() -> None:
    beam = torch.tensor([[3, 1], [0, 2], [2, 3]])
    positives = Ragged(np.array([0, 3, 4, 7]), np.arange(7))
    parents = parents_of_rows(positives, np.array([1, 4, 4, PAD, 5, 0, 1]))
    assert parents.tolist() == [[1, 4, PAD], [PAD] * 3, [0, 1, 5]]
    joined = join_parents(beam, torch.from_numpy(parents), 3, Noise(0), torch.arange(3), 6)
    assert torch.equal(joined[:, :2], beam)
    assert [sorted(row) for row in joined[:, 2:].tolist()] == [[PAD, PAD, 4], [PAD, PAD, PAD], [0, 1, 5]]


def test_parents_that_do_not_fit_are_sampled_by_row_and_noise() -> None:
    beam, parents = torch.tensor([[0], [0]]), torch.arange(1, 21).repeat(2, 1)

    def sample(key: int, numbers: list[int]) -> list[list[int]]:
        return join_parents(beam, parents, 4, Noise(key), torch.tensor(numbers), 21)[:, 1:].tolist()

    first = sample(1, [7, 8])
    assert all(len(set(row)) == 4 and min(row) > 0 for row in first)
    assert first[0] != first[1]
    assert sample(1, [8, 7]) == first[::-1], "a draw belongs to the row, wherever it stands in the batch"
    assert sample(2, [7, 8]) != first
    assert join_parents(beam, parents, 0, Noise(1), torch.arange(2), 21).tolist() == [[0], [0]]
    none = torch.from_numpy(parents_of_rows(Ragged.empty(2), np.arange(21)))
    assert join_parents(beam, none, 1, Noise(1), torch.arange(2), 21).tolist() == [[0, PAD]] * 2


def test_free_slots_take_random_clusters_that_are_new_to_their_row() -> None:
    clusters = torch.tensor([[0, 1, 2, PAD, PAD], [3, 0, PAD, PAD, PAD]])
    rows, noise = torch.tensor([7, 8]), Noise.of(0, "stage", 1)
    filled = fill_free(clusters, 2, noise, rows, 40)
    assert torch.equal(filled[clusters >= 0], clusters[clusters >= 0])
    for row in filled:
        real = row[row >= 0]
        assert len(set(real.tolist())) == len(real)
        assert int(real.max()) < 40
    assert (filled >= 0).sum() > (clusters >= 0).sum()
    assert torch.equal(filled, fill_free(clusters, 2, noise, rows, 40))
    assert not torch.equal(filled, fill_free(clusters, 2, Noise.of(0, "stage", 2), rows, 40))
    assert (fill_free(torch.tensor([[0, PAD]]), 1, noise, torch.tensor([0]), 1) == torch.tensor([[0, PAD]])).all()
