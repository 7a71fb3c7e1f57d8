"""Bags of word embeddings on the CPU: h = sum of weight * E_word, and the gradient of the words.

`forward` owns rows of the batch, `backward` owns words; neither copies the table. Definition: torch's `embedding_bag`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .numbers import as_float
from .steps import FAST


@njit(cache=True, nogil=True, fastmath=FAST)
def forward(start, stop, offsets, words, weights, table, h_BD):  # type: ignore[no-untyped-def]
    """h of rows start..stop."""
    dim = table.shape[1]
    for row in range(start, stop):
        h = h_BD[row]
        h[:] = np.float32(0.0)
        for i in range(offsets[row], offsets[row + 1]):
            embedding, weight = table[words[i]], weights[i]
            for d in range(dim):
                h[d] += weight * as_float(embedding[d])


@njit(cache=True, nogil=True, fastmath=FAST)
def backward(start, stop, starts, positions, row_of, weights, grad_BD, grad_UD):  # type: ignore[no-untyped-def]
    """Gradients of the words start..stop; word u occurs at positions[starts[u] : starts[u + 1]]."""
    dim = grad_BD.shape[1]
    for u in range(start, stop):
        out = grad_UD[u]
        out[:] = np.float32(0.0)
        for p in range(starts[u], starts[u + 1]):
            grad, weight = grad_BD[row_of[positions[p]]], weights[positions[p]]
            for d in range(dim):
                out[d] += weight * grad[d]
