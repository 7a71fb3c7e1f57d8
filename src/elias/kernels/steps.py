"""Row-sparse optimiser steps on the CPU: only the rows that have a gradient are read and written.

Each row has its own step count (for bias correction) and remembers the decay it has already received, so
weight decay is applied lazily and still equals decay at every step. Twins: `elias.tables.adamw_torch` and
`elias.tables.rowwise_torch`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from .classifiers import FAST

# error_model="numpy": a division that may raise would keep the inner loops from being vectorised.


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def adamw_rows(  # type: ignore[no-untyped-def]
    start, stop, rows, gradients, values, first, second, steps, decayed, decay_sum, rate, beta1, beta2, epsilon
):
    """AdamW of rows[start:stop], a first and a second moment for every value."""
    b1, b2, eps = np.float32(beta1), np.float32(beta2), np.float32(epsilon)
    rest1, rest2 = np.float32(1.0 - beta1), np.float32(1.0 - beta2)
    for i in range(start, stop):
        row = rows[i]
        steps[row] += 1
        keep = np.float32(math.exp(decay_sum - decayed[row]))
        decayed[row] = decay_sum
        size = np.float32(rate / (1.0 - beta1 ** steps[row]))
        root = np.float32(1.0 / math.sqrt(1.0 - beta2 ** steps[row]))
        value, m, v, gradient = values[row], first[row], second[row], gradients[i]
        for d in range(values.shape[1]):
            g = gradient[d]
            m_d = b1 * m[d] + rest1 * g
            v_d = b2 * v[d] + rest2 * (g * g)
            m[d], v[d] = m_d, v_d
            value[d] = keep * value[d] - size * m_d / (np.sqrt(v_d) * root + eps)


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def rowwise_rows(  # type: ignore[no-untyped-def]
    start, stop, rows, gradients, values, second, steps, decayed, decay_sum, rate, beta2, epsilon
):
    """Rows[start:stop] with one second moment a row and no first moment."""
    dim = values.shape[1]
    for i in range(start, stop):
        row = rows[i]
        steps[row] += 1
        keep = np.float32(math.exp(decay_sum - decayed[row]))
        decayed[row] = decay_sum
        value, gradient = values[row], gradients[i]
        square = np.float32(0.0)
        for d in range(dim):
            square += gradient[d] * gradient[d]
        second[row] = beta2 * second[row] + (1.0 - beta2) * square / dim
        root = math.sqrt(second[row] / (1.0 - beta2 ** steps[row]))
        size = np.float32(rate / (root + epsilon))
        for d in range(dim):
            value[d] = keep * value[d] - size * gradient[d]
