"""How a stage starts: centroids of phi, and random classifiers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from elias.training import initialization as start


class GivenPhi:
    kind, dim = "given", 4

    def encode(self, prepared: torch.Tensor, rows: np.ndarray, context: Any = None) -> torch.Tensor:
        return prepared[torch.from_numpy(rows)]


@pytest.mark.parametrize("n_rows", [0, 1, 23])
def test_label_sums_are_y_transposed_times_phi(n_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "ENCODE_BATCH", 5)
    phi = torch.randn(n_rows, 4, generator=torch.Generator().manual_seed(0))
    labels = sp.random(n_rows, 9, density=0.3, format="csr", dtype=np.float32, random_state=0)
    found = start.phi_sums_by_label(GivenPhi(), phi, labels)
    np.testing.assert_allclose(found, labels.toarray().T @ phi.numpy(), rtol=1e-5, atol=1e-6)
    assert found.dtype == np.float32


def test_unit_rows_leave_zero_rows_alone() -> None:
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
