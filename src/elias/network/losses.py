"""The loss of a batch: L = L_c + lambda * L_s, equations (7) and (8).

    (7)  L_c = - mean over batch x shortlist of  y log p of a positive, log(1 - p) of a negative;  p = sigmoid(z) yhat
    (8)  L_s = - mean over batch x most of       log yhat of the positives that any explored path reaches

`most` is the largest number of positives of a row in the batch; positives that no path reaches add 0. A positive with
weight y counts y times; a row with weight w counts w times. Everything is computed from z and log yhat, so a positive
is pulled up however far its cluster trails, and a negative is pushed down however certain it is:

    log p       = log sigmoid(z) + log yhat
    log (1 - p) = log( sigmoid(-z) + sigmoid(z) (1 - yhat) )        never the difference of two numbers near 1

To change (7), edit two functions, which stand next to each other: `pair_terms`, the definition in torch, whose
derivatives autograd finds, and `pair_loss`, the same term of one pair with its derivatives by hand, which is compiled
and trains on a CPU. tests/network/test_losses.py fails if they disagree. What follows them needs no change: the torch
mean over the shortlist, and the compiled loops over the pairs of each label.

Shapes: B batch, S shortlist, P positives, D dimension, L labels, U labels of the batch, each once.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from numba import njit
from torch import Tensor

from .. import kernels
from ..kernels.classifiers import products_of, spread
from ..kernels.prefetch import fetch
from ..kernels.steps import rowwise_step

NEAR_ONE = 1e-6  # a negative whose yhat is this near to 1 passes no gradient to it: 1 / (1 - p) has no bound
LOG_HALF = math.log(0.5)
AHEAD = 2  # classifiers fetched before they are read


# -- (7) of one pair, twice -------------------------------------------------------------------------------------------


def pair_terms(z: Tensor, log_yhat: Tensor, y: Tensor) -> Tensor:
    """y log p of a positive with weight y, log(1 - p) of a negative (y = 0)."""
    log_p = F.logsigmoid(z) + log_yhat
    # log(1 - p) in two ways: of a small p log1p keeps the digits, of a large p log sigmoid(-z) does.
    small = torch.log1p(-torch.exp(log_p).clamp(max=0.5))
    rest = -torch.expm1(log_yhat)  # 1 - yhat
    rest = torch.where(rest < NEAR_ONE, rest.detach(), rest)
    log_rest = torch.log(torch.where(rest > 0, rest, 1.0))
    large = F.logsigmoid(-z) - torch.where(rest > 0, F.logsigmoid(-z - log_rest), 0.0)
    return torch.where(y > 0, y * log_p, torch.where(log_p < LOG_HALF, small, large))


@njit(cache=True, nogil=True, error_model="numpy")
def pair_loss(z, log_yhat, y):  # type: ignore[no-untyped-def]
    """(term, its derivatives with respect to z and log yhat) of one pair in float64."""
    raised = math.exp(-abs(z))  # never overflows; both halves of the sigmoid follow from it
    sigma = (1.0 if z >= 0.0 else raised) / (1.0 + raised)
    not_sigma = (raised if z >= 0.0 else 1.0) / (1.0 + raised)
    if y > 0.0:
        log_sigma = min(z, 0.0) - math.log1p(raised)
        return y * (log_sigma + log_yhat), y * not_sigma, y
    yhat, rest = math.exp(log_yhat), -math.expm1(log_yhat)
    p, not_p = sigma * yhat, not_sigma + sigma * rest
    odds, is_small = p / not_p, p < 0.5
    term = math.log1p(-p) if is_small else math.log(not_p)
    return term, -odds * not_sigma, -odds if is_small or rest >= NEAR_ONE else 0.0


# -- means over a batch, in torch -------------------------------------------------------------------------------------


def classification_loss(
    z_BS: Tensor, log_yhat_BS: Tensor, y_BS: Tensor, real_BS: Tensor, weight_B: Tensor, own_BS: Tensor | None = None
) -> Tensor:
    """(7). `real_BS` is false at pads; `weight_B` is the weight of each row.

    `own_BS`: the pairs to sum, of all that the mean is over; the others are summed by other processes (`sharding.py`).
    """
    summed_BS = real_BS if own_BS is None else own_BS
    terms_BS = pair_terms(z_BS, log_yhat_BS, y_BS).masked_fill(~summed_BS, 0.0)
    return -(terms_BS.sum(dim=1) * weight_B).sum() / mean_over(real_BS)


def mean_over(real_BS: Tensor) -> Tensor:
    """What (7) is a mean over: batch x the longest shortlist. A tensor, so that a GPU is not waited for."""
    if not real_BS.numel():
        return torch.ones((), device=real_BS.device)
    return (real_BS.sum(dim=1).amax() * len(real_BS)).clamp(min=1)


def shortlist_loss(log_yhat_P: Tensor, weight_P: Tensor, n_rows: int, most_positives: int) -> Tensor:
    """(8) over the reached positives of the batch, flat; `weight_P` is label weight times row weight."""
    return -(weight_P * log_yhat_P).sum() / max(1, n_rows * most_positives)


# -- sums over the pairs of each label, compiled ----------------------------------------------------------------------
# Pairs are grouped by label, so each classifier is read once per batch, and a pair's score, loss and gradients are made
# while its classifier is in the cache. A range owns its labels; the gradient of phi is summed range by range in a fixed
# order, so results do not depend on the number of threads. `scale_B` is the factor of a row's terms in the loss, sign
# included; the classifier of label u is pending_U[u] * weights (decay that has not been written yet).


@njit(cache=True, nogil=True, error_model="numpy")
def label_loss(  # type: ignore[no-untyped-def]
    pairs, width, phi_BD, log_yhat, y, scale_B, weights, pending, bias, grad_log_yhat, grad, grad_phi, grad_z
):
    """Loss of one label's pairs, and gradient of its bias; `grad` is written, `grad_phi` added to, `grad_z` scratch."""
    total, grad_bias = 0.0, np.float32(0.0)
    products_of(pairs, width, phi_BD, weights, grad_z)
    for p in range(len(pairs)):
        position, scale = pairs[p], scale_B[pairs[p] // width]
        z = np.float64(np.float32(pending * grad_z[p] + bias))
        term, of_z, of_log_yhat = pair_loss(z, np.float64(log_yhat[position]), np.float64(y[position]))
        total += scale * term
        grad_log_yhat[position] = scale * of_log_yhat
        grad_z[p] = np.float32(scale * of_z)
        grad_bias += grad_z[p]
    grad[:] = np.float32(0.0)
    spread(pairs, width, grad_z, pending, phi_BD, weights, grad, grad_phi)
    return total, grad_bias


@njit(cache=True, nogil=True)
def loss_and_gradients(  # type: ignore[no-untyped-def]
    start, stop, unique, starts, positions, width, phi_BD, log_yhat, y, scale_B,
    weights_LD, pending_U, biases_U, grad_log_yhat, grad_bias_U, grad_UD,
):  # fmt: skip
    """Share of the labels start..stop in the loss and in the gradient of phi; the other gradients are written."""
    grad_phi, total = np.zeros(phi_BD.shape, dtype=np.float32), 0.0
    grad_z = np.empty(len(phi_BD), dtype=np.float32)
    for u in range(start, stop):
        loss, grad_bias_U[u] = label_loss(
            positions[starts[u] : starts[u + 1]], width, phi_BD, log_yhat, y, scale_B,
            weights_LD[unique[u]], pending_U[u], biases_U[u], grad_log_yhat, grad_UD[u], grad_phi, grad_z,
        )  # fmt: skip
        total += loss
    return total, grad_phi


@njit(cache=True, nogil=True)
def loss_and_step(  # type: ignore[no-untyped-def]
    start, stop, unique, starts, positions, width, phi_BD, log_yhat, y, scale_B,
    weights_LD, pending_U, biases_U, grad_log_yhat, grad_bias_U, second, steps, decayed, decay_sum, rate, beta2,
    epsilon, noise,
):  # fmt: skip
    """`loss_and_gradients` with the row-wise optimizer step of each classifier while it is in the cache.

    Safe without a copy of the weights: a row belongs to one label, a label to one range, and all its pairs are done.
    """
    dim, flat = phi_BD.shape[1], weights_LD.reshape(-1)
    grad_phi, total = np.zeros(phi_BD.shape, dtype=np.float32), 0.0
    grad, grad_z = np.empty(dim, dtype=np.float32), np.empty(len(phi_BD), dtype=np.float32)
    for u in range(start, stop):
        if u + AHEAD < stop:  # rows are at random places of a table larger than the cache
            fetch(flat, unique[u + AHEAD], dim)
        weights = weights_LD[unique[u]]
        loss, grad_bias_U[u] = label_loss(
            positions[starts[u] : starts[u + 1]], width, phi_BD, log_yhat, y, scale_B,
            weights, pending_U[u], biases_U[u], grad_log_yhat, grad, grad_phi, grad_z,
        )  # fmt: skip
        total += loss
        rowwise_step(unique[u], weights, grad, second, steps, decayed, decay_sum, rate, beta2, epsilon, noise)
    return total, grad_phi


kernels.register(__file__, loss_and_step)
