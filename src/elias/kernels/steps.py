"""Row-sparse optimizer steps on the CPU: only the rows that have a gradient are read and written.

Each row has its own step count (for bias correction) and remembers the decay it has already received, so
weight decay is applied lazily and still equals decay at every step. Rows may be bfloat16 (uint16), which are rounded
stochastically; `noise` is that of the step. Twins: the `..._torch` functions of `elias.core.row_optimizers`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from .numbers import as_float
from .rounding import noise_of_row, put

# Sums may be reassociated and contracted (SIMD); NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "nsz"}

# error_model="numpy": a division that may raise would keep the inner loops from being vectorised.


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def adamw_rows(  # type: ignore[no-untyped-def]
    start, stop, rows, gradients, values, first, second, steps, decayed, decay_sum, rate, beta1, beta2, epsilon,
    noise,
):  # fmt: skip
    """AdamW of rows[start:stop], a first and a second moment for every value."""
    b1, b2, eps = np.float32(beta1), np.float32(beta2), np.float32(epsilon)
    rest1, rest2 = np.float32(1.0 - beta1), np.float32(1.0 - beta2)
    # Neighbouring rows mostly have the same past: exp and powers are computed when it changes.
    count, size, root = np.int32(-1), np.float32(0.0), np.float32(0.0)
    had, keep = math.nan, np.float32(0.0)
    for i in range(start, stop):
        row = rows[i]
        steps[row] += 1
        if decayed[row] != had:
            had = decayed[row]
            keep = np.float32(math.exp(decay_sum - had))
        decayed[row] = decay_sum
        if steps[row] != count:
            count = steps[row]
            size = np.float32(rate / (1.0 - beta1**count))
            root = np.float32(1.0 / math.sqrt(1.0 - beta2**count))
        value, m, v, gradient = values[row], first[row], second[row], gradients[i]
        row_noise = noise_of_row(noise, row)
        for d in range(values.shape[1]):
            g = gradient[d]
            m_d = b1 * m[d] + rest1 * g
            v_d = b2 * v[d] + rest2 * (g * g)
            m[d], v[d] = m_d, v_d
            put(value, d, keep * as_float(value[d]) - size * m_d / (np.sqrt(v_d) * root + eps), row_noise)


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def rowwise_step(row, value, gradient, second, steps, decayed, decay_sum, rate, beta2, epsilon, noise):  # type: ignore[no-untyped-def]
    """One row with one second moment and no first moment; `value` is that row."""
    dim = value.size
    steps[row] += 1
    keep = np.float32(math.exp(decay_sum - decayed[row]))
    decayed[row] = decay_sum
    square = np.float32(0.0)
    for d in range(dim):
        square += gradient[d] * gradient[d]
    second[row] = beta2 * second[row] + (1.0 - beta2) * square / dim
    root = math.sqrt(second[row] / (1.0 - beta2 ** steps[row]))
    size, row_noise = np.float32(rate / (root + epsilon)), noise_of_row(noise, row)
    for d in range(dim):
        put(value, d, keep * as_float(value[d]) - size * gradient[d], row_noise)


@njit(cache=True, nogil=True)
def rowwise_rows(  # type: ignore[no-untyped-def]
    start, stop, rows, gradients, values, second, steps, decayed, decay_sum, rate, beta2, epsilon, noise
):
    """`rowwise_step` of rows[start:stop]."""
    for i in range(start, stop):
        row = rows[i]
        rowwise_step(row, values[row], gradients[i], second, steps, decayed, decay_sum, rate, beta2, epsilon, noise)


@njit(cache=True, nogil=True)
def pending_decay_rows(start, stop, rows, decayed, decay_sum, out):  # type: ignore[no-untyped-def]
    """The factor of decay that rows[start:stop] still lack."""
    had, pending_decay = math.nan, np.float32(0.0)
    for i in range(start, stop):
        if decayed[rows[i]] != had:
            had = decayed[rows[i]]
            pending_decay = np.float32(math.exp(decay_sum - had))
        out[i] = pending_decay
