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
    left, right = normalize_rows(bow), normalize_rows(phi)
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return np.hstack([left, right])
    joined: sp.csr_matrix = sp.csr_matrix(sp.hstack([sp.csr_matrix(left), sp.csr_matrix(right)], format="csr"))
    joined.sort_indices()
    return joined


@overload
def label_centroids(features: sp.csr_matrix, labels: sp.csr_matrix) -> sp.csr_matrix: ...
@overload
def label_centroids(features: np.ndarray, labels: sp.csr_matrix) -> np.ndarray: ...
def label_centroids(features: sp.csr_matrix | np.ndarray, labels: sp.csr_matrix) -> sp.csr_matrix | np.ndarray:
    """L x F: for each label the normalised sum of its rows; label weights are not used, any above 0 counts."""
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
