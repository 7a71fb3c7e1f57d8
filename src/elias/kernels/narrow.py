"""Making what `kernels.find` reads: int8 codes of rows with an error bound, bfloat16 rows, edges by falling score."""

from __future__ import annotations

import numpy as np
from numba import njit

from .numbers import as_float
from .paths import LOW32, key_of


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
        # A row of numbers too small to divide by has codes 0, and is all rest.
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
            bits = np.float32(rows[row, d]).view(np.uint32)
            out[row, d] = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)


@njit(cache=True, nogil=True)
def sort_edges(start, stop, indptr, labels, scores, sorted_labels, sorted_scores):  # type: ignore[no-untyped-def]
    """The edges of clusters start..stop by falling score, equal scores by label."""
    for cluster in range(start, stop):
        first, count = indptr[cluster], indptr[cluster + 1] - indptr[cluster]
        keys = np.empty(count, dtype=np.uint64)
        for i in range(count):
            keys[i] = key_of(scores[first + i], labels[first + i])
        keys.sort()
        for i in range(count):
            key = keys[count - 1 - i]
            sorted_labels[first + i] = np.int32(LOW32 - (key & LOW32))
            # Scores are not negative, so the upper half is the score's bits with the sign bit set.
            sorted_scores[first + i] = np.uint32((key >> np.uint64(32)) & np.uint64(0x7FFFFFFF)).view(np.float32)
