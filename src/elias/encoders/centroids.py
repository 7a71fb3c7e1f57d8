"""Rows of length 1, psi, and label centroids: what labels are clustered and initialized by.

    psi(x)      = [bow(x) / |bow(x)|, phi(x) / |phi(x)|]
    centroid(l) = s / |s|,  s = sum of x / |x| over the rows x that have label l      (zero if there are none)

In: tf-idf rows, embeddings, the rows x L matrix of labels. Out: scipy CSR (float32, indices sorted) or dense arrays.
"""

from __future__ import annotations

from typing import overload

import numpy as np
import scipy.sparse as sp

from ..core.errors import InputError

ROWS_AT_ONCE = 1 << 14


@overload
def normalize_rows(matrix: sp.csr_matrix) -> sp.csr_matrix: ...
@overload
def normalize_rows(matrix: np.ndarray) -> np.ndarray: ...
def normalize_rows(matrix: sp.csr_matrix | np.ndarray) -> sp.csr_matrix | np.ndarray:
    """A float32 copy whose rows have length 1; zero rows stay zero."""
    if isinstance(matrix, np.ndarray):
        norms = np.sqrt(np.einsum("ij,ij->i", matrix, matrix, dtype=np.float64))
        norms[norms == 0] = 1.0
        return np.asarray(matrix / norms[:, None], dtype=np.float32)
    sizes = np.diff(matrix.indptr)
    rows = np.repeat(np.arange(matrix.shape[0]), sizes)
    norms = np.sqrt(np.bincount(rows, weights=np.square(matrix.data, dtype=np.float64), minlength=matrix.shape[0]))
    norms[norms == 0] = 1.0
    data = (matrix.data / norms[rows]).astype(np.float32)
    return sp.csr_matrix((data, matrix.indices.copy(), matrix.indptr.copy()), shape=matrix.shape)


def psi(bow: sp.csr_matrix | np.ndarray, phi: sp.csr_matrix | np.ndarray) -> sp.csr_matrix | np.ndarray:
    """[bow / |bow|, phi / |phi|], sparse unless both are dense."""
    if bow.shape[0] != phi.shape[0]:
        raise InputError(f"psi needs one phi for each bow: {bow.shape[0]} rows of bow, {phi.shape[0]} of phi")
    if sp.issparse(bow) and isinstance(phi, np.ndarray):
        return _sparse_and_dense(sp.csr_matrix(bow), phi)
    left, right = normalize_rows(bow), normalize_rows(phi)
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return np.hstack([left, right])
    joined: sp.csr_matrix = sp.csr_matrix(sp.hstack([sp.csr_matrix(left), sp.csr_matrix(right)], format="csr"))
    joined.sort_indices()
    return joined


def _sparse_and_dense(bow: sp.csr_matrix, phi: np.ndarray) -> sp.csr_matrix:
    """psi of sparse and dense rows, some rows at a time: scipy would list the coordinates of every value of phi."""
    left = normalize_rows(bow)
    left.sort_indices()
    (n_rows, width), n_words = phi.shape, bow.shape[1]
    starts = left.indptr + width * np.arange(n_rows + 1, dtype=np.int64)
    indices, data = np.empty(starts[-1], dtype=np.int32), np.empty(starts[-1], dtype=np.float32)
    for first in range(0, n_rows, ROWS_AT_ONCE):
        rows = slice(first, min(first + ROWS_AT_ONCE, n_rows))
        words = slice(left.indptr[rows.start], left.indptr[rows.stop])
        lengths = np.diff(left.indptr[rows.start : rows.stop + 1])
        places = np.arange(words.start, words.stop) + width * np.repeat(np.arange(rows.start, rows.stop), lengths)
        indices[places], data[places] = left.indices[words], left.data[words]
        places = (starts[rows] + lengths)[:, None] + np.arange(width)
        indices[places], data[places] = n_words + np.arange(width), normalize_rows(phi[rows])
    joined = sp.csr_matrix((data, indices, starts), shape=(n_rows, n_words + width))
    joined.has_sorted_indices = True
    return joined


@overload
def label_centroids(features: sp.csr_matrix, labels: sp.csr_matrix) -> sp.csr_matrix: ...
@overload
def label_centroids(features: np.ndarray, labels: sp.csr_matrix) -> np.ndarray: ...
def label_centroids(features: sp.csr_matrix | np.ndarray, labels: sp.csr_matrix) -> sp.csr_matrix | np.ndarray:
    """L x F: for each label the normalized sum of its rows; label weights are not used, any above 0 counts."""
    if features.shape[0] != labels.shape[0]:
        raise InputError(f"{features.shape[0]} rows of features, {labels.shape[0]} of labels; pass the same rows")
    members = rows_by_label(labels)
    if isinstance(features, np.ndarray):
        return normalize_rows(np.asarray(members @ normalize_rows(features)))
    centroids = normalize_rows(sp.csr_matrix(members @ normalize_rows(features)))
    centroids.sort_indices()
    return centroids


def rows_by_label(labels: sp.csr_matrix) -> sp.csr_matrix:
    """Labels x rows, above 0 where the row has the label; rows rise and are listed once."""
    ones = (labels.data > 0).astype(np.float32)
    turned: sp.csr_matrix = sp.csr_matrix((ones, labels.indices, labels.indptr), shape=labels.shape).T.tocsr()
    turned.eliminate_zeros()
    turned.sum_duplicates()
    return turned
