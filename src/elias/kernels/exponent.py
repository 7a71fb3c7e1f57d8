"""exp written out, so that a compiler computes several at once (SIMD); `math.exp` is one call per number.

    x = k ln 2 + r,  |r| <= ln 2 / 2,   exp(x) = 2^k (1 + r + r^2/2 + ... + r^12/12!)

The relative error is at most 1e-15. Definition: `numpy.exp`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

LARGEST = 700.0  # arguments beyond are taken as this; exp(-700) is 1e-304
SHIFT = 6755399441055744.0  # 1.5 * 2^52: adding it leaves the nearest whole number in the low bits
PER_LN2 = 1.4426950408889634
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10


# Not "reassoc": that would cancel x + SHIFT - SHIFT.
@njit(cache=True, nogil=True, fastmath={"contract", "nsz"}, error_model="numpy")
def exp(x):  # type: ignore[no-untyped-def]
    """exp of a float64 between -700 and 700."""
    x = x if x > -LARGEST else -LARGEST
    x = x if x < LARGEST else LARGEST
    # k = x / ln 2 rounded to an integer: a float64 near 1.5 * 2^52 has no fraction bits, so the addition rounds.
    shifted = x * PER_LN2 + SHIFT
    k = shifted - SHIFT
    # ln 2 in two parts: k * LN2_HIGH is exact, and so r keeps all of its digits.
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
    # 2^k: k stands in the low bits of `shifted`; with the bias 1023 in the exponent field it is a float64.
    power = (np.float64(shifted).view(np.int64) + np.int64(1023)) << np.int64(52)
    return p * np.int64(power).view(np.float64)


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")
def sum_of_exp(values, highest):  # type: ignore[no-untyped-def]
    """Sum of exp(value - highest), in float64."""
    total = 0.0
    for i in range(values.size):
        total += exp(np.float64(values[i]) - highest)
    return total
