"""Bounds of p = yhat * sigmoid(w . phi + b) from int8 codes of w: which rows need not be read in full.

A row is w = scale * code + rest. phi is quantized too, phi = step * whole + left with 16-bit integers `whole`, and so

    w . phi = scale * step * (code . whole)  +  rest . phi  +  scale * (code . left)

The first product is a sum of integers, which is exact and fast. The others are bounded by Cauchy-Schwarz,

    |rest . phi| <= |rest| |phi|            |scale * code . left| <= scale * 127 sqrt(D) * |left|

where the error bound of a row (`kernels/quantization.py`) holds |rest| with room for rounding. If z is off by at most
`error`, then sigmoid(z - error) <= sigmoid of the exact z <= sigmoid(z + error), because sigmoid rises.

In: candidates of a query in its scratch. Out: `low_at` and `high_at` of each, low <= p <= high.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numba.extending import register_jitable

from .exponent import exp
from .prefetch import fetch
from .steps import FAST

AHEAD = 12  # rows ahead of the one being read that are prefetched
SLACK = 1e-6  # more than the relative rounding error of sigmoid, of the product and of z itself
LEAST = 1e-43  # more than the rounding error of denormal floats, which have few digits
LARGEST_CODE = 127
MOST = 2**31 - 1  # that a sum of integer products may reach


@njit(cache=True, nogil=True, error_model="numpy")
def quantize_query(phi):  # type: ignore[no-untyped-def]
    """(whole, step, |left|) of phi = step * whole + left; integers so small that no sum with codes overflows."""
    limit = max(1, min(32767, MOST // (LARGEST_CODE * max(1, phi.size))))
    largest = 0.0
    for value in phi:
        largest = max(largest, abs(np.float64(value)))
    whole = np.zeros(phi.size, dtype=np.int16)
    step = largest / limit
    square = 0.0
    for d in range(phi.size):
        value = np.float64(phi[d])
        if step > 0.0:
            whole[d] = np.int16(np.rint(value / step))
        square += (value - step * whole[d]) ** 2
    return whole, step, math.sqrt(square) * (1.0 + 1e-6)


@register_jitable
def whole_dot(codes, whole):  # type: ignore[no-untyped-def]
    total = np.int32(0)
    for d in range(whole.size):
        total = np.int32(total + np.int32(np.int32(codes[d]) * np.int32(whole[d])))
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def bound_scores(first, count, phi, phi_norm, classifiers, scratch):  # type: ignore[no-untyped-def]
    """Bounds low_at and high_at of the scores p of the candidates first..count, from int8 codes."""
    whole, step, left = quantize_query(phi)
    approximate_logits(first, count, whole, step, left, phi_norm, classifiers, scratch)
    bounds_of(first, count, scratch.yhat_at, scratch.low_at, scratch.high_at)


@njit(cache=True, nogil=True, error_model="numpy")
def approximate_logits(first, count, whole, step, left, phi_norm, classifiers, scratch):  # type: ignore[no-untyped-def]
    """z of the candidates into low_at, how far it can be off into high_at; phi is given quantized."""
    label_at, dim = scratch.label_at, whole.size
    flat, facts = classifiers.codes.reshape(-1), classifiers.facts.reshape(-1)
    norm, per_scale = np.float64(phi_norm), LARGEST_CODE * math.sqrt(dim) * left
    for i in range(first, count):
        if i + AHEAD < count:
            ahead = np.int64(label_at[i + AHEAD])
            fetch(flat, ahead, dim)
            fetch(facts, ahead, 4)
        label = np.int64(label_at[i])
        scale, bias = np.float64(facts[4 * label]), np.float64(facts[4 * label + 1])
        z = scale * step * whole_dot(classifiers.codes[label], whole) + bias
        error = np.float64(facts[4 * label + 2]) * norm + scale * per_scale + SLACK * (abs(z) + abs(bias))
        scratch.low_at[i], scratch.high_at[i] = z, error * (1.0 + SLACK) + LEAST


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def bounds_of(first, count, yhat_at, low_at, high_at):  # type: ignore[no-untyped-def]
    """z in low_at and its error in high_at become bounds of yhat * sigmoid(z)."""
    for i in range(first, count):
        z, error, yhat = np.float64(low_at[i]), np.float64(high_at[i]), np.float64(yhat_at[i])
        low = yhat / (1.0 + exp(error - z)) * (1.0 - SLACK) - LEAST
        high = yhat / (1.0 + exp(-error - z)) * (1.0 + SLACK) + LEAST
        low_at[i] = low if low > 0.0 else 0.0
        high_at[i] = high
