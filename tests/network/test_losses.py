"""Equations (7) and (8) against dense float64, and the compiled term of (7) against its definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elias.network.losses import classification_loss, pair_loss, pair_terms, shortlist_loss


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_classification_loss_is_a_mean_over_batch_and_widest_row(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 5)), int(rng.integers(1, 7)))
    z, yhat = rng.normal(scale=2, size=shape), rng.uniform(0.01, 1.0, shape)
    y, real = rng.choice([0.0, 0.5, 1.0], shape), rng.random(shape) < 0.7
    weight = rng.choice([0.0, 1.0, 2.5], shape[0])
    p = yhat / (1 + np.exp(-z))
    terms = np.where(y > 0, y * np.log(p), np.log(1 - p)) * real * weight[:, None]
    expected = -terms.sum() / max(1, shape[0] * real.sum(axis=1).max())
    floats = [torch.tensor(x, dtype=torch.float32) for x in (z, np.log(yhat), y)]
    found = classification_loss(*floats, torch.tensor(real), torch.tensor(weight, dtype=torch.float32))
    assert found.item() == pytest.approx(expected, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("z", [-100.0, -20.0, 0.0, 20.0, 100.0])
@pytest.mark.parametrize("log_yhat", [-1000.0, -100.0, -1e-8, 0.0])
@pytest.mark.parametrize("y", [0.0, 1.0])
def test_nothing_is_infinite_at_the_extremes(z: float, log_yhat: float, y: float) -> None:
    leaves = [torch.full((1, 1), value, requires_grad=True) for value in (z, log_yhat)]
    loss = classification_loss(*leaves, torch.full((1, 1), y), torch.ones(1, 1, dtype=torch.bool), torch.ones(1))
    loss = loss + shortlist_loss(leaves[1].flatten(), torch.ones(1), 1, 1)
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(leaf.grad).all() for leaf in leaves)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_positive_is_pulled_up_however_far_its_cluster_trails(dtype: torch.dtype) -> None:
    log_yhat = torch.tensor([-40.0, -400.0], dtype=dtype, requires_grad=True)
    shortlist_loss(log_yhat, torch.ones(2, dtype=dtype), 1, 2).backward()
    assert log_yhat.grad.tolist() == [-0.5, -0.5]
    assert pair_loss(0.0, -400.0, 1.0)[2] == 1.0


@pytest.mark.parametrize("z", [10.0, 20.0, 60.0])
@pytest.mark.parametrize("log_yhat", [0.0, -1e-9])
def test_a_negative_is_pushed_down_however_certain_it_is(z: float, log_yhat: float) -> None:
    leaf = torch.tensor(z, requires_grad=True)
    term = pair_terms(leaf, torch.tensor(log_yhat), torch.tensor(0.0))
    term.backward()
    exact = np.logaddexp(-z, np.log(-np.expm1(log_yhat)) if log_yhat else -np.inf)  # log(1 - p), nearly
    assert pair_loss(z, log_yhat, 0.0)[0] == pytest.approx(exact, rel=1e-4)
    if log_yhat == 0.0:
        assert term.item() == pytest.approx(exact, rel=1e-4)
        assert leaf.grad.item() == pytest.approx(-1.0, abs=1e-4)
        assert pair_loss(z, log_yhat, 0.0)[1] == pytest.approx(-1.0, abs=1e-4)


EXTREMES = [
    (z, log_yhat, y)
    for z in (-700.0, -100.0, -20.0, -1.0, 0.0, 1.0, 13.0, 14.0, 20.0, 100.0, 700.0)
    for log_yhat in (-1e4, -700.0, -30.0, -5.0, np.log(0.5), -1e-3, -1e-5, -1e-7, -1e-15, 0.0)
    for y in (0.0, 0.5, 1.0, 2.0)
]


@settings(max_examples=300)
@given(
    st.one_of(
        st.sampled_from(EXTREMES),
        st.tuples(st.floats(-40, 40), st.floats(-100, 0, allow_subnormal=False), st.sampled_from([0.0, 0.5, 1.0, 2.0])),
    )
)
def test_the_compiled_pair_has_the_value_and_the_derivatives_of_its_definition(
    pair: tuple[float, float, float],
) -> None:
    """Fails when one of `pair_terms` and `pair_loss` is changed without the other."""
    z, log_yhat, y = (torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in pair)
    term = pair_terms(z, log_yhat, y)
    grad_z, grad_log_yhat = torch.autograd.grad(term, [z, log_yhat])
    expected = [term.item(), grad_z.item(), grad_log_yhat.item()]
    assert pair_loss(*pair) == pytest.approx(expected, rel=1e-6, abs=1e-14)  # two sigmoids near 1 differ by 1e-16


def test_pads_have_no_gradient() -> None:
    z, log_yhat = torch.zeros(1, 2, requires_grad=True), torch.full((1, 2), -0.7, requires_grad=True)
    real = torch.tensor([[True, False]])
    classification_loss(z, log_yhat, torch.zeros(1, 2), real, torch.ones(1)).backward()
    assert z.grad[0, 0] > 0
    assert z.grad[0, 1] == log_yhat.grad[0, 1] == 0


def test_shortlist_loss_counts_unreached_positives_as_zero() -> None:
    found = shortlist_loss(torch.tensor([0.5, 0.1]).log(), torch.tensor([1.0, 2.0]), n_rows=3, most_positives=4)
    assert found.item() == pytest.approx(-(np.log(0.5) + 2 * np.log(0.1)) / 12, rel=1e-5)


def test_an_empty_batch_of_anything_is_zero() -> None:
    nothing = torch.empty(2, 0)
    assert classification_loss(nothing, nothing, nothing, nothing.bool(), torch.ones(2)).item() == 0
    assert shortlist_loss(torch.empty(0), torch.empty(0), 2, 0).item() == 0
