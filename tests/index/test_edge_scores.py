"""Equation (5): the kernels against their definition, values and gradients, and against dense numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import helpers.dense_equations as dense
from elias import kernels
from elias.index.edge_scores import edge_scores
from elias.kernels.edge_scores import backward, forward


@settings(max_examples=30)
@given(st.integers(0, 100_000))
def test_edge_scores_and_gradients_are_the_dense_formula(seed: int) -> None:
    rng = np.random.default_rng(seed)
    index = dense.random_index(rng, 6, 20, density=rng.choice([0.0, 0.1, 0.6]))
    expected = dense.edge_scores(index)[index.clusters, index.labels]
    np.testing.assert_allclose(index.edge_scores(), expected, rtol=1e-5)
    gradients, upstream = [], torch.from_numpy(rng.normal(size=index.n_edges).astype(np.float32))
    for by_definition in (False, True):
        leaf = torch.from_numpy(index.logits).clone().requires_grad_()
        with kernels.reference(by_definition):
            found = edge_scores(leaf, index.indptr, index.beta, threads=3)
        np.testing.assert_allclose(found.e_F.numpy(), expected, rtol=1e-5)
        np.testing.assert_allclose(found.log_F.detach().numpy(), np.log(expected), rtol=1e-5, atol=1e-6)
        found.log_F.backward(upstream)
        gradients.append(leaf.grad.numpy())
    np.testing.assert_allclose(*gradients, rtol=1e-4, atol=1e-6)


def test_edge_scores_do_not_depend_on_where_memory_lies() -> None:
    """Arrays one behind the other, as a small heap lays them, and far apart."""
    rng = np.random.default_rng(0)
    indptr = np.asarray([0, 60, 120, 180, 240])
    logits, grad = rng.normal(size=(2, 240)).astype(np.float32)
    answers = set()
    for gap in (0, 4, 16, 64, 4096):
        buffer = np.empty(3 * (240 + gap), dtype=np.float32)
        scaled, logs, out = (part[:240] for part in np.split(buffer, 3))
        forward(0, 4, indptr, logits, 15.0, scaled, logs)
        backward(0, 4, indptr, scaled, logs, 15.0, grad, out)
        answers.add((scaled.tobytes(), logs.tobytes(), out.tobytes()))
    assert len(answers) == 1


def test_an_edge_that_trails_far_behind_still_learns() -> None:
    """e itself is 0 in float32; its logarithm and the gradient are not."""
    for by_definition in (False, True):
        logits = torch.tensor([0.0, -200.0], requires_grad=True)
        with kernels.reference(by_definition):
            found = edge_scores(logits, np.asarray([0, 2]), 1.5)
        assert found.e_F[1] == 0
        assert found.log_F[1].item() == pytest.approx(np.log(1.5) - 200, rel=1e-6)
        found.log_F[1].backward()
        assert logits.grad.tolist() == pytest.approx([-1.0, 1.0])
