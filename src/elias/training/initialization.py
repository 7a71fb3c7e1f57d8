"""How a stage starts: cluster weights W_C and label classifiers W_L from centroids of phi.

    w_l = gain * unit(sum of phi over the training rows of label l)        b_l = bias
    w_c = gain * unit(sum of unit(w_l) over the labels of cluster c)       b_c = 0

Centroids put every label where its texts are before the first step. `random` and carrying W_L over from
stage 1 are settings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from ..encoders.encoder import Encoder

ENCODE_BATCH = 1024
COLUMNS = 64  # of all label sums that are copied at once


@torch.no_grad()
def label_sums(
    encoder: Encoder, prepared: Any, labels: sp.csr_matrix, progress: Callable[[int], None] = lambda done: None
) -> np.ndarray:
    """Sum of phi over the rows of each label, float32 [L, D], without holding phi of all rows."""
    sums = np.zeros((labels.shape[1], encoder.dim), dtype=np.float32)
    for start in range(0, labels.shape[0], ENCODE_BATCH):
        rows = np.arange(start, min(start + ENCODE_BATCH, labels.shape[0]))
        phi = encoder.encode(prepared, rows).cpu().numpy()
        share = labels[rows].T.tocsr()
        touched = np.flatnonzero(np.diff(share.indptr))
        sums[touched] += share[touched] @ phi
        progress(len(rows))
    return sums


def unit_rows(matrix: np.ndarray) -> np.ndarray:
    """Rows of length 1; zero rows stay zero."""
    return np.asarray(matrix / lengths_of(matrix), dtype=np.float32)


def lengths_of(matrix: np.ndarray) -> np.ndarray:
    """Lengths of the rows, as a column; 1 for zero rows."""
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return np.asarray(np.where(lengths > 0, lengths, np.ones_like(lengths)))


def scale_rows(matrix: np.ndarray, length: float) -> np.ndarray:
    """Rows of this length, in place; zero rows stay zero."""
    matrix /= lengths_of(matrix)
    matrix *= np.float32(length)
    return matrix


def cluster_sums(sums_LD: np.ndarray, cluster_of_label: np.ndarray, n_clusters: int) -> np.ndarray:
    """Sum over each cluster's labels of their unit centroids, so that no popular label rules its cluster."""
    member = np.flatnonzero(cluster_of_label >= 0)
    gather = sp.csr_matrix(
        (np.ones(len(member), dtype=np.float32), (cluster_of_label[member], member)),
        shape=(n_clusters, len(cluster_of_label)),
    )
    lengths_L1 = lengths_of(sums_LD)
    out = np.empty((n_clusters, sums_LD.shape[1]), dtype=np.float32)
    for start in range(0, sums_LD.shape[1], COLUMNS):  # a copy of all sums may be most of the memory
        columns = slice(start, start + COLUMNS)
        out[:, columns] = gather @ (sums_LD[:, columns] / lengths_L1)
    return out


def random_classifiers(n_labels: int, dim: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Kaiming-uniform weights and uniform(0, 1) biases, as the authors' program starts."""
    weights = rng.random((n_labels, dim), dtype=np.float32)  # in place from here: this may be most of the memory
    weights -= np.float32(0.5)
    weights *= np.float32(2.0 / np.sqrt(dim))
    return weights, rng.random(n_labels, dtype=np.float32)
