"""Row-sparse AdamW on the CPU: only the rows that have a gradient are read and written.

Each row has its own step count (for bias correction) and remembers the decay it has already received, so
weight decay is applied lazily and still equals decay at every step. Twin: `elias.tables.adamw_torch`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from .classifiers import FAST


@njit(cache=True, nogil=True, fastmath=FAST)
def step_rows(
    start, stop, rows, grads, values, first, second, steps, decayed, decay_sum, rate, beta1, beta2, epsilon
):  # type: ignore[no-untyped-def]
    dim = values.shape[1]
    for i in range(start, stop):
        row = rows[i]
        steps[row] += 1
        keep = np.float32(math.exp(decay_sum - decayed[row]))
        decayed[row] = decay_sum
        correction1 = 1.0 - beta1 ** steps[row]
        correction2 = 1.0 - beta2 ** steps[row]
        size = np.float32(rate / correction1)
        root = np.float32(1.0 / math.sqrt(correction2))
        b1, b2, eps = np.float32(beta1), np.float32(beta2), np.float32(epsilon)
        one = np.float32(1.0)
        value, m, v, grad = values[row], first[row], second[row], grads[i]
        for d in range(dim):
            g = grad[d]
            m[d] = b1 * m[d] + (one - b1) * g
            v[d] = b2 * v[d] + (one - b2) * g * g
            value[d] = keep * value[d] - size * m[d] / (np.sqrt(v[d]) * root + eps)


@njit(cache=True, nogil=True, fastmath=FAST)
def step_rows_shared(
    start, stop, rows, grads, values, second, steps, decayed, decay_sum, rate, beta2, epsilon
):  # type: ignore[no-untyped-def]
    """One second moment a row, no first moment: the cheapest adaptive step."""
    dim = values.shape[1]
    for i in range(start, stop):
        row = rows[i]
        steps[row] += 1
        keep = np.float32(math.exp(decay_sum - decayed[row]))
        decayed[row] = decay_sum
        value, grad = values[row], grads[i]
        square = np.float32(0.0)
        for d in range(dim):
            square += grad[d] * grad[d]
        second[row, 0] = beta2 * second[row, 0] + (1.0 - beta2) * square / dim
        root = math.sqrt(second[row, 0] / (1.0 - beta2 ** steps[row]))
        size = np.float32(rate / (root + epsilon))
        for d in range(dim):
            value[d] = keep * value[d] - size * grad[d]
