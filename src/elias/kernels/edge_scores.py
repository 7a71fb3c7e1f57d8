"""Equation (5) on the CPU: e = min(1, beta * softmax) and log e over ragged rows of edge logits, and the gradient.

    log e_l = min(0, x_l),  x = log beta + log softmax(a),  e_l = exp(log e_l)
    with g the gradient of log e where it is not clamped, 0 elsewhere:
    grad_l = g_l - softmax_l * sum_m g_m               since d log softmax_m / d a_l = [m = l] - softmax_l

In: CSR rows of logits. Out: x and exp(x), which the caller clamps, and the gradient of the logits. A range
owns its rows. Definition: `elias.index.edge_scores.edge_scores_reference`.

Sums are loops of their own, which write nothing. A compiler turns a loop that adds up and writes into two versions,
one for arrays that may overlap and one for arrays that do not, and these add in different orders: the result would
depend on where memory happens to lie.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from .steps import FAST


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def forward(start, stop, indptr, logits, beta, scaled, logs):  # type: ignore[no-untyped-def]
    """beta * softmax of rows start..stop and its logarithm, not yet clamped."""
    for row in range(start, stop):
        first, last = indptr[row], indptr[row + 1]
        highest = np.float32(-np.inf)
        for i in range(first, last):
            highest = max(highest, logits[i])
        total = np.float32(0.0)
        for i in range(first, last):
            scaled[i] = np.exp(logits[i] - highest)
        for i in range(first, last):
            total += scaled[i]
        factor, shift = np.float32(beta) / total, np.float32(math.log(beta) - math.log(total)) - highest
        for i in range(first, last):
            scaled[i] *= factor
            logs[i] = logits[i] + shift


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def backward(start, stop, indptr, scaled, logs, beta, grad, out):  # type: ignore[no-untyped-def]
    """Gradient of the logits of rows start..stop; a clamped edge passes none on."""
    zero, inverse = np.float32(0.0), np.float32(1.0 / beta)
    for row in range(start, stop):
        first, last = indptr[row], indptr[row + 1]
        total = zero
        for i in range(first, last):
            out[i] = grad[i] if logs[i] <= zero else zero
        for i in range(first, last):
            total += out[i]
        total *= inverse
        for i in range(first, last):
            out[i] -= scaled[i] * total
