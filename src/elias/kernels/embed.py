"""phi and W_C phi of a few texts on the CPU: `bag` and `head` of the encoder and the cluster layer in one pass a text.

    h = sum of value * E_word,   n = h / |h|,   u = n + gelu(R n + r),   phi = radius * u / |u|,   logits = W_C phi + b

Torch needs more time to be called than a text takes here; many texts are quicker there. Twin: `Finder.look`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from .steps import FAST

LEAST = np.float32(1e-12)  # of a length that is divided by


class Embedding(NamedTuple):
    """The weights, float32; a Linear's rows are its outputs."""

    words: np.ndarray  # E [W, D]
    residual: np.ndarray  # R [D, D]
    residual_bias: np.ndarray  # r
    clusters: np.ndarray  # W_C [C, D]
    cluster_bias: np.ndarray
    radius: np.float32


@njit(cache=True, nogil=True)
def embed_rows(start, stop, x_indptr, x_words, x_values, weights, phi_BD, logits_BC):  # type: ignore[no-untyped-def]
    """phi and logits of rows start..stop."""
    dim = phi_BD.shape[1]
    n, moved = np.empty(dim, dtype=np.float32), np.empty(dim, dtype=np.float32)
    for row in range(start, stop):
        n[:] = np.float32(0.0)
        for j in range(x_indptr[row], x_indptr[row + 1]):
            add_scaled(n, weights.words[x_words[j]], x_values[j])
        length = length_of(n)
        phi = phi_BD[row]
        if length > 0.0:
            n /= max(length, LEAST)
            products_with(weights.residual, weights.residual_bias, n, moved)
            for d in range(dim):
                phi[d] = n[d] + gelu(moved[d])
            phi *= weights.radius / max(length_of(phi), LEAST)
        else:
            phi[:] = np.float32(0.0)
        products_with(weights.clusters, weights.cluster_bias, phi, logits_BC[row])


@njit(cache=True, nogil=True, fastmath=FAST)
def add_scaled(total, row, value):  # type: ignore[no-untyped-def]
    for d in range(len(total)):
        total[d] += value * row[d]


@njit(cache=True, nogil=True, fastmath=FAST)
def length_of(row):  # type: ignore[no-untyped-def]
    square = np.float32(0.0)
    for value in row:
        square += value * value
    return np.float32(math.sqrt(square))


@njit(cache=True, nogil=True, fastmath=FAST)
def products_with(weights, bias, x, out):  # type: ignore[no-untyped-def]
    """out = W x + b"""
    for i in range(len(out)):
        row, total = weights[i], np.float32(0.0)
        for d in range(len(x)):
            total += row[d] * x[d]
        out[i] = total + bias[i]


@njit(cache=True, nogil=True)
def gelu(value):  # type: ignore[no-untyped-def]
    return np.float32(0.5 * value * (1.0 + math.erf(value * math.sqrt(0.5))))
