"""The sparse ranker of ELIAS++: one linear classifier a label on tf-idf or [tf-idf, phi], for the labels found.

    margin(x, l) = w_l . x + b_l        q_l = exp(-max(0, 1 - margin)^3)   (squared hinge)   or sigmoid(margin)

A label's classifier is trained on its own texts against the texts that found it wrongly: the top predictions of every
training row, by words (`lexical`) or by the network. Labels without a positive get no weights and a bias of -1.
Solved by dual coordinate descent (`kernels/dual.py`), stored sparse, small weights of words dropped. Those of phi are
all kept: many small ones make a large one.
In: tf-idf rows, labels, found labels of each row. Out: `SparseRows`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp

from .. import kernels
from ..core.files import read_tensors, write_tensors
from ..core.settings import RankerSettings
from ..encoders.centroids import normalize_rows
from .sparse_rows import SparseRows

NAME = "ranker.safetensors"
LABELS_AT_A_TIME = 512
NO_POSITIVES = -1.0  # bias of a label that has none
LOSSES = {"squared-hinge": 0, "logistic": 1}


def training_pairs(
    found: np.ndarray, labels: sp.csr_matrix, excluded: sp.csr_matrix
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(starts, rows, signs) by label: every positive pair, and every found pair that is neither positive nor excluded.

    `found` [rows, m] holds label numbers, -1 for none; rows beyond the last of `found` have positives only.
    """
    from ..kernels.pairs import pairs_by_label

    n_labels = labels.shape[1]
    matrices = (labels.indptr, labels.indices, labels.data, excluded.indptr, excluded.indices, excluded.data)
    counts, nothing = np.zeros(n_labels, dtype=np.int64), np.full(n_labels, -1, dtype=np.int64)
    rows, signs = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int8)
    pairs_by_label(found, *matrices, nothing.copy(), counts, rows, signs, False)
    starts = np.concatenate([[0], np.cumsum(counts)])
    rows, signs = np.empty(starts[-1], dtype=np.int32), np.empty(starts[-1], dtype=np.int8)
    pairs_by_label(found, *matrices, nothing, starts[:-1].copy(), rows, signs, True)
    return starts, rows, signs


def train_ranker(
    bow: sp.csr_matrix,
    found: np.ndarray,
    labels: sp.csr_matrix,
    excluded: sp.csr_matrix,
    settings: RankerSettings,
    *,
    n_words: int | None = None,
    threads: int = 1,
) -> SparseRows:
    """The classifiers of all labels. Columns from `n_words` on (None: there are none) are those of phi."""
    n_labels = labels.shape[1]
    learned = np.bincount(labels.indices[labels.data > 0], minlength=n_labels) > 0
    found = np.where(learned[found], found, -1).astype(np.int32)  # labels without positives need no negatives
    starts, rows, signs = training_pairs(found, labels, excluded)
    ranker = solve(bow, starts[:-1], starts[1:], rows, signs, settings, n_words=n_words, threads=threads)
    ranker.biases[~learned] = NO_POSITIVES
    return ranker


def solve(
    bow: sp.csr_matrix, starts: np.ndarray, ends: np.ndarray, rows: np.ndarray, signs: np.ndarray,
    settings: RankerSettings, *, n_words: int | None = None, labels_at_a_time: int = LABELS_AT_A_TIME, threads: int = 1,
) -> SparseRows:  # fmt: skip
    """A classifier for each range starts[l] : ends[l] of the pairs (rows, signs)."""
    from ..kernels.dual import row_squares, solve_labels

    squares = np.empty(bow.shape[0])
    kernels.run(row_squares, len(squares), threads, bow.indptr, bow.data, squares)
    cuts = [*range(0, len(starts), labels_at_a_time), len(starts)]
    parts = kernels.run_ranges(
        solve_labels, cuts, threads, starts, ends, rows, signs, bow.indptr, bow.indices, bow.data, squares,
        bow.shape[1], LOSSES[settings.loss], settings.cost, settings.epsilon, settings.passes, settings.least_weight,
        bow.shape[1] if n_words is None else n_words,
    )  # fmt: skip
    words, weights, counts, biases = (np.concatenate([part[i] for part in parts]) for i in range(4))
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return SparseRows(indptr, words, weights, biases, bow.shape[1])


def with_embedding(bow: sp.csr_matrix, phi: np.ndarray, scale: float) -> sp.csr_matrix:
    """[tf-idf, scale * phi / |phi|]."""
    n_rows, dim = phi.shape
    lengths = np.diff(bow.indptr)
    indptr = bow.indptr + dim * np.arange(n_rows + 1, dtype=np.int64)
    indices, data = np.empty(indptr[-1], dtype=np.int32), np.empty(indptr[-1], dtype=np.float32)
    places = np.arange(bow.indptr[-1]) + dim * np.repeat(np.arange(n_rows), lengths)
    indices[places], data[places] = bow.indices, bow.data
    places = (indptr[:-1] + lengths)[:, None] + np.arange(dim)
    indices[places], data[places] = bow.shape[1] + np.arange(dim), np.float32(scale) * normalize_rows(phi)
    joined = sp.csr_matrix((data, indices, indptr), shape=(n_rows, bow.shape[1] + dim))
    joined.has_sorted_indices = True
    return joined


def quality(margins: np.ndarray, loss: str) -> np.ndarray:
    """q of the margins."""
    if loss == "logistic":
        return np.asarray(1.0 / (1.0 + np.exp(-np.clip(margins, -60, 60))), dtype=np.float32)
    return np.asarray(np.exp(-(np.maximum(0.0, 1.0 - margins) ** 3)), dtype=np.float32)


def save_ranker(ranker: SparseRows, folder: Path) -> None:
    write_tensors(folder / NAME, ranker.arrays("ranker"))


def load_ranker(folder: Path, *, n_labels: int, n_words: int) -> SparseRows:
    arrays, _ = read_tensors(folder / NAME)
    return SparseRows.from_arrays(arrays, "ranker", folder / NAME, n_labels, n_words)
