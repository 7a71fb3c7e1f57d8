"""Label classifiers on the CPU: z = w_l . phi + b_l over a shortlist, and its gradients.

Pairs (row, label) are grouped by label, so each classifier row is read once a batch and nothing of size
batch x K x d exists. A range owns its labels; gradients of phi are summed range by range in a fixed order.
Twin: `elias.classifiers.scores_torch`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

# Sums may be reassociated and contracted (SIMD); NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "nsz"}


@njit(cache=True, nogil=True)
def group_by_label(labels_BS, place_of):  # type: ignore[no-untyped-def]
    """Group flat positions of a shortlist by label; -1 pads are left out.

    `place_of` is scratch of size L with any content: a place is believed only if that group has this label, so
    nothing here takes time in proportion to L. Returns the labels in rising order (neighbouring rows of a table
    are read one after another), their ranges, and the flat positions.
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
    unique = np.sort(unique[:n_unique])
    for place in range(n_unique):
        place_of[unique[place]] = place
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
def forward(start, stop, unique, starts, positions, width, phi_BD, weights_LD, owed_U, biases_U, z):  # type: ignore[no-untyped-def]
    """Fill the flat scores of the labels unique[start:stop]; the classifier of label u is owed[u] * weights."""
    dim = phi_BD.shape[1]
    for u in range(start, stop):
        weights = weights_LD[unique[u]]
        owed, bias = owed_U[u], biases_U[u]
        for p in range(starts[u], starts[u + 1]):
            position = positions[p]
            phi = phi_BD[position // width]
            total = np.float32(0.0)
            for d in range(dim):
                total += weights[d] * phi[d]
            z[position] = owed * total + bias


@njit(cache=True, nogil=True, fastmath=FAST)
def backward(  # type: ignore[no-untyped-def]
    start, stop, unique, starts, positions, width, phi_BD, weights_LD, owed_U, grad_z, grad_UD, grad_bias_U
):
    """Gradients of the classifiers unique[start:stop] and this range's share of the gradient of phi."""
    n_rows, dim = phi_BD.shape
    grad_phi = np.zeros((n_rows, dim), dtype=np.float32)
    for u in range(start, stop):
        weights = weights_LD[unique[u]]
        grad = grad_UD[u]
        grad[:] = np.float32(0.0)
        total = np.float32(0.0)
        for p in range(starts[u], starts[u + 1]):
            position = positions[p]
            g = grad_z[position]
            if g == 0.0:
                continue
            row = position // width
            phi = phi_BD[row]
            out, g_owed = grad_phi[row], g * owed_U[u]
            for d in range(dim):
                grad[d] += g * phi[d]
                out[d] += g_owed * weights[d]
            total += g
        grad_bias_U[u] = total
    return grad_phi
