"""Label classifiers on the CPU: z = w_l . phi + b_l over a shortlist, and the gradients that follow from dL/dz.

Pairs (row, label) are grouped by label, so each classifier is read once per batch and nothing of size batch x K x d
exists. `forward` is `elias.network.classifiers.scores_reference`; the loss that calls the rest is in
`elias.network.losses`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .numbers import as_float
from .steps import FAST


@njit(cache=True, nogil=True)
def group_by_label(labels_BS, place_of):  # type: ignore[no-untyped-def]
    """Flat positions of a shortlist grouped by label, pads (-1) left out: (labels, starts of their groups, positions).

    `place_of` is scratch of size L with any content: an entry counts only if that group has this label, so no step
    takes time in proportion to L. Labels keep the order of their first position: labels of one row, and of the rows
    that resemble it, stand together in the tables that are read in this order.
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
    """w . phi of a label's pairs, four at a time: a weight that is in a register serves four products."""
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
def spread(pairs, width, by_z, pending, phi_BD, weights, grad, grad_phi):  # type: ignore[no-untyped-def]
    """Add dL/dz of a label's pairs (`by_z`) to the label's gradient and to the gradients of phi of their rows."""
    dim, fours = weights.size, len(pairs) - len(pairs) % 4
    for p in range(0, fours, 4):
        row0, row1, row2, row3 = pairs[p] // width, pairs[p + 1] // width, pairs[p + 2] // width, pairs[p + 3] // width
        phi0, phi1, phi2, phi3 = phi_BD[row0], phi_BD[row1], phi_BD[row2], phi_BD[row3]
        out0, out1, out2, out3 = grad_phi[row0], grad_phi[row1], grad_phi[row2], grad_phi[row3]
        g0, g1, g2, g3 = by_z[p], by_z[p + 1], by_z[p + 2], by_z[p + 3]
        for d in range(dim):
            grad[d] += g0 * phi0[d] + g1 * phi1[d] + g2 * phi2[d] + g3 * phi3[d]
        g0, g1, g2, g3 = g0 * pending, g1 * pending, g2 * pending, g3 * pending
        for d in range(dim):
            w = as_float(weights[d])
            out0[d] += g0 * w
            out1[d] += g1 * w
            out2[d] += g2 * w
            out3[d] += g3 * w
    for p in range(fours, len(pairs)):
        row, g, g_pending = pairs[p] // width, by_z[p], by_z[p] * pending
        phi, out = phi_BD[row], grad_phi[row]
        for d in range(dim):
            grad[d] += g * phi[d]
        for d in range(dim):
            out[d] += g_pending * as_float(weights[d])


@njit(cache=True, nogil=True)
def forward(start, stop, unique, starts, positions, width, phi_BD, weights_LD, pending_U, biases_U, z):  # type: ignore[no-untyped-def]
    """Flat scores z of the labels unique[start:stop]; the classifier of label u is pending_U[u] * weights."""
    products = np.empty(len(phi_BD), dtype=np.float32)
    for u in range(start, stop):
        pairs = positions[starts[u] : starts[u + 1]]
        products_of(pairs, width, phi_BD, weights_LD[unique[u]], products)
        for p in range(len(pairs)):
            z[pairs[p]] = pending_U[u] * products[p] + biases_U[u]
