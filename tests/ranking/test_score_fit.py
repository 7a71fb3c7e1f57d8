"""Learning the score model: its examples, its schedule, and the kernel against autograd."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from elias.core.settings import ScoreModelSettings
from elias.kernels.score_fit import loss_gradient
from elias.kernels.score_model import N_INPUTS
from elias.ranking.score_fit import (
    BETA1,
    LEARNING_RATE,
    Examples,
    TrainingCandidates,
    _listwise_and_binary_loss,
    fit_score,
    one_cycle,
)


def random_candidates(seed: int, texts: int = 150, m: int = 20) -> TrainingCandidates:
    """Candidates of which the right ones have larger inputs; some texts have none, or only right ones."""
    rng = np.random.default_rng(seed)
    real = np.arange(m) < rng.integers(0, m + 1, size=(texts, 1))
    right = (rng.random((texts, m)) < 0.2) & real
    right[::10] = real[::10]
    inputs = (rng.standard_normal((texts, m, N_INPUTS)) + right[..., None]).astype(np.float32)
    return TrainingCandidates(inputs, right, real)


def test_the_schedule_is_that_of_torch() -> None:
    for n_steps in (1, 2, 3, 10, 999):
        optimizer = torch.optim.AdamW([torch.zeros(1)], lr=LEARNING_RATE)
        cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=n_steps + 1)
        rates, betas = one_cycle(n_steps)
        for step in range(n_steps):
            group = optimizer.param_groups[0]
            assert rates[step] == pytest.approx(group["lr"], rel=1e-6)
            assert betas[step] == pytest.approx(group["betas"][0], rel=1e-6)
            optimizer.step()
            cycle.step()
        assert BETA1[1] <= betas.min() <= betas.max() <= BETA1[0]


@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_the_gradient_is_that_of_autograd(scale: float) -> None:
    """Texts of all right or all wrong candidates, samples that stand for several, scores far beyond exp's range."""
    rng = np.random.default_rng(0)
    texts, width = 12, 9
    y = (rng.random((texts, width)) < 0.3).astype(np.float32)
    y[0], y[1] = 1, 0
    counts = np.where(y > 0, 1, rng.integers(1, 9, y.shape)).astype(np.float32)
    values = (rng.standard_normal(y.shape) * scale).astype(np.float32)
    z = torch.from_numpy(values.astype(np.float64)).requires_grad_()
    _listwise_and_binary_loss(z, torch.from_numpy(y).double(), torch.from_numpy(counts).double()).backward()
    starts, back = np.arange(0, y.size + 1, width), np.empty(y.size, dtype=np.float32)
    loss_gradient(values.ravel(), y.ravel(), counts.ravel(), starts, back)
    assert z.grad is not None
    np.testing.assert_allclose(back.reshape(y.shape), z.grad.numpy(), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("negatives", [0, 6])
@pytest.mark.parametrize("units", [1, 4, 32])
def test_the_kernel_learns_what_autograd_learns(negatives: int, units: int) -> None:
    candidates = random_candidates(units)
    texts = np.random.default_rng(1).permutation(150)[:131]
    settings = ScoreModelSettings(hidden_units=units, epochs=4, negatives=negatives)
    kernel, definition = (fit_score(candidates, texts, settings, 3, fast=fast) for fast in (True, False))
    ours, theirs = (found.of_inputs(candidates.inputs)[candidates.real] for found in (kernel, definition))
    assert np.ptp(theirs) > 0.5
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=2e-3)  # 12 steps of sums in another order


def test_a_step_has_every_right_candidate_and_a_sample_of_the_wrong_ones() -> None:
    candidates = random_candidates(7, texts=30, m=40)
    right, real = candidates.right, candidates.real
    rows, rng = np.flatnonzero(right.any(axis=1)), np.random.default_rng(0)
    sampled, whole = Examples(right, real, rows, 5), Examples(right, real, rows, 0)
    places = np.arange(len(rows))
    totals = np.zeros(right.shape)
    for _ in range(2000):
        columns, y, counts = sampled(places, rng)
        np.testing.assert_array_equal(counts[y > 0], 1)
        np.testing.assert_array_equal(y.sum(axis=1), right[rows].sum(axis=1))
        np.add.at(totals, (np.broadcast_to(rows[:, None], columns.shape), columns), counts)
    means = totals[rows] / 2000
    np.testing.assert_array_equal(means[right[rows]], 1)
    np.testing.assert_array_equal(means[~real[rows]], 0)
    wrong = (real & ~right)[rows]
    assert means[wrong] == pytest.approx(1, abs=0.35), "in the mean, the sample stands for every wrong candidate once"
    np.testing.assert_allclose((means * wrong).sum(axis=1), wrong.sum(axis=1), rtol=1e-5)
    columns, y, counts = whole(places, rng)
    np.testing.assert_array_equal(np.take_along_axis(right[rows], columns, axis=1), y)
    np.testing.assert_array_equal(counts, real[rows])
