"""Equation (5) on the CPU: e = min(1, beta * softmax) over ragged rows of edge logits, and its gradient.

    e_l = min(1, x_l),  x = beta * softmax(a)
    de/da: with g the gradient of e where it is not clamped, 0 elsewhere,
    grad_l = x_l * (g_l - sum_m g_m x_m / beta)        since d softmax_m / d a_l = softmax_m ([m = l] - softmax_l)

In: CSR rows of logits. Out: x, which the caller clamps, and the gradient of the logits. A range owns its rows.
Definition: `elias.index.edge_scores.edge_scores_reference`.

Sums are loops of their own, which write nothing. A compiler turns a loop that adds up and writes into two versions,
one for arrays that may overlap and one for arrays that do not, and these add in different orders: the result would
depend on where memory happens to lie.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .steps import FAST


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def forward(start, stop, indptr, logits, beta, scaled):  # type: ignore[no-untyped-def]
    """beta * softmax of rows start..stop, not yet clamped."""
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
        factor = np.float32(beta) / total
        for i in range(first, last):
            scaled[i] *= factor


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def backward(start, stop, indptr, scaled, beta, grad, out):  # type: ignore[no-untyped-def]
    """Gradient of the logits of rows start..stop; a clamped edge passes none on."""
    one, inverse = np.float32(1.0), np.float32(1.0 / beta)
    for row in range(start, stop):
        first, last = indptr[row], indptr[row + 1]
        total = np.float32(0.0)
        for i in range(first, last):
            out[i] = grad[i] * scaled[i] if scaled[i] <= one else np.float32(0.0)
        for i in range(first, last):
            total += out[i]
        total *= inverse
        for i in range(first, last):
            out[i] -= scaled[i] * total
