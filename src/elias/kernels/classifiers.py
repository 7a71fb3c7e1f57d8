"""Label classifiers on the CPU: z = w_l . phi + b_l over a shortlist, and the loss (7) with all its gradients.

Pairs (row, label) are grouped by label, so each classifier row is read once a batch and nothing of size
batch x K x d exists. (7) needs nothing but z, yhat and y of the pair, so a pair's score, loss and gradients are made
while its classifier is at hand. A range owns its labels; gradients of phi are summed range by range in a fixed order.
Twins: `elias.network.classifiers.scores_torch`, `elias.network.classifiers.loss_torch`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from .numbers import as_float
from .prefetch import fetch
from .steps import FAST, rowwise_step

AHEAD = 2  # classifiers fetched before they are read


@njit(cache=True, nogil=True)
def group_by_label(labels_BS, place_of):  # type: ignore[no-untyped-def]
    """Group flat positions of a shortlist by label; -1 pads are left out.

    `place_of` is scratch of size L with any content: a place is believed only if that group has this label, so
    nothing here takes time in proportion to L. Returns the labels in the order of their first place, so that labels of
    one row, and of the rows that resemble it, are neighbours; their ranges; and the flat positions.
    """
    flat = labels_BS.ravel()
    unique = np.empty(min(flat.size, place_of.size), dtype=np.int64)
    n_unique = 0
    for i in range(flat.size):
        if flat[i] >= 0:
            place = place_of[flat[i]]
            if not (0 <= place < n_unique and unique[place] == flat[i]):
                unique[n_unique], place_of[flat[i]] = flat[i], n_unique
                n_unique += 1
    unique = unique[:n_unique]
    starts = np.zeros(n_unique + 1, dtype=np.int64)
    for i in range(flat.size):
        if flat[i] >= 0:
            starts[place_of[flat[i]] + 1] += 1
    starts = np.cumsum(starts)
    free = starts[:-1].copy()
    positions = np.empty(starts[n_unique], dtype=np.int64)
    for i in range(flat.size):
        if flat[i] >= 0:
            place = place_of[flat[i]]
            positions[free[place]] = i
            free[place] += 1
    return unique, starts, positions


@njit(cache=True, nogil=True, fastmath=FAST)
def products_of(pairs, width, phi_BD, weights, out):  # type: ignore[no-untyped-def]
    """w . phi of a label's pairs, four at a time, so that the classifier passes through the registers once for four."""
    dim, fours = weights.size, len(pairs) - len(pairs) % 4
    for p in range(0, fours, 4):
        phi0, phi1 = phi_BD[pairs[p] // width], phi_BD[pairs[p + 1] // width]
        phi2, phi3 = phi_BD[pairs[p + 2] // width], phi_BD[pairs[p + 3] // width]
        sum0, sum1, sum2, sum3 = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
        for d in range(dim):
            w = as_float(weights[d])
            sum0 += w * phi0[d]
            sum1 += w * phi1[d]
            sum2 += w * phi2[d]
            sum3 += w * phi3[d]
        out[p], out[p + 1], out[p + 2], out[p + 3] = sum0, sum1, sum2, sum3
    for p in range(fours, len(pairs)):
        phi, total = phi_BD[pairs[p] // width], np.float32(0.0)
        for d in range(dim):
            total += as_float(weights[d]) * phi[d]
        out[p] = total


@njit(cache=True, nogil=True, fastmath=FAST)
def spread(pairs, width, by_z, owed, phi_BD, weights, grad, grad_phi):  # type: ignore[no-untyped-def]
    """What the pairs of a label, with derivatives `by_z`, add to its gradient and to those of their rows."""
    dim, fours = weights.size, len(pairs) - len(pairs) % 4
    for p in range(0, fours, 4):
        row0, row1, row2, row3 = pairs[p] // width, pairs[p + 1] // width, pairs[p + 2] // width, pairs[p + 3] // width
        phi0, phi1, phi2, phi3 = phi_BD[row0], phi_BD[row1], phi_BD[row2], phi_BD[row3]
        out0, out1, out2, out3 = grad_phi[row0], grad_phi[row1], grad_phi[row2], grad_phi[row3]
        g0, g1, g2, g3 = by_z[p], by_z[p + 1], by_z[p + 2], by_z[p + 3]
        for d in range(dim):
            grad[d] += g0 * phi0[d] + g1 * phi1[d] + g2 * phi2[d] + g3 * phi3[d]
        g0, g1, g2, g3 = g0 * owed, g1 * owed, g2 * owed, g3 * owed
        for d in range(dim):
            w = as_float(weights[d])
            out0[d] += g0 * w
            out1[d] += g1 * w
            out2[d] += g2 * w
            out3[d] += g3 * w
    for p in range(fours, len(pairs)):
        row, g, g_owed = pairs[p] // width, by_z[p], by_z[p] * owed
        phi, out = phi_BD[row], grad_phi[row]
        for d in range(dim):
            grad[d] += g * phi[d]
        for d in range(dim):
            out[d] += g_owed * as_float(weights[d])


@njit(cache=True, nogil=True)
def forward(start, stop, unique, starts, positions, width, phi_BD, weights_LD, owed_U, biases_U, z):  # type: ignore[no-untyped-def]
    """Fill the flat scores of the labels unique[start:stop]; the classifier of label u is owed[u] * weights."""
    products = np.empty(len(phi_BD), dtype=np.float32)
    for u in range(start, stop):
        pairs = positions[starts[u] : starts[u + 1]]
        products_of(pairs, width, phi_BD, weights_LD[unique[u]], products)
        for p in range(len(pairs)):
            z[pairs[p]] = owed_U[u] * products[p] + biases_U[u]


@njit(cache=True, nogil=True, error_model="numpy")
def pair_loss(z, yhat, y, tiny, most):  # type: ignore[no-untyped-def]
    """(term of (7), its derivative by z, by yhat) of one pair, as `losses.classification_loss` has them."""
    raised = math.exp(-abs(z))
    sigma = (1.0 if z >= 0.0 else raised) / (1.0 + raised)
    not_sigma = (raised if z >= 0.0 else 1.0) / (1.0 + raised)
    if y > 0.0:
        log_sigma = min(z, 0.0) - math.log1p(raised)
        return y * (log_sigma + math.log(max(yhat, tiny))), y * not_sigma, y / yhat if yhat >= tiny else 0.0
    p = sigma * max(yhat, tiny)
    if p > most:
        return math.log1p(-most), 0.0, 0.0
    odds = 1.0 / (1.0 - p)
    return math.log1p(-p), -p * not_sigma * odds, -sigma * odds if yhat >= tiny else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def label_loss(  # type: ignore[no-untyped-def]
    pairs, width, phi_BD, yhat, y, scale_B, tiny, most, weights, owed, bias, grad_yhat, grad, grad_phi, by_z
):
    """Loss, and gradient of the bias, of one label's pairs; its other gradients are written, grad_phi added to.

    `by_z` is scratch for a number a pair.
    """
    total, grad_bias = 0.0, np.float32(0.0)
    products_of(pairs, width, phi_BD, weights, by_z)
    for p in range(len(pairs)):
        position, scale = pairs[p], scale_B[pairs[p] // width]
        z = np.float64(np.float32(owed * by_z[p] + bias))
        term, of_z, of_yhat = pair_loss(z, np.float64(yhat[position]), np.float64(y[position]), tiny, most)
        total += scale * term
        grad_yhat[position] = scale * of_yhat
        by_z[p] = np.float32(scale * of_z)
        grad_bias += by_z[p]
    grad[:] = np.float32(0.0)
    spread(pairs, width, by_z, owed, phi_BD, weights, grad, grad_phi)
    return total, grad_bias


@njit(cache=True, nogil=True)
def loss_and_gradients(  # type: ignore[no-untyped-def]
    start, stop, unique, starts, positions, width, phi_BD, yhat, y, scale_B, tiny, most,
    weights_LD, owed_U, biases_U, grad_yhat, grad_bias_U, grad_UD,
):  # fmt: skip
    """This range's share of the loss and of the gradient of phi; gradients of yhat and of the classifiers in place.

    `scale_B` is what a term of the row counts for in the loss.
    """
    grad_phi, total = np.zeros(phi_BD.shape, dtype=np.float32), 0.0
    by_z = np.empty(len(phi_BD), dtype=np.float32)
    for u in range(start, stop):
        loss, grad_bias_U[u] = label_loss(
            positions[starts[u] : starts[u + 1]], width, phi_BD, yhat, y, scale_B, tiny, most,
            weights_LD[unique[u]], owed_U[u], biases_U[u], grad_yhat, grad_UD[u], grad_phi, by_z,
        )  # fmt: skip
        total += loss
    return total, grad_phi


@njit(cache=True, nogil=True)
def loss_and_step(  # type: ignore[no-untyped-def]
    start, stop, unique, starts, positions, width, phi_BD, yhat, y, scale_B, tiny, most,
    weights_LD, owed_U, biases_U, grad_yhat, grad_bias_U, second, steps, decayed, decay_sum, rate, beta2, epsilon,
    noise,
):  # fmt: skip
    """`loss_and_gradients`, and the row-wise step of each classifier at once, while it is at hand.

    A row belongs to one label and a label to one range, so nobody else reads a row that has stepped. Rows stand at
    random places, so those of the next labels are fetched ahead.
    """
    dim, flat = phi_BD.shape[1], weights_LD.reshape(-1)
    grad_phi, total = np.zeros(phi_BD.shape, dtype=np.float32), 0.0
    grad, by_z = np.empty(dim, dtype=np.float32), np.empty(len(phi_BD), dtype=np.float32)
    for u in range(start, stop):
        if u + AHEAD < stop:
            fetch(flat, unique[u + AHEAD], dim)
        weights = weights_LD[unique[u]]
        loss, grad_bias_U[u] = label_loss(
            positions[starts[u] : starts[u + 1]], width, phi_BD, yhat, y, scale_B, tiny, most,
            weights, owed_U[u], biases_U[u], grad_yhat, grad, grad_phi, by_z,
        )  # fmt: skip
        total += loss
        rowwise_step(unique[u], weights, grad, second, steps, decayed, decay_sum, rate, beta2, epsilon, noise)
    return total, grad_phi
