"""Encoding of queries on the CPU: the bag encoder, its head and the cluster layer in one pass per text.

    h = sum of value * E_word,   n = h / |h|,   u = n + gelu(R n + r),   phi = radius * u / |u|,   logits = W_C phi + b

A dozen torch calls take longer than a text takes here, and each gives up the GIL, which a busy service then waits for.
Definition: the encoder and the cluster layer themselves (`Searcher.encode`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from .numbers import as_float
from .steps import FAST

LEAST = np.float32(1e-12)  # of a length that is divided by
AT_ONCE = 8  # texts for which weights are read once


class QueryWeights(NamedTuple):
    """The weights, float32; a Linear's rows are its outputs."""

    words: np.ndarray  # E [W, D]; or the bits of bfloat16
    residual: np.ndarray  # R [D, D]
    residual_bias: np.ndarray  # r
    clusters: np.ndarray  # W_C [C, D]
    cluster_bias: np.ndarray
    radius: np.float32


@njit(cache=True, nogil=True)
def encode_rows(start, stop, x_indptr, x_words, x_values, weights, phi_BD, logits_BC):  # type: ignore[no-untyped-def]
    """phi and logits of rows start..stop, a few at a time, so that weights are read once for all of them."""
    dim = phi_BD.shape[1]
    some = min(AT_ONCE, max(1, stop - start))
    n, moved = np.empty((some, dim), dtype=np.float32), np.empty((some, dim), dtype=np.float32)
    for first in range(start, stop, some):
        last = min(first + some, stop)
        for row in range(first, last):
            place = slice(x_indptr[row], x_indptr[row + 1])
            bag_of(x_words[place], x_values[place], weights.words, n[row - first])
        products_with(weights.residual, weights.residual_bias, n[: last - first], moved)
        for row in range(first, last):
            residual_gelu(n[row - first], moved[row - first], weights.radius, phi_BD[row])
        products_with(weights.clusters, weights.cluster_bias, phi_BD[first:last], logits_BC[first:last])


@njit(cache=True, nogil=True)
def bag_of(words, values, vectors, n):  # type: ignore[no-untyped-def]
    """h / |h|, or 0 where no word is known."""
    n[:] = np.float32(0.0)
    for j in range(len(words)):
        add_scaled(n, vectors[words[j]], values[j])
    length = length_of(n)
    if length > 0.0:
        n /= max(length, LEAST)


@njit(cache=True, nogil=True)
def residual_gelu(n, moved, radius, phi):  # type: ignore[no-untyped-def]
    """phi of n and R n + r."""
    if length_of(n) == 0.0:
        phi[:] = np.float32(0.0)
        return
    for d in range(len(n)):
        phi[d] = n[d] + gelu(moved[d])
    phi *= radius / max(length_of(phi), LEAST)


@njit(cache=True, nogil=True, fastmath=FAST)
def add_scaled(total, row, value):  # type: ignore[no-untyped-def]
    for d in range(len(total)):
        total[d] += value * as_float(row[d])


@njit(cache=True, nogil=True, fastmath=FAST)
def length_of(row):  # type: ignore[no-untyped-def]
    square = np.float32(0.0)
    for value in row:
        square += value * value
    return np.float32(math.sqrt(square))


@njit(cache=True, nogil=True, fastmath=FAST)
def products_with(weights, bias, rows, out):  # type: ignore[no-untyped-def]
    """out[r] = W rows[r] + b"""
    for i in range(len(bias)):
        weight = weights[i]
        for r in range(len(rows)):
            x, total = rows[r], np.float32(0.0)
            for d in range(len(x)):
                total += weight[d] * x[d]
            out[r, i] = total + bias[i]


@njit(cache=True, nogil=True)
def gelu(value):  # type: ignore[no-untyped-def]
    return np.float32(0.5 * value * (1.0 + math.erf(value * math.sqrt(0.5))))
