"""Equations (1) to (8): the network against dense formulas, and gradients of kernels against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import helpers.dense_equations as dense
from elias import kernels
from elias.core.ragged import Ragged
from elias.index.label_index import LabelIndex
from elias.network.network import SearchSettings
from elias.network.searcher import Searcher
from helpers.networks import gradients_of, random_batch, small_network

SEEDS = st.integers(0, 10_000)


@settings(max_examples=25)
@given(SEEDS, st.sampled_from([(1, 1), (1, 6), (5, 1), (6, 20)]), st.booleans())
def test_loss_and_gradients_equal_the_dense_formulas(seed: int, shape: tuple[int, int], is_stage_1: bool) -> None:
    rng = np.random.default_rng(seed)
    n_clusters, n_labels = shape
    index = dense.random_index(rng, n_clusters, n_labels, density=rng.choice([0.0, 0.3, 1.0]))
    if is_stage_1:
        index = LabelIndex.from_clusters(rng.integers(-1, n_clusters, n_labels), n_clusters)
    options = SearchSettings(alpha=2.0, beam_size=2, shortlist_size=int(rng.integers(1, 8)), parent_slots=6)
    network = small_network(rng, index, 3, options)
    n_rows = int(rng.integers(1, 6))
    phi = torch.from_numpy(rng.normal(size=(n_rows, 3)).astype(np.float32))
    batch = random_batch(rng, n_rows, n_labels)
    found = gradients_of(network, phi, batch)

    leaves = {
        "phi": phi,
        "clusters": network.clusters.weight.detach(),
        "edges": torch.from_numpy(np.nan_to_num(dense.dense_logits(index))),
        "classifier_weights": network.classifier_weights.values,
        "classifier_biases": network.classifier_biases.values[:, 0],
    }
    leaves = {name: leaf.double().clone().requires_grad_() for name, leaf in leaves.items()}

    def per_row(ragged: Ragged, values: np.ndarray) -> list[dict[int, float]]:
        cut = [slice(*ragged.indptr[row : row + 2]) for row in range(n_rows)]
        return [dict(zip(ragged.labels[c].tolist(), values[c].tolist(), strict=True)) for c in cut]

    value = dense.loss(
        *leaves.values(), index,
        alpha=2.0, beam_size=2, shortlist_size=options.shortlist_size, lambda_=0.3,
        positives=per_row(batch.positives, batch.positive_weights),
        excluded=[set(row) for row in per_row(batch.excluded, batch.excluded.labels)],
        row_weights=batch.weights.tolist(),
    )  # fmt: skip
    value.backward()
    assert found["loss"] == pytest.approx(value.item(), rel=1e-4, abs=1e-6)
    for name, leaf in leaves.items():
        expected = np.zeros(leaf.shape) if leaf.grad is None else leaf.grad.numpy()
        if name == "edges":
            if is_stage_1:
                continue
            expected = expected[index.clusters, index.labels][:, None]
        np.testing.assert_allclose(found[name].reshape(expected.shape), expected, rtol=2e-3, atol=2e-5, err_msg=name)


@settings(max_examples=15)
@given(SEEDS)
def test_kernels_and_definitions_give_the_same_gradients(seed: int) -> None:
    rng = np.random.default_rng(seed)
    index = dense.random_index(rng, 8, 30, density=0.4)
    options = SearchSettings(alpha=3.0, beam_size=3, shortlist_size=10, parent_slots=2)
    network = small_network(rng, index, 5, options)
    phi = torch.from_numpy(rng.normal(size=(7, 5)).astype(np.float32))
    batch = random_batch(rng, 7, 30)
    by_kernels = gradients_of(network, phi, batch)
    with kernels.reference():
        by_definition = gradients_of(network, phi, batch)
    for name in by_kernels:
        np.testing.assert_allclose(by_kernels[name], by_definition[name], rtol=1e-4, atol=1e-6, err_msg=name)


def test_gradients_do_not_depend_on_the_number_of_threads() -> None:
    found = []
    for threads in (1, 2, 5):
        rng = np.random.default_rng(0)
        index = dense.random_index(rng, 12, 300, density=0.5, beta=20.0)
        network = small_network(rng, index, 16, SearchSettings(shortlist_size=280, beam_size=9), threads)
        phi = torch.from_numpy(rng.normal(size=(150, 16)).astype(np.float32))
        found.append(gradients_of(network, phi, random_batch(rng, 150, 300)))
    for other in found[1:]:
        assert all(np.array_equal(found[0][name], other[name]) for name in other)


def test_the_order_of_rows_in_a_batch_changes_nothing() -> None:
    rng = np.random.default_rng(1)
    index = dense.random_index(rng, 10, 60)
    network = small_network(rng, index, 6, SearchSettings(beam_size=4, shortlist_size=25))
    phi = torch.from_numpy(rng.normal(size=(20, 6)).astype(np.float32))
    searcher, order = Searcher(network), rng.permutation(20)
    straight, mixed = searcher.search_rows(phi, np.arange(20), 10), searcher.search_rows(phi, order, 10)
    assert np.array_equal(straight.labels[order], mixed.labels)
    np.testing.assert_allclose(straight.scores[order], mixed.scores, rtol=1e-5)


@pytest.mark.parametrize("is_stage_1", [True, False])
def test_search_through_every_cluster_is_exhaustive(is_stage_1: bool) -> None:
    rng = np.random.default_rng(2)
    index = dense.random_index(rng, 6, 40, density=1.0, beta=10.0)
    if is_stage_1:
        index = LabelIndex(indptr=index.indptr, labels=index.labels, n_labels=40)
    network = small_network(rng, index, 5, SearchSettings(beam_size=99, shortlist_size=99))
    phi = torch.from_numpy(rng.normal(size=(9, 5)).astype(np.float32))
    found = Searcher(network).search_rows(phi, np.arange(9), 40)

    s_BC = dense.cluster_scores(network.clusters(phi).detach().numpy(), 10.0)
    yhat_BL = (s_BC[:, :, None] * dense.edge_scores(index)[None]).max(axis=1)
    z_BL = phi.double().numpy() @ network.classifier_weights.values.double().numpy().T
    p_BL = yhat_BL / (1.0 + np.exp(-z_BL - network.classifier_biases.values.double().numpy()[:, 0]))
    assert np.array_equal(np.sort(found.labels, axis=1), np.tile(np.arange(40), (9, 1)))
    np.testing.assert_allclose(found.scores, np.take_along_axis(p_BL, found.labels.astype(int), 1), rtol=2e-5)
    assert (np.diff(found.scores, axis=1) <= 0).all()


def test_k_larger_than_what_is_reachable_leaves_places_empty() -> None:
    rng = np.random.default_rng(3)
    index = LabelIndex.from_clusters(np.array([0, 0, 1, -1, 2]), 4)  # cluster 3 is empty, label 3 has no edge
    network = small_network(rng, index, 4, SearchSettings(beam_size=50, shortlist_size=50))
    found = Searcher(network).search_rows(torch.ones(1, 4), np.arange(1), 9)
    assert sorted(found.labels[0].tolist()) == [-1] * 5 + [0, 1, 2, 4]
    assert (found.labels[0, 4:] == -1).all()
    assert (found.scores[0, 4:] == 0).all()
