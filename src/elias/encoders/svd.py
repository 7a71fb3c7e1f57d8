"""Word embeddings to start with: a truncated SVD of the training texts' tf-idf matrix, X ~ U S V^T.

    E = V S^-power

Found by block iteration: Q <- orthonormal basis of X^T (X Q), a few times from a random Q; then X Q = U' S' V'^T on the
small side. Only products of X with a thin matrix are needed; they run on all threads.
In: tf-idf rows. Out: float32 [words, dim].
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from .. import kernels

MOST_ROWS = 200_000  # more rows than this are sampled
OVERSAMPLE = 10
ROUNDS = 3
SMALL = 1 << 24  # numbers of a basis that one thread makes orthonormal


def svd_embeddings(features: sp.csr_matrix, dim: int, *, seed: int, power: float = 0.5, threads: int = 1) -> np.ndarray:
    """E; directions that the data does not have are small noise."""
    rng = np.random.default_rng(seed)
    if features.shape[0] > MOST_ROWS:
        features = features[np.sort(rng.choice(features.shape[0], MOST_ROWS, replace=False))]
    rank = max(1, min(dim, min(features.shape) - 1))
    strength, directions = truncated_svd(features, rank, rng, threads=threads)
    scale = np.maximum(strength, 1e-6 * strength[0] or 1.0) ** -power
    table = np.empty((features.shape[1], dim), dtype=np.float32)
    table[:, :rank] = directions * scale
    spread = 0.1 * float(table[:, :rank].std()) or 1e-3
    table[:, rank:] = spread * rng.standard_normal((len(table), dim - rank))
    return table


def truncated_svd(
    features: sp.csr_matrix, rank: int, rng: np.random.Generator, *, threads: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """(S, V): the largest singular values, falling, and their right singular vectors [words, rank]."""
    from threadpoolctl import threadpool_limits

    rows = sp.csr_matrix(features, dtype=np.float32)
    words = sp.csr_matrix(rows.T)
    width = min(rank + OVERSAMPLE, *rows.shape)
    # Threads of BLAS spin while they wait. On a busy machine that takes ten times as long as one thread.
    limit = 1 if rows.shape[1] * width <= SMALL else None
    with threadpool_limits(limit, user_api="blas"):
        return _block_iteration(rows, words, rank, rng.standard_normal((rows.shape[1], width)), threads)


def _block_iteration(
    rows: sp.csr_matrix, words: sp.csr_matrix, rank: int, start: np.ndarray, threads: int
) -> tuple[np.ndarray, np.ndarray]:
    basis = start.astype(np.float32)
    for _ in range(ROUNDS):
        basis = np.ascontiguousarray(np.linalg.qr(_product(words, _product(rows, basis, threads), threads))[0])
    seen = _product(rows, basis, threads)
    squares, turn = np.linalg.eigh((seen.T @ seen).astype(np.float64))
    best = np.argsort(-squares, kind="stable")[:rank]
    return np.sqrt(np.maximum(squares[best], 0.0)), (basis @ turn[:, best].astype(np.float32))


def _product(matrix: sp.csr_matrix, thin: np.ndarray, threads: int) -> np.ndarray:
    """matrix @ thin."""
    if not kernels.serve():
        return np.asarray(matrix @ thin)
    from ..kernels.bag import forward

    out = np.empty((matrix.shape[0], thin.shape[1]), dtype=np.float32)
    kernels.run(forward, matrix.shape[0], threads, matrix.indptr, matrix.indices, matrix.data, thin, out)
    return out
