"""W_C phi of one row on the CPU: one pass over W_C, which is all that a product with one row is.

Twin: the `nn.Linear` itself.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .steps import FAST

TOGETHER = 4  # clusters at a time, so that their sums do not wait for each other


@njit(cache=True, nogil=True, fastmath=FAST)
def logits_of(start, stop, phi, weights_CD, biases_C, out_C):  # type: ignore[no-untyped-def]
    """w_c . phi + b_c of the clusters start..stop."""
    dim = phi.size
    cluster = start
    while cluster + TOGETHER <= stop:
        rows = weights_CD[cluster : cluster + TOGETHER]
        a, b, c, d = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
        for i in range(dim):
            a += rows[0, i] * phi[i]
            b += rows[1, i] * phi[i]
            c += rows[2, i] * phi[i]
            d += rows[3, i] * phi[i]
        out_C[cluster], out_C[cluster + 1] = a + biases_C[cluster], b + biases_C[cluster + 1]
        out_C[cluster + 2], out_C[cluster + 3] = c + biases_C[cluster + 2], d + biases_C[cluster + 3]
        cluster += TOGETHER
    for last in range(cluster, stop):
        total = np.float32(0.0)
        for i in range(dim):
            total += weights_CD[last, i] * phi[i]
        out_C[last] = total + biases_C[last]
