"""`model.label_dim`: classifiers behind a learned projection of phi, against classifiers multiplied out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import elias
import helpers.dense_equations as dense
from elias.core.embedding_table import RowTable
from elias.core.errors import SettingsError
from elias.dataset import Dataset
from elias.index.cluster_scores import Ragged
from elias.model.compaction import compact
from elias.network.network import Network, SearchSettings
from elias.network.searcher import Finder
from elias.training import initialization as start
from helpers.networks import GivenPhi, gradients_of, random_batch, small_network
from helpers.processes import SMALL

SEEDS = st.integers(0, 10_000)


def with_projection(network: Network, rng: np.random.Generator, width: int) -> tuple[Network, Network]:
    """(classifiers of `width` behind a projection P, the same classifiers as rows w P of full width)."""
    dim = network.clusters.in_features
    projection = torch.nn.Linear(dim, width, bias=False)
    projection.weight.data = torch.from_numpy(rng.normal(size=(width, dim)).astype(np.float32))
    narrow = torch.from_numpy(rng.normal(size=(len(network.classifier_biases), width)).astype(np.float32))
    same = (network.encoder, network.clusters, network.index)
    behind = Network(
        *same, RowTable(narrow), network.classifier_biases, network.settings, projection=projection, threads=2
    )
    multiplied = RowTable((narrow @ projection.weight).detach().contiguous())
    return behind, Network(*same, multiplied, network.classifier_biases, network.settings, threads=2)


def random_network(rng: np.random.Generator, dim: int) -> Network:
    index = dense.random_index(rng, 8, 60, density=0.3)
    return small_network(rng, index, dim, SearchSettings(alpha=3.0, beam_size=3, shortlist_size=20, parent_slots=2))


@settings(max_examples=20)
@given(SEEDS, st.integers(1, 6), st.sampled_from([1, 7]))
def test_search_is_that_of_the_classifiers_multiplied_out(seed: int, width: int, n_rows: int) -> None:
    rng = np.random.default_rng(seed)
    behind, multiplied = with_projection(random_network(rng, 8), rng, width)
    phi = torch.from_numpy(rng.normal(size=(n_rows, 8)).astype(np.float32))
    arguments = (phi, np.arange(n_rows), 10)
    found = Finder(behind).find(*arguments, explain=True)
    for twin in (Finder(behind).find_torch(*arguments, explain=True), Finder(multiplied).find_torch(*arguments)):
        np.testing.assert_allclose(found.scores, twin.scores, rtol=1e-4, atol=1e-7)
        np.testing.assert_array_equal(found.labels, twin.labels)
    candidates = Ragged(np.arange(n_rows + 1) * 60, np.tile(np.arange(60, dtype=np.int32), n_rows))
    scored = [Finder(network).score(phi, np.arange(n_rows), 10, candidates) for network in (behind, multiplied)]
    np.testing.assert_allclose(scored[0].scores, scored[1].scores, rtol=1e-4, atol=1e-7)


@settings(max_examples=20)
@given(SEEDS)
def test_gradients_are_those_of_the_classifiers_multiplied_out(seed: int) -> None:
    """With W = V P: dV = dW P^T, dP = V^T dW; loss, phi, clusters, edges and biases are the same."""
    rng = np.random.default_rng(seed)
    behind, multiplied = with_projection(random_network(rng, 8), rng, 3)
    phi, batch = torch.from_numpy(rng.normal(size=(7, 8)).astype(np.float32)), random_batch(rng, 7, 60)
    assert behind.projection is not None
    found, wanted = gradients_of(behind, phi, batch), gradients_of(multiplied, phi, batch)
    grad_W, V, P = wanted.pop("classifier_weights"), behind.trained_weights.values.numpy(), behind.projection.weight
    P = P.detach().numpy()
    room = {"rtol": 2e-3, "atol": 2e-5}
    np.testing.assert_allclose(found.pop("classifier_weights"), grad_W @ P.T, **room)
    np.testing.assert_allclose(behind.projection.weight.grad, V.T @ grad_W, **room)
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, **room, err_msg=name)


def test_the_start_keeps_the_main_directions() -> None:
    rng = np.random.default_rng(0)
    phi = torch.from_numpy((rng.normal(size=(500, 3)) @ rng.normal(size=(3, 10))).astype(np.float32))
    layer = start.main_directions(GivenPhi(10), phi, 500, 3)
    seen = layer(phi).detach()
    np.testing.assert_allclose(seen @ seen.T, phi @ phi.T, rtol=1e-4, atol=1e-3)  # of rank 3: nothing is lost
    np.testing.assert_allclose(layer.weight.detach() @ layer.weight.detach().T, np.eye(3), atol=1e-5)
    layer = start.random_directions(10, 4, rng)
    np.testing.assert_allclose(layer.weight.detach() @ layer.weight.detach().T, np.eye(4), atol=1e-5)


def test_clusters_start_as_without_a_projection_where_nothing_is_lost() -> None:
    rng = np.random.default_rng(1)
    phi = torch.from_numpy(rng.normal(size=(40, 6)).astype(np.float32))
    labels = dense.random_ragged(rng, 40, 12, 3)
    matrix = sp.csr_matrix((np.ones(len(labels.labels), np.float32), labels.labels, labels.indptr), (40, 12))
    clusters = rng.integers(-1, 4, 12)
    whole = start.random_directions(6, 6, rng)  # a rotation: lengths stay as they are
    sums = start.label_sums(GivenPhi(6), phi, matrix, projection=whole)
    found = start.cluster_sums_of_rows(GivenPhi(6), phi, matrix, sums, clusters, 4)
    wanted = start.cluster_sums(start.label_sums(GivenPhi(6), phi, matrix), clusters, 4)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_fit_predict_save_load_compact(tiny_dataset: Path, tmp_path: Path) -> None:
    data, options = elias.load_dataset(tiny_dataset), elias.Settings().updated({**SMALL, "model.label_dim": 10})
    model = elias.fit(data, settings=options, run_dir=tmp_path / "run")
    assert model.network.classifier_weights.width == 10
    texts = [data.splits["test"].texts[row] for row in range(8)]
    found = model.predict(texts, k=5, explain=True)
    model.save(tmp_path / "model")
    again = elias.load(tmp_path / "model").predict(texts, k=5)
    np.testing.assert_array_equal(found.labels, again.labels)
    np.testing.assert_array_equal(found.scores, again.scores)
    small = compact(model, precision="bfloat16").predict(texts, k=5)
    np.testing.assert_allclose(small.scores, found.scores, rtol=0.2)
    for column in range(5):
        parts = [found.parts[name][:, column] for name in ("cluster_score", "edge_score", "classifier")]
        np.testing.assert_allclose(np.prod(parts, axis=0), found.scores[:, column], rtol=1e-5)
    truth = data.splits["test"].labels[:8].toarray()
    assert truth[np.arange(8), found.labels[:, 0]].mean() >= 0.25


def test_a_projection_that_is_none_is_refused() -> None:
    wide = elias.Settings().updated({**SMALL, "model.label_dim": 16})
    with pytest.raises(SettingsError, match=r"model\.label_dim=16: phi has encoder\.dim=16 dimensions; say less"):
        elias.fit(Dataset.from_lists(["a b", "c d"] * 20, [["x"], ["y"]] * 20), settings=wide)
    with pytest.raises(SettingsError, match=r"model\.label_dim=-1: must be at least 0"):
        elias.Settings().updated({"model.label_dim": -1})
