"""bfloat16 rows in training: stochastic rounding, keyed by (noise of the step, row, column).

    bits of the float32 + 16 random bits, cut off below the upper 16

A value is rounded up as often as it is near the upper neighbour, so that steps much smaller than the spacing of
bfloat16 add up to what they should. The random bits are a hash and not a stream: they do not depend on the order of the
rows, on threads, or on where a run was stopped. Twin: `elias.core.rounding.rounded_reference`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numba.extending import overload

from .numbers import as_float


@njit(cache=True, nogil=True)
def mix(x):  # type: ignore[no-untyped-def]
    """A 32-bit finaliser, as in `elias.core.noise`."""
    x = np.uint32(x)
    x = np.uint32(np.uint32(x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D))
    x = np.uint32(np.uint32(x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B))
    return np.uint32(x ^ (x >> np.uint32(16)))


@njit(cache=True, nogil=True)
def noise_of_row(noise, row):  # type: ignore[no-untyped-def]
    return mix(mix(np.uint32(np.uint64(row) & np.uint64(0xFFFFFFFF))) ^ np.uint32(noise))


@njit(cache=True, nogil=True)
def rounded(value, row_noise, column):  # type: ignore[no-untyped-def]
    """The bits of a bfloat16 below or above `value`."""
    drawn = mix(np.uint32(row_noise) + np.uint32(np.uint32(column) * np.uint32(0x9E3779B9))) & np.uint32(0xFFFF)
    bits = np.float32(value).view(np.uint32)
    return np.uint16(np.uint32(bits + drawn) >> np.uint32(16))


def put(row: Any, column: Any, value: Any, row_noise: Any) -> None:
    """row[column] = value, rounded where the row is bfloat16 (uint16). Compiled code only."""
    raise NotImplementedError


@overload(put)
def _put(row, column, value, row_noise):  # type: ignore[no-untyped-def]
    if str(row.dtype) == "uint16":

        def put_rounded(row, column, value, row_noise):  # type: ignore[no-untyped-def]
            row[column] = rounded(value, row_noise, column)

        return put_rounded

    def put_as_it_is(row, column, value, row_noise):  # type: ignore[no-untyped-def]
        row[column] = value

    return put_as_it_is


@njit(cache=True, nogil=True, error_model="numpy")
def decay_rows(start, stop, values, decayed, decay_sum, noise):  # type: ignore[no-untyped-def]
    """Give rows start..stop the decay they are pending_decay. A row that is pending_decay nothing stays as it is."""
    for row in range(start, stop):
        if decayed[row] != decay_sum:
            keep, row_noise, value = np.float32(np.exp(decay_sum - decayed[row])), noise_of_row(noise, row), values[row]
            decayed[row] = decay_sum
            for d in range(value.size):
                put(value, d, keep * as_float(value[d]), row_noise)


@njit(cache=True, nogil=True, error_model="numpy")
def average_rows(start, stop, mean, values, weight, noise):  # type: ignore[no-untyped-def]
    """mean += weight * (values - mean), for rows start..stop."""
    share = np.float32(weight)
    for row in range(start, stop):
        row_noise, old, new = noise_of_row(noise, row), mean[row], values[row]
        for d in range(old.size):
            m = as_float(old[d])
            put(old, d, m + share * (as_float(new[d]) - m), row_noise)
