"""exp in a form that a loop can do several of at once; `math.exp` is a call for each.

    x = k ln 2 + r,  |r| <= ln 2 / 2,   exp(x) = 2^k (1 + r + r^2/2 + ... + r^12/12!)

Off by at most 1e-15, relatively. Twin: `numpy.exp`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

LARGEST = 700.0  # arguments beyond are taken as this; exp(-700) is 1e-304
SHIFT = 6755399441055744.0  # 1.5 * 2^52: adding it leaves the nearest whole number in the low bits
PER_LN2 = 1.4426950408889634
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10


# Not "reassoc": x + SHIFT - SHIFT is meant as it stands.
@njit(cache=True, nogil=True, fastmath={"contract", "nsz"}, error_model="numpy")
def exp(x):  # type: ignore[no-untyped-def]
    """exp of a float64 between -700 and 700."""
    x = x if x > -LARGEST else -LARGEST
    x = x if x < LARGEST else LARGEST
    shifted = x * PER_LN2 + SHIFT
    k = shifted - SHIFT
    r = x - k * LN2_HIGH - k * LN2_LOW
    p = 1.0 / 479001600
    p = p * r + 1.0 / 39916800
    p = p * r + 1.0 / 3628800
    p = p * r + 1.0 / 362880
    p = p * r + 1.0 / 40320
    p = p * r + 1.0 / 5040
    p = p * r + 1.0 / 720
    p = p * r + 1.0 / 120
    p = p * r + 1.0 / 24
    p = p * r + 1.0 / 6
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    power = (np.float64(shifted).view(np.int64) + np.int64(1023)) << np.int64(52)
    return p * np.int64(power).view(np.float64)


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")
def sum_of_exp(values, highest):  # type: ignore[no-untyped-def]
    """Sum of exp(value - highest), in float64."""
    total = 0.0
    for i in range(values.size):
        total += exp(np.float64(values[i]) - highest)
    return total
