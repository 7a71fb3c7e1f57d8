"""How a stage starts: centroids of phi, and random classifiers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from elias.core.settings import Settings
from elias.index.label_index import LabelIndex
from elias.network.network import Network
from elias.training import initialization as start
from elias.training.trainer import Stage, TrainingRows


class GivenPhi:
    kind, dim = "given", 4

    def __init__(self) -> None:
        self.calls = 0

    def encode(self, prepared: torch.Tensor, rows: np.ndarray, context: Any = None) -> torch.Tensor:
        self.calls += 1
        return prepared[torch.from_numpy(rows)]

    def tables(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize("n_rows", [0, 1, 23])
def test_phi_by_label_is_y_transposed_times_phi(n_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "ENCODE_BATCH", 5)
    phi = torch.randn(n_rows, 4, generator=torch.Generator().manual_seed(0))
    labels = sp.random(n_rows, 9, density=0.3, format="csr", dtype=np.float32, random_state=0)
    found, length = start.phi_by_label(GivenPhi(), phi, labels)
    assert length == pytest.approx(phi.norm(dim=1).mean().item() if n_rows else 1.0, rel=1e-5)
    np.testing.assert_allclose(found, labels.toarray().T @ phi.numpy(), rtol=1e-5, atol=1e-6)
    assert found.dtype == np.float32


def test_normalized_rows_leave_zero_rows_alone() -> None:
    found = start.normalized_rows(np.float32([[3, 4], [0, 0], [0, 1e-15]]))
    np.testing.assert_allclose(found, [[0.6, 0.8], [0, 0], [0, 1]], rtol=1e-6)


def test_a_popular_label_does_not_rule_its_cluster() -> None:
    sums = np.float32([[100, 0], [0, 1], [5, 5], [7, 7]])
    found = start.centroid_sums_by_cluster(sums, np.array([0, 0, 2, -1]), 3)
    np.testing.assert_allclose(found, [[1, 1], [0, 0], [0.5**0.5, 0.5**0.5]], rtol=1e-6)


def test_random_classifiers_fill_their_ranges() -> None:
    weights, biases = start.random_classifiers(2000, 16, np.random.default_rng(0))
    assert weights.dtype == biases.dtype == np.float32
    assert 0.24 < weights.max() <= 0.25
    assert -0.25 <= weights.min() < -0.24
    assert abs(weights.mean()) < 0.005
    assert 0 <= biases.min() < 0.01
    assert 0.99 < biases.max() < 1


def test_random_clusters_are_those_of_a_linear_layer_from_our_draws() -> None:
    layer = start.random_clusters(500, 16, np.random.default_rng(0))
    again = start.random_clusters(500, 16, np.random.default_rng(0))
    usual = torch.nn.Linear(16, 500)
    for found, same, torchs in zip(layer.parameters(), again.parameters(), usual.parameters(), strict=True):
        assert torch.equal(found, same)
        assert (found.shape, found.dtype) == (torchs.shape, torchs.dtype)
        assert 0.24 < found.max() <= 0.25
        assert -0.25 <= found.min() < -0.24
        assert abs(found.detach().std() - torchs.detach().std()) < 0.02


PHI = 3.0 * torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
CLUSTER_OF_LABEL = np.arange(9, dtype=np.int32) % 3


def start_of(
    changes: dict[str, Any], previous: Network | None = None, name: str = "30-stage1"
) -> tuple[Network, GivenPhi]:
    """A network at the start of a stage, and its encoder."""
    labels = sp.csr_matrix(np.eye(9, dtype=np.float32)[np.arange(30) % 9])
    rows = TrainingRows(PHI, labels, sp.csr_matrix(labels.shape), np.ones(30, dtype=np.float32))
    settings = Settings().updated({"index.shortlist_size": 5, "run.threads": 1, **changes})
    stage = Stage(name, settings, settings.stage1 if previous is None else settings.stage2)
    encoder, index = GivenPhi(), LabelIndex.from_clusters(CLUSTER_OF_LABEL, 3)
    device = torch.device("cpu")
    return start.new_network(encoder, index, rows, CLUSTER_OF_LABEL, stage, device=device, previous=previous), encoder


RANDOM = {"index.cluster_weights": "random", "stage1.classifiers": "random", "stage2.classifiers": "random"}


@pytest.mark.parametrize(
    ("changes", "second", "passes"),
    [
        ({}, False, 1),
        ({"stage1.classifiers": "random"}, False, 1),  # W_C starts from centroids
        ({"index.cluster_weights": "random"}, False, 1),  # W_L does
        (RANDOM, False, 0),
        ({}, True, 0),  # W_L is carried over
        ({"stage2.classifiers": "random"}, True, 0),
        ({"stage2.classifiers": "centroids"}, True, 1),
    ],
)
def test_rows_are_encoded_only_where_something_starts_from_centroids(
    changes: dict[str, Any], second: bool, passes: int
) -> None:
    previous = start_of({})[0] if second else None
    _, encoder = start_of(changes, previous)
    assert encoder.calls == passes


def test_random_starts_depend_on_seed_member_and_stage_alone() -> None:
    def weights(name: str = "30-stage1", **changes: int) -> list[torch.Tensor]:
        network, _ = start_of({**RANDOM, **{f"run.{key}": value for key, value in changes.items()}}, name=name)
        return [network.clusters.weight, network.clusters.bias, network.trained_weights.values]

    first = weights()
    for other in (weights(), weights(threads=2)):
        assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    for other in (weights(seed=1), weights(member=1), weights("22-first-stage")):
        assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_stage_two_starts_classifiers_afresh_or_carries_them() -> None:
    previous, _ = start_of(RANDOM)
    old = previous.trained_weights.values
    carried, _ = start_of({}, previous, "50-stage2")
    assert torch.equal(carried.trained_weights.values, old)
    assert carried.trained_weights.values.data_ptr() != old.data_ptr()
    afresh, _ = start_of(RANDOM, previous, "50-stage2")
    assert not (afresh.trained_weights.values == old).any()
    biases = afresh.classifier_biases.values
    assert 0 <= biases.min() < biases.max() < 1
    assert carried.clusters is previous.clusters
    assert afresh.clusters is previous.clusters  # W_C continues


def test_without_a_head_centroids_are_scaled_by_the_length_of_phi() -> None:
    """The largest logit is the gain for a text of typical length, whatever length phi has."""
    radius, gain = Settings().encoder.radius, Settings().stage1.gain
    with_head, _ = start_of({})
    bare = {"encoder.kind": "transformer", "encoder.head": "none"}
    without, _ = start_of(bare)
    length = PHI.norm(dim=1).mean()
    for network, expected in ((with_head, gain / radius), (without, gain / length)):
        for weights in (network.trained_weights.values, network.clusters.weight):
            torch.testing.assert_close(weights.norm(dim=1), torch.full((len(weights),), float(expected)))
