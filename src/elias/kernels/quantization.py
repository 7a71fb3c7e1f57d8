"""Rows of classifiers in fewer bytes: int8 codes with an error bound, and bfloat16.

    int8       row = scale * code + rest, code in -127..127
    bfloat16   the upper 16 bits of a float32, rounded to the nearest, ties to even

Definitions: `elias.network.quantization`, in numpy.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .numbers import as_float


@njit(cache=True, nogil=True, error_model="numpy")
def encode_rows(start, stop, rows, codes, scales, errors):  # type: ignore[no-untyped-def]
    """row = scale * code + rest for rows start..stop, code within -127..127; `errors` bounds |rest| and rounding.

    A sum of n products in float32, in any order, is off by at most n 2^-24 |w| |phi|; the codes' sum and the exact
    sum may both be. The search adds the rounding of the bias.
    """
    dim = rows.shape[1]
    for row in range(start, stop):
        largest = np.float32(0.0)
        for d in range(dim):
            largest = max(largest, abs(as_float(rows[row, d])))
        # A row whose numbers are too small to divide by has codes 0, and is all rest.
        scale = np.float32(largest / np.float32(127.0)) if largest > np.float32(1e-30) else np.float32(0.0)
        inverse = np.float32(1.0) / scale if scale > 0 else np.float32(0.0)
        scales[row] = scale
        square, rest_square = 0.0, 0.0
        for d in range(dim):
            value = as_float(rows[row, d])
            code = np.int32(np.rint(min(max(value * inverse, np.float32(-127.0)), np.float32(127.0))))
            codes[row, d] = code
            rest = np.float64(value) - np.float64(scale) * code
            square += np.float64(value) * value
            rest_square += rest * rest
        errors[row] = bound(np.sqrt(square), np.sqrt(rest_square), dim)


@njit(cache=True, nogil=True)
def bound(norm, rest_norm, dim):  # type: ignore[no-untyped-def]
    """|rest| and the rounding of two sums of `dim` products, for a phi of length 1."""
    return (rest_norm + 2.0 * (dim + 8) * 2.0**-24 * (norm + rest_norm)) * (1.0 + 1e-6)


@njit(cache=True, nogil=True)
def code_errors(start, stop, codes, scales, errors):  # type: ignore[no-untyped-def]
    """`errors` where the codes are the rows themselves: rounding alone."""
    dim = codes.shape[1]
    for row in range(start, stop):
        square = 0.0
        for d in range(dim):
            square += np.float64(codes[row, d]) * codes[row, d]
        errors[row] = bound(np.float64(scales[row]) * np.sqrt(square), 0.0, dim)


@njit(cache=True, nogil=True)
def round_to_bfloat16(start, stop, rows, out):  # type: ignore[no-untyped-def]
    """The nearest bfloat16 of every value, as its 16 bits; ties to even."""
    for row in range(start, stop):
        for d in range(rows.shape[1]):
            # Adding 0x7FFF carries into the upper half where the lower one is above its middle; adding the lowest bit
            # of the upper half too makes the middle itself go to the even neighbor.
            bits = np.float32(rows[row, d]).view(np.uint32)
            out[row, d] = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
